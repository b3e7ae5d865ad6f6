"""Calls on gangs beside small calls, with the real scheduler and virtual agents, in a world of their own.

Members die, raise while others wait for them for ever, are cancelled, and lose their rank. The checks look from
outside: at what is sent, at what processes use, and at what the driver gets. The same seed makes the same run.

    .venv/bin/python -m tests.simulation.gangs --seeds 0:200
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from mpi_runtime.scheduler.core import Scheduler
from mpi_runtime.scheduler.protocol import effects
from mpi_runtime.scheduler.protocol.effects import Cancel, StartExecutor, StopExecutor, TakeBack
from mpi_runtime.scheduler.protocol.events import (
    ACTOR,
    DRIVER,
    METHOD,
    STREAMING,
    Blocked,
    Call,
    CancelRequested,
    Done,
    Released,
    Returned,
    Spec,
    Unblocked,
    Value,
    Where,
    Yielded,
)
from mpi_runtime.scheduler.protocol.ids import digest
from mpi_runtime.scheduler.protocol.rank_events import ExecutorDied, ExecutorStarted, JobBegan, RankLost, TakenBack
from mpi_runtime.transport import codec
from mpi_runtime.transport.messages import ToExecutor
from tests.checks import executors as invariants
from tests.simulation.options import UNIT, Options, Shape
from tests.simulation.require import require
from tests.simulation.world import joined

LIMIT_US = 2_000_000_000
"""By then all calls have ended: many times what they need one after the other."""
SETTLE_US = 60_000_000
"""By then gangs that idle have been ended."""
ITEMS = 3
"""What each call that streams yields, from rank 0."""
ENDED = (effects.Ready, effects.ReadyStored, effects.ReadyError, effects.ReadyFailed, effects.ReadyElsewhere)


@dataclass(eq=False)
class Process:
    """One executor."""

    number: int
    rank: int
    effect: StartExecutor
    alive: bool = True
    calls: list[Call] = field(default_factory=list)
    is_running: bool = False
    exits: bool = False
    is_spoilt: bool = False
    """Its gang has raised, or was interrupted: no other call may come, unless it is an actor."""
    is_actor: bool = False
    calls_run: int = 0
    """All members of a gang have run the same number of calls, or are about to."""
    spoilt_call: int = 0
    """The number of the last call in which a member has raised."""
    heard_us: int = 0
    """When the last message to it arrives."""
    since: int = 0
    """Counts what happened to the running call, so that a later alarm about it is ignored."""

    @property
    def gang(self) -> int:
        """The gang of which it is a member; 0: none."""
        return self.effect.member.gang if self.effect.member is not None else 0


class World:
    """One simulated job."""

    def __init__(self, seed: int, check_inside: bool = True) -> None:
        self.rng = rng = random.Random(seed * 9176 + 3)
        self.check_inside = check_inside
        self.now = 0
        self.items: dict[bytes, list[bytes]] = {}
        """By call that streams: its items, as the driver gets them."""
        self.counters: Counter[str] = Counter()
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._timer_us = -1
        self._lines: dict[int, int] = {}
        """When the last message of each sender arrives."""
        hosts = tuple(
            Shape(ranks=rng.choice((1, 1, 2)), cpus=rng.choice((1, 2, 2, 4)), gpus=rng.choice((0, 0, 0, 2)))
            for _ in range(rng.choice((1, 2, 3, 4)))
        )
        self.options = Options(seed=seed, hosts=hosts, head_alone=True)
        self.ranks = [event for event in joined(self.options) if event.cpus]
        self.cpus: Counter[int] = Counter()
        for event in self.ranks:
            self.cpus[event.host] += event.cpu
        self.host_of = {event.rank: event.host for event in self.ranks}
        self.scheduler = Scheduler()
        for event in joined(self.options):
            self.scheduler.handle_rank(event, 0)
        self.scheduler.handle_rank(JobBegan(), 0)
        self.processes: dict[int, Process] = {}
        self.using: dict[int, tuple[int, int]] = {}
        """By executor: host and CPU units of the call that it runs."""
        self.specs: dict[int, Spec] = {}
        self.submitted: dict[bytes, Spec] = {}
        self.inner: dict[bytes, tuple[Process, Call]] = {}
        """Calls of members, with the member and the call that waits for them."""
        self.got: Counter[bytes] = Counter()
        """How often the driver got the value or the error of each call."""
        self.runs: Counter[bytes] = Counter()
        self.touched: set[bytes] = set()
        """Calls that something happened to, so that they may fail. Only for membership."""
        self.actor_of: dict[bytes, bytes] = {}
        """The actor of each of its calls."""
        self.handles: Counter[bytes] = Counter()
        """For each actor the number of its calls that have not ended, and its creation."""
        self.lost: set[int] = set()
        self.faults_until_us = 3_000_000
        self.deaths = rng.choice((0.0, 0.05, 0.3))
        self.raising = rng.choice((0.0, 0.1))
        self.inside = random.Random(seed).choice((0.0, 0.0, 0.5))
        """How often rank 0 of a gang submits a call and waits for it."""

    # Time

    def at(self, delay_us: int, action: Callable[[], None]) -> None:
        """Do something later."""
        self._order += 1
        heapq.heappush(self._heap, (self.now + delay_us, self._order, action))

    def say(self, sender: int, action: Callable[[], None]) -> None:
        """A message to the head arrives, after those that the sender has sent before."""
        at_us = max(self._lines.get(sender, 0), self.now + self.rng.choice((5, 50, 500)))
        self._lines[sender] = at_us

        def arrive() -> None:
            action()
            self.decide()

        self.at(at_us - self.now, arrive)

    def run(self, is_over: Callable[[], bool], limit_us: int) -> bool:
        """Let things happen until it is over; False: nothing happens any more, or it takes too long."""
        while not is_over():
            if not self._heap or self._heap[0][0] > limit_us:
                return False
            self.now, _, action = heapq.heappop(self._heap)
            action()
        return True

    # The head

    def decide(self) -> None:
        """Have a decision made, and carry it out."""
        made = self.scheduler.decide(self.now)
        if self.check_inside:
            invariants.check(self.scheduler.state)
        for rank, orders in made.ranks.items():
            for order in codec.between_ranks.decode(codec.encode(orders)):
                self._obey(rank, order)
        self._check_sent({client: [one for one in sent if type(one) is Call] for client, sent in made.clients.items()})
        for client, messages in made.clients.items():
            frame = codec.encode([ToExecutor(client, [], codec.encode(messages))])
            relayed = codec.between_ranks.decode(frame)[0]
            assert isinstance(relayed, ToExecutor)
            for message in codec.to_client.decode(relayed.frame):
                self._deliver(client, message)
        deadline = self.scheduler.deadline()
        if deadline is not None and not self.now < self._timer_us <= deadline:
            self._timer_us = deadline = max(deadline, self.now + 1)
            self.at(deadline - self.now, self._on_timer)

    def _on_timer(self) -> None:
        if self.now == self._timer_us:
            self._timer_us = -1
            self.decide()

    def _check_sent(self, sent: dict[int, list[Call]]) -> None:
        """A gang gets a call as a whole: each member a part of the same call, in one decision."""
        by_gang: dict[int, dict[int, Call]] = {}
        sizes: dict[int, int] = {}
        for client, calls in sent.items():
            process = self.processes.get(client)
            if process is not None and process.gang and calls:
                assert process.effect.member is not None
                require(len(calls) == 1, f"executor {client} gets {len(calls)} parts at once")
                is_usable = process.is_actor or not process.is_spoilt
                require(is_usable, f"gang {process.gang} gets a call after an error or a cancel")
                sizes[process.gang] = len(process.effect.member.hosts)
                by_gang.setdefault(process.gang, {})[process.effect.member.rank] = calls[0]
        for gang, parts in by_gang.items():
            spec = self.specs[parts[min(parts)].spec]
            whole = list(range(spec.ranks or sizes[gang]))
            require(sorted(parts) == whole, f"gang {gang}: only ranks {sorted(parts)} get a call")
            require(parts[0].id in self.submitted or parts[0].id in self.inner, f"gang {gang}: rank 0 gets a part")
            require(len({part.attempt for part in parts.values()}) == 1, f"gang {gang}: different attempts")

    def _deliver(self, client: int, message: object) -> None:
        if client == DRIVER:
            if isinstance(message, effects.Item):
                self.items.setdefault(message.call, []).append(message.id)
            elif isinstance(message, ENDED) and message.id in self.submitted:
                self._driver_gets(message.id, message)
            elif isinstance(message, ENDED):
                self._driver_gets_item(message)
            return
        process = self.processes.get(client)
        if process is not None and isinstance(message, ENDED) and message.id in self.inner:
            self._inner_ended(process, message)
        if process is not None and isinstance(message, Call):
            process.heard_us = max(process.heard_us, self.now + self.rng.choice((5, 50, 500)))
            self.at(process.heard_us - self.now, lambda: self._receive(process, message))

    def _driver_gets_item(self, message: object) -> None:
        """Each item arrives once, in order, also if its call runs again."""
        assert isinstance(message, effects.Ready)
        call, index = message.data[:16], message.data[16]
        require(self.items[call].index(message.id) == index, f"item {index} of {call.hex()} is at another place")
        self.counters["items"] += 1
        self.say(DRIVER, lambda: self.scheduler.handle(DRIVER, [Released([message.id])], self.now))

    def _driver_gets(self, id: bytes, message: object) -> None:
        self.got[id] += 1
        spec = self.submitted[id]
        if spec.kind == ACTOR and self.got[id] > 1:
            return  # it was created again
        require(self.got[id] == 1, f"call {id.hex()} ended twice")
        if isinstance(message, effects.Ready):
            require(message.data == id, f"call {id.hex()} has the value of another rank: {message.data!r}")
            many = len(self.items.get(id, []))
            require(spec.num_returns != STREAMING or many == ITEMS, f"call {id.hex()} has ended after {many} items")
        else:
            has_cause = id in self.touched or (isinstance(message, effects.ReadyFailed) and self.lost)
            has_cause = has_cause or self.actor_of.get(id) in self.touched
            require(has_cause, f"call {id.hex()} of {spec.name} failed for nothing: {message}")
            self.counters["failed"] += 1
        actor = self.actor_of.get(id, id if spec.kind == ACTOR else b"")
        ids = [id] if spec.kind != ACTOR else []
        if actor:
            self.handles[actor] -= 1
            ids += [actor] * (not self.handles[actor])
        if ids:
            self.say(DRIVER, lambda: self.scheduler.handle(DRIVER, [Released(ids)], self.now))

    # Agents

    def _obey(self, rank: int, order: object) -> None:
        if isinstance(order, StartExecutor):
            process = self.processes[order.executor] = Process(order.executor, rank, order)
            self.counters["forks"] += 1
            self.counters["members"] += bool(process.gang)
            self.say(rank, lambda: self._handle(rank, ExecutorStarted(order.executor, 1000)))
            if self.rng.random() < self.deaths / 10 and self.now < self.faults_until_us:
                self.at(20, lambda: self._die(process, "exited with code 1"))
            return
        found = self.processes.get(getattr(order, "executor", 0))
        if found is None or not found.alive:
            return
        if isinstance(order, StopExecutor) and order.force:
            self.at(self.rng.choice((5, 500)), lambda: self._die(found, "was killed by signal 9"))
        elif isinstance(order, StopExecutor):
            found.exits = True
            self._exit_if_idle(found)
        elif isinstance(order, TakeBack):
            self.at(self.rng.choice((5, 500)), lambda: self._take_back(found, order.count))
        elif isinstance(order, Cancel):
            self.at(self.rng.choice((5, 500)), lambda: self._interrupt(found, order))

    def _handle(self, rank: int, event: ExecutorStarted | ExecutorDied | TakenBack) -> None:
        if rank not in self.lost:
            self.scheduler.handle_rank(event, self.now)

    def _take_back(self, process: Process, count: int) -> None:
        first = 1 if process.is_running else 0
        taken = process.calls[first:][-count:] if process.alive else []
        process.calls = [call for call in process.calls if call not in taken]
        ids = [call.id for call in taken]
        self.say(process.rank, lambda: self._handle(process.rank, TakenBack(process.number, ids)))

    def _interrupt(self, process: Process, order: Cancel) -> None:
        running = process.calls[0] if process.alive and process.calls and process.is_running else None
        if running is None or running.id != order.id:
            return
        process.is_spoilt = True
        self.counters["interrupts"] += 1
        if order.force:
            self._die(process, "was killed by signal 9")
        elif self.rng.random() < 0.6:  # else it is inside MPI
            self._end(process, running, raises=True)

    # Executors

    def _receive(self, process: Process, call: Call) -> None:
        if process.alive:
            process.calls.append(call)
            if len(process.calls) == 1:
                self._run(process)

    def _run(self, process: Process) -> None:
        rng, call = self.rng, process.calls[0]
        spec = self.specs[call.spec]
        process.is_running = True
        process.since += 1
        process.is_actor = process.is_actor or spec.kind == ACTOR
        process.calls_run += 1
        since, host = process.since, self.host_of[process.rank]
        if call.id in self.submitted:
            self.runs[call.id] += 1
            most = spec.max_restarts if spec.kind == ACTOR else spec.max_retries
            allowed = self.runs[call.id] <= most + 1 or not spec.ranks
            require(allowed, f"call {call.id.hex()} runs {self.runs[call.id]} times")
        if spec.kind != METHOD:
            self.using[process.number] = host, spec.cpu
        used = sum(cpu for at, cpu in self.using.values() if at == host)
        require(used <= self.cpus[host], f"host {host}: {used} of {self.cpus[host]} CPU units in use")
        duration_us = rng.choice((50, 3_000, 400_000, 2_000_000))
        if spec.ranks and call.id in self.submitted and spec.kind != ACTOR and rng.random() < self.inside:
            self._wait_inside(process, call)
            return
        may_fail = self.now < self.faults_until_us
        if may_fail and rng.random() < self.deaths:
            self.at(rng.randint(0, duration_us), lambda: self._die_in(process, since))
        self._yield_all(process, call, duration_us)
        fails = may_fail and process.gang > 0 and rng.random() < self.raising
        self.at(duration_us, lambda: self._end_in(process, call, since, fails))

    def _members(self, process: Process) -> list[Process]:
        return [one for one in self.processes.values() if one.gang == process.gang and process.gang]

    def _wait_inside(self, process: Process, call: Call) -> None:
        """Rank 0 of a gang submits a call, and waits for it."""
        spec = self.rng.choice([one for one in self.specs.values() if one.kind not in (ACTOR, METHOD)])
        id = digest(f"{self.options.seed} {len(self.inner)} inside".encode(), 15) + b"\0"
        self.inner[id] = process, call
        self.counters["inner calls"] += 1

        def arrive() -> None:
            self.scheduler.handle(process.number, [spec, Call(id, spec.id, b""), Blocked([id])], self.now)

        self.say(process.number, arrive)

    def _inner_ended(self, process: Process, message: object) -> None:
        """A call that a member has waited for has ended: the member goes on, and ends its own call."""
        id: bytes = getattr(message, "id", b"")
        _, call = self.inner[id]
        self.counters["inner calls without room"] += getattr(message, "code", "") == "InfeasibleResourceError"
        if not process.alive or call not in process.calls:
            return
        self.say(process.number, lambda: self.scheduler.handle(process.number, [Unblocked(), Released([id])], self.now))
        since = process.since
        self._yield_all(process, call, 3_000)
        self.at(3_000, lambda: self._end_in(process, call, since, False))

    def _die_in(self, process: Process, since: int) -> None:
        if process.alive and process.is_running and process.since == since:
            self._die(process, self.rng.choice(("was killed by signal 11", "exited with code 0")))

    def _yield_all(self, process: Process, call: Call, duration_us: int) -> None:
        """Yield the items of a call of the driver that streams, until it ends."""
        if self.specs[call.spec].num_returns == STREAMING and call.id in self.submitted:
            since = process.since
            for index in range(ITEMS):
                self.at(duration_us * index // ITEMS, lambda index=index: self._yield(process, call, since, index))  # type: ignore[misc]

    def _yield(self, process: Process, call: Call, since: int, index: int) -> None:
        if process.alive and process.is_running and process.since == since:
            data = call.id + bytes([index])
            item = Yielded(call.id, index, digest(data + bytes([call.attempt, process.number % 256]), 16), Value(data))
            self.say(process.number, lambda: self.scheduler.handle(process.number, [item], self.now))

    def _end_in(self, process: Process, call: Call, since: int, raises: bool) -> None:
        if not process.alive or not process.is_running or process.since != since:
            return
        others = [one for one in self._members(process) if one is not process]
        if any(one.spoilt_call == process.calls_run or not one.alive for one in others):
            if self.rng.random() < 0.7:
                return  # it waits in a collective for one that will never come
            raises = True
        self._end(process, call, raises)

    def _end(self, process: Process, call: Call, raises: bool) -> None:
        process.is_running = False
        process.since += 1
        process.calls.remove(call)
        if not process.is_actor:
            self.using.pop(process.number, None)
        event: Done | Returned = Done(call.id, call.id, 100)
        if raises:
            self.counters["raised"] += 1
            process.is_spoilt = True
            for one in self._members(process):
                one.is_spoilt = True
                one.spoilt_call = process.calls_run
            self._touch(process, call)
            event = Returned(call.id, [Value(b"error", is_error=True)], 100, raised=True)
        self.say(process.number, lambda: self._client_says(process, event))
        if process.calls:
            self._run(process)
        else:
            self._exit_if_idle(process)

    def _touch(self, process: Process, call: Call) -> None:
        """Something happens to a call: it may fail for that. Of a part the leader is found by its gang."""
        if call.id in self.submitted:
            self.touched.add(call.id)
        executor = self.scheduler.state.executors.get(process.number)
        gang = executor.gang if executor is not None else None
        if gang is not None and gang.task is not None:
            self.touched.add(gang.task.id)
        actor = gang.members[0].actor if gang is not None else None
        if actor is not None:
            self.touched.add(actor.id)

    def _client_says(self, process: Process, event: Done | Returned) -> None:
        self.scheduler.handle(process.number, [event], self.now, 1)

    def _exit_if_idle(self, process: Process) -> None:
        if process.exits and process.alive and not process.calls:
            self._die(process, "exited with code 0")

    def _die(self, process: Process, cause: str) -> None:
        if not process.alive:
            return
        self.counters["deaths"] += 1
        self.counters["deaths of members"] += bool(process.gang)
        process.alive = False
        self.using.pop(process.number, None)
        running = process.calls[0].id if process.is_running else b""
        for call in process.calls:
            self._touch(process, call)
        if process.gang:
            self._touch(process, Call(b"", 0, b""))
        event = ExecutorDied(process.number, running, cause)

        def arrive() -> None:
            self._lines.pop(process.number, None)
            self._handle(process.rank, event)

        # All that the process has sent arrives before.
        self._lines[process.rank] = max(self._lines.get(process.rank, 0), self._lines.get(process.number, 0))
        self.say(process.rank, arrive)

    # The driver

    def submit(self, spec: Spec, actor: bytes = b"") -> bytes:
        """Submit a call, perhaps of an actor."""
        self.specs[spec.id] = spec
        id = digest(f"{self.options.seed} {len(self.submitted)}".encode(), 15) + b"\0"
        self.submitted[id] = spec
        if actor:
            self.actor_of[id] = actor
        self.handles[actor or id] += bool(actor) or spec.kind == ACTOR
        self.scheduler.handle(DRIVER, [spec, Call(id, spec.id, b"", actor=actor)], self.now)
        self.decide()
        return id

    def act(self, spec: Spec) -> None:
        """Create an actor on a gang, and call it some times."""
        self.counters["actors"] += 1
        actor = self.submit(spec)
        method = Spec(spec.id + 1000, METHOD, f"{spec.name}.method", b"")
        for _ in range(self.rng.randint(1, 6)):
            self.submit(method, actor)

    def cancel(self, id: bytes, force: bool) -> None:
        """Cancel a call."""
        self.touched.add(id)
        self.counters["cancels"] += 1
        self.scheduler.handle(DRIVER, [CancelRequested(id, force, False)], self.now)
        self.decide()

    def lose(self, rank: int) -> None:
        """A rank is gone, with all its processes."""
        self.counters["rank losses"] += 1
        self.lost.add(rank)
        for process in self.processes.values():
            if process.rank == rank and process.alive:
                process.alive = False
                self.using.pop(process.number, None)
        self.scheduler.handle_rank(RankLost(rank), self.now)
        self.decide()


def spec_of(world: World, number: int) -> Spec:
    """A function: most are small, the others run on gangs that fit into the hosts."""
    rng = world.rng
    retries = rng.choice((0, 1, 3))
    if rng.random() < 0.5:
        return Spec(number, 0, f"small{number}", b"code", rng.choice((UNIT // 2, UNIT)), max_retries=retries)
    own = rng.choice((UNIT // 2, UNIT, UNIT))
    most = sum(cpu // own for cpu in world.cpus.values())
    ranks = rng.randint(1, max(1, min(6, most)))
    spread = Where(spread=True) if rng.random() < 0.3 else None
    return Spec(
        number, 0, f"gang{number}", b"code", own, max_retries=retries, ranks=ranks, where=spread,
        reuse=rng.random() < 0.8, priority=rng.choice((0, 0, 1)), num_returns=rng.choice((1, 1, STREAMING)),
    )  # fmt: skip


def simulate(seed: int, check_inside: bool = True) -> Counter[str]:
    """Run one world to its end, and check that nothing is left.

    Raises:
        WrongError: the scheduler has done what it must not, or leaves something undone.
    """
    world = World(seed, check_inside)
    rng = world.rng
    world.decide()
    functions = [spec_of(world, number + 1) for number in range(rng.choice((2, 4, 8)))]
    for _ in range(rng.choice((5, 20, 60))):
        spec = rng.choice(functions)

        def submit(spec: Spec = spec) -> None:
            id = world.submit(spec)
            if rng.random() < 0.1:
                world.at(rng.choice((0, 3_000, 500_000)), lambda: world.cancel(id, rng.random() < 0.3))

        world.at(rng.choice((0, 1_000, 1_000_000)), submit)
    gangs = [spec for spec in functions if spec.ranks]
    for spec in gangs[: rng.choice((0, 1, 2))]:
        actor = msgspec.structs.replace(
            spec,
            id=spec.id + 100,
            kind=ACTOR,
            held_cpu=spec.cpu,
            max_restarts=spec.max_retries,
            max_retries=0,
            num_returns=1,
        )
        world.at(rng.choice((0, 500_000)), lambda actor=actor: world.act(actor))  # type: ignore[misc]
    if len(world.ranks) > 1 and rng.random() < 0.3:
        rank = rng.choice(world.ranks).rank
        world.at(rng.randint(0, 2_000_000), lambda: world.lose(rank))
    world.at(1_000_001, lambda: None)  # all calls have been submitted
    world.run(lambda: world.now > 1_000_000, LIMIT_US)
    over = world.run(lambda: len(world.got) == len(world.submitted), LIMIT_US)
    missing = [spec.name for id, spec in world.submitted.items() if not world.got[id]]
    require(over, f"calls never end: {missing}")
    world.run(lambda: False, world.now + SETTLE_US)
    check_end(world)
    world.counters["calls"] += len(world.submitted)
    world.counters["calls on gangs"] += sum(spec.ranks > 0 for spec in world.submitted.values())
    return world.counters


def check_end(world: World) -> None:
    """Nothing is used, held or running."""
    state = world.scheduler.state
    for node in state.nodes.values():
        require(node.free == node.total, f"node {node.number} has {node.free} of {node.total}")
        require(node.reserved_for is None, f"node {node.number} is reserved for nothing")
    alive = [process.number for process in world.processes.values() if process.alive and process.gang]
    require(not alive, f"members live on: {alive}")
    require(not state.objects and not state.waiting and not state.idle_gangs, "something is remembered")
    ended = state.finished + state.failed
    require(state.submitted == ended, f"{state.submitted} submitted, {ended} ended")


def attempt(seed: int, check_inside: bool = True) -> tuple[Counter[str], str]:
    """Run one world. Returns what it has explored, and what was wrong; empty: nothing."""
    try:
        return simulate(seed, check_inside), ""
    except Exception as error:
        return Counter(), f"{type(error).__name__}: {error}"


def main(arguments: list[str] | None = None) -> int:
    """Run seeds."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.gangs")
    parser.add_argument("--seeds", default="0:100", help="from A up to B: A:B")
    first, last = map(int, parser.parse_args(arguments).seeds.split(":"))
    counters: Counter[str] = Counter()
    failed = 0
    for seed in range(first, last):
        found, problem = attempt(seed)
        counters.update(found)
        if problem:
            failed += 1
            print(f"seed {seed} FAILED: {problem}", flush=True)
    print(f"{last - first} seeds, {failed} failed; {dict(sorted(counters.items()))}")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
