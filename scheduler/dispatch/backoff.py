"""Delays between retries of a task or actor creation whose process keeps dying at start.

The first retry starts at once, as is right after a kill. After that each delay is twice the one before: otherwise a
call that cannot run at all would keep a CPU busy with forks. The count begins again with a process that lived for a
while, or with a call of the actor that has ended.

If an executor dies before it begins a call, no retry is used. These deaths are counted by queue, and forks are delayed
as above. When the last few have died so, and no other executor has ever ended a call, the calls fail. See
docs/decisions/0106.
"""

from __future__ import annotations

from mpi_runtime.scheduler.dispatch.dependencies import wait_again
from mpi_runtime.scheduler.dispatch.queues import enqueue, mark_dirty, queue_for
from mpi_runtime.scheduler.protocol.amounts import times
from mpi_runtime.scheduler.protocol.limits import AT_ONCE_US, BACKOFF_US, BACKOFF_US_MAX, STILLBORN_MAX
from mpi_runtime.scheduler.records.lifecycle import LOST, READY, RETRY, advance
from mpi_runtime.scheduler.records.parts import Stillborn
from mpi_runtime.scheduler.records.records import Executor, Queue, Task
from mpi_runtime.scheduler.records.state import State


def note_crash(task: Task, executor: Executor, now: int) -> None:
    """Count a crash of the process of a call. After a late one the count begins again."""
    task.crashes = task.crashes + 1 if now - executor.progress_us < AT_ONCE_US else 1


def wait_us(crashes: int) -> int:
    """Return the delay of a retry after this number of crashes in a row."""
    return min(BACKOFF_US << min(crashes - 2, 30), BACKOFF_US_MAX) if crashes > 1 else 0


def run_again(state: State, task: Task, now: int, has_crashed: bool = True) -> None:
    """Run a lost call again, now or after its wait."""
    task.executor = None
    task.call.attempt += 1
    wait = wait_us(task.crashes) if has_crashed else 0
    if wait:
        state.alarms.set(task, now + wait)
    else:
        queue(state, task, now)


def queue(state: State, task: Task, now: int) -> None:
    """Queue a call when its delay is over, if it still has to run."""
    if task.state == LOST:
        advance(state.stories, task, RETRY)
        if not wait_again(state, task):
            enqueue(state, task)


def note_begun(state: State, executor: Executor) -> None:
    """Note that the first call of an executor has ended, so executors like it can be started."""
    queue, executor.forked_for = executor.forked_for, None
    found = queue.stillborn if queue is not None else None
    if queue is not None and found is not None and found.count and executor.id >= found.next_try:
        begin_again(queue)
        mark_dirty(state, queue)


def note_stillborn(state: State, queue: Queue, executor: Executor, now: int) -> bool:
    """Note the death of an executor that began no call. Return False if it was forked before the last such death."""
    found = queue.stillborn = queue.stillborn or Stillborn()
    if executor.id < found.next_try:
        return False
    found.count += 1
    found.next_try = state.next_executor
    found.forks_from_us = now + wait_us(found.count)
    return True


def stillborn(queue: Queue) -> int:
    """The number of executors in a row that died before they began a call of a queue."""
    return queue.stillborn.count if queue.stillborn is not None else 0


def begin_again(queue: Queue) -> None:
    """Forget that executors of a queue died before they began a call."""
    if queue.stillborn is not None:
        queue.stillborn.count = queue.stillborn.forks_from_us = 0


def is_hopeless(queue: Queue) -> bool:
    """Whether the last few executors of a queue have died so, and no other one has ended a call."""
    return stillborn(queue) >= STILLBORN_MAX and not any(one.forked_for is None for one in queue.executors.values())


def note_fork(queue: Queue, now: int) -> None:
    """Note that an executor is forked for a queue. After deaths, the next one waits until this one may have begun."""
    if queue.stillborn is not None and queue.stillborn.count:
        queue.stillborn.forks_from_us = now + AT_ONCE_US


def why(state: State, task: Task, now: int) -> str:
    """Return why a call waits after crashes, or for an executor that cannot be started; empty: it does not."""
    at_us = state.alarms.at(task)
    if task.state == READY and not task.function.is_method:
        found = queue_for(state, task).stillborn
        if found is None or now >= found.forks_from_us:
            return ""
        return (
            f"Executors forked for it died before they began a call, {times(found.count)} in a row: the next "
            f"one is forked in {(found.forks_from_us - now) / 1e6:.3g} s at the latest."
        )
    if task.state != LOST or at_us is None:
        return ""
    wait_s = (at_us - now) / 1e6
    return f"Its process has died at once {task.crashes} times in a row: it is run again in {wait_s:.3g} s."
