"""Copies objects from arenas of other hosts into ours: the receiver's side (sender: `sends.py`).

1. The scheduler orders a copy (`fetch`). When it has an extent, a `Pull` asks the source for the bytes. They arrive in
   order, in chunks under a tag of this transfer alone. So other ranks may copy the first `arrived` bytes from here
   already (`Arriving`).
2. A source that gives up sends `WINDOW` empty chunks in place of the next ones, or fewer if fewer are missing. A
   receiver that gives up sends `Unpull`, and its source does the same. The receiver takes chunks until an empty one or
   the last one has arrived. So no message is left that a later transfer could take for its own.
3. A failed transfer is reported (`Fetched` with `is_lost`), and keeps its first bytes: the scheduler names another
   source, from which the transfer continues, or sends `StopFetch`.
4. For each source only a part of the transfers is under way at a time; the others wait in order. Requests to one rank
   in one turn are sent in one frame.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

from mpi_runtime.core.objects.arena import AgentArena
from mpi_runtime.core.objects.sends import WINDOW, Sends
from mpi_runtime.core.transport import codec
from mpi_runtime.core.transport.base import Transfer, Transport, TransportError
from mpi_runtime.core.transport.messages import BULK_TAGS, Pull, Unpull
from mpi_runtime.scheduler.protocol.effects import Fetch
from mpi_runtime.scheduler.protocol.limits import PIPELINED_BYTES
from mpi_runtime.scheduler.protocol.rank_events import Arriving, Fetched

CHUNK_BYTES, CHUNK_BYTES_MIN = 4 << 20, 256 << 10
CHUNK_S = 0.005
"""Seconds for a chunk, within these bounds: messages to that host wait behind the chunks that are on their way."""
AT_ONCE = 64
"""Transfers from one source that are under way at the same time."""

QUEUED, RUNNING, DRAINING, STALLED = range(4)
"""States of a transfer: it waits for its turn; chunks arrive; it or its source has given up; it waits for a source."""


class Incoming:
    """An object on its way to this rank."""

    def __init__(self, order: Fetch, target: int, view: memoryview) -> None:
        self.order = order
        self.target = target
        self.view = view
        self.state = QUEUED
        self.arrived = 0
        """The number of bytes that have arrived, from the start."""
        self.posted = 0
        """The position of the next chunk."""
        self.is_cut = False
        """Whether an empty chunk has arrived: after it only chunks follow that were already posted."""
        self.chunk = CHUNK_BYTES
        self.began_s = 0.0
        self.began_at = 0
        """When this source was asked, and `arrived` at that time."""
        self.tag = -1
        self.requests: deque[tuple[Transfer, int]] = deque()
        self.problem = ""
        self.next: Fetch | None = None
        """The order to follow when the last chunks of this source have arrived."""
        self.is_wanted = True


class Transfers:
    """The transfers of one rank. Its owner calls `poll` while it is `busy`."""

    def __init__(
        self,
        transport: Transport,
        arena: AgentArena,
        ask: Callable[[int, Callable[[int, str], None]], None],
        free: Callable[[Iterable[int]], None],
    ) -> None:
        """Move objects between this arena and those of other ranks.

        `ask` calls a function with the offset of a new extent of a size, or with -1 and a reason; later, if there may
        be room then. `free` gives extents back.
        """
        self._transport = transport
        self._arena = arena
        self._ask = ask
        self._free = free
        self._asked: dict[bytes, Fetch] = {}
        """Orders that wait for room, by object."""
        self._incoming: dict[bytes, Incoming] = {}
        """By object, without those that are stopped."""
        self._by_target: dict[int, Incoming] = {}
        """All, by the offset of their extent."""
        self._active: list[Incoming] = []
        """Those that are RUNNING or DRAINING."""
        self._queues: dict[int, deque[Incoming]] = {}
        """Those that are QUEUED, by source."""
        self._counts: dict[int, int] = {}
        """How many are active, by source."""
        self._tags: set[int] = set()
        """Those in use. Only for membership."""
        self._next_tag = 0
        self._chunks: dict[int, int] = {}
        """The size of chunks of each source, by the speed of its last values."""
        self._reports: list[Fetched | Arriving] = []
        self._frames: dict[int, list[Pull | Unpull]] = {}
        """Messages to send at the end of this turn, by rank."""
        self.sends = Sends(transport, arena, self._available)
        """What other ranks have asked for."""

    @property
    def busy(self) -> bool:
        """Whether transfers are under way, or events are unreported."""
        return bool(self._active or self._queues or self._reports or self._frames or self.sends.busy)

    def fetch(self, order: Fetch) -> None:
        """Begin to copy an object here, or continue from another source; `poll` will report the end."""
        incoming = self._incoming.get(order.id)
        if incoming is not None:
            incoming.next = order
            self._turn_to_next(incoming)
        elif order.id in self._asked:
            self._asked[order.id] = order
        else:
            self._asked[order.id] = order
            self._ask(order.size, lambda target, reason: self._use(order.id, target, reason))

    def stop(self, id: bytes) -> None:
        """Stop copying this object here."""
        self._asked.pop(id, None)
        incoming = self._incoming.pop(id, None)
        if incoming is not None:
            incoming.is_wanted = False
            self._turn_to_next(incoming)

    def stop_all(self) -> None:
        """Stop all copies, at the end of a job."""
        for id in [*self._asked, *self._incoming]:
            self.stop(id)

    def poll(self) -> list[Fetched | Arriving]:
        """Advance all transfers, and return events for the scheduler."""
        for incoming in list(self._active):
            self._receive(incoming)
        self._start_queued()
        self.sends.poll()
        for rank, messages in list(self._frames.items()):
            with suppress(TransportError):  # transfers from this rank will get the error too
                self._transport.send(rank, codec.encode(messages))
        self._frames.clear()
        reports, self._reports = self._reports, []
        return reports

    # One object

    def _use(self, id: bytes, target: int, reason: str) -> None:
        order = self._asked.pop(id, None)
        if order is None:
            if target >= 0:
                self._free([target])
            return
        if target < 0:
            self._reports.append(Fetched(self._transport.rank, id, -1, reason, order=order.order))
            return
        incoming = Incoming(order, target, self._arena.view(target, order.size))
        self._incoming[id] = self._by_target[target] = incoming
        if order.size >= PIPELINED_BYTES:
            self._reports.append(Arriving(self._transport.rank, id, target, order.order))
        self._queue(incoming)

    def _queue(self, incoming: Incoming) -> None:
        incoming.state, incoming.problem = QUEUED, ""
        self._queues.setdefault(incoming.order.rank, deque()).append(incoming)

    def _start_queued(self) -> None:
        for rank, queue in list(self._queues.items()):
            while queue and self._counts.get(rank, 0) < AT_ONCE and len(self._tags) < BULK_TAGS:
                self._start(queue.popleft())
            if not queue:
                del self._queues[rank]

    def _start(self, incoming: Incoming) -> None:
        order = incoming.order
        while self._next_tag in self._tags:
            self._next_tag = (self._next_tag + 1) % BULK_TAGS
        tag = incoming.tag = self._next_tag
        self._next_tag = (tag + 1) % BULK_TAGS
        self._tags.add(tag)
        self._active.append(incoming)
        self._counts[order.rank] = self._counts.get(order.rank, 0) + 1
        incoming.state, incoming.posted, incoming.is_cut = RUNNING, incoming.arrived, False
        incoming.chunk = self._chunks.get(order.rank, CHUNK_BYTES)
        incoming.began_s, incoming.began_at = time.monotonic(), incoming.arrived
        pull = Pull(tag, order.offset, order.size, incoming.arrived, incoming.chunk)
        self._frames.setdefault(order.rank, []).append(pull)
        self._receive(incoming)

    def _receive(self, incoming: Incoming) -> None:
        """Take the chunks that have arrived. Have `WINDOW` receives posted: a source that gives up sends as many."""
        requests, size = incoming.requests, incoming.order.size
        try:
            while True:
                while not incoming.is_cut and incoming.posted < size and len(requests) < WINDOW:
                    self._post(incoming)
                if not requests or not requests[0][0].done():
                    break
                transfer, length = requests.popleft()
                if transfer.received == length:
                    incoming.arrived += length
                    continue
                incoming.is_cut = True
                if incoming.state == RUNNING:
                    incoming.problem = f"rank {incoming.order.rank} no longer has it"
                    incoming.state = DRAINING
        except TransportError as error:
            for transfer, _ in requests:  # complete them, so that none writes into the extent later
                with suppress(TransportError):
                    transfer.done()
            requests.clear()
            incoming.is_cut = True
            incoming.problem = f"rank {incoming.order.rank} was lost while it sent the object: {error}"
            incoming.state = DRAINING
        if not requests and (incoming.is_cut or incoming.arrived == size):
            self._drained(incoming)

    def _post(self, incoming: Incoming) -> None:
        length = min(incoming.chunk, incoming.order.size - incoming.posted)
        part = incoming.view[incoming.posted : incoming.posted + length]
        incoming.requests.append((self._transport.receive_bulk(incoming.order.rank, incoming.tag, part), length))
        incoming.posted += length

    def _turn_to_next(self, incoming: Incoming) -> None:
        """Leave the source, for another order or because the copy is stopped."""
        if incoming.state == RUNNING:
            incoming.state = DRAINING
            self._frames.setdefault(incoming.order.rank, []).append(Unpull(incoming.tag))
        elif incoming.state == QUEUED:
            self._queues[incoming.order.rank].remove(incoming)
            if not self._queues[incoming.order.rank]:
                del self._queues[incoming.order.rank]
            self._continue(incoming)
        elif incoming.state == STALLED:
            self._continue(incoming)

    def _drained(self, incoming: Incoming) -> None:
        """All chunks of a source have arrived, or it has given up."""
        self._tags.discard(incoming.tag)
        self._active.remove(incoming)
        rank = incoming.order.rank
        self._counts[rank] -= 1
        if not self._counts[rank]:
            del self._counts[rank]
        if incoming.is_wanted and incoming.arrived == incoming.order.size:
            order = incoming.next or incoming.order
            self._note_speed(incoming)
            del self._incoming[order.id], self._by_target[incoming.target]
            self._reports.append(Fetched(self._transport.rank, order.id, incoming.target, order=order.order))
        else:
            self._continue(incoming)

    def _note_speed(self, incoming: Incoming) -> None:
        """Choose the size of the next chunks of a source. Small values do not show its speed."""
        moved, took_s = incoming.arrived - incoming.began_at, time.monotonic() - incoming.began_s
        if moved >= CHUNK_BYTES and took_s > 0:
            fitting = int(moved / took_s * CHUNK_S)
            power = 1 << max(0, fitting.bit_length() - 1)
            self._chunks[incoming.order.rank] = min(CHUNK_BYTES, max(CHUNK_BYTES_MIN, power))

    def _continue(self, incoming: Incoming) -> None:
        """Take the next source, wait for one, or forget the transfer."""
        if not incoming.is_wanted:
            del self._by_target[incoming.target]
            self._free([incoming.target])
        elif incoming.next is not None:
            incoming.order, incoming.next = incoming.next, None
            self._queue(incoming)
        else:
            incoming.state = STALLED
            order, rank = incoming.order, self._transport.rank
            self._reports.append(Fetched(rank, order.id, -1, incoming.problem, is_lost=True, order=order.order))

    def _available(self, offset: int, size: int) -> int:
        """Return how many bytes of an object in the own region can be sent; -1: there is no such object."""
        incoming = self._by_target.get(offset)
        if incoming is not None:
            return incoming.arrived if incoming.is_wanted and incoming.order.size == size else -1
        return size if self._arena.size(offset) >= size else -1
