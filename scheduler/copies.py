"""Copies of arguments that have arrived on a host, or cannot be fetched."""

from __future__ import annotations

from mpi_runtime.scheduler import actor_calls, deadline, objects, tasks
from mpi_runtime.scheduler.dependencies import staged
from mpi_runtime.scheduler.dispatch import settle
from mpi_runtime.scheduler.lifecycle import STAGING
from mpi_runtime.scheduler.rank_events import Fetched
from mpi_runtime.scheduler.state import State


def fetched(state: State, event: Fetched, now: int) -> None:
    """Handle a fetched copy, or a failed fetch: send calls whose arguments are all on their host."""
    waiting, error = objects.on_fetched(state, event)
    for task, executor in waiting:
        if task.executor is not executor or task.state != STAGING:
            continue  # it was given up or goes elsewhere
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
