"""Gangs in virtual time: fixed seeds, floors on what they explore, and planted bugs that are found from outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec
import pytest

from mpi_runtime.scheduler.gangs import members, nested_calls, starting
from mpi_runtime.scheduler.losses import dead_executors
from mpi_runtime.scheduler.protocol.effects import RankEffect, StopExecutor
from mpi_runtime.scheduler.protocol.rank_events import ExecutorDied
from mpi_runtime.scheduler.records.grant_sources import Source
from mpi_runtime.scheduler.records.records import Executor, Gang, Queue, Task
from mpi_runtime.scheduler.records.state import State
from tests.simulation.gangs import attempt, simulate

pytestmark = pytest.mark.timeout(600)  # up to 45 s of CPU
SEEDS = range(60)
FLOORS = {
    "calls on gangs": 500, "members": 500, "deaths of members": 500, "failed": 150, "cancels": 80, "raised": 30,
    "interrupts": 15, "rank losses": 8, "inner calls": 80, "inner calls without room": 30,
}  # fmt: skip
SEEDS_OF_BUGS = range(300)


def test_gangs_beside_small_calls_go_well_whatever_dies() -> None:
    counters: Counter[str] = Counter()
    for seed in SEEDS:
        counters.update(simulate(seed))
    assert {name: counters[name] for name, floor in FLOORS.items() if counters[name] < floor} == {}


def test_the_same_seed_is_the_same_run() -> None:
    assert simulate(11) == simulate(11)


def a_gang_is_placed_in_part(patch: pytest.MonkeyPatch) -> None:
    room = starting.room

    def planted(state: State, queue: Queue) -> list[Source] | None:
        found = room(state, queue)
        return found if found is None or len(found) < 2 else found[:-1]

    def begun(state: State, gang: Gang, queue: Queue, task: Task, now: int) -> None:
        whole = task.function.spec.gang
        assert whole is not None
        task.function.spec.gang = msgspec.structs.replace(whole, ranks=len(gang.members))
        begin(state, gang, queue, task, now)
        task.function.spec.gang = whole

    begin = starting.begin
    patch.setattr(starting, "room", planted)
    patch.setattr(starting, "begin", begun)


def a_death_ends_a_call_twice(patch: pytest.MonkeyPatch) -> None:
    after_death = members.after_death

    def planted(state: State, executor: Executor, assigned: list[Task]) -> list[Task]:
        leaders = [part.leader for part in assigned if part.leader is not None]
        return [*after_death(state, executor, assigned), *leaders]

    patch.setattr(members, "after_death", planted)


def a_dead_member_keeps_its_grant(patch: pytest.MonkeyPatch) -> None:
    forget = dead_executors.forget

    def planted(state: State, executor: Executor) -> None:
        if executor.gang_rank:
            executor.grant = None
        forget(state, executor)

    patch.setattr(dead_executors, "forget", planted)


def the_others_live_on_after_a_death(patch: pytest.MonkeyPatch) -> None:
    to_rank = State.to_rank

    def planted(self: State, rank: int, effect: RankEffect) -> None:
        member = self.executors.get(effect.executor) if isinstance(effect, StopExecutor) else None
        if member is None or not member.gang_rank:
            to_rank(self, rank, effect)

    patch.setattr(State, "to_rank", planted)


def a_gang_is_used_again_after_an_error(patch: pytest.MonkeyPatch) -> None:
    stop_gang = State.stop_gang

    def planted(self: State, gang: Gang, cause: str) -> None:
        if "raised" in cause:
            members.rest(self, gang, self.stories.now)
        else:
            stop_gang(self, gang, cause)

    patch.setattr(State, "stop_gang", planted)


def a_call_ends_with_its_first_member(patch: pytest.MonkeyPatch) -> None:
    ended = members.ended

    def planted(state: State, executor: Executor, event: object, now: int) -> None:
        ended(state, executor, event, now)  # type: ignore[arg-type]
        gang = executor.gang
        if gang is not None and gang.task is not None and 0 in gang.ended:
            members.finish(state, gang, now)

    patch.setattr(members, "ended", planted)


def the_grace_never_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(members, "set_due", lambda state, gang, at_us: None)


def a_member_that_dies_is_not_noticed(patch: pytest.MonkeyPatch) -> None:
    def planted(state: State, executor: Executor, event: ExecutorDied) -> None:
        assert executor.gang is not None
        executor.gang.living -= 1

    patch.setattr(members, "member_died", planted)


def gangs_wait_for_each_other_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(nested_calls, "look", lambda state, gang, now: None)


def the_first_of_waiting_gangs_counts_alone(patch: pytest.MonkeyPatch) -> None:
    waiting_gangs = nested_calls.waiting_gangs
    patch.setattr(nested_calls, "waiting_gangs", lambda state: dict(list(waiting_gangs(state).items())[:1]))


BUGS = (
    a_gang_is_placed_in_part,
    a_death_ends_a_call_twice,
    a_dead_member_keeps_its_grant,
    the_others_live_on_after_a_death,
    a_gang_is_used_again_after_an_error,
    a_call_ends_with_its_first_member,
    the_grace_never_ends,
    a_member_that_dies_is_not_noticed,
    gangs_wait_for_each_other_for_ever,
    the_first_of_waiting_gangs_counts_alone,
)


@pytest.mark.parametrize("plant", BUGS)
def test_a_planted_bug_is_found_from_outside(plant: Callable[[pytest.MonkeyPatch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        assert any(attempt(seed, check_inside=False)[1] for seed in SEEDS_OF_BUGS), "no seed has found it"
