"""Doorbells: how a rank wakes another rank of its host that sleeps.

MPI can only be polled: a rank that waited inside MPI would use a core all the time. So a rank with nothing to do blocks
in `select` on its sockets and on its *doorbell*, an eventfd of which every rank of the host has a copy. A rank that
sends it an MPI message reads its *flag*, one byte in a memory file that all ranks of the host have mapped. If the flag
says "asleep", the sender clears it and rings. An awake rank is never rung, so heavy traffic costs no system calls.

**Wake-ups are almost never lost.** The sleeper sets its flag and *then* probes MPI once more; the sender posts its
message and *then* reads the flag. If each write is visible to the other rank before the own read, one of the two sees
the other (Dekker's argument). That needs a full memory fence between write and read, and Python has no such operation.
Instead, every mpi4py call releases and takes the interpreter lock, which locks and unlocks a mutex: on x86 these are
locked instructions, which are full fences. On Arm they are weaker, but hundreds of instructions lie between the write
and the read. Two gaps remain: an MPI library may keep a small message in a queue of the sender after it has called the
send complete, and a rank may be killed between clearing a flag and ringing. So no rank sleeps without a limit: if the
host has several ranks, a sleeper wakes by itself after a *backstop* (0.2 s, and 1 s after ten seconds of idleness). A
lost ring is a short delay, never a hang.

**Start.** Eventfds and memory files have no names, so they are passed over Unix datagram sockets, which have random,
abstract names. An MPI collective distributes the names. An abstract name belongs to the network namespace, not to a
directory, and is gone when its process has ended in any way. Any user of the machine can read it in /proc/net/unix. So
descriptors are accepted only while a rank waits for one, and only from a process of the same user, as the kernel
certifies (SCM_CREDENTIALS). Anything else that arrives on these sockets is ignored. They are closed when all ranks have
met; after that another user has nothing to send to.

1. Every rank binds a socket; all ranks learn all names by MPI.
2. Every rank sends the lowest rank of the host its eventfd, and one end of a pair of sockets without names. The other
   end is its inbox.
3. Through these the lowest sends every rank the memory file of the flags, all eventfds and all these ends. So any rank
   can send descriptors to all others later, whichever of them has died.

**Later.** The lowest living rank gives a descriptor to the others in the order of their numbers. If it dies meanwhile,
the first of them have it. So if the next rank has it, that one gives it to all again. If not, no rank has it, and the
next one makes its own. Each message has a key, so that a repeated one is not taken for another.

Rejected: the datagram sockets as doorbells (a ring costs 12 µs more, and other users could ring); named pipes,
semaphores and POSIX shared memory (a process killed with -9 leaves them behind, and /dev/shm may be tiny).
"""

import contextlib
import errno
import mmap
import os
import select
import socket
import struct
import time
from collections.abc import Mapping, Sequence

from mpi_runtime.core.transport.base import TransportError

NAME_BYTES = 32
KEY_BYTES_MAX = 64
START_LIMIT_S = 60.0
"""Seconds that ranks of one host wait for one another at the start. They have just met in an MPI collective."""

_DESCRIPTORS_MAX = 253
"""The most descriptors in one message: the kernel's SCM_MAX_FD."""
_SPACING_SHIFT = 6
"""One flag per cache line (64 bytes), so that ranks that go to sleep do not slow down each other's sends."""
_LEFT = 1
"""The place of the flag in its line by which a rank announces that it ends."""
_SILENT_WAKES = 8
"""One in this number of wakes without a ring reads the doorbell; see `Doorbell.wake`."""
_CREDENTIALS = struct.Struct("3i")
_SENDER = struct.Struct("<i")


class Doorbell:
    """The doorbell of this rank, and the copies of those of the other ranks of its host."""

    def __init__(self) -> None:
        """Bind a socket under a new random name, which the other ranks must know before `join`."""
        self.name = os.urandom(NAME_BYTES // 2).hex().encode()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(START_LIMIT_S)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind(_address(self.name))
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._rank = -1
        self._inbox, self._own = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._inbox.settimeout(START_LIMIT_S)
        self._inbox.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._lines: dict[int, socket.socket] = {}
        """Sockets by rank: to the inboxes of the other ranks of the host, except those known to have died."""
        self._bells: dict[int, int] = {}
        self._flags: mmap.mmap | None = None
        self.pids: dict[int, int] = {}
        """Processes of other ranks of this host, by the kernel: the lowest knows all, each other one the lowest."""
        self._sender_pid = 0
        self._asleep = False
        self._silent_wakes = 0

    def join(self, rank: int, size: int, names: Mapping[int, bytes]) -> None:
        """Meet the other ranks of this host. Collective over them, after all have bound their sockets.

        `size`: the number of ranks of the job. `names`: those of the doorbells of this host, including this one.

        Raises:
            TransportError: a rank of this host cannot be reached, or does not answer within `START_LIMIT_S`.
        """
        self._rank, lowest, members = rank, min(names), sorted(names)
        # A flag for every rank of the job, so that a sender needs no table. Flags of ranks on other hosts are never
        # set, and pages that nobody touches take no memory.
        flag_bytes = size << _SPACING_SHIFT
        if rank == lowest:
            found = {rank: (self._bell, self._own.fileno())}
            while len(found) < len(names):
                sender, (bell, end) = self._receive_descriptors(self._socket, 2)
                found[sender] = bell, end
                self.pids[sender] = self._sender_pid
            flags = os.memfd_create("mpi_runtime-flags", os.MFD_CLOEXEC)
            os.ftruncate(flags, flag_bytes)
        else:
            self._send_descriptors(lowest, [self._bell, self._own.fileno()], self._socket, names[lowest])
            _, (flags, *copies) = self._receive_descriptors(self._inbox, 1 + 2 * len(names))
            self.pids[lowest] = self._sender_pid
            found = dict(zip(members, zip(copies[::2], copies[1::2], strict=True), strict=True))
        self._socket.close()
        self._bells = {member: bell for member, (bell, _) in found.items()}
        for member, (_, end) in found.items():
            if end != self._own.fileno():
                self._lines[member] = socket.socket(fileno=end)
                self._lines[member].settimeout(START_LIMIT_S)
        if rank == lowest:
            everything = [flags, *(one for member in members for one in found[member])]
            for other, line in self._lines.items():
                self._send_descriptors(other, everything, line)
        self.forget(rank)
        self._flags = mmap.mmap(flags, flag_bytes)
        os.close(flags)

    def forget(self, rank: int) -> None:
        """Share no more descriptors with a rank of this host, because it has died."""
        line = self._lines.pop(rank, None)
        if line is not None:
            line.close()

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when somebody rings."""
        return self._bell

    def ring(self, rank: int) -> None:
        """Wake a rank if it sleeps and is on this host. Call it after the message has been posted."""
        flags = self._flags
        if flags is not None and flags[rank << _SPACING_SHIFT]:
            flags[rank << _SPACING_SHIFT] = 0
            os.eventfd_write(self._bells[rank], 1)

    def sleep(self) -> None:
        """Set this rank's flag. The caller must probe for messages after this and before it blocks."""
        assert self._flags is not None
        self._asleep = True
        self._flags[self._rank << _SPACING_SHIFT] = 1

    def wake(self, rung: bool = False) -> None:
        """Clear this rank's flag, and silence the bell, if it was asleep or is known to have been `rung`."""
        if not (self._asleep or rung):
            return
        assert self._flags is not None
        self._asleep = False
        # If the flag is still set, nobody rang, and a read in vain is expensive. But a sender that was interrupted
        # between clearing the flag and ringing may have rung late. Until that ring is read, every sleep ends at once,
        # so the doorbell is read now and then.
        if self._flags[self._rank << _SPACING_SHIFT]:
            self._flags[self._rank << _SPACING_SHIFT] = 0
            self._silent_wakes += 1
            if not rung and self._silent_wakes % _SILENT_WAKES:
                return
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)

    def leave(self) -> None:
        """See `Transport.leave`: a rank that ends by itself has reported its reason, or needs none."""
        if self._flags is not None:
            self._flags[(self._rank << _SPACING_SHIFT) + _LEFT] = 1

    def has_left(self, rank: int) -> bool:
        return self._flags is None or bool(self._flags[(rank << _SPACING_SHIFT) + _LEFT])

    def give(self, descriptor: int, key: bytes, wait: bool = True) -> None:
        """Send the other ranks of this host a copy, the lowest first. `wait`: also to ranks that do not read yet."""
        for rank in sorted(self._lines):
            line = self._lines[rank]
            line.settimeout(START_LIMIT_S if wait else 0.0)
            try:
                self._send_descriptors(rank, [descriptor], line, key=key)
            except TransportError as error:
                if isinstance(error.__cause__, BlockingIOError):
                    continue  # a rank that waited for this descriptor would read
                if not isinstance(error.__cause__, ConnectionRefusedError):
                    raise
                self.forget(rank)  # it has just died: MPI will report it, or the launcher ends the job

    def hand(self, rank: int, descriptors: Sequence[int], key: bytes) -> bool:
        """Send a rank of this host copies of descriptors. Returns False if that is not possible at once."""
        line = self._lines.get(rank)
        if line is None:
            return False
        line.settimeout(0.0)
        try:
            socket.send_fds(line, [_SENDER.pack(self._rank) + key], descriptors)
        except OSError:  # its socket is full, or it has just died
            return False
        return True

    def take(self, key: bytes, timeout_s: float) -> list[int]:
        """Return the descriptors with this key if they arrive within `timeout_s`; drop those with other keys."""
        deadline = time.monotonic() + timeout_s
        while select.select([self._inbox], [], [], max(0.0, deadline - time.monotonic()))[0]:
            _, found, descriptors = self._receive_message(self._inbox)
            if found == key:
                return descriptors
            for one in descriptors:
                os.close(one)
        return []

    def waited_too_long(self) -> TransportError:
        """Return the error for descriptors that did not arrive."""
        return TransportError(
            f"rank {self._rank} has waited {START_LIMIT_S:.0f} s for descriptors from other ranks of its host: "
            "one of them has ended or hangs; look at what they printed"
        )

    def _send_descriptors(
        self, rank: int, descriptors: Sequence[int], line: socket.socket, name: bytes = b"", key: bytes = b""
    ) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        address, me = [_address(name)] if name else [], _SENDER.pack(self._rank) + key
        at = 0
        while at < len(descriptors):
            part = descriptors[at : at + _DESCRIPTORS_MAX]
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(part)}i", *part))
            try:
                line.sendmsg([me], [rights], 0, *address)
                at += len(part)
            except OSError as error:
                # The kernel limits descriptors in flight: the receivers are slow to take theirs.
                if error.errno == errno.ETOOMANYREFS and time.monotonic() < deadline:
                    time.sleep(1e-3)
                    continue
                raise TransportError(
                    f"rank {self._rank} cannot reach rank {rank} over a Unix socket ({error}), although according to "
                    "MPI they share memory: the rank has ended, or the two run in containers with separate network "
                    "namespaces; start all ranks of a host in one network namespace"
                ) from error

    def _receive_descriptors(self, line: socket.socket, count: int) -> tuple[int, list[int]]:
        """Return the rank that sent the last message, and the next `count` descriptors."""
        received: list[int] = []
        sender = -1
        while len(received) < count:
            try:
                sender, _, descriptors = self._receive_message(line)
            except TimeoutError as error:
                raise self.waited_too_long() from error
            received += descriptors
        return sender, received

    def _receive_message(self, line: socket.socket) -> tuple[int, bytes, list[int]]:
        """Return the rank that sent the next message, its key and its descriptors; -1: a stranger sent it."""
        space = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(4 * _DESCRIPTORS_MAX)
        data, ancillary, _, _ = line.recvmsg(_SENDER.size + KEY_BYTES_MAX, space, socket.MSG_CMSG_CLOEXEC)
        user, pid, descriptors = _unpack(ancillary)
        if user == os.getuid() and len(data) >= _SENDER.size:
            self._sender_pid = pid
            return _SENDER.unpack(data[: _SENDER.size])[0], data[_SENDER.size :], descriptors
        for descriptor in descriptors:
            os.close(descriptor)
        return -1, b"", []

    def close(self) -> None:
        """Close all descriptors and unmap the flags."""
        for one in (self._socket, self._own, self._inbox, *self._lines.values()):
            one.close()
        for descriptor in {self._bell, *self._bells.values()}:
            os.close(descriptor)
        if self._flags is not None:
            self._flags.close()
            self._flags = None


def lowest_of_host(rank: int, hosts: Sequence[int], hostnames: Sequence[bytes], bells: Sequence[bytes]) -> int:
    """Return the lowest rank that shares the host of this one. All ranks have bound their sockets.

    MPI may see ranks of one host as separate: MPICH does where only UCX moves its messages (`ch4:ucx`, Debian's build).
    So this probes the doorbells of ranks with the same host name: no other host can reach their names.

    `hosts`: for each rank the lowest one of its host, as MPI sees it. `bells`: for each the name of its doorbell.
    """
    named_alike = (one for one in range(rank) if hostnames[one] == hostnames[rank])
    return min(hosts[rank], next((one for one in named_alike if _is_here(bells[one])), rank))


def _is_here(name: bytes) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        return probe.connect_ex(_address(name)) == 0


def _address(name: bytes) -> bytes:
    return b"\0mpi_runtime-" + name


def _unpack(ancillary: Sequence[tuple[int, int, bytes]]) -> tuple[int, int, list[int]]:
    """Return user (-1: unknown) and process of the sender of a message, and the descriptors in it."""
    user, pid, descriptors = -1, 0, []
    for _, kind, data in ancillary:
        if kind == socket.SCM_CREDENTIALS:
            pid, user, _ = _CREDENTIALS.unpack(data)
        elif kind == socket.SCM_RIGHTS:
            descriptors = [number for (number,) in struct.iter_unpack("i", data[: len(data) - len(data) % 4])]
    return user, pid, descriptors
