"""Writes random programs, before the simulation starts: tasks, what they wait for, and how it all is put together."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.simulation.cards import MEMORY, RESERVE, TYPE, reach, shareable
from tests.simulation.options import MIB, UNIT, Options, Shape, node_id, zone
from tests.simulation.steps import (
    CURSED,
    METHOD,
    TASK,
    Broadcast,
    Compute,
    Drop,
    Function,
    Get,
    Job,
    Open,
    Put,
    Step,
    Submit,
    Wait,
    Workload,
)


class Scope:
    """A program under construction: its steps, and the slots that are in use."""

    def __init__(self, depth: int, slots: int = 0) -> None:
        self.depth = depth
        self.steps: list[Step] = []
        self.next_slot = slots
        self.usable: list[int] = []
        """Slots of values that can be waited for and passed on."""
        self.safe: list[int] = []
        """Those of them that are no errors, whatever dies."""
        self.boxes: dict[int, int] = {}
        """Slots of values with references inside, and how many."""

    def take(self, count: int = 1) -> int:
        """New slots."""
        slot = self.next_slot
        self.next_slot += count
        return slot


CURSED_SHARE = 0.05
"""Of the functions, in worlds in which executors die before they begin."""


class Author:
    """Writes a workload."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.rng = random.Random(options.seed * 31 + 7)
        self.work = Workload()
        self.left = options.calls
        self.keys = 1_000_000
        self.actors_left = options.actors
        self.holding = self.rng.random() < 0.7
        """Whether actors keep CPUs and GPUs. Then no call asks for so much that it could wait for an actor to end."""
        self.cards = random.Random(options.seed * 101 + 3)
        """For GPUs that are described: so programs without them are the same."""
        self.boxes = random.Random(options.seed * 53 + 11)
        """For what is done with the references in values."""
        self.curses = random.Random(options.seed * 89 + 13)
        self.plain: dict[tuple[object, ...], int] = {}

    # Functions and jobs

    def function(self, **fields: object) -> int:
        """The number of a function with these properties."""
        can_be_cursed = fields.get("kind") != METHOD and fields.get("feasible", True) and not fields.get("environment")
        if self.options.stillborn and can_be_cursed and self.curses.random() < CURSED_SHARE:
            fields["environment"] = CURSED
        key = tuple(sorted(fields.items()))
        number = self.plain.get(key)
        if number is None:
            number = self.plain[key] = len(self.work.functions)
            self.work.functions.append(Function(number, **fields))  # type: ignore[arg-type]
        return number

    def job(self, function: int, scope: Scope | None = None, **fields: object) -> int:
        """A new job; its key is its place."""
        job = Job(len(self.work.jobs), function, tuple(scope.steps) if scope else (), **fields)  # type: ignore[arg-type]
        self.work.jobs.append(job)
        self.left -= 1
        return job.key

    def duration(self) -> int:
        return self.rng.choice((0, 20, 20, 300, 300, 4000, 70_000))

    def size(self) -> int:
        return self.rng.choice((8, 8, 8, 600, 6000, 200_000, 3 * MIB))

    def leaf_function(self) -> int:
        """A function that waits for nothing: it may ask for anything."""
        rng = self.rng
        duration = self.duration()
        retries = rng.choice((0, 1, 3, 3, -1))
        priority = {0: 1, -1: -1}.get(retries, 0)
        kind = rng.random()
        if kind < 0.5:
            cpu = rng.choice((0, UNIT // 10, UNIT // 2, UNIT, UNIT, UNIT, UNIT))
            return self.function(cpu=cpu, duration_us=duration, max_retries=retries, priority=priority)
        if kind < 0.6:
            cpu = rng.choice((0, UNIT // 2, UNIT))
            host = rng.randrange(len(self.options.hosts))
            places: list[dict[str, object]] = [
                {"spread": True}, {"node": node_id(self.options, host)}, {"zone": zone(host)},
            ]  # fmt: skip
            return self.function(
                cpu=cpu, duration_us=duration, max_retries=retries, priority=priority, **rng.choice(places)
            )
        shape = rng.choice(self.options.hosts)
        kept = self.options.actors if self.holding else 0
        cpus = max(1, shape.cpus - kept)
        if kind < 0.75:
            cpu = rng.randint(1, cpus) * UNIT if shape.cpus - kept >= 1 else 0
            return self.function(cpu=cpu, duration_us=duration, max_retries=retries, priority=priority)
        cpu = rng.choice((0, UNIT)) if shape.cpus - kept >= 1 else 0
        environment = rng.choice(((), (), (("MODE", "a"),)))
        gpus = max(0, reach(shape) - self.gpus_kept())
        gpu = rng.choice((UNIT // 4, UNIT // 2, UNIT, gpus * UNIT)) if gpus and rng.random() < 0.7 else 0
        memory = rng.choice((0, shape.memory, shape.memory // 3))
        custom = tuple((name, rng.choice((units, units // 2))) for name, units in sorted(shape.custom.items()))
        gpu_memory = 0
        if gpu and shape.kinds:
            gpu, gpu_memory, kinds = self.described(shape, gpu)
            custom += kinds
        return self.function(
            cpu=cpu, gpu=gpu, gpu_memory=gpu_memory, memory=memory, custom=custom, environment=environment,
            duration_us=duration, max_retries=retries, priority=priority,
        )  # fmt: skip

    def gpus_kept(self) -> int:
        """How many GPUs of each host a call must not need: actors may keep them, or they fail."""
        return (self.options.actors if self.holding else 0) + max(0, self.options.breakable)

    def described(self, shape: Shape, gpu: int) -> tuple[int, int, tuple[tuple[str, int], ...]]:
        """Units, bytes and types to ask for, that one rank of a host has even when actors keep some GPUs."""
        rng, kept = self.cards, self.gpus_kept()
        kinds = [kind for kind in sorted(set(shape.kinds)) if reach(shape, kind) > kept]
        if not kinds or rng.random() < 0.2:
            return gpu if shareable(shape) > kept else max(gpu, UNIT), 0, ()
        kind = rng.choice(kinds)
        memory = rng.choice((0, MEMORY[kind] // 4, MEMORY[kind] // 2, MEMORY[kind]))
        can_share = shareable(shape, kind) > kept
        beside = min(memory, MEMORY[kind] - RESERVE)  # of a share: its process takes more
        if memory and rng.random() < 0.3:
            return (0, beside, ()) if can_share else (UNIT, memory, ())
        gpu = min(gpu, (reach(shape, kind) - kept) * UNIT)
        gpu = gpu if can_share else max(gpu, UNIT)
        return gpu, beside if gpu < UNIT else memory, ((TYPE + kind, 10),)

    def infeasible_function(self, kind: int = TASK) -> int:
        largest = max(shape.cpus for shape in self.options.hosts)
        gpus = max(shape.gpus for shape in self.options.hosts)
        choices: list[dict[str, object]] = [
            {"cpu": (largest + 1) * UNIT}, {"gpu": (gpus + 1) * UNIT}, {"custom": (("unicorn", UNIT),)},
            {"node": "nowhere"}, {"zone": "nowhere"},
        ]  # fmt: skip
        fields = self.rng.choice(choices)
        return self.function(kind=kind, feasible=False, **fields)

    def compute(self, function: int) -> Compute:
        duration = self.work.functions[function].duration_us
        if self.options.long_calls and self.rng.random() < self.options.long_calls:
            duration = self.rng.choice((30_000, 300_000))
        return Compute(int(duration * (0.5 + self.rng.random())))

    # Pieces of programs

    def some(self, slots: list[int], most: int) -> tuple[int, ...]:
        """Up to so many of the slots."""
        count = self.rng.randint(0, min(most, len(slots)))
        return tuple(self.rng.sample(slots, count))

    def leaf(self, scope: Scope, arguments: tuple[int, ...] | None = None) -> int:
        """Submit a call that waits for nothing."""
        rng = self.rng
        if arguments is None:
            arguments = self.some(scope.usable, 3) if rng.random() < 0.5 else ()
            if arguments and rng.random() < 0.1:
                arguments += arguments[:1]
        function = self.leaf_function()
        inner = Scope(scope.depth + 1)
        inner.steps.append(self.compute(function))
        job = self.job(function, inner, sizes=(self.size(),))
        slot = scope.take()
        scope.steps.append(Submit(job, slot, arguments))
        scope.usable.append(slot)
        return slot

    def failing(self, scope: Scope) -> None:
        """A call that raises, or that no node can run."""
        rng = self.rng
        slot = scope.take()
        if rng.random() < 0.3:
            job = self.job(self.infeasible_function())
        elif rng.random() < 0.5:
            function = self.function(max_retries=-1, retry_exceptions=True, duration_us=50)
            job = self.job(function, raises=rng.randint(1, 3), sizes=(rng.choice((8, 200_000)),))
        else:
            function = self.function(max_retries=2, retry_exceptions=rng.random() < 0.5, duration_us=50)
            job = self.job(function, raises=-1, sizes=(rng.choice((8, 200_000)),))
        scope.steps.append(Submit(job, slot))
        scope.usable.append(slot)

    def several_returns(self, scope: Scope) -> None:
        rng = self.rng
        count = rng.choice((0, 2, 3))
        function = self.function(num_returns=count, duration_us=100)
        raises = -1 if rng.random() < 0.2 else 0
        job = self.job(function, sizes=tuple(self.size() for _ in range(count)) or (8,), raises=raises)
        slot = scope.take(count)
        scope.steps.append(Submit(job, slot))
        scope.usable.extend(range(slot, slot + count))

    def put(self, scope: Scope) -> None:
        slot = scope.take()
        holds = self.some(scope.usable, 2) if self.rng.random() < 0.5 else ()
        self.keys += 1
        scope.steps.append(Put(self.keys, slot, self.size(), holds))
        scope.usable.append(slot)
        scope.safe.append(slot)
        if holds:
            scope.boxes[slot] = len(holds)

    def chain(self, scope: Scope) -> None:
        slot = self.leaf(scope)
        for _ in range(self.rng.randint(2, 8)):
            slot = self.leaf(scope, (slot,))

    def fan_in(self, scope: Scope) -> None:
        slots = [self.leaf(scope) for _ in range(self.rng.randint(2, 6))]
        self.leaf(scope, tuple(slots))

    def nested(self, scope: Scope) -> None:
        """A call that submits others and may wait for them."""
        rng = self.rng
        given = self.some(scope.usable, 2)
        inner = Scope(scope.depth + 1, len(given))
        inner.usable.extend(range(len(given)))
        cpus = [shape.cpus for shape in self.options.hosts]
        most = max(1, max(cpus) - (self.options.actors if self.holding else 0))
        cpu = rng.choice((0, UNIT // 2, UNIT, UNIT, min(2, most) * UNIT))
        function = self.function(cpu=cpu, duration_us=self.duration(), max_retries=rng.choice((0, 3, -1)))
        inner.steps.append(self.compute(function))
        for _ in range(rng.randint(1, 4)):
            self.piece(inner)
        holds = self.some(inner.usable, 2) if rng.random() < 0.4 else ()
        job = self.job(function, inner, sizes=(self.size(),), holds=holds)
        slot = scope.take()
        scope.steps.append(Submit(job, slot, self.some(scope.usable, 1), given))
        scope.usable.append(slot)
        if holds:
            scope.boxes[slot] = len(holds)

    def deep(self, scope: Scope) -> None:
        """Calls that each wait for the next, down to depth 20."""
        depth = self.rng.choice((5, 20))
        function = self.function(duration_us=50, max_retries=3)
        job = self.job(function)
        for _ in range(depth):
            inner = Scope(0)
            inner.steps = [Submit(job, 0), Compute(20), Get((0,))]
            job = self.job(function, inner)
        slot = scope.take()
        scope.steps.append(Submit(job, slot))
        scope.usable.append(slot)

    def burst(self, scope: Scope) -> None:
        """Many short calls of one function, now and then a long one among them, or some that kill their process."""
        function = self.function(duration_us=self.rng.choice((10, 200, 1500)), max_retries=1)
        may_kill = self.options.deaths and self.rng.random() < 0.5
        killer = self.function(duration_us=50, max_retries=3) if may_kill else None
        slots = []
        for _ in range(self.rng.randint(10, 40)):
            inner = Scope(0)
            inner.steps.append(self.compute(function))
            slot = scope.take()
            scope.steps.append(Submit(self.job(function, inner), slot))
            slots.append(slot)
            if killer is not None and self.rng.random() < 0.15:
                inner = Scope(0)
                inner.steps.append(Compute(50))
                scope.steps.append(Submit(self.job(killer, inner, kills=True), scope.take()))
        scope.usable.extend(slots)

    def crossing(self, scope: Scope) -> None:
        """Calls of one function of which one waits for another: they must not stand behind each other for ever."""
        function = self.function(duration_us=20, max_retries=3)
        last = Scope(0)
        last.steps.append(Compute(20))
        late, early = self.job(function, last), scope.take(2)
        first = Scope(0, 1)
        first.steps = [Compute(50), Get((0,))]
        arguments = self.some(scope.usable, 1)
        scope.steps.append(Submit(late, early, arguments))
        scope.steps.append(Submit(self.job(function, first), early + 1, (), (early,)))
        scope.usable.extend((early, early + 1))

    # Programs

    def piece(self, scope: Scope) -> None:
        """One random piece of a program."""
        rng = self.rng
        rng.choice(self.choices(scope))(scope)
        if rng.random() < 0.4:
            self.look(scope)
        if rng.random() < 0.2 and scope.usable:
            self.forget(scope, rng.choice(scope.usable))

    def choices(self, scope: Scope) -> list[Callable[[Scope], object]]:
        """The kinds of pieces that there may be here."""
        choices: list[Callable[[Scope], object]] = [self.leaf, self.leaf]
        choices += [self.put, self.chain, self.fan_in, self.several_returns, self.failing, self.look]
        if scope.depth < self.options.depth and self.left > 0:
            choices += [self.nested, self.nested]
        if scope.depth == 0:
            choices += [self.deep, self.burst, self.crossing, self.crossing, self.crossing]
        return choices

    def always(self) -> list[Callable[[Scope], object]]:
        """Pieces that each program has."""
        has_losses = self.options.host_losses or self.options.rank_losses > 0
        calm: list[Callable[[Scope], object]] = [self.sweep, self.sweep, self.turns, self.turns]
        spreads = self.options.part_bytes > 0 and len(self.options.hosts) > 1 and not self.options.is_calm
        return calm * self.options.is_calm + [self.heirs] * 3 * has_losses + [self.spread] * 2 * spreads

    def heirs(self, scope: Scope) -> None:
        """Large values, each made of those before it; the program lets go of some, and looks at the last late."""
        rng = self.rng
        retries = rng.choice((1, 3, -1, -1))
        duration_us = rng.choice((300, 4000, 20_000))
        step = self.function(duration_us=duration_us, max_retries=retries, spread=rng.random() < 0.5)
        small = self.leaf(scope, ())
        line = [small]
        for _ in range(rng.randint(2, 6)):
            slot = scope.take()
            needed = tuple(dict.fromkeys((line[-1], rng.choice(line))))
            scope.steps.append(Submit(self.job(step, self.busy(step), sizes=(3 * MIB,)), slot, needed))
            if rng.random() < 0.6 and line[-1] != small:
                scope.steps.append(Drop((line.pop(),)))
            line.append(slot)
        if rng.random() < 0.7:
            scope.steps += [Wait((line[-1],), 1), Compute(rng.choice((0, 20_000, 200_000)))]
        scope.usable += [slot for slot in line if slot != small]
        last = node_id(self.options, len(self.options.hosts) - 1)
        pinned = self.function(node=last, cpu=UNIT, duration_us=duration_us, max_retries=3)
        for _ in range(rng.choice((0, 0, 3))):
            slot = scope.take()
            scope.steps.append(Submit(self.job(pinned, self.busy(pinned)), slot))
            scope.usable.append(slot)

    def sweep(self, scope: Scope) -> None:
        """Large values on all hosts, and rounds of calls of one function that each go on with one of them."""
        rng = self.rng
        hosts = len(self.options.hosts)
        make = self.function(cpu=0, spread=True, duration_us=300)
        step = self.function(cpu=UNIT // 2, duration_us=rng.choice((300, 4000, 20_000)))
        plain = scope.take()
        scope.steps += [Submit(self.job(step, self.busy(step)), plain), Get((plain,))]
        slots = []
        for _ in range(hosts):
            slots.append(scope.take())
            scope.steps.append(Submit(self.job(make, self.busy(make), sizes=(3 * MIB,)), slots[-1]))
        for _ in range(rng.randint(3, 6)):
            scope.steps.append(Wait(tuple(slots), hosts))
            for index, slot in enumerate(slots):
                slots[index] = scope.take()
                scope.steps.append(Submit(self.job(step, self.busy(step), sizes=(3 * MIB,)), slots[index], (slot,)))
                scope.steps.append(Drop((slot,)))
        scope.usable += slots
        self.left += 3 * hosts

    def spread(self, scope: Scope) -> None:
        """One large value that calls on all hosts want at the same time; some of them are not wanted after all."""
        rng = self.rng
        make = self.function(cpu=0, duration_us=300, max_retries=-1, spread=rng.random() < 0.5)
        value = scope.take()
        scope.steps.append(Submit(self.job(make, self.busy(make), sizes=(3 * MIB,)), value))
        if rng.random() < 0.7:
            scope.steps.append(Wait((value,), 1))
        if rng.random() < 0.5:
            scope.steps.append(Broadcast(value))
        slots = []
        for _ in range(rng.choice((1, 2))):
            for host in range(len(self.options.hosts)):
                use = self.function(node=node_id(self.options, host), duration_us=300, max_retries=-1)
                slots.append(scope.take())
                scope.steps.append(Submit(self.job(use, self.busy(use)), slots[-1], (value,)))
        scope.usable += [value, *slots]
        self.left += 2 * len(self.options.hosts)

    def turns(self, scope: Scope) -> None:
        """Calls with GPUs, one after the other: who idles with some is used again, or left alone."""
        rng = self.rng
        shapes = [shape for shape in self.options.hosts if reach(shape) > self.gpus_kept()]
        for _ in range(rng.randint(4, 10) if shapes else 0):
            most = reach(rng.choice(shapes)) - self.gpus_kept()
            gpu = rng.choice((UNIT, UNIT, min(2, most) * UNIT))
            function = self.function(cpu=0, gpu=gpu, environment=rng.choice(((), (("MODE", "a"),))), duration_us=300)
            slots = scope.take(rng.choice((1, 1, 2)))
            for slot in range(slots, scope.next_slot):
                scope.steps.append(Submit(self.job(function, self.busy(function)), slot))
            scope.steps.append(Get(tuple(range(slots, scope.next_slot))))
            scope.usable += range(slots, scope.next_slot)

    def busy(self, function: int) -> Scope:
        """What a call does that only computes."""
        inner = Scope(0)
        inner.steps.append(self.compute(function))
        return inner

    def gpu_calls(self, scope: Scope) -> list[int]:
        """Calls that each want something else of the same GPUs, besides all others of the program; their slots."""
        rng = self.cards
        slots = []
        kept = self.gpus_kept()
        shapes = [shape for shape in self.options.hosts if shape.kinds and reach(shape) > kept]
        for _ in range(rng.randint(4, 12) if shapes else 0):
            shape = rng.choice(shapes)
            most = (reach(shape) - kept) * UNIT
            wish = min(most, rng.choice((UNIT // 4, UNIT // 2, UNIT, UNIT, 2 * UNIT, most)))
            gpu, memory, kinds = self.described(shape, wish)
            function = self.function(
                cpu=0, gpu=gpu, gpu_memory=memory, custom=kinds, environment=rng.choice(((), (("MODE", "a"),)))
            )
            inner, slot = Scope(0), scope.take()
            inner.steps.append(Compute(rng.choice((20, 300, 4000))))
            scope.steps.append(Submit(self.job(function, inner), slot))
            slots.append(slot)
            self.left += 1
        return slots

    def look(self, scope: Scope) -> None:
        """Wait for something that has been asked for."""
        slots = self.some(scope.usable, 4)
        if not slots:
            return
        kind = self.rng.random()
        boxes = [slot for slot in slots if slot in scope.boxes]
        if boxes:
            count = scope.boxes[boxes[0]]
            inside = tuple(range(scope.next_slot, scope.next_slot + count))
            scope.steps.append(Open(boxes[0], scope.take(count), count))
            if self.boxes.random() < 0.4:  # what was inside must outlive it
                self.forget(scope, boxes[0])
                scope.steps += [Compute(self.boxes.choice((0, 50, 3000))), Get(inside)]
            scope.usable.extend(inside)
        elif kind < 0.3:
            scope.steps.append(Wait(slots, self.rng.randint(1, len(slots))))
        else:
            scope.steps.append(Get(slots))

    def forget(self, scope: Scope, slot: int) -> None:
        scope.steps.append(Drop((slot,)))
        scope.usable.remove(slot)
        if slot in scope.safe:
            scope.safe.remove(slot)
        scope.boxes.pop(slot, None)

    def write(self) -> Workload:
        """The whole program: pieces until enough calls are made, then a look at most of what is left."""
        scope = Scope(0)
        on_gpus = self.gpu_calls(scope)
        first = self.always()
        self.rng.shuffle(first)
        for piece in first:
            piece(scope)
        while self.left > 0:
            self.piece(scope)
        scope.usable += on_gpus
        left = [slot for slot in scope.usable if self.rng.random() < 0.8]
        self.rng.shuffle(left)
        for start in range(0, len(left), 7):
            scope.steps.append(Get(tuple(left[start : start + 7])))
        self.work.steps = scope.steps
        return self.work
