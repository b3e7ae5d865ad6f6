"""Transports of several ranks inside one process, for tests of whatever works on a transport.

`network(n)` returns n transports that are connected by queues. They may be used from n threads, or all from one thread.
In one thread the rank that passes the descriptor must be the first to call `share_descriptor`. Frames are copied, as on
a network.
"""

import contextlib
import os
import queue
from collections import deque
from collections.abc import Mapping, Sequence

from mpi_runtime.core.transport.base import Buffer, Transfer, TransportError

COLLECTIVE_LIMIT_S = 30.0
"""Seconds that a rank waits for the descriptor of another rank."""

TRANSFER_PAUSE_S = 1e-3


class _Send:
    """A bulk send. It is done when the receiver has copied the data."""

    def __init__(self, buffer: memoryview) -> None:
        self.buffer = buffer
        self.finished = False
        self.received = 0

    def done(self) -> bool:
        return self.finished


class _Receive:
    """A bulk receive. It copies the data once the other rank has started to send."""

    def __init__(self, sends: deque[_Send], buffer: memoryview) -> None:
        self._sends = sends
        self._buffer = buffer
        self.finished = False
        self.received = 0

    def done(self) -> bool:
        if not self.finished and self._sends:
            send = self._sends.popleft()
            if len(send.buffer) not in (0, len(self._buffer)):
                raise TransportError(f"{len(send.buffer)} bytes were sent for a buffer of {len(self._buffer)}")
            self._buffer[: len(send.buffer)] = send.buffer
            self.received = len(send.buffer)
            self.finished = send.finished = True
        return self.finished


class _Inbox:
    """Frames and data that were sent to one rank. Its queues are thread-safe."""

    def __init__(self, bell: int) -> None:
        self.frames: deque[tuple[int, bytes]] = deque()
        self.bulk: dict[tuple[int, int], deque[_Send]] = {}
        self.handed: deque[tuple[bytes, list[int]]] = deque()
        self.given: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.bell = bell
        """An eventfd, or -1."""
        self.asleep = False


class MemoryTransport:
    """`Transport` of one rank of a network inside this process; made by `network`. No rank here dies."""

    def __init__(self, rank: int, hosts: Sequence[int], inboxes: Sequence[_Inbox]) -> None:
        self.rank = rank
        self.size = len(inboxes)
        self.hosts = hosts
        self.hostnames: Sequence[str] = [f"host{host}" for host in hosts]
        self._inboxes = inboxes
        self._inbox = inboxes[rank]
        self._transfers: list[_Send | _Receive] = []
        self.lost: tuple[int, ...] = ()

    def take_lost(self) -> list[int]:
        return []

    def send(self, rank: int, frame: Buffer) -> None:
        inbox = self._inboxes[rank]
        inbox.frames.append((self.rank, bytes(frame)))
        if inbox.asleep and inbox.bell >= 0:
            os.eventfd_write(inbox.bell, 1)

    def receive(self) -> list[tuple[int, Buffer]]:
        arrived = self._inbox.frames
        return [arrived.popleft() for _ in range(len(arrived))]

    def send_bulk(self, rank: int, tag: int, buffer: Buffer) -> Transfer:
        send = _Send(memoryview(buffer).cast("B"))
        self._inboxes[rank].bulk.setdefault((self.rank, tag), deque()).append(send)
        self._transfers.append(send)
        return send

    def receive_bulk(self, rank: int, tag: int, buffer: memoryview) -> Transfer:
        receive = _Receive(self._inbox.bulk.setdefault((rank, tag), deque()), buffer.cast("B"))
        self._transfers.append(receive)
        return receive

    @property
    def busy(self) -> bool:
        """See `Transport.busy`. Only transfers can be unfinished."""
        self._transfers = [transfer for transfer in self._transfers if not transfer.finished]
        return bool(self._transfers)

    def fileno(self) -> int:
        return self._inbox.bell

    def prepare_sleep(self, idle_s: float) -> float | None:
        self._inbox.asleep = True
        if self._inbox.frames:
            return 0.0
        return TRANSFER_PAUSE_S if self.busy else None

    def wake(self, rung: bool = False) -> None:
        self._inbox.asleep = False
        if self._inbox.bell >= 0:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._inbox.bell)

    @property
    def neighbours(self) -> Mapping[int, int]:
        """See `Transport.neighbours`: all are in this process."""
        return {}

    def leave(self) -> None:
        """See `Transport.leave`."""

    def has_left(self, rank: int) -> bool:
        return True

    def share_descriptor(self, descriptor: int | None, key: bytes) -> int:
        if self.hosts[self.rank] == self.rank:
            if descriptor is None:
                raise TransportError("the lowest rank of a host must pass the descriptor to be shared")
            for rank, host in enumerate(self.hosts):
                if host == self.rank != rank:
                    self._inboxes[rank].given.put(os.dup(descriptor))
            return descriptor
        try:
            return self._inbox.given.get(timeout=COLLECTIVE_LIMIT_S)
        except queue.Empty as error:
            raise TransportError(
                f"rank {self.rank} has received no descriptor from rank {self.hosts[self.rank]}"
            ) from error

    def share_again(self, descriptor: int, key: bytes) -> None:
        """See `Transport.share_again`: no rank here dies."""

    def hand(self, rank: int, descriptors: Sequence[int], key: bytes) -> bool:
        self._inboxes[rank].handed.append((key, [os.dup(descriptor) for descriptor in descriptors]))
        return True

    def take(self, key: bytes) -> list[int]:
        while self._inbox.handed:
            found, descriptors = self._inbox.handed.popleft()
            if found == key:
                return descriptors
            for descriptor in descriptors:
                os.close(descriptor)
        return []

    def close(self, clean: bool) -> None:
        bell, self._inbox.bell, self._inbox.asleep = self._inbox.bell, -1, False
        if bell >= 0:
            os.close(bell)


def network(size: int, hosts: Sequence[int] | None = None) -> list[MemoryTransport]:
    """Return the transports of `size` ranks in this process.

    Args:
        size: number of ranks.
        hosts: for each rank the lowest rank of its host; by default all are on one host.
    """
    inboxes = [_Inbox(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)) for _ in range(size)]
    return [MemoryTransport(rank, hosts or [0] * size, inboxes) for rank in range(size)]
