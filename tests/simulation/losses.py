"""Ranks that die: when, and what must come of it, looked at from outside.

A process that dies with its rank tells nobody how far it had come. So what counts is what the head had given it: each
call of that counts as run, the first at the cost of a retry, the others at none, if they may run twice at all.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.steps import TASK

if TYPE_CHECKING:
    from mpi_runtime.scheduler.protocol.events import Call
    from tests.simulation.agents import Agent
    from tests.simulation.checkers import Checker
    from tests.simulation.executors import Executor
    from tests.simulation.world import Head, World

DIE_US = 200
"""By then the executors of a dead rank have been killed by their forkserver."""
LOOK_US, NO_LATER_US = 500, 500_000
LAG_US = (0, 500, 20_000, 20_000)
"""How much later comes what a rank says in its last time, so that it may come when its loss is known. MPI may deliver
that still, but never twice."""
NOTICE_US = ((DIE_US, DIE_US), (DIE_US, 50_000))
"""When the head hears of it."""


def plan(world: World, head: Head, agents: dict[int, Agent]) -> None:
    """Have ranks die as the options say: some, and all of the last host."""
    options = world.options
    rng = random.Random(options.seed * 7103 + 29)
    hosts: dict[int, list[int]] = {}
    for agent in agents.values():
        hosts.setdefault(agent.host, []).append(agent.rank)
    doomed = list(hosts.values())[-1] if options.host_losses else []
    spare = [rank for ranks in hosts.values() for rank in ranks[1:] if rank and rank not in doomed]
    chosen = rng.sample(spare, min(len(spare), options.rank_losses)) + doomed
    at_us = rng.choice((0, 100, 3000, 30_000, 200_000, 1_000_000))
    with_a_group = bool(doomed) and rng.random() < 0.4
    for rank in chosen:
        agent = agents[rank]
        end = partial(_end, world, head, agent, rng.choice(LAG_US), rng.choice((0, 100, 3000)))
        if with_a_group and rank in doomed:
            _when(world, lambda: bool(world.checker.places.alive), end)
        elif rng.random() < 0.5:
            _when(world, partial(_has_said, agent, rng.choice((1, 3, 10, 30))), end)
        else:
            at_us += rng.choice((0, 0, 50, 5000, 40_000, 300_000))
            world.at(at_us, end)


def _has_said(agent: Agent, count: int) -> bool:
    """Whether a rank is at work: it has sent so many messages."""
    return agent.said >= count


def _when(world: World, holds: Callable[[], bool], action: Callable[[], None]) -> None:
    """Do this when a condition holds; if it never does, at some time."""
    if holds() or world.now > NO_LATER_US:
        action()
    else:
        world.at(LOOK_US, lambda: _when(world, holds, action))


def _end(world: World, head: Head, agent: Agent, lag_us: int, delay_us: int) -> None:
    """A rank is killed after a while, in which what it says takes longer."""
    agent.to_head.lag_us = lag_us
    world.at(delay_us, partial(kill, world, head, agent))


def kill(world: World, head: Head, agent: Agent) -> None:
    """A rank is killed; its executors follow, and the head hears of it."""
    world.counters["rank losses"] += 1
    agent.alive = False
    notice_us = world.between(world.rng.choice(NOTICE_US))
    for executor in (*agent.executors.values(), *agent.awaited.values()):
        by_us = DIE_US if executor.keeper is agent else notice_us  # with a direct line it is heard until then
        world.at(world.rng.randint(0, by_us), executor.die_with_rank)
    world.at(notice_us, lambda: head.rank_lost(agent.rank))


class Losses:
    """What has been seen of ranks that died."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self._ran: dict[int, set[tuple[bytes, int]]] = {}
        """Which attempts each process has run."""
        self._counted: dict[int, tuple[list[bytes], list[bytes]]] = {}
        """Of processes that have died, and the head has not heard: calls that count as lost, and as not told."""
        self._actors: dict[int, bytes] = {}
        """The actor of each process that died with its rank."""
        self.values: dict[bytes, None] = {}
        """Objects that have lost every copy."""
        self.presumed: Counter[bytes] = Counter()
        """How many runs of each call are counted though it had not begun: nobody knew that."""
        self.touched: set[bytes] = set()
        """Calls that were run again for other reasons than that their process died at once. Only for membership."""
        self.excused: set[int] = set()
        """Executors that have said that CUDA does not start on their host: no call's failure. Only for membership."""
        self._again: set[bytes] = set()
        """Calls that may be run once more for them: once for each loss. Only for membership."""

    def started(self, executor: Executor, call: Call) -> None:
        """An executor starts a call. It may have ended before, and its value be lost."""
        self._ran.setdefault(executor.number, set()).add((call.id, call.attempt))
        self._begins(call.id)

    def _begins(self, call: bytes) -> None:
        """A call runs, or may have. If it had ended it is run again for a lost value: that costs a retry."""
        checker = self._checker
        if checker.ends[call] and call in self._again:
            checker.world.counters["calls run again for lost values"] += 1
            checker.ends[call] = 0
            self._again.discard(call)
            self.touched.add(call)
            checker.lost_runs[call] += 1

    def died(self, executor: Executor, lost: list[bytes], unsaid: list[bytes]) -> None:
        """A process is gone, and these count so: until its rank is gone too before it could tell."""
        self._counted[executor.number] = lost, unsaid

    def heard_of_death(self, number: int) -> None:
        """The head hears that an executor is gone."""
        self._counted.pop(number, None)

    def died_with_rank(self, executor: Executor, actor: bytes) -> None:
        """A process dies with its rank."""
        self._actors[executor.number] = actor

    def rank_lost(self, rank: int, executors: list[int]) -> None:
        """The head hears that a rank is gone, on which it has these executors."""
        checker = self._checker
        checker.tight.ranks.discard(rank)
        for number in executors:
            lost, unsaid = self._counted.pop(number, ([], []))
            checker.lost_runs.subtract(lost)
            checker.unsaid.subtract(unsaid)
            actor = self._actors.pop(number, b"") or next((one for one in lost if one in checker.created), b"")
            assigned = checker.cancels.assigned(number)
            self.touched.update(assigned)
            for position, (id, attempt) in enumerate(assigned.items()):
                checker.items.lost_with_rank(id)
                if (id, attempt) not in self._ran.get(number, ()):
                    self._begins(id)
                    checker.runs[id] += 1
                    self.presumed[id] += 1
                    checker.world.counters["runs"] += 1
                function = checker.function_of(id)
                is_first = position == 0 and number not in self.excused
                pays = is_first or not function.max_retries or checker.takes_several(id)
                (checker.lost_runs if pays else checker.unsaid)[id] += 1
            if actor and actor not in assigned:
                checker.lost_runs[actor] += 1
            checker.cancels.executor_died(number)
        checker.copies.rank_lost(rank)
        for id in checker.quality.rank_lost(rank):
            self.values[id] = None
            checker.items.has_no_copy(id)
            self._may_run_again(checker.call_of(id))
        checker.host_lost(rank)

    def _may_run_again(self, call: bytes) -> None:
        """A call, and all whose values it needs."""
        checker = self._checker
        pending = [call]
        while pending:
            one = pending.pop()
            if one and one not in self._again and one in checker.calls:
                self._again.add(one)
                made = checker.calls[one]
                pending += [checker.call_of(id) for id in (*made.arguments, *made.holds)]

    def explain(self, id: bytes) -> bool:
        """Whether an object may be lost for good: nothing and no node can make it again, or not what it is made of."""
        checker = self._checker
        call = checker.call_of(id)
        if not call:
            return checker.items.may_be_lost(id)  # put values may
        function, job = checker.function_of(call), checker.work.jobs[checker.names[call][0]]
        if function.kind != TASK or function.num_returns < 0 or job.holds or job.raises:
            return True
        if 0 <= function.max_retries < checker.runs[call] or checker.cancels.is_to_end(call):
            return True
        if checker.times.is_over(call):
            return True  # when it was run again, it may have taken too long
        if checker.has_no_place(call):
            return True
        return any(self.explain(one) for one in checker.calls[call].arguments)
