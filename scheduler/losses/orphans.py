"""Orphans: calls with a dead caller. Those that nothing else needs are cancelled.

They would run in vain, beside those that the next attempt of the same call submits. A call is wanted while anything
holds its result: another process, a value, another wanted call. Calls that a task has left behind when it ended
continue after the end of its process, even if that has become an actor. Calls that an actor has submitted end with it,
as in Ray. Actors end with their last handle. The running call of an actor is not interrupted, because its state does
not belong to this call alone.
"""

from __future__ import annotations

from mpi_runtime.scheduler.losses import cancel
from mpi_runtime.scheduler.protocol.events import ACTOR, METHOD
from mpi_runtime.scheduler.protocol.ids import prefix_of
from mpi_runtime.scheduler.records.lifecycle import BLOCKED, ENDED, SENT, STAGING
from mpi_runtime.scheduler.records.records import Executor, Task
from mpi_runtime.scheduler.records.state import State


def submitted_by(executor: Executor, assigned: list[Task], running: bytes) -> list[Task]:
    """Return the open calls that were submitted by attempts that died with a process, in order."""
    children = executor.children
    if not children or executor.actor is not None:
        return [child for id, child in children.items() if id not in executor.left_behind]
    sent = [task for task in assigned if task.state != STAGING]
    has_run = [index for index, task in enumerate(sent) if task.id == running or task.state == BLOCKED]
    # `cancel.py` has the rules for a cancelled call.
    died = [task for task in sent[: 1 + max(has_run, default=-1)] if not task.is_cancelled]
    prefixes = tuple(prefix_of(task.id, task.call.attempt) for task in died)
    return [child for id, child in children.items() if id.startswith(prefixes)]


def abandon(state: State, orphans: list[Task], now: int) -> None:
    """Cancel unwanted orphans, with the calls that they have submitted. Begins with the last: it may hold others."""
    pending = [(orphan, 0) for orphan in orphans]
    while pending:
        task, submitter = pending.pop()
        is_running = task.state in (SENT, BLOCKED)
        kind = task.function.spec.kind
        if kind == ACTOR or (kind == METHOD and is_running) or task.state in ENDED or task.is_cancelled:
            continue
        if is_wanted(state, task, submitter):
            continue
        if is_running and task.executor is not None:
            pending += [(child, task.executor.id) for child in cancel.children(task)]
            cancel.expect_children(task, force=False)
        cancel.cancel_one(state, task, False, now)
        state.totals.abandoned += 1


def is_wanted(state: State, task: Task, submitter: int) -> bool:
    """Whether anything but the call itself and its submitter holds one of its results."""
    client = state.clients.get(submitter) if submitter else None
    for id in task.return_ids():
        found = state.objects[id]
        if found.references > 1 + (client is not None and id in client.held):
            return True
    return False
