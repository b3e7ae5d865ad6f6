"""This rank's part of the arena: the client of each extent, and the requests that wait for room."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from msgspec import Struct

from mpi_runtime.core.objects.arena import AgentArena
from mpi_runtime.core.transport import codec
from mpi_runtime.core.transport.channel import Channel
from mpi_runtime.core.transport.codec import BadFrameError
from mpi_runtime.core.transport.messages import Ahead, Allocate, Allocated, GiveBack, WorkerToHead
from mpi_runtime.core.transport.poller import Poller
from mpi_runtime.scheduler.protocol.rank_events import RoomWanted

ALLOCATE_WAIT_S = 5.0
"""How long a request may wait if the head makes no room, in seconds: releases of references may be under way."""
ALLOCATE_RETRY_S = 0.01
"""Seconds until the next attempt. Another rank of the host may free memory, and does not report it."""
REPORT_S = 0.05
"""Seconds after which missing bytes are reported again."""
AHEAD_MAX = 32
"""The most extents that one request gets besides what it asks for."""
AHEAD_S = 1.0
"""Seconds without a further request after which a client is asked for those that it has not used."""
NOBODY = -1
"""The client of extents for copies, which belong to no client."""


class Agent(Protocol):
    """What extents ask of their agent."""

    rank: int
    poller: Poller

    def report(self, message: WorkerToHead, /) -> None:
        """Send a message to the head."""

    def now_s(self) -> float:
        """Return the monotonic time in seconds."""

    def wake(self) -> None:
        """Take the next turn soon."""


class _Request(NamedTuple):
    client: int
    size: int
    use: Callable[[int, str], None]
    """Called once, with the offset, or with -1 and the reason."""


class _Granted(Struct):
    """The extents that a client was granted ahead of use."""

    channel: Channel
    size: int
    """Of each, in bytes, as the allocator rounds."""
    count: int
    """The most that the client wants unused at a time."""
    unused: set[int]
    """Those that it may not have used. When it asks for more, it has used all."""
    last_s: float = 0.0
    """When the last of them was granted."""


class Extents:
    """The extents of the clients of this rank.

    An extent that is freed returns to the client that has written it, if that writes such values again and again: its
    caches and its page table still have this memory. The notice goes with the next frame to the client.
    """

    def __init__(self, arena: AgentArena, agent: Agent) -> None:
        """Allocate from this arena.

        Missing bytes are reported by `serve_waiting` alone: while the head performs effects it must not receive
        reports. To be called, it wakes the agent.
        """
        self._arena = arena
        self._agent = agent
        self._rank = agent.rank
        self._now_s = agent.now_s
        self._send = agent.poller.send
        self._clients: dict[int, int] = {}
        """By offset of an extent in use: its client."""
        self._waiting: deque[_Request] = deque()
        """Requests that wait for room."""
        self._ahead: dict[int, _Granted] = {}
        """By client, if it may have unused extents."""
        self._looks_s = 0.0
        """When the next of them are asked for their unused extents."""
        self._until_s = 0.0
        """When waiting requests are refused, unless the head makes room."""
        self._why = ""
        """The head's last reason for making no room."""
        self._reported_s = 0.0
        self._is_wanted = False
        """Whether the last report was that bytes are missing."""

    def allocate(self, client: int, channel: Channel, request: Allocate) -> None:
        """Answer a request for memory, now or when there is room."""

        def use(offset: int, reason: str) -> None:
            messages: list[object] = [Allocated(request.request, self._rank, offset, reason)]
            if offset >= 0:
                self._clients[offset] = client
                if request.ahead:
                    messages += self._given_ahead(client, channel, request)
            self._send(channel, codec.encode(messages))

        self.ask(request.size, client, use)

    def _given_ahead(self, client: int, channel: Channel, request: Allocate) -> list[Ahead]:
        """Return further extents for a client, if memory is plentiful."""
        count = min(request.ahead, AHEAD_MAX, self._arena.plentiful(request.size))
        self._ahead.pop(client, None)
        if self._waiting:
            return []
        found = [self._arena.allocate(request.size) for _ in range(count)]
        offsets = [offset for offset in found if offset is not None]
        if not offsets:
            return []
        self._clients.update(dict.fromkeys(offsets, client))
        size = self._arena.size(offsets[0])
        self._ahead[client] = _Granted(channel, size, count, set(offsets), self._now_s())
        return [Ahead(self._rank, request.size, offsets)]

    def _returns(self, offset: int) -> bool:
        """Whether a free extent returns to its last client. If so, it was granted to that again."""
        granted = self._ahead.get(self._clients.get(offset, NOBODY))
        if granted is None:
            return False
        granted.unused.discard(offset)
        size = granted.size
        if (
            self._waiting
            or len(granted.unused) >= granted.count
            or self._arena.size(offset) != size
            or not self._arena.plentiful(size)
        ):
            return False
        granted.unused.add(offset)
        granted.last_s = self._now_s()
        granted.channel.add_to_next(codec.encode([Ahead(self._rank, size, [offset])]))
        return True

    def _want_back(self, until_s: float) -> None:
        """Ask clients for their unused extents, if they got the last one before this time."""
        for client, granted in list(self._ahead.items()):
            if granted.last_s <= until_s:
                del self._ahead[client]
                self._send(granted.channel, codec.encode([GiveBack()]))

    def ask(self, size: int, client: int, use: Callable[[int, str], None]) -> None:
        """Call `use` with the offset of a new extent, now or when there is room; or with -1 and the reason."""
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
            self._reported_s = 0.0
            self._want_back(math.inf)
            self._agent.wake()

    def answered(self, is_coming: bool, reason: str) -> None:
        """Take the head's answer, whether it makes room, and why not."""
        self._why = reason
        if is_coming:
            self._until_s = self._now_s() + ALLOCATE_WAIT_S

    def _report_missing(self) -> None:
        self._reported_s = self._now_s()
        size = self._arena.lacking([request.size for request in self._waiting])
        if size or self._is_wanted:
            self._is_wanted = size > 0
            clients = sorted({one.client for one in self._waiting} - {NOBODY})
            self._agent.report(RoomWanted(self._rank, size, clients))

    def free(self, offsets: Iterable[int]) -> None:
        """Free extents, or return them to their clients, and serve requests that wait for room.

        Raises:
            BadFrameError: at some offsets there is no extent. The others are freed.
        """
        self._free([offset for offset in offsets if not self._returns(offset)])

    def _free(self, offsets: Iterable[int]) -> None:
        unknown = []
        for offset in offsets:
            try:
                self._arena.free(offset)
            except ValueError:
                unknown.append(offset)
            self._clients.pop(offset, None)
        self._serve()
        if self._waiting or self._is_wanted:
            self._reported_s = 0.0
            self._agent.wake()
        if unknown:
            raise BadFrameError(f"it frees memory at {unknown[:10]}, where nothing is allocated")

    def abandon(self, client: int, offset: int) -> bool:
        """Free an extent for a client. Return False if the client was not given it; then nothing is freed."""
        if self._clients.get(offset) != client:
            return False
        self._free([offset])
        return True

    def free_of(self, client: int, offsets: Iterable[int]) -> None:
        """Free those extents of a dead client that are still its own. Others may have a new client by now."""
        self._free([offset for offset in offsets if self._clients.get(offset) == client])

    def of(self, client: int) -> list[int]:
        """Return the offsets of the extents that a client has and has not made an object of."""
        return [offset for offset, who in self._clients.items() if who == client]

    def drop_requests(self, client: int | None = None) -> None:
        """Drop the waiting requests of a client that has ended; None: of all clients."""
        self._waiting = deque(one for one in self._waiting if client is not None and one.client != client)
        if client is None:
            self._ahead.clear()
        else:
            self._ahead.pop(client, None)

    def serve_waiting(self) -> float | None:
        """Serve or refuse waiting requests. Return the seconds until the next call must come; None: none need."""
        if not (self._waiting or self._ahead or self._is_wanted):
            return None
        now = self._serve()
        if (self._waiting and now >= self._reported_s + REPORT_S) or (not self._waiting and self._is_wanted):
            self._report_missing()
        if self._ahead and now >= self._looks_s:
            self._looks_s = now + AHEAD_S
            self._want_back(now - AHEAD_S)
        return ALLOCATE_RETRY_S if self._waiting else AHEAD_S if self._ahead else None

    def _serve(self) -> float:
        now = self._now_s()
        waiting, self._waiting = self._waiting, deque()
        is_late = now >= self._until_s
        if is_late and any(one.client != NOBODY for one in waiting):
            self._until_s = now + ALLOCATE_WAIT_S  # for copies: without the others there may be room for them
        for request in waiting:
            offset = self._arena.allocate(request.size)
            if offset is not None:
                self._until_s = max(self._until_s, now + ALLOCATE_WAIT_S)
                request.use(offset, "")
            elif request.size > self._arena.layout.capacity or (
                is_late and (request.client != NOBODY or now >= self._until_s)
            ):
                request.use(-1, " ".join(filter(None, (self._arena.refusal(request.size), self._why))))
            else:
                self._waiting.append(request)
        return now
