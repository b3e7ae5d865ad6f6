"""What head and worker share: the executors of this rank, its part of the arena, and the wires between.

The agent obeys the scheduler and keeps only what it needs for that. Frames for executors and from them are passed on
unread; which calls each of them has in hand is in `custody.py`. What an executor sends and cannot be read is told to
the head, which has the executor ended; nothing of it counts from then on.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from mpi_runtime.executor.fork_messages import Exited, Fork, Forked, Kill, Setup
from mpi_runtime.executor.forkserver_handle import Handle
from mpi_runtime.host.machine import shortage
from mpi_runtime.host.memory_usage import Memory
from mpi_runtime.objects.arena import AgentArena
from mpi_runtime.objects.transfer import Transfers
from mpi_runtime.rank.custody import Custody
from mpi_runtime.rank.extents import NOBODY, Extents
from mpi_runtime.rank.forkserver_line import ForkserverLine
from mpi_runtime.rank.gpu_finder import Gpus
from mpi_runtime.rank.lines import Lines
from mpi_runtime.rank.local_executor import LocalExecutor, describe_status, keep_spare, last_words
from mpi_runtime.rank.memory_watch import MemoryWatch
from mpi_runtime.rank.poller import Poller
from mpi_runtime.rank.spills import Spills
from mpi_runtime.scheduler.effects import (
    Cancel,
    Fetch,
    Free,
    RankEffect,
    RoomAnswer,
    StartExecutor,
    StopExecutor,
    TakeBack,
)
from mpi_runtime.scheduler.events import DRIVER
from mpi_runtime.scheduler.ids import attempt_of
from mpi_runtime.scheduler.rank_events import (
    ExecutorDied,
    ExecutorStarted,
    Fetched,
    FrameRefused,
    RoomWanted,
    TakenBack,
)
from mpi_runtime.transport import codec
from mpi_runtime.transport.base import Transport
from mpi_runtime.transport.channel import LOCAL, Channel, ChannelClosedError, Frame, pair
from mpi_runtime.transport.codec import BadFrameError
from mpi_runtime.transport.messages import (
    Abandon,
    Allocate,
    Drained,
    Exit,
    FromExecutor,
    Pull,
    Shutdown,
    WorkerToHead,
)
from mpi_runtime.transport.tokens import tokens_of


class NodeAgent:
    """The agent of one rank."""

    def __init__(
        self,
        poller: Poller,
        report: Callable[[WorkerToHead], None],
        now_s: Callable[[], float],
        environment: Mapping[str, str],
        path: Sequence[str],
        forked: Handle | None = None,
    ) -> None:
        """Wait on a poller's descriptors, report to the head, and give executors this environment.

        `path` is where the forkserver finds its modules; `forked` is one that is there already.
        """
        self._poller = poller
        self._report = report
        self._now_s = now_s
        self._rank = 0
        self._transport: Transport
        self._neighbours: list[int] = []
        """The ranks of this host, in the order of their regions."""
        self._arena: AgentArena
        self._extents: Extents
        self._transfers: Transfers
        self._spills: Spills
        self._is_set_up = False
        self._executors: dict[int, LocalExecutor] = {}
        self._forkserver = ForkserverLine(
            poller, environment, path, forked, self._on_forkserver, self._on_forkserver_lost, self._pids
        )
        self._logs_paused = False
        self._memory: MemoryWatch | None = None
        self.gpus: Gpus
        """Those of this rank, when it has taken up a job."""

    def connect(self, transport: Transport) -> None:
        """Use this transport to the other ranks."""
        self._transport = transport
        self._rank = transport.rank
        self._neighbours = [rank for rank, host in enumerate(transport.hosts) if host == transport.hosts[self._rank]]

    def set_up(
        self, arena: AgentArena, setup: Setup, descriptor: int, spill_directory: Callable[[], str] = lambda: ""
    ) -> None:
        """Use this arena, and tell the forkserver what executors have in common.

        What the arena has no room for is written to a file in the directory that `spill_directory` names, if any.
        """
        self._arena = arena
        self._is_set_up = True
        self._extents = Extents(
            arena,
            self._rank,
            self._now_s,
            self._send,
            lambda size, clients: self._report(RoomWanted(self._rank, size, clients)),
            lambda: self._spills.wake(),
        )
        self._transfers = Transfers(self._transport, arena)
        self._spills = Spills(self._rank, spill_directory, arena, self._extents, self._poller, self._report)
        self._forkserver.set_up(setup, descriptor)

    def watch_memory(self, memory: Memory, threshold: float) -> None:
        """Report when so much of the memory is used; 0: never."""
        self._memory = MemoryWatch(self._rank, memory, threshold, self._now_s, self._report)

    # The forkserver

    def expect_calls(self) -> None:
        """Start the forkserver early, where it will be needed, because it takes longest to be ready."""
        with contextlib.suppress(OSError):  # the first call that needs it is told why there is none
            self._forkserver.start()

    def _on_forkserver(self, message: Forked | Exited) -> None:
        executor = self._executors.get(message.executor)
        if executor is None:
            return
        if isinstance(message, Forked):
            executor.pid = message.pid
            for lines in executor.outputs:
                lines.pause(self._logs_paused)
            self._report(ExecutorStarted(executor.number, message.pid))
        else:
            self._on_exited(executor, message)

    def _on_forkserver_lost(self, code: int) -> None:
        how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}; what it said is above"
        for executor in list(self._executors.values()):
            gone = Exited(executor.number, max(0, -code), f"died with its forkserver, which {how}")
            self._on_exited(executor, gone, with_forkserver=code == -signal.SIGKILL)

    def _pids(self) -> list[int]:
        return [executor.pid for executor in self._executors.values() if executor.pid]

    # Obeying

    def obey(self, effect: RankEffect) -> None:
        """Do what the scheduler wants.

        Raises:
            BadFrameError: it cannot be done, and nothing has come of it.
        """
        if isinstance(effect, StartExecutor):
            self._start(effect)
        elif isinstance(effect, StopExecutor):
            self._stop(effect)
        elif isinstance(effect, TakeBack):
            self._take_back(effect)
        elif isinstance(effect, Cancel):
            self._cancel(effect)
        elif isinstance(effect, Free):
            if effect.executor:
                self._extents.free_of(effect.executor, effect.offsets)
            else:
                self._extents.free(effect.offsets)
        elif isinstance(effect, Fetch):
            self._fetch(effect)
        elif isinstance(effect, RoomAnswer):
            self._extents.answered(effect.is_coming, effect.reason)
        else:
            self._spills.obey(effect)

    def _start(self, effect: StartExecutor) -> None:
        if effect.executor in self._executors:
            raise BadFrameError(f"executor {effect.executor} is started twice")
        try:
            devices, variables = self.gpus.devices(effect.devices), self.gpus.variables(effect.devices)
        except (IndexError, KeyError, ValueError) as error:
            raise BadFrameError(f"rank {self._rank} has no GPUs {effect.devices}") from error
        try:
            keep_spare()
            self._forkserver.start()
        except OSError as error:
            self._report(ExecutorDied(effect.executor, b"", f"could not be started: {shortage(error)}"))
            return
        ours, theirs = pair()
        tokens = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK | os.EFD_SEMAPHORE)
        cancelled, cancels = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        executor = self._executor(effect.executor, Channel(ours), tokens, cancels)
        written = []
        for stream in (1, 2):
            read_end, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            os.set_blocking(write_end, True)
            lines = Lines(read_end, executor.number, stream, self._report, self._poller)
            lines.pause(True)  # until its process number is known, which is part of where the lines come from
            executor.outputs.append(lines)
            written.append(write_end)
        request = Fork(
            effect.executor,
            effect.environment,
            effect.gpus,
            effect.threads,
            effect.cpus,
            devices,
            variables,
            effect.imports,
        )
        self._forkserver.ask(request, [theirs.fileno(), tokens, cancelled, *written])
        theirs.close()
        for descriptor in (cancelled, *written):
            os.close(descriptor)
        self._poller.add(executor.channel, lambda: self._on_executor(executor))

    def _executor(self, number: int, channel: Channel, tokens: int, cancels: int) -> LocalExecutor:
        custody = Custody(tokens_of(tokens), partial(self._send, channel))
        executor = self._executors[number] = LocalExecutor(number, channel, tokens, cancels, custody)
        return executor

    def _stop(self, effect: StopExecutor) -> None:
        executor = self._executors.get(effect.executor)
        if executor is None:
            return
        if effect.force:
            self._kill(executor)
        else:
            self._send(executor.channel, codec.encode([Exit()]))

    def _kill(self, executor: LocalExecutor) -> None:
        # The forkserver kills: only the parent knows that the number still belongs to the child.
        self._forkserver.ask(Kill(executor.number), [])

    def to_executor(self, number: int, ids: list[bytes], frame: bytes) -> None:
        """Pass a frame on; `ids` are the calls in it, in order."""
        executor = self._executors.get(number)
        if executor is None:
            return  # it died, and the scheduler will hear of it
        executor.custody.pass_on(ids, frame)

    def _send(self, channel: Channel, frame: bytes) -> None:
        channel.send(frame)
        if channel.unsent_bytes:
            self._poller.watch_unsent(channel)

    def _take_back(self, effect: TakeBack) -> None:
        executor = self._executors.get(effect.executor)
        if executor is None:
            return
        self._report(TakenBack(executor.number, executor.custody.take_back(effect.count)))

    def _cancel(self, effect: Cancel) -> None:
        """Interrupt a call, wherever its executor is with it. By force: kill the executor if the call runs."""
        executor = self._executors.get(effect.executor)
        if executor is None:
            return
        if effect.force:
            taken, is_running = executor.custody.cancel_by_force(effect.id)
            self._report(TakenBack(executor.number, taken))
            if is_running:
                self._kill(executor)
            return  # else it has ended, or is the scheduler's again, which may give it to the same executor
        # Thousands are on their way, and it does not look; or it has just died, perhaps killed for another call.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(executor.cancels, attempt_of(effect.id, effect.attempt))
            self._forkserver.ask(Kill(executor.number, interrupt=True), [])

    def _fetch(self, effect: Fetch) -> None:
        """Bring a copy of an object here."""
        if effect.rank == self._rank or effect.rank >= self._transport.size:
            raise BadFrameError(f"rank {self._rank} is to fetch an object from rank {effect.rank}")

        def use(target: int, reason: str) -> None:
            if target >= 0:
                self._transfers.fetch(effect.id, effect.rank, effect.offset, effect.size, target)
            else:
                self._report(Fetched(self._rank, effect.id, -1, reason, source=effect.rank))

        self._extents.ask(effect.size, NOBODY, use)

    def pause_logs(self, paused: bool) -> None:
        """Stop reading what executors write, so that they wait, or go on."""
        self._logs_paused = paused
        for executor in self._executors.values():
            for lines in executor.outputs:
                lines.pause(paused or not executor.pid)

    def pull(self, rank: int, pull: Pull) -> None:
        """Send an object to a rank that asks for it.

        Raises:
            BadFrameError: there is none where it says.
        """
        try:
            self._transfers.on_pull(rank, pull)
        except ValueError as error:
            raise BadFrameError(str(error)) from error

    # Hearing

    def _on_executor(self, executor: LocalExecutor) -> None:
        try:
            frames = executor.channel.receive()
        except ChannelClosedError:
            self._poller.remove(executor.channel)  # the forkserver will say how it ended
            return
        self._on_frames(executor, frames)

    def _on_frames(self, executor: LocalExecutor, frames: list[Frame]) -> None:
        try:
            for count, frame in frames:
                if count == LOCAL:
                    self._on_local(executor, frame)
                    continue
                if count:
                    executor.custody.end(count)
                self._report(FromExecutor(executor.number, frame, count))
            if executor.channel.splitter.problem:
                raise BadFrameError(executor.channel.splitter.problem)
        except BadFrameError as error:
            self._refuse(executor, str(error))

    def _refuse(self, executor: LocalExecutor, problem: str) -> None:
        """An executor has sent what cannot be read. Nothing that it sends counts any more, and it starts nothing."""
        executor.is_refused = True
        self._poller.remove(executor.channel)
        executor.custody.doom()
        self._report(FrameRefused(executor.number, problem))

    def _on_local(self, executor: LocalExecutor, frame: bytes) -> None:
        for message in codec.to_agent.decode(frame):
            if isinstance(message, Drained):
                executor.custody.drained(message.received)
            elif isinstance(message, Shutdown):
                raise BadFrameError("an executor asks for the end of the job")
            else:
                self._on_memory(executor.number, executor.channel, message)

    def on_driver(self, channel: Channel, frame: bytes) -> bool:
        """The driver said something to its agent. Whether that was the end of the job.

        Raises:
            BadFrameError: it cannot be read.
        """
        for message in codec.to_agent.decode(frame):
            if isinstance(message, Shutdown):
                return True
            if isinstance(message, Drained):
                raise BadFrameError("the driver drops calls, and has none")
            self._on_memory(DRIVER, channel, message)
        return False

    def _on_memory(self, client: int, channel: Channel, message: Allocate | Abandon) -> None:
        if isinstance(message, Allocate):
            self._extents.allocate(client, channel, message)
        elif not self._extents.abandon(client, message.offset):
            raise BadFrameError(f"it gives back memory at {message.offset}, which it was not given")

    def turn(self) -> float | None:
        """What has to be done in each turn; how soon the next must come, in seconds."""
        if not self._is_set_up:
            return None
        for fetched in self._transfers.poll():
            self._report(fetched)
        for region in self._arena.settle():
            self._transport.send(self._neighbours[region], codec.encode([]))  # it looks into the header when it wakes
        retry_s = self._extents.serve_waiting()
        if self._transfers.busy or self._arena.busy:
            return 0.0
        look_s = self._memory.turn(self._executors.values()) if self._memory is not None else None
        return retry_s if look_s is None else look_s if retry_s is None else min(retry_s, look_s)

    # Ends

    def _on_exited(self, executor: LocalExecutor, exited: Exited, with_forkserver: bool = False) -> None:
        """An executor is gone, perhaps since its forkserver was killed. All that it sent before is passed on first."""
        if not executor.is_refused:
            self._on_frames(executor, executor.channel.receive_rest())
        running = executor.custody.close()
        self._forget(executor)
        # Who has a call in hand that never began is told what was printed: it is all that there is to go by.
        said = "" if running or not executor.outputs else last_words(executor.outputs[-1].last)
        status, was_killed = exited.status, ""
        if self._memory is not None and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            was_killed = self._memory.has_killed()
        cause = exited.problem or describe_status(status) + (f", {was_killed}" if was_killed else "") + said
        self._report(
            ExecutorDied(
                executor=executor.number,
                running=running,
                cause=cause,
                out_of_memory=bool(was_killed),
                extents=self._extents.of(executor.number),
                with_forkserver=with_forkserver,
            )
        )

    def stop(self) -> None:
        """Leave no process: the forkserver kills all executors when our end closes."""
        self._forkserver.end()
        for executor in list(self._executors.values()):
            self._forget(executor)
        if self._is_set_up:
            self._extents.drop_requests()

    @property
    def is_transferring(self) -> bool:
        """Whether objects are on their way to this rank or from it."""
        return self._is_set_up and self._transfers.busy

    def close(self) -> None:
        """Let go of the arena, when nothing can be on its way any more."""
        if self._is_set_up:
            while self._transfers.busy:  # all has arrived; MPI has to be asked before it says so
                self._transfers.poll()
            self._is_set_up = False
            self._spills.close()
            self._arena.close()

    def _forget(self, executor: LocalExecutor) -> None:
        """An executor's process is gone: pass on what it still wrote, and close everything of it."""
        self._poller.remove(executor.channel)
        executor.channel.close()
        self._extents.drop_requests(executor.number)
        os.close(executor.tokens)
        os.close(executor.cancels)
        for lines in executor.outputs:
            lines.drain()
        del self._executors[executor.number]
