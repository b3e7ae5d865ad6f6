"""Copies objects of our arena to other ranks: the sender's side of `transfer.py`.

Each receiver gets its chunks one after the other, and all receivers in turns, so that none waits until another one has
all. Of an object that is still arriving here a chunk is sent as soon as it is there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from mpi_runtime.core.objects.arena import AgentArena
from mpi_runtime.core.transport.base import Transfer, Transport, TransportError
from mpi_runtime.core.transport.messages import Pull, Unpull

WINDOW = 2
"""Chunks of one transfer that sender and receiver have in MPI at a time."""
CHUNKS = 16
"""Large chunks in MPI at a time, for all receivers together."""
SMALL = 1 << 20
"""Chunks up to this size do not wait for others."""


class Outgoing:
    """An object on its way to another rank."""

    def __init__(self, rank: int, pull: Pull) -> None:
        self.rank = rank
        self.pull = pull
        self.at = pull.start
        """Where the next chunk starts."""
        self.is_wanted = True
        self.requests: deque[Transfer] = deque()

    def is_over(self) -> bool:
        """Whether all chunks were passed to MPI."""
        return self.at == self.pull.size


class Sends:
    """The objects that one rank sends."""

    def __init__(self, transport: Transport, arena: AgentArena, available: Callable[[int, int], int]) -> None:
        """Send from this arena. `available` returns how many bytes of an object have arrived; -1: it is gone."""
        self._transport = transport
        self._arena = arena
        self._available = available
        self._outgoing: list[Outgoing] = []
        self._in_flight = 0
        """Large chunks in MPI."""

    @property
    def busy(self) -> bool:
        """Whether sends are unfinished."""
        return bool(self._outgoing)

    def add(self, rank: int, pull: Pull) -> None:
        """Start to send an object of the own region to a rank; an empty chunk if the object does not exist."""
        outgoing = Outgoing(rank, pull)
        self._outgoing.append(outgoing)
        self._drive(outgoing)

    def end(self, rank: int, unpull: Unpull) -> None:
        """Stop sending an object, unless all of it was sent."""
        for outgoing in self._outgoing:
            if outgoing.rank == rank and outgoing.pull.tag == unpull.tag and not outgoing.is_over():
                outgoing.is_wanted = False
                self._drive(outgoing)
                return

    def poll(self) -> None:
        """Advance all sends, each time another one first."""
        if self._outgoing:
            self._outgoing.append(self._outgoing.pop(0))
        for outgoing in list(self._outgoing):
            self._drive(outgoing)

    def complete(self) -> None:
        """Finish all sends when all ranks are idle: they have arrived, but MPI reports it only when it is asked."""
        while self._outgoing:
            self.poll()

    def _drive(self, outgoing: Outgoing) -> None:
        """Send what can be sent now, and forget it when nothing is left."""
        is_large = min(outgoing.pull.chunk, outgoing.pull.size) > SMALL
        try:
            while outgoing.requests and outgoing.requests[0].done():
                outgoing.requests.popleft()
                self._in_flight -= is_large
            self._send_chunks(outgoing, is_large)
            is_gone = outgoing.rank in self._transport.lost
        except TransportError:
            is_gone = True  # the transport reports a lost rank to the others
        if is_gone or (outgoing.is_over() and not outgoing.requests):
            self._in_flight -= is_large * len(outgoing.requests)
            self._outgoing.remove(outgoing)

    def _send_chunks(self, outgoing: Outgoing, is_large: bool) -> None:
        pull = outgoing.pull
        while outgoing.at < pull.size and len(outgoing.requests) < WINDOW:
            if is_large and self._in_flight >= CHUNKS:
                return
            available = self._available(pull.offset, pull.size) if outgoing.is_wanted else -1
            if available < 0:
                self._cut(outgoing, is_large)
                return
            end = min(outgoing.at + pull.chunk, pull.size)
            if available < end:
                return
            self._send(outgoing, self._arena.view(pull.offset, pull.size)[outgoing.at : end], is_large)
            outgoing.at = end

    def _cut(self, outgoing: Outgoing, is_large: bool) -> None:
        """Send empty chunks for those that the receiver may be ready for, and nothing after them."""
        pull = outgoing.pull
        for _ in range(min(WINDOW, -(-(pull.size - outgoing.at) // pull.chunk))):
            self._send(outgoing, memoryview(b""), is_large)
        outgoing.at = pull.size

    def _send(self, outgoing: Outgoing, chunk: memoryview, is_large: bool) -> None:
        outgoing.requests.append(self._transport.send_bulk(outgoing.rank, outgoing.pull.tag, chunk))
        self._in_flight += is_large
