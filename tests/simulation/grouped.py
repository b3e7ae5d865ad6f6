"""Random programs that use placement groups.

While a group is there the driver waits for nothing outside of it: a call outside may need what the group has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mpi_runtime.scheduler.protocol.events import STRATEGIES
from tests.simulation.cancelling import CancelAuthor
from tests.simulation.cards import reach, shareable
from tests.simulation.options import ALL, UNIT, Options, zone
from tests.simulation.steps import ACTOR, METHOD, Bundle, Compute, Drop, Get, MakeGroup, RemoveGroup, Submit, Workload
from tests.simulation.workload import Scope


class GroupAuthor(CancelAuthor):
    """Writes a workload with placement groups."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.groups_left = options.groups

    def choices(self, scope: Scope) -> list[Callable[[Scope], object]]:
        """Those of every program, and a section with groups."""
        choices = super().choices(scope)
        if scope.depth == 0 and self.groups_left > 0:
            choices += [self.section] * 3
        return choices

    def always(self) -> list[Callable[[Scope], object]]:
        """A section with groups, where there are any."""
        return super().always() + [self.section] * (self.groups_left > 0)

    def section(self, scope: Scope) -> None:
        """One group or two, of which the second may have to wait for the end of the first.

        It is made when the first has been placed, or cannot be: else it might be placed first, and be waited for.
        """
        self.groups_left -= 1
        groups = [self.group(scope)]
        may_be_lost = self.options.rank_losses or self.options.host_losses  # then the first may want more room later
        if self.rng.random() < 0.4 and not may_be_lost:
            if groups[0].feasible:
                scope.steps.append(Get((groups[0].slot,)))
            groups.append(self.group(scope))
        returned = [self.use(scope, made) for made in groups]
        for made, inside in zip(groups, returned, strict=True):
            self.end(scope, made, inside)

    def group(self, scope: Scope) -> MakeGroup:
        """Ask for a group."""
        rng = self.rng
        strategy = rng.choice(STRATEGIES)
        kept = self.options.actors if self.holding else 0
        rooms = [max(1, shape.cpus - kept) for shape in self.options.hosts]
        host = rng.randrange(len(rooms))
        # One that is made after the last host was lost would wait for ever.
        most = len(rooms) - self.options.host_losses if strategy == "STRICT_SPREAD" else rooms[host]
        bundles = [Bundle(rng.choice((UNIT // 2, UNIT, UNIT))) for _ in range(rng.randint(1, min(4, most)))]
        feasible = rng.random() < 0.85
        if not feasible:
            bundles[0] = Bundle((max(shape.cpus for shape in self.options.hosts) + 1) * UNIT)
        elif strategy != "STRICT_SPREAD":
            bundles[0] = self.with_devices(bundles[0], host)
        self.keys += 1
        if self.keys % 2:  # not by chance, so that old seeds keep their programs
            bundles = self.in_zones(bundles, host, strategy, feasible)
        made = MakeGroup(self.keys, scope.take(), tuple(bundles), strategy, feasible)
        scope.steps.append(made)
        return made

    def with_devices(self, bundle: Bundle, host: int) -> Bundle:
        """A bundle that wants other things of a host, too."""
        rng, shape = self.rng, self.options.hosts[host]
        gpus = max(0, reach(shape) - self.gpus_kept()) if self.options.breakable != ALL else 0
        if gpus and rng.random() < 0.6:
            bundle = replace(bundle, gpu=rng.choice((UNIT // 2, UNIT, gpus * UNIT)))
            if shareable(shape) <= self.gpus_kept():
                bundle = replace(bundle, gpu=max(bundle.gpu, UNIT))
        if rng.random() < 0.3:
            bundle = replace(bundle, memory=shape.memory // 2)
        if rng.random() < 0.3:
            bundle = replace(bundle, custom=tuple((name, units // 2) for name, units in sorted(shape.custom.items())))
        return bundle

    def in_zones(self, bundles: list[Bundle], host: int, strategy: str, feasible: bool) -> list[Bundle]:
        """Bundles bound to labels: to those of this host, on which all fit, or to those of no host."""
        if not feasible:
            return [Bundle(UNIT, zone="nowhere"), *bundles[1:]]
        if self.options.rank_losses or self.options.host_losses:
            return bundles  # the last host of a zone may be lost
        bound = 1 if strategy == "STRICT_SPREAD" or self.keys % 4 == 1 else len(bundles)
        return [replace(one, zone=zone(host)) for one in bundles[:bound]] + bundles[bound:]

    @property
    def no_shares(self) -> bool:
        """Whether a bundle may have a GPU of which there are no shares."""
        return any(shape.exclusive for shape in self.options.hosts)

    def use(self, scope: Scope, made: MakeGroup) -> list[int]:
        """Run calls in a group; the slots of what they return."""
        rng = self.rng
        inside: list[int] = []
        taken = -1
        if made.feasible and rng.random() < 0.4 and self.actors_left > 0:
            self.actors_left -= 1
            taken = self.member(scope, made, inside)
        free = [index for index in range(len(made.bundles)) if index != taken]
        for _ in range(rng.randint(1, 8) if free else 0):
            index = rng.choice(free)
            if rng.random() < 0.2:
                self.parent(scope, made, index, inside)
            else:
                self.child(scope, made.slot, made.bundles[index], index if taken >= 0 else self.either(index), inside)
        return inside

    def either(self, index: int) -> int:
        """This bundle, or any."""
        return self.rng.choice((index, -1))

    def end(self, scope: Scope, made: MakeGroup, inside: list[int]) -> None:
        """Remove a group: when all that runs in it has been waited for, or earlier."""
        rng = self.rng
        is_early = not made.feasible or rng.random() < 0.4
        if not is_early:
            scope.steps.append(Get((made.slot, *inside)))
        elif made.feasible and rng.random() < 0.5:
            scope.steps.append(Get((made.slot,)))
        scope.steps.append(RemoveGroup(made.slot, is_early))
        if is_early:
            self.crowd(scope)
        scope.usable.extend(inside)
        if not made.feasible and rng.random() < 0.5:
            late: list[int] = []
            self.child(scope, made.slot, made.bundles[0], 0, late)
            scope.usable.extend(late)
        if made.feasible and not is_early and rng.random() < 0.3:
            self.leaf(scope, (made.slot,))
        scope.steps.append(Drop((made.slot,)))

    def child(self, scope: Scope, group: int, bundle: Bundle, index: int, into: list[int]) -> None:
        """A call in a bundle, or in any that has what it needs."""
        rng = self.rng
        cpu = rng.choice((0, bundle.cpu // 2, bundle.cpu, bundle.cpu))
        part = bundle.gpu if self.no_shares else min(bundle.gpu, UNIT // 2)
        function = self.function(
            cpu=cpu, gpu=rng.choice((0, part, bundle.gpu)), memory=rng.choice((0, bundle.memory)),
            custom=rng.choice(((), bundle.custom)), duration_us=self.duration(), max_retries=rng.choice((0, 3, -1)),
        )  # fmt: skip
        inner = Scope(100)
        inner.steps.append(self.compute(function))
        slot = scope.take()
        job = self.job(function, inner, sizes=(self.size(),))
        scope.steps.append(Submit(job, slot, self.some(into, 1), group=group, bundle=index))
        into.append(slot)

    def parent(self, scope: Scope, made: MakeGroup, index: int, into: list[int]) -> None:
        """A call that runs others in the same bundle and waits for them."""
        bundle = made.bundles[index]
        function = self.function(cpu=self.rng.choice((0, bundle.cpu)), duration_us=300, max_retries=3)
        inner = Scope(100, 1)
        inner.steps.append(self.compute(function))
        slots: list[int] = []
        for _ in range(self.rng.randint(1, 3)):
            self.child(inner, 0, Bundle(bundle.cpu), index, slots)
        inner.steps.append(Get(tuple(slots)))
        slot = scope.take()
        scope.steps.append(Submit(self.job(function, inner), slot, (), (made.slot,), group=made.slot, bundle=index))
        into.append(slot)

    def member(self, scope: Scope, made: MakeGroup, into: list[int]) -> int:
        """An actor in a bundle; the bundle if it keeps all of its CPU, else -1."""
        rng = self.rng
        index = rng.randrange(len(made.bundles))
        bundle = made.bundles[index]
        holds = rng.random() < 0.5
        function = self.function(
            kind=ACTOR, cpu=bundle.cpu, held_cpu=bundle.cpu if holds else 0, max_retries=0, duration_us=2000
        )
        handle = scope.take()
        scope.steps.append(Submit(self.job(function), handle, group=made.slot, bundle=index))
        method = self.function(kind=METHOD, cpu=0, max_retries=0, duration_us=300)
        for _ in range(rng.randint(1, 4)):
            inner = Scope(100)
            inner.steps.append(Compute(rng.choice((10, 2000))))
            slot = scope.take()
            scope.steps.append(Submit(self.job(method, inner, sizes=(self.size(),)), slot, actor=handle))
            into.append(slot)
        if rng.random() < 0.5:
            scope.steps.append(Drop((handle,)))  # else the end of the group is its end
        return index if holds else -1


def write(options: Options) -> Workload:
    """The program that belongs to these options."""
    return GroupAuthor(options).write()
