"""Copies of arguments that have arrived on a host, or cannot be fetched."""

from __future__ import annotations

from mpi_runtime.scheduler import actor_calls, deadline, objects, tasks
from mpi_runtime.scheduler.dependencies import are_lost, staged
from mpi_runtime.scheduler.dispatch import settle
from mpi_runtime.scheduler.effects import ReadyFailed
from mpi_runtime.scheduler.lifecycle import STAGING
from mpi_runtime.scheduler.rank_events import Fetched
from mpi_runtime.scheduler.records import Executor, Task
from mpi_runtime.scheduler.state import Fetching, State


def fetched(state: State, event: Fetched, now: int) -> None:
    """Handle a fetched copy, or a failed fetch."""
    tell(state, *objects.on_fetched(state, event, now), now)


def unreached(state: State, fetching: Fetching, now: int) -> None:
    """Handle an alarm: a fetch has failed, and the rank with the copy is still alive."""
    tell(state, *objects.unreached(state, fetching), now)


def tell(state: State, waiting: list[tuple[Task, Executor]], error: ReadyFailed | None, now: int) -> None:
    """Send calls whose arguments are all on their host. Calls that cannot have an argument get the error."""
    for task, executor in waiting:
        if task.executor is not executor or task.state != STAGING or are_lost(state, task):
            continue  # it has ended, or was given to another executor
        if error is not None:
            executor.drop(task.id)
            tasks.fail(state, task, error.code, error.message)
            settle(state, executor, now)
        elif task.actor is not None and task.function.is_method:
            if actor_calls.is_timed(task.actor, task.function) and deadline.is_late(state, task.function, now):
                executor.drop(task.id)
                actor_calls.give_again(state, task.actor, task, "it cannot end before the job does")
                state.called[task.actor] = None
            elif staged(state, task):
                actor_calls.go_past(state, task.actor, task)
        else:
            staged(state, task)
