"""The head's side of a simulated job with gangs: time, decisions, calls of the driver, and the checks of both.

The checks look from outside: at what is sent, and at what the driver gets. The same seed makes the same run.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from mpi_runtime.core.transport import codec
from mpi_runtime.core.transport.messages import ToExecutor
from mpi_runtime.scheduler.core import Scheduler
from mpi_runtime.scheduler.protocol import effects
from mpi_runtime.scheduler.protocol.effects import StartExecutor
from mpi_runtime.scheduler.protocol.events import (
    DRIVER,
    STREAMING,
    ActorSpec,
    Call,
    CancelRequested,
    MethodSpec,
    Released,
    Spec,
)
from mpi_runtime.scheduler.protocol.ids import digest
from mpi_runtime.scheduler.protocol.rank_events import JobBegan
from tests.checks import executors as invariants
from tests.simulation.options import Options, Shape
from tests.simulation.require import require
from tests.simulation.world import joined

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


class Head:
    """One simulated job, without the processes of its nodes."""

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
        self.scheduler.handle_rank(JobBegan(survives_losses=True), 0)
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
        self._carry_out(self.scheduler.decide(self.now), is_news=True)

    def _carry_out(self, made: effects.Effects, is_news: bool) -> None:
        """Look at the state after a decision, unless it is the one that was looked at before, and carry it out."""
        if self.check_inside and (is_news or made.ranks or made.clients):
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
            self._carry_out(self.scheduler.decide(self.now), is_news=False)

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
        if isinstance(spec.kind, ActorSpec) and self.got[id] > 1:
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
        actor = self.actor_of.get(id, id if isinstance(spec.kind, ActorSpec) else b"")
        ids = [id] if not isinstance(spec.kind, ActorSpec) else []
        if actor:
            self.handles[actor] -= 1
            ids += [actor] * (not self.handles[actor])
        if ids:
            self.say(DRIVER, lambda: self.scheduler.handle(DRIVER, [Released(ids)], self.now))

    # The driver

    def submit(self, spec: Spec, actor: bytes = b"") -> bytes:
        """Submit a call, perhaps of an actor."""
        self.specs[spec.id] = spec
        id = digest(f"{self.options.seed} {len(self.submitted)}".encode(), 15) + b"\0"
        self.submitted[id] = spec
        if actor:
            self.actor_of[id] = actor
        self.handles[actor or id] += bool(actor) or isinstance(spec.kind, ActorSpec)
        self.scheduler.handle(DRIVER, [spec, Call(id, spec.id, b"", actor=actor)], self.now)
        self.decide()
        return id

    def act(self, spec: Spec) -> None:
        """Create an actor on a gang, and call it some times."""
        self.counters["actors"] += 1
        actor = self.submit(spec)
        method = Spec(spec.id + 1000, MethodSpec(), f"{spec.name}.method", b"")
        for _ in range(self.rng.randint(1, 6)):
            self.submit(method, actor)

    def cancel(self, id: bytes, force: bool) -> None:
        """Cancel a call."""
        self.touched.add(id)
        self.counters["cancels"] += 1
        self.scheduler.handle(DRIVER, [CancelRequested(id, force, False)], self.now)
        self.decide()

    # The nodes: see `gang_nodes.py`

    def _obey(self, rank: int, order: object) -> None:
        raise NotImplementedError

    def _receive(self, process: Process, call: Call) -> None:
        raise NotImplementedError

    def _inner_ended(self, process: Process, message: object) -> None:
        raise NotImplementedError
