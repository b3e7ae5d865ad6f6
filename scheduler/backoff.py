"""Calls whose process dies at once, several times in a row, are run again later: tasks, and the creations of actors.

The first time they are run again at once, as is right for a process that was killed. After that each wait is twice the
one before, or a call that cannot be run at all would keep a processor busy with forks. What has worked in between ends
the row: a process that lived for a while, or for an actor a call that has ended.

An executor that dies before it begins any call is not the fault of a call: its environment is wrong, or its host. That
costs no retry. It is counted by queue, whose calls need the same; other executors of the queue go on, and forks
wait as above. When the last few have died so, and no other is there that has ever ended a call, the calls fail.
"""

from __future__ import annotations

from mpi_runtime.scheduler.dependencies import wait_again
from mpi_runtime.scheduler.lifecycle import LOST, READY, RETRY, advance
from mpi_runtime.scheduler.limits import AT_ONCE_US, BACKOFF_US, BACKOFF_US_MAX, STILLBORN_MAX
from mpi_runtime.scheduler.queues import enqueue, mark_dirty, queue_for
from mpi_runtime.scheduler.records import Executor, Queue, Task
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


def note_begun(state: State, executor: Executor) -> None:
    """A first call of the executor has ended: it could be started, and so can others like it."""
    queue, executor.forked_for = executor.forked_for, None
    if queue is not None and queue.stillborn and executor.id >= queue.next_try:
        queue.stillborn = queue.forks_from_us = 0
        mark_dirty(state, queue)


def note_stillborn(state: State, queue: Queue, executor: Executor, now: int) -> bool:
    """An executor has died before it began a call. Whether it is the first of its try: of those forked meanwhile."""
    if executor.id < queue.next_try:
        return False
    queue.stillborn += 1
    queue.next_try = state.next_executor
    queue.forks_from_us = now + wait_us(queue.stillborn)
    return True


def is_hopeless(queue: Queue) -> bool:
    """Whether the last few executors for a queue have died so, and it has no other that has ever ended a call."""
    return queue.stillborn >= STILLBORN_MAX and not any(one.forked_for is None for one in queue.executors.values())


def note_fork(queue: Queue, now: int) -> None:
    """An executor is forked for a queue. After one that has died it is alone, until it has had time to begin a call."""
    if queue.stillborn:
        queue.forks_from_us = now + AT_ONCE_US


def why(state: State, task: Task, now: int) -> str:
    """Why a call does not run that has crashed, or for which no executor comes up; empty: it is not one."""
    at_us = state.alarms.at(task)
    if task.state == READY and not task.function.is_method:
        return why_no_fork(queue_for(state, task), now)
    if task.state != LOST or at_us is None:
        return ""
    return (
        f"Its process has died at once {task.crashes} times in a row: it is run again in {(at_us - now) / 1e6:.3g} s."
    )


def why_no_fork(queue: Queue, now: int) -> str:
    """Why no executor is forked for a queue; empty: one could be."""
    if now >= queue.forks_from_us:
        return ""
    return (
        f"Executors forked for it died before they began a call, {queue.stillborn} time(s) in a row: the next one is "
        f"forked in {(queue.forks_from_us - now) / 1e6:.3g} s at the latest."
    )
