"""Random programs that use actors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation.cards import reach, shareable
from tests.simulation.options import ALL, UNIT
from tests.simulation.steps import ACTOR, METHOD, Await, Compute, Drop, Get, Kill, Signal, Step, Submit
from tests.simulation.streaming import StreamAuthor
from tests.simulation.workload import Scope


class ActorAuthor(StreamAuthor):
    """Writes a workload with actors."""

    def choices(self, scope: Scope) -> list[Callable[[Scope], object]]:
        """Those of every program, and actors."""
        choices = super().choices(scope)
        if scope.depth == 0 and self.actors_left > 0:
            choices += [self.actor, self.actor]
        return choices

    def always(self) -> list[Callable[[Scope], object]]:
        """An actor, where there may be such that take several calls at a time."""
        drops = [self.dropped] * (self.options.dropped_actors > 0)
        return super().always() + [self.actor] * self.options.concurrent + drops

    def actor(self, scope: Scope) -> None:
        """Create an actor, call it from here and from others, and let it go or kill it."""
        rng = self.rng
        self.actors_left -= 1
        doomed = rng.random() < 0.2
        handle = scope.take()
        given = self.some(scope.usable, 2)
        beside = self.beside() if self.options.concurrent else {}
        groups = tuple(dict(beside.get("concurrency", ()))) or ("",)
        restarts = rng.choice((0, 0, 1, -1))
        if doomed and rng.random() < 0.4:
            creation = self.job(self.infeasible_function(ACTOR))
        else:
            keeps_gpu = self.holding and any(shape.gpus for shape in self.options.hosts) and rng.random() < 0.5
            function = self.function(
                kind=ACTOR, cpu=UNIT, held_cpu=UNIT if self.holding and self.can_hold() else 0,
                gpu=UNIT // 2 if keeps_gpu and self.can_hold_gpus() else 0, max_retries=0, duration_us=2000,
                max_restarts=restarts, **beside,
            )  # fmt: skip
            creation = self.job(function, raises=-1 if doomed else 0, keeps=rng.random() < 0.5)
        name = f"actor {self.actors_left}" if rng.random() < 0.5 else ""
        scope.steps.append(Submit(creation, handle, self.some(scope.safe, 1), given, name=name))
        for _ in range(rng.randint(1, 12 if beside else 6)):
            self.method(scope, handle, groups)
        if beside.get("concurrency") and not doomed and not restarts and rng.random() < 0.7:
            self.meeting(scope, handle, dict(beside["concurrency"]))
            self.method(scope, handle, groups)
        if rng.random() < 0.5:
            self.passed_on(scope, handle, groups)
        if self.options.kills and rng.random() < 0.5:
            if rng.random() < 0.5:
                scope.steps.append(Get(tuple(scope.usable[-1:])))  # then it is known to be alive
            scope.steps.append(Kill(handle, no_restart=rng.random() < 0.6))
            self.method(scope, handle, groups)
            self.crowd(scope)
        scope.steps.append(Drop((handle,)))

    def dropped(self, scope: Scope) -> None:
        """Actors that nobody calls: some wait for an argument, and some of their handles live for a while."""
        rng = self.rng
        late = self.function(duration_us=4000, max_retries=-1)
        self.left += self.options.dropped_actors
        for _ in range(self.options.dropped_actors):
            arguments = scope.take() if rng.random() < 0.3 else -1
            if arguments >= 0:
                scope.steps.append(Submit(self.job(late, self.busy(late)), arguments))
            function = self.function(
                kind=ACTOR, cpu=rng.choice((0, UNIT)), held_cpu=0, max_retries=0, duration_us=2000,
                max_restarts=rng.choice((0, 0, -1)),
            )  # fmt: skip
            handle = scope.take()
            needed = (arguments,) if arguments >= 0 else ()
            scope.steps.append(Submit(self.job(function, is_dropped=True), handle, needed))
            if rng.random() < 0.2:
                scope.steps.append(Compute(rng.choice((50, 3000, 20_000))))
            scope.steps.append(Drop((handle, *needed)))

    def crowd(self, scope: Scope) -> None:
        """As many calls at once as there are CPUs: what comes free too early is taken."""
        function = self.function(duration_us=3000, max_retries=3)
        for _ in range(sum(shape.cpus for shape in self.options.hosts)):
            inner, slot = Scope(0), scope.take()
            inner.steps.append(self.compute(function))
            scope.steps.append(Submit(self.job(function, inner), slot))
            scope.usable.append(slot)

    def can_hold(self) -> bool:
        return all(shape.cpus > self.options.actors for shape in self.options.hosts)

    def can_hold_gpus(self) -> bool:
        rooms = [(reach(shape), shareable(shape)) for shape in self.options.hosts]
        lost = self.options.breakable
        return lost != ALL and all(room == 0 or shares > self.options.actors + lost for room, shares in rooms)

    def beside(self) -> dict[str, Any]:
        """Properties of an actor that takes several calls at a time, or in any order."""
        rng = self.rng
        limits = ((("", 2),), (("", 8),), (("", 1), ("io", 2)), (("", 2), ("io", 1)))
        concurrency = rng.choice(limits) if rng.random() < 0.8 else ()
        is_async = bool(concurrency) and rng.random() < 0.5
        return {"concurrency": concurrency, "is_async": is_async, "out_of_order": rng.random() < 0.4}

    def meeting(self, scope: Scope, handle: int, limits: dict[str, int]) -> None:
        """Calls that wait for what a later one does: only if as many run at the same time as may they end.

        Such an actor lives once, or the later call could have run in an earlier life of it; and nobody cancels that.
        """
        self.keys += 1
        waiting, other = self.rng.choice([(one, two) for one in limits for two in limits])
        parts: list[tuple[str, Step]] = [(waiting, Await(self.keys))] * (limits[waiting] - (waiting == other))
        parts.append((other, Signal(self.keys)))
        slot = scope.take(len(parts))
        for number, (group, step) in enumerate(parts):
            inner = Scope(100)
            inner.steps = [Compute(20), step]
            function = self.function(kind=METHOD, cpu=0, max_retries=0, duration_us=50, group=group)
            scope.steps.append(Submit(self.job(function, inner), slot + number, (), (), handle))
        scope.usable.extend(range(slot, slot + len(parts) - 1))

    def method(self, scope: Scope, handle: int, groups: tuple[str, ...]) -> None:
        """Call an actor. What it waits for never waits for an actor."""
        rng = self.rng
        group = rng.choice(groups) if len(groups) > 1 else groups[0]
        if self.options.streams and rng.random() < 0.25:
            self.stream_method(scope, handle, group)
            return
        inner = Scope(100)
        passing = rng.random() < 0.1
        function = self.function(
            kind=METHOD, cpu=0, max_retries=-1 if passing else rng.choice((0, 0, 2)), retry_exceptions=passing,
            duration_us=rng.choice((10, 500, 5000, 30_000) if self.options.concurrent else (10, 500)), group=group,
        )  # fmt: skip
        inner.steps.append(self.compute(function))
        if rng.random() < 0.2:
            slot = self.leaf(inner, ())
            inner.steps.append(Get((slot,)))
        raises = rng.randint(1, 2) if passing else -1 if rng.random() < 0.1 else 0
        is_fragile = self.options.concurrent and rng.random() < 0.2
        job = self.job(function, inner, sizes=(self.size(),), raises=raises, is_fragile=is_fragile)
        slot = scope.take()
        arguments = self.some(scope.safe, 2)
        if self.options.concurrent and rng.random() < 0.2:
            arguments = (self.leaf(scope, ()), *arguments)
        scope.steps.append(Submit(job, slot, arguments, (), handle))
        scope.usable.append(slot)

    def passed_on(self, scope: Scope, handle: int, groups: tuple[str, ...]) -> None:
        """Give the handle to a task, which calls the actor too."""
        inner = Scope(100, 1)
        for _ in range(self.rng.randint(1, 3)):
            self.method(inner, 0, groups)
        inner.steps.append(Get(tuple(inner.usable)))
        function = self.function(cpu=UNIT // 2, duration_us=100, max_retries=0)
        slot = scope.take()
        scope.steps.append(Submit(self.job(function, inner), slot, (), (handle,)))
        scope.usable.append(slot)
