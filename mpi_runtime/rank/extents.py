"""This rank's part of the arena: which client was given which extent, and the requests that wait for room."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from mpi_runtime.objects.arena import AgentArena
from mpi_runtime.transport import codec
from mpi_runtime.transport.channel import Channel
from mpi_runtime.transport.codec import BadFrameError
from mpi_runtime.transport.messages import Allocate, Allocated

ALLOCATE_WAIT_S = 5.0
"""How long a request may wait for others to be freed: references that are gone may not have been told yet."""
ALLOCATE_RETRY_S = 0.01
"""How soon to look again: another rank of the host may have freed, and tells nobody."""


class Extents:
    """What clients of this rank have of the arena."""

    def __init__(
        self, arena: AgentArena, rank: int, now_s: Callable[[], float], send: Callable[[Channel, bytes], None]
    ) -> None:
        """Allocate from this arena as this rank, and answer clients with `send`."""
        self._arena = arena
        self._rank = rank
        self._now_s = now_s
        self._send = send
        self._clients: dict[int, int] = {}
        """The client that was given it, for each extent in use, by offset."""
        self._waiting: deque[tuple[float, int, Channel, Allocate]] = deque()
        """Requests that wait for room: until when, of which client."""

    def allocate(self, client: int, channel: Channel, request: Allocate) -> None:
        """Answer a request for memory; later, if there may be room then."""
        if not self._answer(client, channel, request):
            self._waiting.append((self._now_s() + ALLOCATE_WAIT_S, client, channel, request))

    def _answer(self, client: int, channel: Channel, request: Allocate, last: bool = False) -> bool:
        offset = self._arena.allocate(request.size)
        if offset is not None:
            self._clients[offset] = client
            answer = Allocated(request.request, self._rank, offset)
        elif last or request.size > self._arena.layout.capacity:
            answer = Allocated(request.request, self._rank, -1, self._arena.refusal(request.size))
        else:
            return False
        self._send(channel, codec.encode([answer]))
        return True

    def free(self, offsets: Iterable[int]) -> None:
        """Give extents back, and serve who waits for room.

        Raises:
            BadFrameError: of some there is none; the others are given back.
        """
        unknown = []
        for offset in offsets:
            try:
                self._arena.free(offset)
            except ValueError:
                unknown.append(offset)
            self._clients.pop(offset, None)
        self.serve_waiting()
        if unknown:
            raise BadFrameError(f"it frees memory at {unknown[:10]}, where nothing is allocated")

    def abandon(self, client: int, offset: int) -> bool:
        """A client gives an extent back; whether it was given it."""
        if self._clients.get(offset) != client:
            return False
        self.free([offset])
        return True

    def free_of(self, client: int, offsets: Iterable[int]) -> None:
        """The same for a dead client: what was freed before may be another's now."""
        self.free([offset for offset in offsets if self._clients.get(offset) == client])

    def of(self, client: int) -> list[int]:
        """What a client was given and is not freed."""
        return [offset for offset, who in self._clients.items() if who == client]

    def drop_requests(self, client: int | None = None) -> None:
        """This client is gone, or all are: nobody waits."""
        self._waiting = deque(one for one in self._waiting if client is not None and one[1] != client)

    def serve_waiting(self) -> float | None:
        """Answer in order what can be answered now and what has waited too long; how soon to look again, in seconds."""
        now = self._now_s()
        while self._waiting:
            until, client, channel, request = self._waiting[0]
            if not self._answer(client, channel, request, last=now >= until):
                return ALLOCATE_RETRY_S
            self._waiting.popleft()
        return None
