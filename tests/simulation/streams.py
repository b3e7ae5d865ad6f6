"""Calls that yield, as programs of virtual clients take their items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mpi_runtime.core.client.executor_feed import ALL
from mpi_runtime.scheduler.protocol.effects import Item

if TYPE_CHECKING:
    from tests.simulation.processes import Process
    from tests.simulation.scope import Program, Scope
    from tests.simulation.steps import Take


@dataclass(eq=False)
class Stream:
    """One call that yields, as the program sees it that made it."""

    scope: Scope
    slot: int
    come: int = 0
    taken: int = 0


class Streams:
    """The streams of one client. What has come is in its `items`, where the client itself looks."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._open: dict[bytes, Stream] = {}

    def begin(self, call: bytes, scope: Scope, slot: int, is_limited: bool) -> None:
        """A call that yields is submitted."""
        self._open[call] = Stream(scope, slot)
        self._process.items.begin(call, is_limited)

    def hear(self, message: Item) -> None:
        """An item is about to come."""
        stream = self._open.get(message.call)
        self._process.world.counters["items"] += 1
        if stream is not None:
            self._process.world.checker.items.came(message.call, message.id, stream.come)
            stream.come += 1

    def take(self, step: Take, scope: Scope) -> Program:
        """Take items, up to the end of the stream. Raises TaintedError if a fault was its end."""
        process = self._process
        call = scope.slots.get(step.slot, b"")
        stream = self._open.get(call)
        if stream is None or stream.scope is not scope:
            return
        items = process.items
        for into in range(step.into, step.into + step.count):
            if not items.has_ended_or_item(call):
                yield from process.blocked([call], lambda: items.has_ended_or_item(call))
            id = items.take(call)
            if id is None:
                yield from process.get([call])
                scope.seen.append(process.look(call)[0])
                process.world.checker.items.ended(call, stream.come)
                return
            stream.taken += 1
            process.world.checker.items.taken[call] = stream.taken
            scope.slots[into] = id

    def forget(self, scope: Scope, slot: int, cancel: bool = False) -> None:
        """Nobody takes items any more of the stream that was begun in this slot, if one was."""
        call = scope.slots.get(slot, b"")
        stream = self._open.get(call)
        if stream is None or stream.scope is not scope or stream.slot != slot:
            return
        del self._open[call]
        world = self._process.world
        world.counters["streams given up"] += call not in self._process.values
        world.checker.items.taken[call] = ALL
        if cancel:
            world.counters["cancels"] += 1
        self._process.items.forget(call, cancel)
        if cancel:
            self._process.flush()
