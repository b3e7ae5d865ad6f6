"""Calls whose process dies at once, several times in a row, are run again later: tasks, and the creations of actors.

The first time they are run again at once, as is right for a process that was killed. After that each wait is twice the
one before, or a call that cannot be run at all would keep a processor busy with forks. What has worked in between ends
the row: a process that lived for a while, or for an actor a call that has ended.
"""

from __future__ import annotations

from mpi_runtime.scheduler.dependencies import wait_again
from mpi_runtime.scheduler.lifecycle import LOST, RETRY, advance
from mpi_runtime.scheduler.limits import AT_ONCE_US, BACKOFF_US, BACKOFF_US_MAX
from mpi_runtime.scheduler.queues import enqueue
from mpi_runtime.scheduler.records import Executor, Task
from mpi_runtime.scheduler.state import State


def note_crash(task: Task, executor: Executor, now: int) -> None:
    """Its process has died while it ran, and not since somebody had asked for that."""
    task.crashes = task.crashes + 1 if now - executor.progress_us < AT_ONCE_US else 1


def wait_us(crashes: int) -> int:
    """How long a call waits before it is run again, by the number of crashes in a row."""
    return min(BACKOFF_US << min(crashes - 2, 30), BACKOFF_US_MAX) if crashes > 1 else 0


def run_again(state: State, task: Task, now: int, has_crashed: bool = True) -> None:
    """A lost call will be run once more: now, or when it has waited."""
    task.executor = None
    task.call.attempt += 1
    wait = wait_us(task.crashes) if has_crashed else 0
    if wait:
        state.alarms.set(task, now + wait)
    else:
        queue(state, task)


def queue(state: State, task: Task) -> None:
    """It has waited long enough, if it still is to be run."""
    if task.state == LOST:
        advance(state.stories, task, RETRY)
        if not wait_again(state, task):
            enqueue(state, task)


def why(state: State, task: Task, now: int) -> str:
    """Why a lost call does not run; empty: it is not one."""
    at_us = state.alarms.at(task)
    if task.state != LOST or at_us is None:
        return ""
    return (
        f"Its process has died at once {task.crashes} times in a row: it is run again in {(at_us - now) / 1e6:.3g} s."
    )
