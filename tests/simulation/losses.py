"""Ranks that die: when, and what must come of it, looked at from outside.

A process that dies with its rank tells nobody how far it had come. So what counts is what the head had given it: each
call of that counts as run, the first at the cost of a retry, the others at none, if they may run twice at all.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.steps import TASK

if TYPE_CHECKING:
    from mpi_runtime.scheduler.events import Call
    from tests.simulation.agents import Agent
    from tests.simulation.checkers import Checker
    from tests.simulation.executors import Executor
    from tests.simulation.world import Head, World

DIE_US = 200
"""By then the executors of a dead rank have been killed by their forkserver."""
LOOK_US, NO_GROUP_US = 500, 500_000
NOTICE_US = (DIE_US, 50_000)
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
    if doomed and rng.random() < 0.4:
        for rank in doomed:
            chosen.remove(rank)
            _at_a_group(world, partial(kill, world, head, agents[rank]), rng.choice((0, 100, 3000)))
    for rank in chosen:
        at_us += rng.choice((0, 0, 50, 5000, 40_000, 300_000))
        world.at(at_us, partial(kill, world, head, agents[rank]))


def _at_a_group(world: World, action: Callable[[], None], delay_us: int) -> None:
    """Do this a while after there is a placement group; if none comes, at some time."""
    if world.checker.places.alive or world.now > NO_GROUP_US:
        world.at(delay_us, action)
    else:
        world.at(LOOK_US, lambda: _at_a_group(world, action, delay_us))


def kill(world: World, head: Head, agent: Agent) -> None:
    """A rank is killed; its executors follow, and the head hears of it."""
    world.counters["rank losses"] += 1
    agent.alive = False
    for local in agent.executors.values():
        world.at(world.rng.randint(0, DIE_US), local.executor.die_with_rank)
    world.at(world.between(NOTICE_US), lambda: head.rank_lost(agent.rank))


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
        self.touched: set[bytes] = set()
        """Calls that were run again for other reasons than that their process died at once. Only for membership."""
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
        for number in executors:
            lost, unsaid = self._counted.pop(number, ([], []))
            checker.lost_runs.subtract(lost)
            checker.unsaid.subtract(unsaid)
            actor = self._actors.pop(number, b"") or next((one for one in lost if one in checker.created), b"")
            in_hand = checker.cancels.in_hand(number)
            self.touched.update(in_hand)
            for position, (id, attempt) in enumerate(in_hand.items()):
                if (id, attempt) not in self._ran.get(number, ()):
                    self._begins(id)
                    checker.runs[id] += 1  # nobody knows that it has not
                    checker.world.counters["runs"] += 1
                function = checker.function_of(id)
                pays = position == 0 or not function.max_retries or checker.takes_several(id)
                (checker.lost_runs if pays else checker.unsaid)[id] += 1
            if actor and actor not in in_hand:
                checker.lost_runs[actor] += 1
            checker.cancels.executor_died(number)
        for id in checker.quality.rank_lost(rank):
            self.values[id] = None
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
        """Whether an object may be lost for good: nothing can make it again, or not what it is made of."""
        checker = self._checker
        call = checker.call_of(id)
        if not call:
            return True  # a put value, an item
        function, job = checker.function_of(call), checker.work.jobs[checker.names[call][0]]
        if function.kind != TASK or function.num_returns < 0 or job.holds or job.raises:
            return True
        if 0 <= function.max_retries < checker.runs[call] or checker.cancels.is_to_end(call):
            return True
        return any(self.explain(one) for one in checker.calls[call].arguments)
