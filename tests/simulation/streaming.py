"""Random programs that use calls that yield."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.options import MIB, UNIT
from tests.simulation.steps import METHOD, STREAMING, Compute, Drop, Forget, Get, Put, Submit, Take, Yield
from tests.simulation.trees import TreeAuthor
from tests.simulation.workload import Scope


class StreamAuthor(TreeAuthor):
    """Writes a workload with streams."""

    def choices(self, scope: Scope) -> list[Callable[[Scope], object]]:
        """Those of every program, and streams."""
        choices = super().choices(scope)
        if self.options.streams:
            choices += [self.stream] * 3
            if scope.depth == 0:
                choices += [self.consumer] + [self.slow_streams] * self.options.slow_streams
        return choices

    def always(self) -> list[Callable[[Scope], object]]:
        """Streams, where there are any."""
        return super().always() + [self.stream, self.consumer] * self.options.streams

    def stream(self, scope: Scope) -> None:
        """A task that yields."""
        cpu = self.rng.choice((0, UNIT // 2, UNIT, UNIT))
        self.begin(scope, -1, cpu=cpu, max_retries=self.rng.choice((0, 2, -1)))

    def consumer(self, scope: Scope) -> None:
        """A task that takes the items of calls that wait for that: it may die meanwhile."""
        inner = Scope(100)
        for _ in range(self.rng.choice((1, 2))):
            yielding = Scope(100)
            yielding.steps = [Yield(self.size()) for _ in range(3)]
            function = self.function(num_returns=STREAMING, backpressure=1, cpu=0, duration_us=100)
            slot = inner.take(4)
            inner.steps.append(Submit(self.job(function, yielding), slot))
            inner.steps += [Take(slot, slot + 1, 1), Compute(self.rng.choice((2000, 100_000))), Take(slot, slot + 2, 3)]
            inner.usable += [slot + 1, slot + 2, slot + 3]
        inner.steps.append(Get(self.some(inner.usable, 3)))
        function = self.function(cpu=UNIT, duration_us=4000, max_retries=self.rng.choice((0, 3)))
        slot = scope.take()
        scope.steps.append(Submit(self.job(function, inner, is_fragile=True), slot))
        scope.usable.append(slot)

    def slow_streams(self, scope: Scope) -> None:
        """Tasks that make large items slowly, side by side, so that ranks die while they have made some of them."""
        rng, begun = self.rng, []
        for _ in range(rng.choice((2, 5))):
            inner, count = Scope(100), rng.choice((3, 6))
            for _ in range(count):
                inner.steps += [Compute(rng.choice((2000, 30_000))), Yield(rng.choice((200_000, 3 * MIB)))]
            function = self.function(num_returns=STREAMING, cpu=rng.choice((0, UNIT)), max_retries=rng.choice((3, -1)))
            begun.append((scope.take(), count))
            scope.steps.append(Submit(self.job(function, inner), begun[-1][0]))
        for slot, count in begun:
            self.take_items(scope, slot, [False] * (count - 1), count - 1)
        self.leaf(scope)
        for slot, _ in begun:
            self.take_items(scope, slot, [False], 2)
            scope.usable.append(slot)

    def stream_method(self, scope: Scope, handle: int, group: str) -> None:
        """A method that yields."""
        self.begin(scope, handle, kind=METHOD, cpu=0, group=group, max_retries=self.rng.choice((0, 2, -1)))

    def begin(self, scope: Scope, handle: int, **fields: object) -> None:
        """Submit a call that yields, and take what it yields, or some of it."""
        rng = self.rng
        backpressure = rng.choice((0, 0, 1, 2, 5))
        inner = Scope(100)
        boxes = [self.item(inner) for _ in range(rng.choice((0, 1, 3, 8)))]
        if rng.random() < 0.3:
            inner.steps.append(Compute(rng.choice((10, 2000))))
        kind, raises = rng.random(), 0
        if kind < 0.15:
            raises = -1
        elif kind < 0.3:
            raises = rng.randint(1, 2)
            fields |= {"max_retries": -1, "retry_exceptions": True}
        function = self.function(num_returns=STREAMING, backpressure=backpressure, **fields)
        at = rng.randint(0, len(inner.steps)) if raises else 0
        job = self.job(function, inner, raises=raises, raises_at=at, sizes=(rng.choice((8, 200_000)),))
        slot = scope.take()
        arguments = self.some(scope.usable if handle < 0 else scope.safe, 1)
        scope.steps.append(Submit(job, slot, arguments, (), handle))
        self.consume(scope, slot, boxes, bool(backpressure), is_patient=handle < 0)

    def item(self, inner: Scope) -> bool:
        """Yield once; whether there is a reference in the item."""
        rng = self.rng
        if rng.random() < 0.5:
            inner.steps.append(Compute(rng.choice((0, 50, 2000))))
        if rng.random() < 0.7:
            inner.steps.append(Yield(self.size()))
            return False
        slot = inner.take()
        self.keys += 1
        inner.steps += [Put(self.keys, slot, self.size()), Yield(self.size(), (slot,))]
        if rng.random() < 0.5:
            inner.steps.append(Drop((slot,)))
        return True

    def consume(self, scope: Scope, slot: int, boxes: list[bool], is_limited: bool, is_patient: bool) -> None:
        """Take all, or some, or nothing.

        A call that waits for its items to be taken is not waited for before. If it is a method (not `is_patient`),
        its actor waits with it, and nothing else is done in between.
        """
        rng = self.rng
        kind = rng.random()
        if kind < 0.1 and (is_patient or not is_limited):
            if not is_limited:
                scope.usable.append(slot)
            return
        if kind < 0.2:
            scope.steps.append(Drop((slot,)))
            return
        count = len(boxes)
        first = count + 1 if kind < 0.45 else rng.choice((0, rng.randint(0, count)))
        self.take_items(scope, slot, boxes, first)
        if kind < 0.65 and first <= count:
            if is_patient and rng.random() < 0.5:
                self.leaf(scope)
            self.take_items(scope, slot, boxes[first:], count - first + 1)
        elif first <= count:
            scope.steps.append(Forget(slot, cancel=rng.random() < 0.4))
        scope.usable.append(slot)

    def take_items(self, scope: Scope, slot: int, boxes: list[bool], count: int) -> None:
        """Take so many items, or one more than there are: then the stream is at its end."""
        into = scope.take(len(boxes[:count]))
        scope.steps.append(Take(slot, into, count))
        for number, is_box in enumerate(boxes[:count]):
            scope.usable.append(into + number)
            if is_box:
                scope.boxes[into + number] = 1
