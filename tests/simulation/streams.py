"""Calls that yield, as virtual clients see them and virtual executors that run them.

Follows `mpi_runtime/processes/streams.py`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mpi_runtime.scheduler.effects import Demand, Item
from mpi_runtime.scheduler.events import Consumed

if TYPE_CHECKING:
    from tests.simulation.processes import Process
    from tests.simulation.scope import Program, Scope
    from tests.simulation.steps import Take

ALL = 1 << 62
"""As many items as there will ever be."""


@dataclass(eq=False)
class Stream:
    """One call that yields, as who made it sees it."""

    scope: Scope
    slot: int
    counts: bool
    """Whether its executor wants to hear how many items are taken."""
    items: deque[bytes] = field(default_factory=deque)
    """Those that have come and were not taken."""
    come: int = 0
    taken: int = 0


class Streams:
    """The streams of one client."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._open: dict[bytes, Stream] = {}
        self.demands: dict[bytes, int] = {}
        """In an executor: how many items of a call have been taken, as it was told."""

    def begin(self, call: bytes, scope: Scope, slot: int, counts: bool) -> None:
        """A call that streams is submitted."""
        self._open[call] = Stream(scope, slot, counts)

    def hear(self, message: Item | Demand) -> None:
        """The head says something about a stream."""
        if isinstance(message, Demand):
            if message.call in self.demands:  # else it has not begun, or has ended
                self.demands[message.call] = message.count
            return
        process = self._process
        process.counts[message.id] = 1
        stream = self._open.get(message.call)
        process.world.counters["items"] += 1
        if stream is None:
            process.drop([message.id])
            return
        process.world.checker.items.came(message.call, message.id, stream.come)
        stream.come += 1
        stream.items.append(message.id)

    def take(self, step: Take, scope: Scope) -> Program:
        """Take items, up to the end of the stream. Raises TaintedError if a fault was its end."""
        process = self._process
        call = scope.slots.get(step.slot, b"")
        stream = self._open.get(call)
        if stream is None or stream.scope is not scope:
            return
        items, values = stream.items, process.values
        for into in range(step.into, step.into + step.count):
            if not items and call not in values:
                yield from process.blocked([call], lambda: bool(items) or call in values)
            if not items:
                yield from process.get([call])
                scope.seen.append(process.look(call)[0])
                process.world.checker.items.ended(call, stream.come)
                return
            stream.taken += 1
            process.world.checker.items.taken[call] = stream.taken
            if stream.counts:
                process.outbox.append(Consumed(call, stream.taken))
            scope.slots[into] = items.popleft()

    def forget(self, scope: Scope, slot: int) -> bytes:
        """Nobody takes items any more of the stream that was begun in this slot; its call, if there is one."""
        call = scope.slots.get(slot, b"")
        stream = self._open.get(call)
        if stream is None or stream.scope is not scope or stream.slot != slot:
            return b""
        del self._open[call]
        self._process.world.counters["streams given up"] += call not in self._process.values
        self._process.drop(list(stream.items))
        self._process.world.checker.items.taken[call] = ALL
        if stream.counts:
            self._process.outbox.append(Consumed(call, ALL))
        return call
