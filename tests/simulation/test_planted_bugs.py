"""Bugs that are planted on purpose, and found: by looking from outside alone, without the invariants of the state."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import pytest

from mpi_runtime.core.journal.states import States
from mpi_runtime.scheduler import core
from mpi_runtime.scheduler.actors import calls as actor_calls
from mpi_runtime.scheduler.actors import lifetimes
from mpi_runtime.scheduler.calls import copies
from mpi_runtime.scheduler.dispatch import blocked as blocked_executors
from mpi_runtime.scheduler.dispatch import dispatch
from mpi_runtime.scheduler.losses import dead_executors
from mpi_runtime.scheduler.nodes import groups
from mpi_runtime.scheduler.places import constraints, packing
from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.events import Blocked, Where
from mpi_runtime.scheduler.protocol.rank_events import ExecutorDied, Fetched
from mpi_runtime.scheduler.protocol.resources import Grant, Pool, copy_of, give_back, take
from mpi_runtime.scheduler.records import records
from mpi_runtime.scheduler.records.grant_sources import Source
from mpi_runtime.scheduler.records.records import Bundle, Executor, Task
from mpi_runtime.scheduler.records.state import Client, Fetching, Object, State
from mpi_runtime.scheduler.values import objects
from tests.simulation import (
    planted,
    planted_clients,
    planted_copies,
    planted_custody,
    planted_direct,
    planted_following,
    planted_losses,
    planted_spills,
)
from tests.simulation.options import dropping_options, link_options, losing_options, random_options, spilling_options
from tests.simulation.run import FailedError, simulate, simulate_again

SEEDS = 4000
FIRST = {
    "a_bundle_is_freed_before_its_processes_are_gone": 98, "a_busy_group_holds_up_others": 260,
    "a_call_gets_several_instances": 36, "a_call_is_ended_before_its_time_is_over": 23,
    "a_call_may_ignore_that_its_time_is_over": 149, "a_call_of_an_actor_that_comes_back_is_the_last": 13,
    "a_cancelled_call_waits_for_the_one_before_it": 59, "a_demand_is_not_heard": 3,
    "a_draft_counts_what_is_not_there": 76, "a_gpu_of_any_type_will_do": 11, "a_gpu_that_fails_is_used_on": 11,
    "a_node_that_was_asked_for_is_forgotten": 11, "a_node_without_cuda_is_used_on": 11,
    "a_quarantined_gpu_is_given_again": 11, "a_rank_gets_gpus_that_it_cannot_use": 94,
    "a_reference_in_a_value_is_not_told": 13, "a_removed_group_runs_on": 21,
    "a_strict_group_is_placed_as_a_soft_one": 18, "an_actor_begins_what_cannot_end_in_time": 60,
    "an_actor_gets_calls_only_when_it_has_none": 223, "an_actor_that_begins_with_the_state_of_an_equal_one": 60,
    "an_actor_that_goes_on_before_the_end": 291,
    "an_actors_calls_overtake": 5, "an_error_that_was_read_is_told": 3, "an_exclusive_gpu_is_shared": 69,
    "an_item_is_lost": 42, "an_item_that_nobody_wants_is_kept": 21, "arguments_are_moved": 15,
    "bundles_stay_on_the_lost_node": 14, "calls_are_sent_before_others_were_dropped": 4,
    "calls_are_started_on_a_host_without_memory": 13, "calls_are_taken_back_where_the_process_is": 19,
    "calls_beside_others_are_thought_not_to_have_run": 41, "calls_do_not_wait_again": 4,
    "calls_follow_in_an_actor_that_takes_several": 3, "calls_follow_while_others_are_taken_back": 221,
    "calls_go_to_any_bundle": 18, "calls_of_an_actor_are_sent_behind_one_that_may_come_back": 20,
    "calls_overtake_one_that_is_not_started": 190, "calls_that_are_ready_start_in_any_order": 21,
    "calls_that_are_run_again_do_not_look_at_their_arguments": 4, "calls_that_may_run_once_are_run_again": 14,
    "calls_that_may_run_once_follow": 4, "contexts_take_no_memory": 48, "copies_on_their_way_are_waited_for": 14,
    "frames_that_were_held_back_are_forgotten": 541, "freed_before_its_process_is_gone": 20,
    "items_are_freed_when_they_come": 3, "items_are_told_again_by_a_second_attempt": 3,
    "items_of_calls_that_begin_anew_are_given_up": 268, "items_that_were_not_taken_are_kept": 3,
    "lines_of_a_lost_rank_are_served_on": 29, "lost_values_are_given_up": 48,
    "memory_is_freed_by_the_rank_of_the_process": 3148, "memory_of_those_whose_rank_is_lost_is_not_freed": 3148,
    "more_is_demanded_than_was_taken": 3, "more_is_said_to_be_taken_than_was": 3,
    "nobody_hears_that_no_more_items_are_wanted": 6, "nothing_is_stopped": 3, "one_item_too_many_is_yielded": 3,
    "one_that_has_dropped_some_is_taken_for_one_that_has_dropped_all": 958, "only_one_call_is_dropped": 182,
    "references_in_items_are_not_held": 18, "shares_of_gpus_take_no_memory": 48, "stays_behind_a_blocked_call": 249,
    "the_executor_of_a_cancelled_call_starts_others": 4, "the_label_of_a_bundle_is_forgotten": 11,
    "the_last_frames_of_the_dead_are_not_read": 23, "the_last_item_is_taken_first": 18,
    "the_lost_rank_is_given_calls": 4, "values_on_the_way_are_not_made_again": 52,
    "what_a_cancelled_call_has_submitted_runs_on": 31, "what_a_cancelled_call_submits_later_runs_on": 20,
    "what_a_dead_executor_has_left_is_not_read": 50,
    "what_a_dead_executor_has_left_is_read_though_it_has_arrived": 448,
    "what_a_refused_executor_has_ended_is_run_again_for_nothing": 21, "what_begins_to_arrive_is_there_for_good": 17,
    "what_is_being_copied_is_moved": 27, "what_is_looked_at_is_forgotten": 12,
    "what_needs_a_quarantined_gpu_waits_on": 11, "what_others_use_up_is_quarantined": 38,
    "what_says_how_long_it_takes_is_sent_ahead": 11, "what_was_taken_back_counts_as_dropped": 4,
    "who_has_shared_a_gpu_stays_on_it": 12, "who_waits_for_a_source_is_forgotten": 3148,
}  # fmt: skip
"""Where the search for a bug begins that shows in few seeds. It only saves time: all seeds are looked at."""

pytestmark = pytest.mark.timeout(900)  # 20 s of CPU, where a bug shows only when the virtual time is over


def freed_twice(patch: pytest.MonkeyPatch) -> None:
    give_up = dispatch.give_up

    def planted(state: State, executor: Executor, now: int) -> None:
        grant, node = executor.grant, executor.rank.node
        give_up(state, executor, now)
        assert grant is not None
        give_back(grant, node.free)
        state.index.update(node)

    patch.setattr(dispatch, "give_up", planted)


def freed_before_its_process_is_gone(patch: pytest.MonkeyPatch) -> None:
    end = lifetimes.end

    def planted(state: State, actor: records.Actor, cause: str, force: bool) -> None:
        executor = actor.executor
        end(state, actor, cause, force)
        if executor is not None and executor.grant is not None:
            give_back(executor.grant, executor.rank.node.free)
            executor.grant = None
            state.freed = True

    patch.setattr(lifetimes, "end", planted)


def a_wake_up_is_lost(patch: pytest.MonkeyPatch) -> None:
    announce = objects.announce

    def planted(state: State, found: Object) -> None:
        if found.waiters is not None and len(found.waiters) > 1:
            found.waiters.pop()
        announce(state, found)

    patch.setattr(objects, "announce", planted)


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
    give_up = dispatch.give_up

    def planted(state: State, executor: Executor, now: int) -> None:
        give_up(state, executor, now)
        state.freed = False

    patch.setattr(dispatch, "give_up", planted)


def stays_behind_a_blocked_call(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(blocked_executors, "ask_for_the_rest", lambda state, executor: None)
    patch.setattr(dispatch, "ask_for_the_rest", lambda state, executor: None)


def no_cpu_while_blocked(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(core.CLIENT_EVENTS, Blocked, lambda state, client, event, now: None)


def a_death_is_no_retry(patch: pytest.MonkeyPatch) -> None:
    redo = dead_executors.redo

    def planted(
        state: State, executor: Executor, assigned: list[Task], event: ExecutorDied, now: int, spares_retry: bool
    ) -> None:
        event.running = b""
        redo(state, executor, assigned, event, now, spares_retry)

    patch.setattr(dead_executors, "redo", planted)


def an_actors_calls_overtake(patch: pytest.MonkeyPatch) -> None:
    pump = actor_calls.pump

    def planted(state: State, actor: records.Actor, now: int) -> None:
        for queue in actor.callers.values():
            queue.reverse()
        pump(state, actor, now)

    patch.setattr(actor_calls, "pump", planted)


def memory_freed_early(patch: pytest.MonkeyPatch) -> None:
    arrived = copies.arrived

    def planted(state: State, fetching: Fetching, event: Fetched, now: int) -> None:
        arrived(state, fetching, event, now)
        state.frees.setdefault(event.rank, []).append(event.offset)

    patch.setattr(copies, "arrived", planted)


def a_bundle_is_sold_twice(patch: pytest.MonkeyPatch) -> None:
    def planted(request: Request, free: Pool) -> Grant:
        return take(request, copy_of(free))

    patch.setattr(groups, "take", planted)


def a_bundle_is_freed_before_its_processes_are_gone(patch: pytest.MonkeyPatch) -> None:
    drained = groups.drained

    def planted(state: State, bundle: Bundle) -> None:
        if bundle in bundle.node.bundles:
            patch.setattr(groups, "granted", lambda _: [])
            drained(state, bundle)
            patch.setattr(groups, "granted", granted)

    granted = groups.granted
    patch.setattr(groups, "drained", planted)


def a_removed_group_runs_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(groups, "stop", lambda state, bundle, executor: None)
    patch.setattr(groups, "end_actors", lambda state, id: None)


def calls_go_to_any_bundle(patch: pytest.MonkeyPatch) -> None:
    def planted(state: State, where: Where) -> Iterable[Source]:
        return sources(state, Where(group=where.group, labels=where.labels))

    sources = constraints.sources
    patch.setattr(constraints, "sources", planted)


def a_strict_group_is_placed_as_a_soft_one(patch: pytest.MonkeyPatch) -> None:
    arrange = packing.arrange

    def planted(asked: Sequence[packing.Asked], strategy: str, pools: Mapping[int, Pool]) -> packing.Spots | None:
        return arrange(asked, "PACK" if strategy == "STRICT_SPREAD" else strategy, pools)

    patch.setattr(packing, "arrange", planted)


def the_label_of_a_bundle_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    def planted(request: Request, nodes: Collection[int] | None) -> packing.Asked:
        return asked(request, None)

    asked = packing.Asked
    patch.setattr(packing, "Asked", planted)


def a_node_that_was_asked_for_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(constraints, "matches", lambda wanted, labels: True)


def an_actor_that_nobody_has_is_created(patch: pytest.MonkeyPatch) -> None:
    unreferenced = lifetimes.unreferenced

    def planted(state: State, actor: records.Actor) -> None:
        if actor.id not in state.objects or not state.objects[actor.id].references:
            unreferenced(state, actor)

    patch.setattr(lifetimes, "unreferenced", planted)


BUGS: list[Callable[[pytest.MonkeyPatch], None]] = [
    freed_twice,
    freed_before_its_process_is_gone,
    a_wake_up_is_lost,
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
    the_label_of_a_bundle_is_forgotten,
    a_node_that_was_asked_for_is_forgotten,
    an_actor_that_nobody_has_is_created,
    *planted.BUGS,
    *planted_clients.BUGS,
    *planted_custody.BUGS,
    *planted_direct.BUGS,
    *planted_following.BUGS,
    *planted_losses.BUGS,
    *planted_spills.BUGS,
    *planted_copies.BUGS,
]


def seeds(name: str) -> Iterable[int]:
    first = FIRST.get(name, 0)
    return (*range(first, SEEDS), *range(first))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)

    losing = (*planted_losses.BUGS, *planted_copies.BUGS, *planted_direct.BUGS)
    options = losing_options if bug in losing else random_options
    options = spilling_options if bug in planted_spills.BUGS else options
    options = link_options if bug in planted_following.BUGS else options
    options = dropping_options if bug is an_actor_that_nobody_has_is_created else options

    def look() -> None:
        for seed in seeds(bug.__name__):
            simulate(replace(options(seed), check_inside=False))

    with pytest.raises(FailedError, match=r"repeat with: python -m tests.simulation.run --seed \d+") as found:
        look()
    assert not isinstance(found.value.__cause__, TypeError), "the bug does not fit into the function that it replaces"


def test_an_actor_that_goes_on_before_the_end_of_the_job_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor_calls, "take_back", lambda state, actor: None)

    def look() -> None:
        for seed in seeds("an_actor_that_goes_on_before_the_end"):
            if seed % 3 == 0:  # those in which the end is announced
                simulate_again(seed)

    with pytest.raises(FailedError, match="begins calls though the job ends"):
        look()


def test_an_actor_that_begins_with_the_state_of_an_equal_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(States, "began", lambda self, body: None)

    def look() -> None:
        for seed in seeds("an_actor_that_begins_with_the_state_of_an_equal_one"):
            simulate_again(seed)

    with pytest.raises(FailedError, match=r"actor \w+ begins with a state of \w+"):
        look()
