"""Random programs that cancel calls."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.acting import ActorAuthor
from tests.simulation.options import UNIT
from tests.simulation.steps import METHOD, Cancel, Compute, Get, Submit
from tests.simulation.workload import Scope

LONG_US = 700_000
"""So long that a call that runs on after it was cancelled is noticed; even ten times as long it ends."""


class CancelAuthor(ActorAuthor):
    """Writes a workload in which calls are cancelled."""

    def piece(self, scope: Scope) -> None:
        """One piece, and now and then something is cancelled."""
        super().piece(scope)
        if self.options.cancels and scope.usable and self.rng.random() < self.options.cancels:
            self.cancel(scope, self.rng.choice(scope.usable[-10:]))

    def choices(self, scope: Scope) -> list[Callable[[Scope], object]]:
        """Those of every program, and some that are there to be cancelled."""
        choices = super().choices(scope)
        if self.options.cancels and scope.depth < 2:
            choices += [self.long_call, self.long_call, self.queue]
        return choices

    def always(self) -> list[Callable[[Scope], object]]:
        """Calls that are there to be cancelled, where any are."""
        return super().always() + [self.long_call, self.long_call, self.queue] * bool(self.options.cancels)

    def cancel(self, scope: Scope, slot: int) -> None:
        """Cancel what makes a value, if anything does."""
        rng = self.rng
        scope.steps.append(Cancel(slot, force=rng.random() < 0.3, recursive=rng.random() < 0.6))

    def long_call(self, scope: Scope) -> None:
        """A call that may have children and waits for them, or runs for long; and what depends on it."""
        rng = self.rng
        inner = Scope(100)
        function = self.function(
            cpu=rng.choice((0, UNIT)), duration_us=100, max_retries=rng.choice((0, 3, -1)),
            retry_exceptions=rng.random() < 0.3,
        )  # fmt: skip
        for _ in range(rng.choice((0, 1, 1, 3))):
            self.descend(inner, rng.choice((0, 1)))
        if inner.usable and rng.random() < 0.7:
            inner.steps.append(Get(tuple(inner.usable)))
        inner.steps.append(Compute(rng.choice((50, 5000, LONG_US, LONG_US))))
        slot = scope.take()
        raises = rng.choice((0, 0, 0, 1)) if self.work.functions[function].retry_exceptions else 0
        raises = min(raises, self.work.functions[function].max_retries) if raises else 0
        job = self.job(function, inner, sizes=(self.size(),), raises=raises, raises_at=len(inner.steps) * (raises > 0))
        scope.steps.append(Submit(job, slot, self.some(scope.usable, 1)))
        if rng.random() < 0.5:
            self.leaf(scope, (slot,))
        if rng.random() < 0.8:
            scope.steps.append(Compute(rng.choice((2000, 30_000, 150_000))))
        self.cancel(scope, slot)
        scope.usable.append(slot)

    def descend(self, scope: Scope, depth: int) -> None:
        """A call of a call that may be cancelled, and its own children."""
        inner = Scope(100)
        if depth:
            self.descend(inner, depth - 1)
            inner.steps.append(Get(tuple(inner.usable)))
        inner.steps.append(Compute(self.rng.choice((5000, 400_000, 400_000))))
        function = self.function(cpu=self.rng.choice((0, UNIT)), duration_us=100, max_retries=self.rng.choice((0, 3)))
        slot = scope.take()
        scope.steps.append(Submit(self.job(function, inner), slot))
        scope.usable.append(slot)

    def queue(self, scope: Scope) -> None:
        """Short calls behind each other with a long one among them, and some of those behind it are cancelled.

        The first is waited for: by what it took as many of the others are sent ahead as seem to be short.
        """
        rng = self.rng
        function = self.function(duration_us=rng.choice((10, 200)), max_retries=rng.choice((0, 1)))
        count = rng.randint(6, 20)
        long = rng.randint(1, count - 4)
        slots = [scope.take() for _ in range(count)]
        for number, slot in enumerate(slots):
            inner = Scope(100)
            inner.steps.append(Compute(rng.choice((5000, LONG_US))) if number == long else self.compute(function))
            scope.steps.append(Submit(self.job(function, inner), slot))
            if number == 0:
                scope.steps.append(Get((slot,)))
        if rng.random() < 0.8:
            scope.steps.append(Compute(rng.choice((500, 3000, 20_000))))
        for slot in sorted(rng.sample(slots[long:], rng.randint(1, 3))):
            self.cancel(scope, slot)
        scope.usable.extend(slots)

    def method(self, scope: Scope, handle: int, groups: tuple[str, ...]) -> None:
        """Call an actor, and now and then cancel that or an earlier call."""
        rng = self.rng
        if not self.options.cancels or rng.random() < 0.6:
            super().method(scope, handle, groups)
        elif scope.usable and rng.random() < 0.5:
            super().method(scope, handle, groups)
            self.cancel(scope, rng.choice(scope.usable[-3:]))
        else:
            self.held_up(scope, handle, groups)

    def held_up(self, scope: Scope, handle: int, groups: tuple[str, ...]) -> None:
        """Call an actor twice: the second call need not wait for what the first waits for, once that is cancelled."""
        rng = self.rng
        slot = scope.take(2)
        inner = Scope(100)
        inner.steps.append(Compute(300_000))
        slow = self.job(self.function(duration_us=100), inner)
        function = self.function(kind=METHOD, cpu=0, max_retries=0, duration_us=50, group=groups[0])
        scope.steps.append(Submit(slow, slot))
        scope.steps.append(Submit(self.job(function), slot + 1, (slot,), (), handle))
        super().method(scope, handle, groups)
        scope.steps.append(Compute(rng.choice((10, 100_000, 100_000))))
        self.cancel(scope, slot + 1)
        scope.usable.extend((slot, slot + 1))
