"""Cancelling: calls that have not started are dropped, running ones are interrupted, and none is retried.

Children of a cancelled call may still be on their way: while its executor holds the call, they are cancelled on
arrival.

Orphans are calls with a dead caller. Those that nothing else needs are cancelled: see docs/decisions/0105. Calls that a
task has left behind when it ended continue after the end of its process, even if that has become an actor. The running
call of an actor is not interrupted, because its state does not belong to this call alone.
"""

from __future__ import annotations

from mpi_runtime.scheduler.actors import calls as actor_calls
from mpi_runtime.scheduler.calls import copies
from mpi_runtime.scheduler.dispatch.dispatch import settle
from mpi_runtime.scheduler.dispatch.queues import withdraw
from mpi_runtime.scheduler.dispatch.stealing import ask_for_the_rest
from mpi_runtime.scheduler.gangs import members
from mpi_runtime.scheduler.protocol.effects import Cancel
from mpi_runtime.scheduler.protocol.events import ActorSpec, CancelRequested, MethodSpec, TaskSpec
from mpi_runtime.scheduler.protocol.ids import prefix_of
from mpi_runtime.scheduler.protocol.limits import INTERRUPT_GRACE_US
from mpi_runtime.scheduler.records.lifecycle import BLOCKED, ENDED, READY, SENT, STAGING
from mpi_runtime.scheduler.records.records import Executor, Task
from mpi_runtime.scheduler.records.state import Client, State
from mpi_runtime.scheduler.values import call_ends


def cancel(state: State, client: Client, event: CancelRequested, now: int) -> None:
    """End a call for a client, and the calls that it has submitted. Actors that it has created live on."""
    found = state.objects.get(event.id)
    if found is None or found.task is None or isinstance(found.task.function.spec.kind, ActorSpec):
        return
    if event.recursive:
        cancel_children(state, found.task, event.force, now)
    if found.task.state not in ENDED:
        cancel_one(state, found.task, event.force, now)


def cancel_children(state: State, task: Task, force: bool, now: int) -> None:
    """End the calls that a call has submitted and will submit, and theirs, except creations of actors."""
    pending = [task]
    while pending:
        parent = pending.pop()
        pending += [child for child in children(parent) if not isinstance(child.function.spec.kind, ActorSpec)]
        expect_children(parent, force)
        if parent is not task and parent.state not in ENDED:
            cancel_one(state, parent, force, now)


def expect_children(task: Task, force: bool) -> None:
    """Cancel calls that a running call will submit, on arrival."""
    if task.executor is not None and task.state in (SENT, BLOCKED):
        watch = task.executor.watch(task)
        watch.ends_children = True
        watch.by_force = watch.by_force or force


def submitted(state: State, executor: Executor, id: bytes, now: int) -> None:
    """Cancel a call on arrival if a cancelled call of its executor has submitted it."""
    for parent, watch in executor.watched.items():
        if watch.ends_children and id.startswith(prefix_of(parent, executor.assigned[parent].call.attempt)):
            task = state.objects[id].task
            if task is not None and not isinstance(task.function.spec.kind, ActorSpec) and task.state not in ENDED:
                cancel_one(state, task, watch.by_force, now)
            return


def children(task: Task) -> list[Task]:
    """The open calls that a running call has submitted: their ids derive from its id."""
    executor = task.executor
    if executor is None or not executor.children:
        return []
    prefix = prefix_of(task.id, task.call.attempt)
    return [child for id, child in executor.children.items() if id.startswith(prefix)]


def cancel_one(state: State, task: Task, force: bool, now: int) -> None:
    """End a call, or have its executor end it."""
    executor = task.executor
    if task.state in (SENT, BLOCKED):
        assert executor is not None
        task.is_cancelled = True
        task.retries = 0
        by_force = force and isinstance(task.function.spec.kind, TaskSpec)  # an actor has other calls to answer
        state.to_rank(executor.rank.number, Cancel(executor.id, task.id, by_force, task.call.attempt))
        if not by_force:
            executor.watch(task).interrupted_us = now
            state.alarms.set(executor, now + INTERRUPT_GRACE_US)
            if executor.gang is not None and isinstance(task.function.spec.kind, TaskSpec):
                members.interrupt_others(state, executor.gang, now)
        elif executor.gang is not None:
            state.stop_gang(executor.gang, "was killed because its call was cancelled by force")
        if executor.actor is None and executor.running() is not task:
            ask_for_the_rest(state, executor)  # it can end before the running call does
        return
    if task.state == STAGING:
        assert executor is not None
        copies.unwanted(state, task, executor)
        executor.drop(task.id)
        task.executor = None
        if executor.gang is not None and executor.gang.task is task:
            state.stop_gang(executor.gang, "was killed because its call was cancelled")
    was_queued = task.state == READY and isinstance(task.function.spec.kind, TaskSpec)
    call_ends.cancelled(state, task)
    if was_queued:
        withdraw(state, task)
    if isinstance(task.function.spec.kind, MethodSpec) and task.actor is not None:
        actor_calls.go_past(state, task.actor, task)
    elif executor is not None:
        settle(state, executor, now)


# Orphans


def submitted_by(executor: Executor, assigned: list[Task], running: bytes) -> list[Task]:
    """Return the open calls that were submitted by attempts that died with a process, in order."""
    children = executor.children
    if not children or executor.actor is not None:
        return [child for id, child in children.items() if id not in executor.left_behind]
    sent = [task for task in assigned if task.state != STAGING]
    has_run = [index for index, task in enumerate(sent) if task.id == running or task.state == BLOCKED]
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
        if (
            isinstance(kind, ActorSpec)
            or (isinstance(kind, MethodSpec) and is_running)
            or task.state in ENDED
            or task.is_cancelled
        ):
            continue
        if is_wanted(state, task, submitter):
            continue
        if is_running and task.executor is not None:
            pending += [(child, task.executor.id) for child in children(task)]
            expect_children(task, force=False)
        cancel_one(state, task, False, now)
        state.totals.abandoned += 1


def is_wanted(state: State, task: Task, submitter: int) -> bool:
    """Whether anything but the call itself and its submitter holds one of its results."""
    client = state.clients.get(submitter) if submitter else None
    for id in task.return_ids():
        found = state.objects[id]
        if found.references > 1 + (client is not None and id in client.held):
            return True
    return False
