"""Bugs that are planted on purpose, and found: by looking from outside alone, without the invariants of the state."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import pytest

from mpi_runtime.scheduler import actors, groups, objects, packing, placement, recovery, strategies
from mpi_runtime.scheduler.effects import TakeBack
from mpi_runtime.scheduler.events import ExecutorDied, Fetched, Where
from mpi_runtime.scheduler.nodes import Bundle, Executor, Source
from mpi_runtime.scheduler.objects import Object
from mpi_runtime.scheduler.resources import Grant, Pool, Request, copy_of, give_back, take
from mpi_runtime.scheduler.state import Client, State
from mpi_runtime.scheduler.tasks import Task
from tests.simulation import planted
from tests.simulation.agents import Agent
from tests.simulation.options import random_options
from tests.simulation.run import FailedError, simulate

SEEDS = 300

pytestmark = pytest.mark.timeout(300)


def freed_twice(patch: pytest.MonkeyPatch) -> None:
    give_up = placement.give_up

    def planted(state: State, executor: Executor, now: int) -> None:
        grant, node = executor.grant, executor.rank.node
        give_up(state, executor, now)
        assert grant is not None
        give_back(grant, node.free)
        state.index.update(node)

    patch.setattr(placement, "give_up", planted)


def freed_before_its_process_is_gone(patch: pytest.MonkeyPatch) -> None:
    end = actors.end

    def planted(state: State, actor: actors.Actor, cause: str, force: bool) -> None:
        executor = actor.executor
        end(state, actor, cause, force)
        if executor is not None and executor.grant is not None:
            give_back(executor.grant, executor.rank.node.free)
            executor.grant = None
            state.freed = True

    patch.setattr(actors, "end", planted)


def a_wake_up_is_lost(patch: pytest.MonkeyPatch) -> None:
    announce = objects.announce

    def planted(state: State, found: Object) -> None:
        if found.waiters is not None and len(found.waiters) > 1:
            found.waiters.pop()
        announce(state, found)

    patch.setattr(objects, "announce", planted)


def taken_back_and_run(patch: pytest.MonkeyPatch) -> None:
    take_back = Agent.take_back

    def planted(self: Agent, effect: TakeBack) -> None:
        hand = self.hands.get(effect.executor)
        tokens = 0 if hand is None else hand.executor.tokens
        take_back(self, effect)
        if hand is not None:
            hand.executor.tokens = tokens

    patch.setattr(Agent, "take_back", planted)


def released_twice(patch: pytest.MonkeyPatch) -> None:
    on_released = objects.on_released

    def planted(state: State, client: Client, ids: list[bytes]) -> None:
        on_released(state, client, ids)
        for id in ids:
            objects.release(state, id)

    patch.setattr(objects, "on_released", planted)


def never_released(patch: pytest.MonkeyPatch) -> None:
    def planted(state: State, client: Client, ids: list[bytes]) -> None:
        del ids[-1:]
        on_released(state, client, ids)

    on_released = objects.on_released
    patch.setattr(objects, "on_released", planted)


def nobody_served_after_a_release(patch: pytest.MonkeyPatch) -> None:
    give_up = placement.give_up

    def planted(state: State, executor: Executor, now: int) -> None:
        give_up(state, executor, now)
        state.freed = False

    patch.setattr(placement, "give_up", planted)


def stays_behind_a_blocked_call(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "ask_for_the_rest", lambda state, executor: None)


def no_cpu_while_blocked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "blocked", lambda state, executor: None)


def a_death_is_no_retry(patch: pytest.MonkeyPatch) -> None:
    redo = recovery.redo

    def planted(state: State, executor: Executor, in_hand: list[Task], event: ExecutorDied) -> None:
        event.running = b""
        redo(state, executor, in_hand, event)

    patch.setattr(recovery, "redo", planted)


def an_actors_calls_overtake(patch: pytest.MonkeyPatch) -> None:
    pump = actors.pump

    def planted(state: State, actor: actors.Actor, now: int) -> None:
        for queue in actor.callers.values():
            queue.reverse()
        pump(state, actor, now)

    patch.setattr(actors, "pump", planted)


def memory_freed_early(patch: pytest.MonkeyPatch) -> None:
    on_fetched = objects.on_fetched

    def planted(state: State, event: Fetched) -> list[tuple[Task, Executor]]:
        found = state.objects[event.id]
        assert found.copies is not None
        waiting = on_fetched(state, event)
        state.frees.setdefault(event.rank, []).append(event.offset)
        return waiting

    patch.setattr(objects, "on_fetched", planted)


def a_bundle_is_sold_twice(patch: pytest.MonkeyPatch) -> None:
    def planted(request: Request, free: Pool) -> Grant:
        return take(request, copy_of(free))

    patch.setattr(groups, "take", planted)


def a_bundle_is_freed_before_its_processes_are_gone(patch: pytest.MonkeyPatch) -> None:
    drained = groups.drained

    def planted(state: State, bundle: Bundle) -> None:
        if bundle in bundle.node.bundles:
            patch.setattr(groups, "executors_in", lambda _: [])
            drained(state, bundle)
            patch.setattr(groups, "executors_in", executors_in)

    executors_in = groups.executors_in
    patch.setattr(groups, "drained", planted)


def a_removed_group_runs_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(groups, "stop", lambda state, bundle, executor: None)
    patch.setattr(groups, "end_actors", lambda state, id: None)


def calls_go_to_any_bundle(patch: pytest.MonkeyPatch) -> None:
    def planted(state: State, where: Where | None) -> Iterable[Source]:
        return sources(state, None if where is None else Where(group=where.group, labels=where.labels))

    sources = strategies.sources
    patch.setattr(strategies, "sources", planted)


def a_strict_group_is_placed_as_a_soft_one(patch: pytest.MonkeyPatch) -> None:
    arrange = packing.arrange

    def planted(requests: Sequence[Request], strategy: str, pools: Mapping[int, Pool]) -> packing.Spots | None:
        return arrange(requests, "PACK" if strategy == "STRICT_SPREAD" else strategy, pools)

    patch.setattr(packing, "arrange", planted)


def a_node_that_was_asked_for_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(strategies, "matches", lambda wanted, labels: True)


BUGS: list[Callable[[pytest.MonkeyPatch], None]] = [
    freed_twice,
    freed_before_its_process_is_gone,
    a_wake_up_is_lost,
    taken_back_and_run,
    released_twice,
    never_released,
    nobody_served_after_a_release,
    stays_behind_a_blocked_call,
    no_cpu_while_blocked,
    a_death_is_no_retry,
    an_actors_calls_overtake,
    memory_freed_early,
    a_bundle_is_sold_twice,
    a_bundle_is_freed_before_its_processes_are_gone,
    a_removed_group_runs_on,
    calls_go_to_any_bundle,
    a_strict_group_is_placed_as_a_soft_one,
    a_node_that_was_asked_for_is_forgotten,
    *planted.BUGS,
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)

    def look() -> None:
        for seed in range(SEEDS):
            simulate(replace(random_options(seed), check_inside=False))

    with pytest.raises(FailedError, match=r"repeat with: python -m tests.simulation.run --seed \d+"):
        look()
