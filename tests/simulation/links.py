"""Random programs of short calls with values of other short calls as arguments: chains, stencils, trees and fans."""

from __future__ import annotations

from collections.abc import Callable

from mpi_runtime.scheduler.protocol.events import FOLLOWED_BYTES_MAX
from tests.simulation.options import UNIT
from tests.simulation.steps import Cancel, Compute, Drop, Get, Submit
from tests.simulation.workload import Author, Scope


class LinkAuthor(Author):
    """Writes a workload with such programs."""

    def always(self) -> list[Callable[[Scope], object]]:
        """Such programs, as many as there are to be."""
        return super().always() + [self.links] * self.options.links

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

    def link(self, scope: Scope, function: int, arguments: tuple[int, ...]) -> int:
        """Submit one of the calls: few are long, raise, end their process, or return much."""
        rng, inner = self.rng, Scope(0)
        inner.steps.append(self.compute(function) if rng.random() < 0.98 else Compute(rng.choice((3000, 30_000))))
        size = 8 if rng.random() < 0.95 else rng.choice((FOLLOWED_BYTES_MAX, 200_000))
        raises = -1 if rng.random() < 0.01 else 0
        kills = bool(self.options.deaths) and rng.random() < 0.02
        if inner.steps and rng.random() < 0.03:  # it waits for a call of its own
            leaf = Scope(0)
            leaf.steps.append(self.compute(function))
            inner.steps += [Submit(self.job(function, leaf), inner.take()), Get((0,))]
        slot = scope.take()
        job = self.job(function, inner, sizes=(size,), raises=raises, is_fragile=kills)
        scope.steps.append(Submit(job, slot, arguments))
        return slot

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
