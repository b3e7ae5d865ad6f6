"""Retries: whether a call that was lost or overdue runs again, and what that uses up."""

from __future__ import annotations

from mpi_runtime.scheduler.records.records import Task
from mpi_runtime.scheduler.records.state import State


def spend(state: State, task: Task, had_ended: bool) -> None:
    """Prepare a lost call for its next attempt. It uses up a retry, unless it `had_ended`."""
    task.overdue = ""
    if task.stream is not None:
        task.stream.position = 0
    if not had_ended and task.retries > 0:
        task.retries -= 1
    state.retried += 1


def had_ended(task: Task, running: bytes) -> bool:
    """Whether a lost call that started before the `running` one runs again without using a retry.

    It had ended, and its result was lost with the process. With `max_retries=0` it may not run twice.
    """
    return task.id != running and task.function.spec.max_retries != 0


def may_exceed_again(task: Task) -> bool:
    """Whether a call that ran longer than its time limit runs again."""
    retry = task.function.spec.retry
    return retry is not None and retry.timeouts and task.retries != 0
