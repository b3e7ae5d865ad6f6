"""Random programs of short calls with values of other short calls as arguments: chains, stencils, trees and fans of
tasks, and chains of calls of an actor.
"""

from __future__ import annotations

from collections.abc import Callable

from mpi_runtime.scheduler.protocol.events import FOLLOWED_BYTES_MAX
from tests.simulation.options import UNIT
from tests.simulation.steps import ACTOR, METHOD, Cancel, Compute, Drop, Get, Kill, Submit
from tests.simulation.workload import Author, Scope


class LinkAuthor(Author):
    """Writes a workload with such programs."""

    def always(self) -> list[Callable[[Scope], object]]:
        """Such programs, as many as there are to be."""
        return super().always() + [self.links] * self.options.links + [self.calls] * (self.options.links > 0)

    def links(self, scope: Scope) -> None:
        """Calls of one or two functions, after some of these that were measured."""
        rng = self.rng
        self.left += 60  # the rest of the program is as long as it would be
        cpu = rng.choice((UNIT // 2, UNIT, UNIT))
        steps = [
            self.function(cpu=cpu, duration_us=rng.choice((10, 20, 300)), max_retries=rng.choice((0, 1, 3, 20, -1)))
            for _ in range(rng.choice((1, 1, 2)))
        ]
        first = [self.link(scope, step, ()) for step in steps]
        scope.steps.append(Get(tuple(first)))
        shape = rng.choice((self.chains, self.chains, self.stencil, self.pairs, self.fan))
        slots = shape(scope, lambda arguments: self.link(scope, rng.choice(steps), arguments))
        if self.options.cancels and rng.random() < 0.3:
            scope.steps.append(Cancel(rng.choice(slots), rng.random() < 0.3, rng.random() < 0.3))
        kept = slots if rng.random() < 0.5 else slots[-4:]
        scope.steps += [Drop((slot,)) for slot in slots if slot not in kept]
        scope.usable += kept
        if rng.random() < 0.5:
            scope.steps.append(Get(tuple(kept[-3:])))

    def link(self, scope: Scope, function: int, arguments: tuple[int, ...], actor: int = -1) -> int:
        """Submit one of the calls: few are long, raise, end their process, or return much."""
        rng, inner, chosen = self.rng, Scope(0), self.work.functions[function]
        inner.steps.append(self.compute(function) if rng.random() < 0.98 else Compute(rng.choice((3000, 30_000))))
        size = 8 if rng.random() < 0.95 else rng.choice((FOLLOWED_BYTES_MAX, 200_000))
        raises = (1 if rng.random() < 0.1 else 0) if chosen.retry_exceptions else (-1 if rng.random() < 0.01 else 0)
        kills = bool(self.options.deaths) and rng.random() < 0.02
        if inner.steps and rng.random() < 0.03:  # it waits for a call of its own
            leaf, task = Scope(0), function if actor < 0 else self.function(duration_us=20)
            leaf.steps.append(self.compute(task))
            inner.steps += [Submit(self.job(task, leaf), inner.take()), Get((0,))]
        slot = scope.take()
        job = self.job(function, inner, sizes=(size,), raises=raises, is_fragile=kills)
        scope.steps.append(Submit(job, slot, arguments, (), actor))
        return slot

    def calls(self, scope: Scope) -> None:
        """Chains of calls of an actor, by one or two callers, with other calls between their links."""
        rng, handle = self.rng, scope.take()
        restarts = rng.choice((0, 1, -1))
        several = rng.choice(((), (), (), (("", 2),)))
        creation = self.function(
            kind=ACTOR, max_retries=0, duration_us=300, max_restarts=restarts, concurrency=several
        )  # fmt: skip
        scope.steps.append(Submit(self.job(creation), handle))
        again = rng.random() < 0.3
        retries = (-1,) if again else (0, 0, 2, -1)
        methods = [
            self.function(
                kind=METHOD, cpu=0, max_retries=rng.choice(retries), retry_exceptions=again,
                duration_us=rng.choice((10, 20, 300)),
            )
            for _ in range(rng.choice((1, 1, 2)))
        ]  # fmt: skip
        slots = [self.link(scope, method, (), handle) for method in methods]
        scope.steps.append(Get(tuple(slots)))
        slots += self.line(scope, handle, methods, slots[-1:])
        if rng.random() < 0.5:  # another caller goes on with a value that may not exist
            inner = Scope(100, 2)
            inner.usable = self.line(inner, 0, methods, [1])
            inner.steps.append(Get(tuple(inner.usable[-2:])))
            caller, slot = self.function(cpu=UNIT // 2, duration_us=100, max_retries=0), scope.take()
            scope.steps.append(Submit(self.job(caller, inner), slot, (), (handle, slots[-1])))
            slots += [*self.line(scope, handle, methods, slots[-1:]), slot]
        if self.options.cancels and rng.random() < 0.3:
            scope.steps.append(Cancel(rng.choice(slots), rng.random() < 0.3, rng.random() < 0.3))
        if self.options.kills and rng.random() < 0.3:
            scope.steps.append(Kill(handle, no_restart=rng.random() < 0.5))
            slots += self.line(scope, handle, methods, slots[-1:])
        scope.usable += slots[-4:]
        scope.steps += [Drop((slot,)) for slot in slots[:-4]]
        if rng.random() < 0.5:
            scope.steps.append(Get(tuple(slots[-3:])))
        scope.steps.append(Drop((handle,)))

    def line(self, scope: Scope, handle: int, methods: list[int], before: list[int]) -> list[int]:
        """Calls of one caller: most need the value of the last link, some another one or none, or one of a task."""
        rng, slots = self.rng, list(before)
        mixed = rng.choice((0.0, 0.1, 0.5))
        last, task = slots[-1], self.function(duration_us=20, cpu=UNIT // 2)
        for _ in range(rng.choice((3, 8, 20))):
            needed: tuple[int, ...] = (last,)
            if rng.random() < mixed:
                late = self.link(scope, task, ())
                needed = rng.choice(((), (), (late,), (last, late), (rng.choice(slots),), (last, rng.choice(slots))))
            slots.append(self.link(scope, rng.choice(methods), tuple(dict.fromkeys(needed)), handle))
            if last in needed:
                last = slots[-1]
        return slots[len(before) :]

    def chains(self, scope: Scope, link: Callable[[tuple[int, ...]], int]) -> list[int]:
        """Chains, side by side or one after the other."""
        lasts: list[tuple[int, ...]] = [()] * self.rng.choice((1, 1, 2, 5))
        slots = []
        for _ in range(self.rng.choice((5, 20, 100 // len(lasts)))):
            for index, last in enumerate(lasts):
                slots.append(link(last))
                lasts[index] = (slots[-1],)
        return slots

    def stencil(self, scope: Scope, link: Callable[[tuple[int, ...]], int]) -> list[int]:
        """Rows, in which each call needs those around it in the row before."""
        width = self.rng.choice((2, 4, 6))
        slots = row = [link(()) for _ in range(width)]
        for _ in range(self.rng.choice((2, 5, 10))):
            row = [link(tuple(row[max(0, place - 1) : place + 2])) for place in range(width)]
            slots = slots + row
        return slots

    def pairs(self, scope: Scope, link: Callable[[tuple[int, ...]], int]) -> list[int]:
        """A tree: each call needs two."""
        slots = row = [link(()) for _ in range(self.rng.choice((4, 8, 16)))]
        while len(row) > 1:
            row = [link(tuple(row[place : place + 2])) for place in range(0, len(row), 2)]
            slots = slots + row
        return slots

    def fan(self, scope: Scope, link: Callable[[tuple[int, ...]], int]) -> list[int]:
        """Calls that all need one, and one that needs all of these; then once more."""
        slots = [link(())]
        for _ in range(self.rng.choice((1, 3))):
            middle = [link((slots[-1],)) for _ in range(self.rng.choice((2, 3, 6, 12)))]
            slots += middle
            slots.append(link(tuple(middle)))
        return slots
