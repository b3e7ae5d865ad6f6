"""Virtual time, hosts and processes around the scheduler under test, for several drivers that come and go.

Looks from outside: it knows who has made what, and trusts no table of the scheduler. The value of each call and object
follows from its id, so whatever arrives anywhere can be judged.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from mpi_runtime.core.transport import codec
from mpi_runtime.scheduler.core import Scheduler
from mpi_runtime.scheduler.protocol import effects
from mpi_runtime.scheduler.protocol.events import DRIVER, Call, GroupRemovalRequested, KillRequested, Spec, driver_of
from mpi_runtime.scheduler.protocol.ids import digest
from mpi_runtime.scheduler.protocol.rank_events import (
    DriverJoined,
    DriverLeft,
    Fetched,
    JobBegan,
    RankJoined,
)
from mpi_runtime.scheduler.records.records import Task
from tests.checks import executors as invariants
from tests.checks.circles import Passing
from tests.simulation.require import require

LINE_US, SLOW_US = (20, 200), (500, 20_000)
GONE_US = 30_000_000
"""By then nothing is left of a driver, apart from what is detached."""
CANCELLED = b"cancelled"
"""The error of a call that was cancelled before its executor began it."""


def value_of(id: bytes) -> bytes:
    """The value that an object must have."""
    return digest(b"value" + id, 12)


@dataclass
class Made:
    """What is known from outside of a call, a value, an actor or a placement group."""

    owner: int
    """The driver with which it ends; 0: none."""
    home: int
    """The driver whose function it is."""
    needs: tuple[bytes, ...] = ()
    """Arguments, the called actor, the placement group: it fails with them."""
    is_value: bool = False
    is_actor: bool = False
    is_group: bool = False
    is_killed: bool = False
    has_ended: bool = False
    """Of a call: its value was reported."""
    order: int = 0
    """Of a method: its place among those of its caller."""
    caller: int = 0
    parent: bytes = b""
    """The call or the actor that has submitted it."""
    has_died: bool = False
    """Of an actor: whether a process of it has ended."""
    is_orphan: bool = False
    """Whether the process of its parent has died of itself."""


class Agent:
    """A rank: its memory and its executors."""

    def __init__(self, world: World, rank: int) -> None:
        self.world, self.rank = world, rank
        self.memory: dict[int, tuple[int, bytes]] = {}
        """At each used offset the process that got it, and the content."""
        self.executors: dict[int, Any] = {}
        self.fetching: dict[bytes, int] = {}
        """The orders of copies that it follows, by object."""
        self.ordered: dict[bytes, int] = {}
        """Those that the head has not stopped. The news of that may be on its way."""
        self.told_us = 0
        self.heard_us = 0

    def allocate(self, client: int, content: bytes) -> int:
        """Room for a value of a process."""
        self.world.offsets += 64
        self.memory[self.world.offsets] = client, content
        return self.world.offsets

    def given_to(self, client: int) -> list[int]:
        """What a process has got and is not free."""
        return [offset for offset, (owner, _) in self.memory.items() if owner == client]

    def note(self, effect: object) -> None:
        """The head has ordered something."""
        if isinstance(effect, effects.Fetch):
            self.ordered[effect.id] = effect.order
        elif isinstance(effect, effects.StopFetch):
            self.ordered.pop(effect.id, None)

    def obey(self, effect: object) -> None:
        """Do what the head orders."""
        world = self.world
        if isinstance(effect, effects.StartExecutor):
            self.executors[effect.executor] = world.new_executor(self, effect)
        elif isinstance(effect, effects.Free):
            for offset in effect.offsets:
                if effect.executor and offset not in self.memory:
                    continue  # an earlier order was on its way
                require(offset in self.memory, f"memory at {offset} is freed twice")
                del self.memory[offset]
        elif isinstance(effect, effects.Fetch):
            self.fetching[effect.id] = effect.order
            world.at(world.rng.randint(100, 20_000), lambda: self.fetch(effect))
        elif isinstance(effect, effects.StopFetch):
            self.fetching.pop(effect.id, None)
        elif (executor := self.executors.get(getattr(effect, "executor", -1))) is not None:
            executor.obey(effect)

    def hand_on(self, client: int, message: object) -> None:
        """Give an executor a message, if it lives."""
        if client in self.executors:
            self.executors[client].hear(message)

    def fetch(self, order: effects.Fetch) -> None:
        """A copy arrives, unless nobody wants it any more."""
        if self.fetching.get(order.id) != order.order:
            return
        del self.fetching[order.id]
        found = self.world.agents[order.rank].memory.get(order.offset)
        if found is None:  # the source hears that it is free by another line than we hear that nobody wants the copy
            require(self.ordered.get(order.id) != order.order, "a copy is made of memory that is free")
            self.world.counters["copies too late"] += 1
            why = f"rank {order.rank} no longer has it"
            self.world.from_rank(self, Fetched(self.rank, order.id, -1, why, is_lost=True, order=order.order))
            return
        self.world.counters["copies"] += 1
        self.world.from_rank(self, Fetched(self.rank, order.id, self.allocate(-1, found[1]), order=order.order))


class Keeper:
    """The program of rank 0: its line."""

    told_us = 0


class World:
    """Everything that happens, in the order of virtual time (microseconds)."""

    def __init__(self, seed: int, hosts: int, cpus: int) -> None:
        self.rng = random.Random(seed)
        self.now = self.offsets = self._count = 0
        self.counters: Counter[str] = Counter()
        self.scheduler = Scheduler()
        self.passing = Passing()
        self.made: dict[bytes, Made] = {}
        self.left: set[int] = set()
        """Drivers that have left, views and all. Only for membership."""
        self.gone: set[int] = set()
        """Drivers that have left, perhaps with views. Only for membership."""
        self.gone_us: dict[int, int] = {}
        self.given: defaultdict[int, list[bytes]] = defaultdict(list)
        """The calls that each executor was sent."""
        self.line_us = LINE_US if seed % 4 < 3 else SLOW_US
        self.is_calm = False
        self.durations: tuple[int, ...] = (50, 1_000, 20_000, 200_000)
        self.most = 600
        """How many things are made at most."""
        self.dropped: set[bytes] = set()
        """Objects that were gone when a process wanted to have them. Only for membership."""
        self.drivers: dict[int, Any] = {}
        self.keeper = Keeper()
        self.shared: list[bytes] = []
        """References that drivers have handed to each other."""
        self.handles: list[bytes] = []
        """The same for actors."""
        self.specs: dict[int, Spec] = {}
        self.last: deque[str] = deque(maxlen=40)
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._timer_us = -1
        self.agents = {rank: Agent(self, rank) for rank in range(hosts)}
        self.new_executor: Callable[[Agent, effects.StartExecutor], Any]
        for rank in range(hosts):
            joined = RankJoined(rank, rank, f"host{rank}", list(range(cpus)), -1, 0, 1 << 30, {}, 1 << 30)
            self.scheduler.handle_rank(joined, 0)
        self.scheduler.handle_rank(JobBegan(), 0)
        self.scheduler.decide(0)

    def at(self, delay_us: int, action: Callable[[], None]) -> None:
        """Do this later."""
        self._count += 1
        heapq.heappush(self._heap, (self.now + delay_us, self._count, action))

    def run(self, until: Callable[[], bool], limit_us: int) -> bool:
        """Let things happen until the condition holds; whether it did."""
        while not until():
            if not self._heap or self._heap[0][0] > limit_us:
                self.now = max(self.now, min(limit_us, self._heap[0][0] if self._heap else limit_us))
                return False
            self.now, _, action = heapq.heappop(self._heap)
            action()
        return True

    # To the head

    def send(self, sender: Any, action: Callable[[], None]) -> None:
        """Something arrives at the head, after what was sent before on the same line."""
        sender.told_us = max(sender.told_us, self.now + self.rng.randint(*self.line_us))
        self.at(sender.told_us - self.now, action)

    def from_client(self, sender: Any, number: int, events: list[Any], takes: bytes = b"") -> None:
        """A client sends a frame, perhaps to hold `takes`, which another has shown it.

        Whether that still exists is seen when the frame arrives: its last holder may have left while it was on its way.
        """
        frame = codec.encode(events)

        def arrive() -> None:
            if takes and takes not in self.scheduler.state.objects:
                self.dropped.add(takes)
            for event in events:
                self.last.append(f"{self.now} client {number}: {event}")
            executor = self.scheduler.state.executors.get(number)
            self.scheduler.handle(number, codec.from_client.decode(frame), self.now)
            is_refused = executor is not None and executor.refusal is not None
            require(not is_refused, f"executor {number} is refused: {executor and executor.refusal}")
            self.decide()

        self.send(sender, arrive)

    def from_rank(self, agent: Agent, event: Any) -> None:
        """A rank reports something."""

        def arrive() -> None:
            self.last.append(f"{self.now} rank {agent.rank}: {event}")
            (decoded,) = codec.between_ranks.decode(codec.encode([event]))
            self.scheduler.handle_rank(decoded, self.now)  # type: ignore[arg-type]
            self.decide()

        self.send(agent, arrive)

    def head(self, event: DriverJoined | DriverLeft) -> None:
        """The head makes an event."""
        self.last.append(f"{self.now} head: {event}")
        self.scheduler.handle_rank(event, self.now)
        self.decide()

    def end_detached(self, id: bytes) -> None:
        """Driver 0 ends an actor or a placement group that is detached."""
        made = self.made[id]
        if not made.is_killed:
            made.is_killed = True
            self.from_client(self.keeper, DRIVER, [GroupRemovalRequested(id) if made.is_group else KillRequested(id)])

    # From the head

    def decide(self) -> None:
        """Have a decision made, and performed."""
        decided = self.scheduler.decide(self.now)
        self.counters["decisions"] += 1
        if not self.counters["decisions"] % (100 if self.is_calm else 4):
            invariants.check(self.scheduler.state)
            self.passing.look(self.scheduler.state)
        for rank, orders in decided.ranks.items():
            for order in codec.between_ranks.decode(codec.encode(list(orders))):
                self._judge(order)
                self.agents[rank].note(order)
                self._to(self.agents[rank], partial(self.agents[rank].obey, order))
        for client, messages in decided.clients.items():
            require(client not in self.left or not messages, f"driver {client} has left, and gets {messages}")
            for message in codec.to_client.decode(codec.encode(messages)):
                self._deliver(client, message)
        due = self.scheduler.deadline()
        if due is not None and (self._timer_us < self.now or due < self._timer_us):
            self._timer_us = max(due, self.now)
            self.at(self._timer_us - self.now, self._look)

    def _look(self) -> None:
        if self._timer_us <= self.now:
            self._timer_us = -1
            self.decide()

    def _to(self, receiver: Any, action: Callable[[], None]) -> None:
        receiver.heard_us = max(receiver.heard_us, self.now + self.rng.randint(*self.line_us))
        self.at(receiver.heard_us - self.now, action)

    def _deliver(self, client: int, message: object) -> None:
        if client in self.drivers:
            self._to(self.drivers[client], lambda: self.drivers[client].hear(message))
            return
        if client == DRIVER:
            return
        rank = self.scheduler.rank_of(client)
        if isinstance(message, Call):
            self.given[client].append(message.id)
        if rank >= 0:
            agent = self.agents[rank]
            self._to(agent, partial(agent.hand_on, client, message))

    def _judge(self, order: object) -> None:
        """Orders must not touch what belongs to others."""
        self.last.append(f"{self.now} order: {order}")
        if isinstance(order, effects.StopExecutor) and order.force:
            executor = self.executor(order.executor)
            if executor is not None:
                why = f"executor {order.executor} of driver {executor.home} is killed, and nobody has asked for that"
                actor = executor.actor
                may = self.may_end(actor) if actor else executor.home in self.gone
                may = may or any(self.may_end(id) for id in self.given[order.executor])
                require(may, why)
                is_detached = any(not self.made[call.id].owner for call in executor.calls) and not actor
                require(not is_detached, f"executor {order.executor} is killed with a call of a detached actor")
        elif isinstance(order, effects.Cancel):
            self.counters["cancels"] += 1
            made = self.made[order.id]
            may = made.owner in self.gone or self.is_orphan(order.id)
            require(may, f"call {order.id.hex()} is cancelled, and its driver is there")
            executor = self.executor(order.executor)
            is_alien = executor is not None and executor.actor and not self.may_end(executor.actor)
            require(not is_alien, "a method of another's actor is interrupted")

    def executor(self, number: int) -> Any:
        """A living executor."""
        found = (agent.executors.get(number) for agent in self.agents.values())
        return next((one for one in found if one is not None), None)

    # What may be

    def may_end(self, id: bytes) -> bool:
        """Whether a call, an actor or a group may fail: its owner has left, it was killed, or what it needs may."""
        made = self.made[id]
        if made.is_value:
            return False
        if made.owner in self.gone or made.is_killed or id in self.dropped or self.is_orphan(id):
            return True
        return any(one in self.dropped or self.may_end(one) for one in made.needs)

    def is_orphan(self, id: bytes) -> bool:
        """Whether the call or actor that has submitted a call is gone: then it may be cancelled."""
        while (made := self.made[id]).parent:
            parent = self.made[made.parent]
            if made.is_orphan or parent.is_killed or parent.has_died:
                return True
            id = made.parent
        return False

    def check_value(self, id: bytes, message: object, rank: int) -> None:
        """What a process on a host is sent for an object must be its value, or an error that may be."""
        made = self.made[id]
        if isinstance(message, effects.Ready):
            require(made.is_actor or made.is_group or message.data == value_of(id), f"{id.hex()} has another value")
        elif isinstance(message, effects.ReadyStored):
            require(message.rank == rank, "a value is said to be on another host")
            found = self.agents[rank].memory.get(message.offset)
            require(found is not None and found[1] == value_of(id), f"{id.hex()} is not where it is said to be")
        elif isinstance(message, effects.ReadyFailed):
            self.counters[message.code] += 1
            is_lost = id in self.dropped
            require(is_lost or self.may_end(id), f"{id.hex()} of driver {made.owner} fails: {message.message}")
        elif isinstance(message, effects.ReadyError):  # no user code raises here: its executor has not begun the call
            self.counters["cancelled"] += 1
            may = message.data == CANCELLED and self.may_end(id)
            require(may, f"{id.hex()} of driver {made.owner} is cancelled: {message.data!r}")
        else:
            require(isinstance(message, effects.ReadyElsewhere), f"an unexpected {message}")

    def check_gone(self, number: int) -> None:
        """Nothing is left of a driver that left some time ago, but what is detached."""
        detached = [id for id, made in self.made.items() if made.home == number and not made.owner and self.lives(id)]
        living = [one for agent in self.agents.values() for one in agent.executors.values() if one.home == number]
        orphans = [one.number for one in living if one.actor and not self.made[one.actor].owner]
        if not detached:
            require(not living, f"executors of driver {number} live on: {[one.number for one in living]}")
            require(not self.scheduler.has_driver(number), f"the scheduler remembers driver {number}")
        else:
            self.counters["drivers that left something detached"] += 1
            mortal = [one.number for one in living if one.actor and self.made[one.actor].owner]
            require(not mortal, f"actors of driver {number} live on: {mortal}")
            require(len(orphans) <= len(detached), "more actors are detached than were asked for")
        state = self.scheduler.state
        tasks = [found.task for found in state.objects.values() if found.task is not None]
        left = [task for task in tasks if is_of(task, number)]
        require(not left, f"calls of driver {number} are open: {left[:2]}")
        groups = [
            id.hex() for id, made in self.made.items() if made.is_group and made.owner == number and id in state.groups
        ]
        require(not groups, f"placement groups of driver {number} are left: {groups}")
        held = [place for place in self.agents[0].given_to(number) if (0, place) not in state.extents]
        require(not held, f"memory of driver {number} is left: {held}")

    def lives(self, id: bytes) -> bool:
        """Whether something detached lives: an actor that was not killed, or an open call."""
        made = self.made[id]
        if made.is_value or made.is_group:
            return False
        if made.is_actor:
            return not made.is_killed
        return not made.has_ended and not self.may_end(id)

    def left_over(self) -> list[str]:
        """What is still there when all have left."""
        state = self.scheduler.state
        problems = [f"driver {number}" for number in state.drivers]
        problems += [f"object {id.hex()} with {one.references} references" for id, one in state.objects.items()]
        for name in ("actors", "names", "groups", "group_names", "extents", "waiting", "fetching", "leaving"):
            problems += [f"{name}: {one}" for one in getattr(state, name)]
        problems += [f"function {one.spec.name}" for one in state.functions.values() if driver_of(one.spec.environment)]
        problems += [f"queue {key}" for key in state.queues]
        problems += [f"family {key}" for key in state.families]
        problems += [f"account {name}" for name in state.accounts]
        problems += [f"executor {one.number}" for agent in self.agents.values() for one in agent.executors.values()]
        problems += [f"memory of rank {one.rank} at {place}" for one in self.agents.values() for place in one.memory]
        problems += [f"node {one.number}: {one.free}" for one in state.nodes.values() if one.free != one.total]
        problems += [f"in a circle: {circle}" for circle in self.passing.circles(state)]
        if state.submitted != state.finished + state.failed:
            problems.append(f"{state.submitted} submitted, {state.finished} finished, {state.failed} failed")
        return problems[:8]


def is_of(task: Task, number: int) -> bool:
    """Whether an open call belongs to a driver, and is not a method that runs elsewhere."""
    return task.function.spec.environment.get("=driver", "").startswith(f"{number} ") and bool(task.driver)
