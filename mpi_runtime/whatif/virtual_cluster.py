"""Nodes and processes in virtual time, around the scheduler of real jobs.

Calls take their stated durations, messages no time, and nothing fails. The scheduler decides as in a real job, so
makespans can be estimated without machines. Faults and the protocol are the subject of the tests' simulator.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from mpi_runtime.batch.extend import Asked, Demand, call_options
from mpi_runtime.extend import Pool, Request, custom_of, pool_for, task_spec
from mpi_runtime.scheduler.core import Scheduler
from mpi_runtime.scheduler.protocol.amounts import TYPE
from mpi_runtime.scheduler.protocol.effects import StartExecutor, StopExecutor, TakeBack
from mpi_runtime.scheduler.protocol.events import DRIVER, Call, Done, Released, Spec
from mpi_runtime.scheduler.protocol.ids import alternative_id
from mpi_runtime.scheduler.protocol.limits import UNIT
from mpi_runtime.scheduler.protocol.rank_events import ExecutorDied, ExecutorStarted, JobBegan, RankJoined, TakenBack

UNTIL_ENDED = -1
"""The duration of what runs until `VirtualCluster.end`."""
NO_ACCOUNT = ("", 1.0, 0)
IDLE_ALARMS_MAX = 1000
"""The number of alarms of the scheduler without a start after which nothing will start."""


class Shape(NamedTuple):
    """The resources of a node, or the request of a call."""

    cpus: float
    gpus: float = 0
    memory: int = 0
    """In bytes."""
    resources: tuple[tuple[str, float], ...] = ()
    """Custom resources by name."""

    def pool(self) -> Pool:
        """The resources of such a node as the scheduler counts them."""
        custom = custom_of({name: _units(amount) for name, amount in self.resources})
        return pool_for(Request(_units(self.cpus), _units(self.gpus), self.memory, custom))


def custom(amounts: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """Custom resources for a shape, without those that name a host or a type of GPU."""
    return tuple((name, amount) for name, amount in amounts.items() if not name.startswith(("node:", TYPE)))


def asked(
    shape: Shape,
    limit_us: int = 0,
    priority: int = 0,
    account: tuple[str, float, int] = ("", 1.0, 0),
    expect_us: int = 0,
) -> Asked:
    """What a call asks that needs a shape; `account`: name, weight and limit, an empty name: none."""
    group, weight, limit = account
    return Asked(
        *(shape.cpus, shape.gpus, shape.memory, dict(shape.resources)), time_limit=limit_us / 1e6 or None, grace=0.0,
        expect=expect_us / 1e6 or None, priority=priority, group=group, group_weight=weight, group_limit=limit,
    )  # fmt: skip


class Work(NamedTuple):
    """A call with a known duration, or `UNTIL_ENDED`. Its ranks are calls of their own."""

    name: str
    asked: Asked
    duration_us: int
    """With the first alternative, if it has several."""
    path_us: int = 0
    """The duration of the call and the longest chain after it, as its submitter knows it."""
    tag: int = 0
    """Distinguishes it from equal ones."""
    others_us: tuple[int, ...] = ()
    """The durations with its further alternatives."""


class Ran(NamedTuple):
    """Where and when a call ran."""

    work: Work
    node: int
    start_us: int
    end_us: int
    demand: Demand
    """The request that it had."""


class _Executor:
    """A process that runs its calls one after another."""

    def __init__(self, effect: StartExecutor, node: int) -> None:
        self.effect = effect
        self.node = node
        self.assigned: list[bytes] = []
        self.is_started = False
        self.began_us = -1
        """The start of its first assigned call; -1: not started."""


class VirtualCluster:
    """A job in virtual time. Submit work, then run; callbacks receive starts and ends."""

    def __init__(
        self,
        nodes: Sequence[Shape],
        ended: Callable[[Ran], None] | None = None,
        fork_us: int = 0,
        began: Callable[[Work], None] | None = None,
    ) -> None:
        """A cluster without calls. `fork_us` is the duration of the start of a process.

        `began` receives each call that starts, `ended` each that has ended; it may submit more.
        """
        self.now = 0
        """The virtual time in microseconds."""
        self.ran: list[Ran] = []
        self.scheduler = Scheduler()
        self._ended = ended or (lambda ran: None)
        self._began = began or (lambda work: None)
        self._fork_us = fork_us
        self._works: dict[bytes, Work] = {}
        self._takes: dict[bytes, tuple[Demand, int]] = {}
        """The request and the duration of each call that was assigned."""
        self._specs: dict[bytes, int] = {}
        """By all that the scheduler sees of a call."""
        self._alternatives: dict[int, int] = {}
        """The index of each spec of a further alternative."""
        self._executors: dict[int, _Executor] = {}
        self._count = itertools.count()
        self._calls = itertools.count(1)
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._alarm_us = -1
        self._idle_alarms = 0
        self._open: dict[int, _Executor] = {}
        """Executors of calls `UNTIL_ENDED`, by tag."""
        for rank, node in enumerate(nodes):
            custom = {name: _units(amount) for name, amount in node.resources}
            joined = RankJoined(
                rank, rank, f"node{rank}", [], _units(node.cpus), _units(node.gpus), node.memory, custom, 1 << 30
            )
            self.scheduler.handle_rank(joined, 0)
        self.scheduler.handle_rank(JobBegan(), 0)

    def submit(self, works: Sequence[Work]) -> None:
        """Submit calls to the scheduler now, in this order."""
        events: list[Spec | Call] = []
        for work in works:
            options = call_options(work.asked, work.path_us)
            key = msgspec.msgpack.encode((work.name, options))
            spec = self._specs.get(key)
            if spec is None:
                spec = self._specs[key] = len(self._specs) + 1
                made = task_spec(work.name, b"", options)
                events.append(msgspec.structs.replace(made, id=spec, imports=[]))
                self._alternatives |= {alternative_id(spec, one): one for one in range(1, len(work.others_us) + 1)}
            id = next(self._calls).to_bytes(16, "big")
            self._works[id] = work
            events.append(Call(id, spec, b""))
        self.scheduler.handle(DRIVER, events, self.now)
        self._at(self.now, lambda: None)

    def run(self) -> list[Ran]:
        """Run to the end, and return the calls that ran. Calls that can never run, or not in time, are missing."""
        while self._heap:
            self.now = self._heap[0][0]
            while self._heap and self._heap[0][0] == self.now:  # one decision for all events of one time
                heapq.heappop(self._heap)[2]()
            self._decide()
        return self.ran

    def end(self, tag: int) -> None:
        """End a call with the duration `UNTIL_ENDED`."""
        executor = self._open.pop(tag)
        self._at(self.now, lambda: self._end(executor))

    def later(self, us: int, action: Callable[[], None]) -> None:
        """Perform an action after this virtual time."""
        self._at(self.now + us, action)

    def _at(self, time_us: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (time_us, next(self._count), action))

    def _decide(self) -> None:
        effects = self.scheduler.decide(self.now)
        for rank, messages in effects.ranks.items():
            for message in messages:
                if isinstance(message, StartExecutor):
                    executor = self._executors[message.executor] = _Executor(message, rank)
                    self._at(self.now + self._fork_us, partial(self._started, executor))
                elif isinstance(message, StopExecutor):
                    self._at(self.now, partial(self._stopped, self._executors[message.executor]))
                elif isinstance(message, TakeBack):
                    self._at(self.now, partial(self._taken_back, self._executors[message.executor], message.count))
        for client, sent in effects.clients.items():
            if client == DRIVER:
                continue
            executor = self._executors[client]
            for call in [one for one in sent if type(one) is Call]:
                executor.assigned.append(call.id)
                self._takes[call.id] = self._taken(call)
            self._begin_next(executor)
        alarm_us = self.scheduler.deadline()
        if alarm_us is not None and (self._works or self._executors) and alarm_us != self._alarm_us:
            self._alarm_us = alarm_us
            if len(self._works) > len(self._open) and self._idle_alarms < IDLE_ALARMS_MAX:
                self._idle_alarms += 1
                self._at(max(alarm_us, self.now + 1), lambda: None)

    def _taken(self, call: Call) -> tuple[Demand, int]:
        """The request and the duration of a call: those of the alternative that its spec is."""
        work = self._works[call.id]
        index = self._alternatives.get(call.spec, 0)
        return work.asked.demands()[index], work.others_us[index - 1] if index else work.duration_us

    def _started(self, executor: _Executor) -> None:
        executor.is_started = True
        self.scheduler.handle_rank(ExecutorStarted(executor.effect.executor, 1), self.now)
        self._begin_next(executor)

    def _stopped(self, executor: _Executor) -> None:
        del self._executors[executor.effect.executor]
        self.scheduler.handle_rank(ExecutorDied(executor.effect.executor, b"", "was ended"), self.now)

    def _taken_back(self, executor: _Executor, count: int) -> None:
        first = 1 if executor.began_us >= 0 else 0
        waiting = executor.assigned[first:]
        ids = waiting[max(0, len(waiting) - count) :]
        executor.assigned = executor.assigned[: len(executor.assigned) - len(ids)]
        self.scheduler.handle_rank(TakenBack(executor.effect.executor, ids), self.now)

    def _begin_next(self, executor: _Executor) -> None:
        if executor.is_started and executor.assigned and executor.began_us < 0:
            executor.began_us = self.now
            work, (_, duration_us) = self._works[executor.assigned[0]], self._takes[executor.assigned[0]]
            self._idle_alarms = 0
            if duration_us == UNTIL_ENDED:
                self._open[work.tag] = executor
            else:
                self._at(self.now + duration_us, lambda: self._end(executor))
            self._began(work)

    def _end(self, executor: _Executor) -> None:
        id = executor.assigned.pop(0)
        work, (demand, _) = self._works.pop(id), self._takes.pop(id)
        began_us, executor.began_us = executor.began_us, -1
        number = executor.effect.executor
        self.scheduler.handle(number, [Done(id, b"", self.now - began_us, began_us)], self.now, 1)
        self.scheduler.handle(DRIVER, [Released([id])], self.now)
        ran = Ran(work, executor.node, began_us, self.now, demand)
        self.ran.append(ran)
        self._ended(ran)
        self._begin_next(executor)


def _units(amount: float) -> int:
    return round(amount * UNIT)
