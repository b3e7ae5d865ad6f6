"""Cancels: a call that has not started is dropped, one that runs is interrupted, and neither is run again."""

from __future__ import annotations

from mpi_runtime.scheduler import actor_calls, endings
from mpi_runtime.scheduler.dispatch import settle
from mpi_runtime.scheduler.effects import Cancel
from mpi_runtime.scheduler.events import ACTOR, METHOD, TASK, CancelRequested
from mpi_runtime.scheduler.ids import prefix_of
from mpi_runtime.scheduler.lifecycle import BLOCKED, ENDED, READY, SENT, STAGING
from mpi_runtime.scheduler.queues import withdraw
from mpi_runtime.scheduler.records import Task
from mpi_runtime.scheduler.state import State
from mpi_runtime.scheduler.stealing import ask_for_the_rest


def cancel(state: State, event: CancelRequested, now: int) -> None:
    """A client wants a call, and those that it has submitted, to end. Actors that it has created live on."""
    found = state.objects.get(event.id)
    pending = [found.task] if found is not None and found.task is not None else []
    while pending:
        task = pending.pop()
        if task.function.spec.kind == ACTOR:
            continue
        if event.recursive:
            pending += children(task)
        if task.state not in ENDED:
            cancel_one(state, task, event.force, now)


def children(task: Task) -> list[Task]:
    """The calls that a running call has submitted and that have not ended: their ids derive from its own."""
    executor = task.executor
    if executor is None or not executor.children:
        return []
    prefix = prefix_of(task.id, task.call.attempt)
    return [child for id, child in executor.children.items() if id.startswith(prefix)]


def cancel_one(state: State, task: Task, force: bool, now: int) -> None:
    """End a call now, or have its executor end it."""
    executor = task.executor
    if task.state in (SENT, BLOCKED):
        assert executor is not None
        task.is_cancelled = True
        task.retries = 0
        by_force = force and task.function.spec.kind == TASK  # an actor has other calls to answer
        state.to_rank(executor.rank.number, Cancel(executor.id, task.id, by_force))
        if executor.actor is None and executor.running() is not task:
            ask_for_the_rest(state, executor)  # it need not wait until the call before it has ended
        return
    if task.state == STAGING:
        assert executor is not None
        executor.drop(task.id)
        task.executor = None
    elif task.state == READY and task.function.spec.kind == TASK:
        withdraw(state, task)
    endings.cancelled(state, task)
    if task.function.spec.kind == METHOD and task.actor is not None:
        actor_calls.go_past(state, task.actor, task)
    elif executor is not None:
        settle(state, executor, now)
