"""Random programs with trees of calls: each call submits its children, and waits for them."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.links import LinkAuthor
from tests.simulation.options import MIB, UNIT
from tests.simulation.steps import Drop, Get, Submit, Wait
from tests.simulation.workload import Scope


class TreeAuthor(LinkAuthor):
    """Writes a workload with trees of calls."""

    def always(self) -> list[Callable[[Scope], object]]:
        """Trees, as many as there are to be."""
        return super().always() + [self.tree] * self.options.trees

    def tree(self, scope: Scope) -> None:
        """A call of which all calls of a tree are children, grandchildren and so on."""
        rng = self.rng
        self.left += 200  # the rest of the program is as long as it would be
        slot = scope.take()
        scope.steps.append(Submit(self.grown(*rng.choice(((6, 1), (3, 2), (3, 2), (4, 2), (2, 3)))), slot))
        scope.usable.append(slot)

    def grown(self, depth: int, width: int) -> int:
        """The job of a call with so many generations below it."""
        rng = self.rng
        cpu, retries = rng.choice((0, UNIT // 2, UNIT, UNIT, UNIT)), rng.choice((20, -1, -1))
        function = self.function(cpu=cpu, duration_us=rng.choice((20, 300, 4000, 70_000)), max_retries=retries)
        inner = self.busy(function)
        children: list[int] = []
        for _ in range(width if depth else 0):
            child = self.grown(depth - 1 if width > 1 or rng.random() < 0.8 else 0, width)
            needed = self.some(children, 2) if rng.random() < 0.3 else ()
            children.append(inner.take())
            inner.steps.append(Submit(child, children[-1], needed))
            if rng.random() < 0.2:
                inner.steps.append(self.compute(function))
        way = rng.random()
        if children and way < 0.2:
            inner.steps.append(Wait(tuple(children), rng.randint(1, len(children))))
        if way < 0.5:
            inner.steps += [Get((child,)) for child in children]
        elif children:
            inner.steps.append(Get(tuple(children)))
        if children and rng.random() < 0.3:
            inner.steps.append(Drop((children[0],)))
        inner.steps.append(self.compute(function))
        return self.job(function, inner, sizes=(rng.choice((8, 8, 600, 3 * MIB)),))
