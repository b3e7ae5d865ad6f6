"""Virtual processes: drivers that come, work and go, and executors that run their calls."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from mpi_runtime.scheduler.protocol import effects
from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.events import (
    DRIVER,
    OF_DRIVER,
    AccountSpec,
    ActorSpec,
    Blocked,
    BundleSpec,
    Call,
    Done,
    GroupRequested,
    Held,
    MethodSpec,
    NamedActorRequested,
    Put,
    Released,
    Returned,
    Spec,
    Stored,
    SubscriptionRequested,
    TaskSpec,
    Unblocked,
    Unfilled,
    Value,
    Where,
    driver_of,
)
from mpi_runtime.scheduler.protocol.ids import prefix_of
from mpi_runtime.scheduler.protocol.limits import UNIT
from mpi_runtime.scheduler.protocol.rank_events import (
    DriverJoined,
    DriverLeft,
    ExecutorDied,
    ExecutorStarted,
    TakenBack,
)
from tests.simulation.drivers.world import CANCELLED, GONE_US, Agent, Made, World, value_of
from tests.simulation.require import require

LARGE = 1 << 20
LATE_US = 100_000
"""By then calls that have not begun are taken back."""
VALUE = (effects.Ready, effects.ReadyStored)
END = (*VALUE, effects.ReadyFailed, effects.ReadyError)
"""What ends a wait."""
READY = (*END, effects.ReadyElsewhere)

Program = Generator["int | list[bytes]", None, None]
"""Yields how long it waits, or for which values."""


class Client:
    """What drivers and executors have in common: ids, references, calls."""

    def __init__(self, world: World, number: int, home: int, agent: Agent) -> None:
        self.world, self.number, self.home, self.agent = world, number, home, agent
        self.rng = world.rng
        self.values: dict[bytes, object] = {}
        self.refs: list[bytes] = []
        """Calls and values of its own that it holds."""
        self.actors: list[bytes] = []
        self.groups: list[bytes] = []
        self.sent: set[int] = set()
        """Specs that were sent. Only for membership."""
        self.is_alive = True
        self.count = 0
        self.orders: dict[bytes, int] = {}

    @property
    def line(self) -> Any:
        """What its frames wait for."""
        return self

    def owner(self) -> int:
        """The owner of what it makes now."""
        return self.home

    def prefix(self) -> bytes:
        """The beginning of the ids that it makes."""
        return prefix_of(b"driver", self.number)

    def parent(self) -> bytes:
        """The running call or actor; empty: a driver."""
        return b""

    def say(self, *events: Any, takes: bytes = b"") -> None:
        """Send a frame."""
        if self.is_alive:
            self.world.from_client(self.line, self.number, list(events), takes)

    def new_id(self, **made: Any) -> bytes:
        """A new id of something of it."""
        self.count += 1
        id = self.prefix() + self.count.to_bytes(6, "big")
        require(id not in self.world.made, "two things have one id")
        self.world.made[id] = Made(self.owner(), self.home, **made)
        return id

    def spec(self, kind: Any, cpu: float, group: bytes = b"", **fields: Any) -> Spec:
        """The spec of a kind of calls."""
        name = f"{type(kind).__name__} {kind} {cpu} {group.hex()} {sorted(fields.items())}"
        number = hash_of(f"{self.home} {name}")
        spec = Spec(number, kind, name, b"code of " + name.encode(), Request(int(cpu * UNIT)), **fields)
        if self.home:
            rest = "" if isinstance(kind, MethodSpec) else " /home/someone"
            spec.environment = {OF_DRIVER: f"{self.home}{rest}"}
        if group:
            spec.where = Where(group=group)
        self.world.specs[number] = spec
        return spec

    def call(self, spec: Spec, arguments: tuple[bytes, ...], holds: tuple[bytes, ...] = (), **fields: Any) -> bytes:
        """Submit a call."""
        needs = (
            *arguments,
            *(one for one in (fields.get("actor", b""), spec.where.group if spec.where else b"") if one),
        )
        is_actor = isinstance(spec.kind, ActorSpec)
        id = self.new_id(needs=needs, is_actor=is_actor, parent=self.parent())
        made = self.world.made[id]
        actor = fields.get("actor", b"")
        if actor:
            self.orders[actor] = made.order = self.orders.get(actor, 0) + 1
            made.caller = self.number
        call = Call(id, spec.id, b"", arguments, holds, **fields)
        events: list[Any] = [] if spec.id in self.sent else [spec]
        self.sent.add(spec.id)
        name = self.rng.choice(("", "", "named", "detached", "nameless")) if is_actor and not self.world.is_calm else ""
        if name:
            is_detached = name != "named"
            text = id.hex() if name != "nameless" else ""
            events.append(NamedActorRequested(1, "", text, b"handle", is_detached, call))
            if is_detached:
                made.owner = 0
                self.world.counters["detached actors"] += 1
        else:
            events.append(call)
        self.say(*events)
        (self.actors if is_actor else self.refs).append(id)
        return id

    def submit(self) -> None:
        """Submit a call of some kind."""
        rng, world = self.rng, self.world
        usable = [*self.refs, *(one for one in world.shared if self.take(one))]
        arguments = tuple(dict.fromkeys(rng.choice(usable) for _ in range(rng.choice((0, 0, 1, 2))) if usable))
        handles = [*self.actors, *(one for one in world.handles if rng.random() < 0.3 and self.take(one))]
        kind = rng.random()
        if kind < 0.12 and self.count < 60:
            self.call(self.spec(ActorSpec(0, rng.choice((0, 2))), 1), arguments)
        elif kind < 0.5 and handles:
            holds = (rng.choice(handles),)  # an actor that knows others, or itself
            self.call(self.spec(MethodSpec(), 0), arguments, holds, actor=rng.choice(handles))
        else:
            group = rng.choice([b"", *self.groups])
            account = AccountSpec("some", 1.0, rng.choice((0, 2))) if rng.random() < 0.2 else None
            number = rng.randrange(3)
            spec = self.spec(TaskSpec(), 1, group, priority=number - 1, max_retries=-1, account=account)
            self.call(spec, arguments)

    def take(self, id: bytes) -> bool:
        """Hold something of another, if it is still there."""
        if id in self.refs or id in self.actors:
            return True
        if id in self.world.dropped or self.world.made[id].home == self.home:
            return False
        self.say(Held([id]), takes=id)
        (self.actors if self.world.made[id].is_actor else self.refs).append(id)
        return True

    def put(self) -> None:
        """Make a value."""
        id = self.new_id(is_value=True)
        value = Value(value_of(id))
        if self.rng.random() < 0.5:
            value = Value(b"", Stored(self.agent.rank, self.agent.allocate(self.number, value_of(id)), LARGE))
            if self.rng.random() < 0.1:
                self.agent.allocate(self.number, b"a value that never becomes an object")
        self.say(Put(id, value))
        self.refs.append(id)

    def share(self) -> None:
        """Hand something to others."""
        things = [*self.refs[-5:], *self.actors]
        if things:
            id = self.rng.choice(things)
            made = self.world.made[id]
            (self.world.handles if made.is_actor else self.world.shared).append(id)
            del self.world.handles[:-6], self.world.shared[:-6]

    def drop(self) -> None:
        """Let go of something."""
        if self.refs:
            self.say(Released([self.refs.pop(self.rng.randrange(len(self.refs)))]))

    def hear(self, message: object) -> None:
        """A message has arrived."""
        if not self.is_alive:
            return
        if isinstance(message, READY):
            if not (isinstance(message, effects.ReadyStored) and self.has_let_go(message.id)):
                self.world.check_value(message.id, message, self.agent.rank)
            self.values[message.id] = message
            self.look()

    def has_let_go(self, id: bytes) -> bool:
        """Whether it does not look at what it is sent."""
        return False

    def look(self) -> None:
        """Go on with what waited for values."""

    def subscribe(self, ids: list[bytes]) -> None:
        """Ask for values."""
        self.say(SubscriptionRequested(ids))


def hash_of(text: str) -> int:
    """A number for a spec."""
    return int.from_bytes(value_of(text.encode())[:7], "big")


class Driver(Client):
    """A driver: joins, works, and leaves or is killed."""

    def __init__(self, world: World, program: Any) -> None:
        number = world.scheduler.next_client()
        self.told_us = self.heard_us = 0
        super().__init__(world, number, number, world.agents[0])
        require(number not in world.drivers and world.executor(number) is None, f"number {number} is used again")
        world.drivers[number] = self
        world.head(DriverJoined(number))
        self.waits: list[bytes] = []
        self.has_left = False
        self.program: Program = program(self)
        world.at(0, self.advance)

    def advance(self) -> None:
        """Run on to the next wait."""
        if self.has_left:
            return
        wait = next(self.program, None)
        if self.has_left:
            return
        if wait is None:
            self.leave()
        elif isinstance(wait, int):
            self.world.at(wait, self.advance)
        else:
            self.waits = wait
            self.subscribe(wait)
            self.look()

    def has_let_go(self, id: bytes) -> bool:
        return self.has_left or id not in self.refs

    def look(self) -> None:
        if self.waits and all(isinstance(self.values.get(id), END) for id in self.waits):
            self.waits = []
            self.world.at(10, self.advance)

    def leave(self) -> None:
        """Its end, whatever it does now."""
        if self.has_left:
            return
        world, number = self.world, self.number
        self.has_left = True
        viewed = [id for id in self.refs if self.is_viewed(id)]
        world.counters["drivers"] += 1
        if viewed and self.rng.random() < 0.3:
            world.counters["drivers with views"] += 1
            self.say(
                Released([id for id in dict.fromkeys((*self.refs, *self.actors, *self.groups)) if id not in viewed])
            )
            world.send(self, lambda: self._is_gone(has_views=True))
            world.at(self.rng.randint(10_000, 2_000_000), lambda: self._close(viewed))
        else:
            self.is_alive = False
            world.send(self, lambda: self._is_gone(has_views=False))
        world.at(GONE_US, lambda: world.check_gone(number))

    def is_viewed(self, id: bytes) -> bool:
        """Whether it looks at a value in memory that it has put itself."""
        place = next(
            (at for at, (owner, data) in self.agent.memory.items() if data == value_of(id) and owner == self.number), 0
        )
        return self.world.made[id].is_value and place > 0

    def _close(self, viewed: list[bytes]) -> None:
        contents = [data for _, data in self.agent.memory.values()]
        for id in viewed:
            require(
                id in self.world.dropped or value_of(id) in contents,
                "a value is gone while a driver that has left looks at it",
            )
        self.is_alive = False
        self.world.send(self, lambda: self._is_gone(has_views=False))

    def _is_gone(self, has_views: bool) -> None:
        if not has_views:
            self.world.left.add(self.number)
        self.world.gone.add(self.number)
        self.world.gone_us.setdefault(self.number, self.world.now)
        extents = [] if has_views else self.agent.given_to(self.number)
        self.world.head(DriverLeft(self.number, extents, has_views))

    def group(self) -> None:
        """Ask for a placement group. There are never so many that nothing else has room."""
        world = self.world
        living = [
            one for one in world.made.values() if one.is_group and not one.is_killed and one.owner not in world.gone
        ]
        if len(living) > 1:
            return
        is_detached = self.rng.random() < 0.3
        id = self.new_id(is_group=True)
        if is_detached:
            world.made[id].owner = 0
            world.counters["detached groups"] += 1
            world.at(self.rng.randint(100_000, 2_000_000), lambda: world.end_detached(id))
        bundles = [BundleSpec(Request(UNIT))]
        self.say(GroupRequested(id, bundles, "PACK", b"group", "", id.hex(), 1, is_detached))
        self.groups.append(id)


class Running:
    """A call that an executor runs."""

    def __init__(self, call: Call, program: Program) -> None:
        self.call, self.program = call, program
        self.waits: list[bytes] = []
        self.prefix = prefix_of(call.id, call.attempt)
        self.began_us = 0


class Executor(Client):
    """An executor: runs one call after the other."""

    def __init__(self, agent: Agent, effect: effects.StartExecutor) -> None:
        super().__init__(agent.world, effect.executor, driver_of(effect.environment), agent)
        self.calls: list[Call] = []
        """Sent, and not ended; the first may be running."""
        self.running: Running | None = None
        self.actor = b""
        self.lacking: dict[bytes, set[bytes]] = {}
        """The arguments that each call arrived without: calls before it were to make them here."""
        self.made_here: set[bytes] = set()
        """Values that this process has made, and sent whole. Only for membership."""
        self.specs: dict[int, Spec] = {}
        self.refused: set[bytes] = set()
        self.let_go: set[bytes] = set()
        """What it has held. Only for membership."""
        self.is_stopping = self.is_up = False
        self.last: dict[int, int] = {}
        self.world.at(self.rng.randint(200, 4000), self.start)

    @property
    def line(self) -> Any:
        return self.agent

    def owner(self) -> int:
        if self.actor:
            return self.world.made[self.actor].owner
        return self.world.made[self.running.call.id].owner if self.running is not None else self.home

    def prefix(self) -> bytes:
        assert self.running is not None
        return self.running.prefix

    def has_let_go(self, id: bytes) -> bool:
        return id in self.let_go and id not in self.refs

    def parent(self) -> bytes:
        assert self.running is not None
        return self.actor or self.running.call.id

    def start(self) -> None:
        """The process is up."""
        self.is_up = True
        if self.is_alive:
            self.world.from_rank(self.agent, ExecutorStarted(self.number, 1000 + self.number))
            self.go_on()

    def hear(self, message: object) -> None:
        if isinstance(message, Spec):
            require(
                isinstance(message.kind, MethodSpec) or driver_of(message.environment) == self.home,
                f"executor {self.number} of driver {self.home} gets a function of another driver",
            )
            self.specs[message.id] = message
        elif isinstance(message, Call):
            self.lacking[message.id] = {id for id in message.arguments if not isinstance(self.values.get(id), VALUE)}
            self.calls.append(message)
            self.go_on()
        else:
            super().hear(message)

    def look(self) -> None:
        running = self.running
        if running is None or not running.waits:
            return
        if all(isinstance(self.values.get(id), END) for id in running.waits):
            running.waits = []
            self.say(Unblocked())
            self.world.at(10, lambda: self.advance(running))

    def obey(self, effect: object) -> None:
        """An order of the agent."""
        if isinstance(effect, effects.StopExecutor):
            self.is_stopping = True
            if effect.force or not self.calls:
                self.die("was killed")
        elif isinstance(effect, effects.TakeBack):
            first = 1 if self.running is not None else 0
            taken = self.calls[first:][-effect.count :]
            self.calls = self.calls[: len(self.calls) - len(taken)]
            self.world.counters["taken back"] += len(taken)
            self.world.from_rank(self.agent, TakenBack(self.number, [call.id for call in taken]))
        elif isinstance(effect, effects.Cancel):
            running = self.running
            if running is not None and running.call.id == effect.id:
                if effect.force:
                    self.die("was killed")
            else:
                self.refused.add(effect.id)

    def die(self, cause: str) -> None:
        """The process ends."""
        if not self.is_alive:
            return
        self.is_alive = False
        running = self.running.call.id if self.running is not None else b""
        self.agent.executors.pop(self.number)
        world, agent, number = self.world, self.agent, self.number
        if self.actor:
            world.made[self.actor].has_died = True

        def report() -> None:
            extents = agent.given_to(number)
            world.scheduler.handle_rank(
                ExecutorDied(number, running, cause, extents=extents, keeper=agent.rank), world.now
            )
            world.decide()

        world.send(agent, report)

    def go_on(self) -> None:
        """Begin the next call."""
        if not (self.is_alive and self.is_up) or self.running is not None:
            return
        if not self.calls:
            if self.is_stopping:
                self.die("exited")
            return
        call = self.calls[0]
        spec = self.specs.get(call.spec) or self.world.specs[call.spec]
        if call.id in self.refused:
            del self.calls[0]
            self.say(Returned(call.id, [Value(CANCELLED, is_error=True)], 0, True))
            self.go_on()
            return
        if lacking := self.lacking.pop(call.id):
            self.world.counters["followers"] += 1
            if not lacking <= self.made_here:
                del self.calls[0]
                self.say(Unfilled(call.id))
                self.go_on()
                return
        made = self.world.made[call.id]
        since_us = self.world.gone_us.get(made.caller, self.world.now)
        is_late = call.actor and not self.world.may_end(call.actor) and self.world.now - since_us > LATE_US
        require(not is_late, "a method of a driver that left some time ago begins")
        if isinstance(spec.kind, ActorSpec):
            self.actor = call.id
        elif call.actor:
            order = self.last.get(made.caller, 0)
            require(order < made.order, f"calls of client {made.caller} are out of order in an actor")
            self.last[made.caller] = made.order
        for id in dict.fromkeys(call.arguments):
            is_there = id in lacking or isinstance(self.values.get(id), VALUE)
            require(is_there, f"a call begins without its argument {id.hex()}")
        self.running = Running(call, self.program(call))
        self.running.began_us = self.world.now
        self.world.counters["runs"] += 1
        self.advance(self.running)

    def advance(self, running: Running) -> None:
        """Run on to the next wait."""
        if not self.is_alive or self.running is not running:
            return
        wait = next(running.program, None)
        if wait is None:
            self.end(running.call)
        elif isinstance(wait, int):
            self.world.at(wait, lambda: self.advance(running))
        else:
            running.waits = wait
            self.say(Blocked(wait))
            self.subscribe(wait)
            self.look()

    def program(self, call: Call) -> Program:
        """What a call does."""
        rng, world = self.rng, self.world
        held = [id for id in call.holds if id not in self.actors]
        if held:
            self.say(Held(held))
            self.actors += held
        yield rng.choice(world.durations)
        if world.is_calm:
            return
        if rng.random() < 0.25 and len(world.made) < world.most:
            for _ in range(rng.randint(1, 3)):
                self.submit()
            if rng.random() < 0.3:
                self.put()
            if rng.random() < 0.5 and not self.actor:
                own = [id for id in self.refs if id.startswith(self.prefix())]
                own = [id for id in own if not world.made[id].needs and not world.made[id].is_value]
                if own:
                    yield own
        if rng.random() < 0.02 and not self.actor:
            world.counters["deaths"] += 1
            for id, made in world.made.items():
                made.is_orphan |= id.startswith(self.prefix())
            self.die("was killed by signal 11")
            yield 0
        if not self.actor:  # an actor keeps what it has
            self.let_go.update(self.refs)
            self.say(Released([*self.refs, *self.actors]))
            self.refs, self.actors = [], []

    def end(self, call: Call) -> None:
        """A call returns."""
        assert self.running is not None
        took_us, self.running = self.world.now - self.running.began_us, None
        del self.calls[0]
        made = self.world.made[call.id]
        made.has_ended = True
        if self.rng.random() < 0.2 and not made.is_actor:
            place = Stored(self.agent.rank, self.agent.allocate(self.number, value_of(call.id)), LARGE)
            self.say(Returned(call.id, [Value(b"", place)], took_us))
        else:
            self.made_here.add(call.id)
            self.say(Done(call.id, value_of(call.id), took_us))
        self.go_on()


__all__ = ["DRIVER", "Driver", "Executor", "Program"]
