"""Bugs to be planted: in the orders that are possible where frames and ends of an executor go two ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from mpi_runtime.core.agent.custody import Custodian
from mpi_runtime.core.head.direct_lines import DirectLines
from mpi_runtime.core.transport import unsent_frame
from mpi_runtime.core.transport.messages import Ended, ToWorker
from mpi_runtime.scheduler.losses import dead_executors
from mpi_runtime.scheduler.protocol.effects import RankEffect, StartExecutor, StopExecutor
from mpi_runtime.scheduler.protocol.rank_events import ExecutorDied
from mpi_runtime.scheduler.records.state import State
from tests.simulation.channels import Channel


def the_last_frames_of_the_dead_are_not_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Channel, "receive_rest", lambda self: [])


def a_draft_is_compared_where_no_frame_arrives(patch: pytest.MonkeyPatch) -> None:
    """As the agent of the process would do it."""
    left = unsent_frame.left
    patch.setattr(unsent_frame, "left", lambda content, arrived: left(content, 0))


def drafts_of_others_are_not_brought(patch: pytest.MonkeyPatch) -> None:
    end = Custodian.end

    def planted(self: Custodian, ended: Ended) -> None:
        ended.draft = b""
        end(self, ended)

    patch.setattr(Custodian, "end", planted)


def memory_is_freed_by_the_rank_of_the_process(patch: pytest.MonkeyPatch) -> None:
    executor_died = dead_executors.executor_died

    def planted(state: State, event: ExecutorDied, now: int) -> None:
        if event.executor in state.executors:
            event.keeper = state.executors[event.executor].rank.number
        executor_died(state, event, now)

    patch.setattr(dead_executors, "executor_died", planted)


def memory_of_those_whose_rank_is_lost_is_not_freed(patch: pytest.MonkeyPatch) -> None:
    free_extents = dead_executors.free_extents

    def planted(state: State, event: ExecutorDied) -> None:
        if event.executor in state.clients:
            free_extents(state, event)

    patch.setattr(dead_executors, "free_extents", planted)


def lines_of_a_lost_rank_are_served_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Custodian, "lose", lambda self, rank: None)


def a_failed_start_is_taken_for_one_that_never_was(patch: pytest.MonkeyPatch) -> None:
    end = Custodian.end

    def planted(self: Custodian, ended: Ended) -> None:
        if not ended.cause.startswith("could not be started"):
            end(self, ended)

    patch.setattr(Custodian, "end", planted)


def calls_are_taken_back_where_the_process_is(patch: pytest.MonkeyPatch) -> None:
    left_to = DirectLines.left_to

    def planted(self: DirectLines, rank: int, effects: Sequence[RankEffect]) -> list[ToWorker]:
        left: list[ToWorker] = []
        for effect in effects:
            left += left_to(self, rank, [effect]) if isinstance(effect, StartExecutor | StopExecutor) else [effect]
        return left

    patch.setattr(DirectLines, "left_to", planted)


BUGS: list[Callable[[pytest.MonkeyPatch], None]] = [
    the_last_frames_of_the_dead_are_not_read,
    a_draft_is_compared_where_no_frame_arrives,
    drafts_of_others_are_not_brought,
    memory_is_freed_by_the_rank_of_the_process,
    memory_of_those_whose_rank_is_lost_is_not_freed,
    lines_of_a_lost_rank_are_served_on,
    a_failed_start_is_taken_for_one_that_never_was,
    calls_are_taken_back_where_the_process_is,
]
