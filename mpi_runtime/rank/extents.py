"""This rank's part of the arena: which client was given which extent, and the requests that wait for room."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from mpi_runtime.objects.arena import AgentArena
from mpi_runtime.transport import codec
from mpi_runtime.transport.channel import Channel
from mpi_runtime.transport.codec import BadFrameError
from mpi_runtime.transport.messages import Allocate, Allocated

ALLOCATE_WAIT_S = 5.0
"""How long a request may wait where no room is being made: references that are gone may not have been told yet."""
ALLOCATE_RETRY_S = 0.01
"""How soon to look again: another rank of the host may have freed, and tells nobody."""
TELL_S = 0.05
"""How soon the head is told again that room is wanted."""
NOBODY = -1
"""Who asks for what is no client's: copies."""


class _Request(NamedTuple):
    client: int
    size: int
    use: Callable[[int, str], None]
    """Called once: with the offset; or with -1 and the reason."""


class Extents:
    """What clients of this rank have of the arena."""

    def __init__(
        self,
        arena: AgentArena,
        rank: int,
        now_s: Callable[[], float],
        send: Callable[[Channel, bytes], None],
        want: Callable[[int, list[int]], None] = lambda size, clients: None,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """Allocate from this arena as this rank, and answer clients with `send`.

        `want` has the head told how many bytes are missing, and who waits for them: in `serve_waiting` only, for which
        `wake` asks. While the head performs effects it must not be told anything: it has decided.
        """
        self._wake = wake
        self._arena = arena
        self._rank = rank
        self._now_s = now_s
        self._send = send
        self._want = want
        self._clients: dict[int, int] = {}
        """The client that was given it, for each extent in use, by offset."""
        self._waiting: deque[_Request] = deque()
        """Requests that wait for room."""
        self._until_s = 0.0
        """When they are refused, unless room is being made."""
        self._why = ""
        """What the head has said last of room that is not being made."""
        self._told_s = 0.0
        self._is_wanted = False
        """Whether the head believes that somebody waits."""

    def allocate(self, client: int, channel: Channel, request: Allocate) -> None:
        """Answer a request for memory; later, if there may be room then."""

        def use(offset: int, reason: str) -> None:
            if offset >= 0:
                self._clients[offset] = client
            self._send(channel, codec.encode([Allocated(request.request, self._rank, offset, reason)]))

        self.ask(request.size, client, use)

    def ask(self, size: int, client: int, use: Callable[[int, str], None]) -> None:
        """Call `use` with the offset of a new extent, now or when there is room; or with -1, and why there is none."""
        offset = self._arena.allocate(size)
        if offset is not None:
            use(offset, "")
        elif client != NOBODY and size > self._arena.layout.capacity:
            use(-1, self._arena.refusal(size))
        else:
            if not self._waiting:
                self._until_s = self._now_s() + ALLOCATE_WAIT_S
                self._why = ""
            self._waiting.append(_Request(client, size, use))
            self._told_s = 0.0
            self._wake()

    def answered(self, is_coming: bool, reason: str) -> None:
        """The head says whether room is being made."""
        self._why = reason
        if is_coming:
            self._until_s = self._now_s() + ALLOCATE_WAIT_S

    def _tell(self) -> None:
        """Have the head told what is missing."""
        self._told_s = self._now_s()
        size = self._arena.lacking([request.size for request in self._waiting])
        if size or self._is_wanted:
            self._is_wanted = size > 0
            self._want(size, sorted({one.client for one in self._waiting} - {NOBODY}))

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
        self._serve()
        if self._waiting or self._is_wanted:
            self._told_s = 0.0
            self._wake()
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
        self._waiting = deque(one for one in self._waiting if client is not None and one.client != client)

    def serve_waiting(self) -> float | None:
        """Answer what can be answered now, and what has waited too long; how soon to look again, in seconds."""
        now = self._serve()
        if (self._waiting and now >= self._told_s + TELL_S) or (not self._waiting and self._is_wanted):
            self._tell()
        return ALLOCATE_RETRY_S if self._waiting else None

    def _serve(self) -> float:
        now = self._now_s()
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            offset = self._arena.allocate(request.size)
            if offset is not None:
                self._until_s = max(self._until_s, now + ALLOCATE_WAIT_S)
                request.use(offset, "")
            elif now >= self._until_s or request.size > self._arena.layout.capacity:
                request.use(-1, " ".join(filter(None, (self._arena.refusal(request.size), self._why))))
            else:
                self._waiting.append(request)
        return now
