"""Random programs: what the driver does, and what each call does when it runs. Data, made before the simulation starts.

A program is a list of steps over numbered slots; a slot holds a reference. The same steps are interpreted twice: by
virtual processes that talk to the scheduler (`processes.py`), and by an oracle that knows no scheduler (`oracle.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.simulation.options import MIB, UNIT, Options, node_id, zone

TASK, ACTOR, METHOD = 0, 1, 2
NAMES = ("first", "second")
"""So few that actors of one program want the same."""


@dataclass(frozen=True)
class Function:
    """What calls have in common."""

    number: int
    kind: int = TASK
    cpu: int = UNIT
    gpu: int = 0
    memory: int = 0
    custom: tuple[tuple[str, int], ...] = ()
    held_cpu: int = 0
    num_returns: int = 1
    max_retries: int = 3
    retry_exceptions: bool = False
    environment: tuple[tuple[str, str], ...] = ()
    duration_us: int = 100
    feasible: bool = True
    max_restarts: int = 0
    priority: int = 0
    spread: bool = False
    node: str = ""
    """The id of the node on which calls run."""
    zone: str = ""
    """The label of the nodes on which calls run."""


@dataclass(frozen=True)
class Bundle:
    """What a bundle of a placement group reserves."""

    cpu: int = 0
    gpu: int = 0
    memory: int = 0
    custom: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Compute:
    duration_us: int


@dataclass(frozen=True)
class Submit:
    """Call a job; its return values come into slots from `slot` on."""

    job: int
    slot: int
    arguments: tuple[int, ...] = ()
    holds: tuple[int, ...] = ()
    actor: int = -1
    """The slot of the actor that is called."""
    name: str = ""
    """For creations: the name that the actor is to have, if it is free."""
    group: int = -1
    """The slot of the placement group in which it is to run."""
    bundle: int = -1
    """In which of its bundles; -1: in any."""


@dataclass(frozen=True)
class Put:
    """Make a value an object."""

    key: int
    slot: int
    size: int
    holds: tuple[int, ...] = ()


@dataclass(frozen=True)
class Get:
    slots: tuple[int, ...]


@dataclass(frozen=True)
class Wait:
    slots: tuple[int, ...]
    count: int


@dataclass(frozen=True)
class Open:
    """Read a value, and take the references that are inside into slots from `into` on."""

    slot: int
    into: int
    count: int


@dataclass(frozen=True)
class Drop:
    slots: tuple[int, ...]


@dataclass(frozen=True)
class Kill:
    slot: int
    no_restart: bool = True


@dataclass(frozen=True)
class MakeGroup:
    """Ask for a placement group."""

    key: int
    slot: int
    bundles: tuple[Bundle, ...]
    strategy: str
    feasible: bool = True


@dataclass(frozen=True)
class RemoveGroup:
    """End a placement group."""

    slot: int
    is_early: bool = False
    """Whether something may still run or wait in it."""


Step: TypeAlias = "Compute | Submit | Put | Get | Wait | Open | Drop | Kill | MakeGroup | RemoveGroup"


@dataclass(frozen=True)
class Job:
    """One call: which function, and what it does. It finds the references in its arguments in slots from 0 on."""

    key: int
    function: int
    steps: tuple[Step, ...] = ()
    sizes: tuple[int, ...] = (8,)
    """The size of each return value."""
    holds: tuple[int, ...] = ()
    """Slots whose references are inside the first return value."""
    raises: int = 0
    """How many attempts raise; -1: all."""
    keeps: bool = False
    """For creations: the actor keeps the references that it was given."""


@dataclass
class Workload:
    """One program."""

    functions: list[Function] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    """Of the driver."""


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
        self.plain: dict[tuple[object, ...], int] = {}

    # Functions and jobs

    def function(self, **fields: object) -> int:
        """The number of a function with these properties."""
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
        gpus = max(0, shape.gpus - kept)
        gpu = rng.choice((UNIT // 4, UNIT // 2, UNIT, gpus * UNIT)) if gpus and rng.random() < 0.7 else 0
        memory = rng.choice((0, shape.memory, shape.memory // 3))
        custom = tuple((name, rng.choice((units, units // 2))) for name, units in sorted(shape.custom.items()))
        return self.function(
            cpu=cpu, gpu=gpu, memory=memory, custom=custom, environment=environment, duration_us=duration,
            max_retries=retries, priority=priority,
        )  # fmt: skip

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
        """Many short calls of one function, and now and then a long one among them."""
        function = self.function(duration_us=self.rng.choice((10, 200, 1500)), max_retries=1)
        slots = []
        for _ in range(self.rng.randint(10, 40)):
            inner = Scope(0)
            inner.steps.append(self.compute(function))
            slot = scope.take()
            scope.steps.append(Submit(self.job(function, inner), slot))
            slots.append(slot)
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

    # Actors

    def actor(self, scope: Scope) -> None:
        """Create an actor, call it from here and from others, and let it go or kill it."""
        rng = self.rng
        self.actors_left -= 1
        doomed = rng.random() < 0.2
        handle = scope.take()
        given = self.some(scope.usable, 2)
        if doomed and rng.random() < 0.4:
            creation = self.job(self.infeasible_function(ACTOR))
        else:
            keeps_gpu = self.holding and any(shape.gpus for shape in self.options.hosts) and rng.random() < 0.5
            function = self.function(
                kind=ACTOR, cpu=UNIT, held_cpu=UNIT if self.holding and self.can_hold() else 0,
                gpu=UNIT // 2 if keeps_gpu and self.can_hold_gpus() else 0, max_retries=0, duration_us=2000,
                max_restarts=rng.choice((0, 0, 1, -1)),
            )  # fmt: skip
            creation = self.job(function, raises=-1 if doomed else 0, keeps=rng.random() < 0.5)
        name = rng.choice(NAMES) if rng.random() < 0.5 else ""
        scope.steps.append(Submit(creation, handle, self.some(scope.safe, 1), given, name=name))
        for _ in range(rng.randint(1, 6)):
            self.method(scope, handle)
        if rng.random() < 0.5:
            self.passed_on(scope, handle)
        if self.options.kills and rng.random() < 0.5:
            if rng.random() < 0.5:
                scope.steps.append(Get(tuple(scope.usable[-1:])))  # then it is known to be alive
            scope.steps.append(Kill(handle, no_restart=rng.random() < 0.6))
            self.method(scope, handle)
            self.crowd(scope)
        scope.steps.append(Drop((handle,)))

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
        return all(shape.gpus == 0 or shape.gpus > self.options.actors for shape in self.options.hosts)

    def method(self, scope: Scope, handle: int) -> None:
        """Call an actor. What it waits for never waits for an actor."""
        rng = self.rng
        inner = Scope(100)
        passing = rng.random() < 0.1
        function = self.function(
            kind=METHOD, cpu=0, max_retries=-1 if passing else rng.choice((0, 0, 2)), retry_exceptions=passing,
            duration_us=rng.choice((10, 500)),
        )  # fmt: skip
        inner.steps.append(self.compute(function))
        if rng.random() < 0.2:
            slot = self.leaf(inner, ())
            inner.steps.append(Get((slot,)))
        raises = rng.randint(1, 2) if passing else -1 if rng.random() < 0.1 else 0
        job = self.job(function, inner, sizes=(self.size(),), raises=raises)
        slot = scope.take()
        scope.steps.append(Submit(job, slot, self.some(scope.safe, 2), (), handle))
        scope.usable.append(slot)

    def passed_on(self, scope: Scope, handle: int) -> None:
        """Give the handle to a task, which calls the actor too."""
        inner = Scope(100, 1)
        for _ in range(self.rng.randint(1, 3)):
            self.method(inner, 0)
        inner.steps.append(Get(tuple(inner.usable)))
        function = self.function(cpu=UNIT // 2, duration_us=100, max_retries=0)
        slot = scope.take()
        scope.steps.append(Submit(self.job(function, inner), slot, (), (handle,)))
        scope.usable.append(slot)

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
            if self.actors_left > 0:
                choices += [self.actor, self.actor]
        return choices

    def look(self, scope: Scope) -> None:
        """Wait for something that has been asked for."""
        slots = self.some(scope.usable, 4)
        if not slots:
            return
        kind = self.rng.random()
        boxes = [slot for slot in slots if slot in scope.boxes]
        if boxes:
            count = scope.boxes[boxes[0]]
            scope.steps.append(Open(boxes[0], scope.take(count), count))
            scope.usable.extend(range(scope.next_slot - count, scope.next_slot))
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
        while self.left > 0:
            self.piece(scope)
        left = [slot for slot in scope.usable if self.rng.random() < 0.8]
        self.rng.shuffle(left)
        for start in range(0, len(left), 7):
            scope.steps.append(Get(tuple(left[start : start + 7])))
        self.work.steps = scope.steps
        return self.work
