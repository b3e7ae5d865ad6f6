"""Bugs to be planted: what becomes of ranks that die, and of the values that they had."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import pytest

from mpi_runtime.scheduler.dispatch import dependencies
from mpi_runtime.scheduler.losses import dead_executors, lost_ranks, rebuilding
from mpi_runtime.scheduler.nodes import gpu_quarantine, groups
from mpi_runtime.scheduler.protocol.rank_events import ExecutorDied
from mpi_runtime.scheduler.records.records import Node, Rank, Task
from mpi_runtime.scheduler.records.state import Object, State
from mpi_runtime.scheduler.values import items, lineage


def lost_values_are_given_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rebuilding, "plan", lambda state, wanted, planned: "no")


def items_of_calls_that_begin_anew_are_given_up(patch: pytest.MonkeyPatch) -> None:
    """How far an earlier attempt came is taken for how far this one has come."""
    lost = items.lost

    def planted(state: State, without: Mapping[bytes, Object], calls: Iterable[Task], cause: str) -> None:
        calls = list(calls)
        for task in calls:
            if task.stream is not None:
                task.stream.position = task.stream.yielded
        lost(state, without, calls, cause)

    patch.setattr(items, "lost", planted)


def values_on_the_way_are_not_made_again(patch: pytest.MonkeyPatch) -> None:
    """What the program has let go of is taken to be there."""
    is_missing = rebuilding.is_missing
    patch.setattr(rebuilding, "is_missing", lambda state, id: id in state.objects and is_missing(state, id))


def calls_that_may_run_once_are_run_again(patch: pytest.MonkeyPatch) -> None:
    executor_died = dead_executors.executor_died

    def planted(state: State, event: ExecutorDied, now: int) -> None:
        event.is_unwatched = False
        executor_died(state, event, now)

    patch.setattr(dead_executors, "executor_died", planted)


def copies_of_the_dead_are_thought_to_be_there(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lost_ranks, "lose_copies", lambda state, number: [])


def copies_on_their_way_are_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lost_ranks, "move_fetches", lambda state, number: None)


def calls_do_not_wait_again(patch: pytest.MonkeyPatch) -> None:
    def planted(state: State, task: Task, lost: dict[bytes, Object], now: int) -> None:
        return None

    patch.setattr(lost_ranks, "wait_for", planted)


def calls_that_are_run_again_do_not_look_at_their_arguments(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dependencies, "are_lost", lambda state, task: False)


def the_lost_rank_is_given_calls(patch: pytest.MonkeyPatch) -> None:
    leave_node = lost_ranks.leave_node

    def planted(state: State, rank: Rank, cause: str) -> None:
        leave_node(state, rank, cause)
        if rank.node.number in state.nodes:
            rank.node.ranks.append(rank)

    patch.setattr(lost_ranks, "leave_node", planted)


def bundles_stay_on_the_lost_node(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(groups, "lose_node", lambda state, node: None)


def the_lost_node_is_found_for_calls(patch: pytest.MonkeyPatch) -> None:
    def planted(state: State, node: Node, cause: str) -> None:
        groups.lose_node(state, node)

    patch.setattr(lost_ranks, "close", planted)


def what_nobody_can_run_any_more_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gpu_quarantine, "find_hopeless", lambda state, may_be: None)


def lineage_outlives_its_values(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lineage, "forget", lambda state, found: [])


def everything_is_made_again(patch: pytest.MonkeyPatch) -> None:
    rebuild = rebuilding.rebuild

    def planted(state: State, lost: Sequence[Object], cause: str) -> tuple[int, int]:
        for kept in list(state.lineages.values()):
            if not any(found.lineage is kept for found in lost) and not rebuilding.why_not(state, kept, 0):
                rebuilding.run_again(state, kept, cause)
        return rebuild(state, lost, cause)

    patch.setattr(rebuilding, "rebuild", planted)


BUGS: list[Callable[[pytest.MonkeyPatch], None]] = [
    lost_values_are_given_up,
    items_of_calls_that_begin_anew_are_given_up,
    values_on_the_way_are_not_made_again,
    calls_that_may_run_once_are_run_again,
    copies_of_the_dead_are_thought_to_be_there,
    copies_on_their_way_are_waited_for,
    calls_do_not_wait_again,
    calls_that_are_run_again_do_not_look_at_their_arguments,
    the_lost_rank_is_given_calls,
    bundles_stay_on_the_lost_node,
    the_lost_node_is_found_for_calls,
    what_nobody_can_run_any_more_waits,
    lineage_outlives_its_values,
    everything_is_made_again,
]
