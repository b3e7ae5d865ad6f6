"""Calls that come back: an executor had not made an argument that it was sent them without."""

from __future__ import annotations

from mpi_runtime.scheduler.actors.calls import give_again
from mpi_runtime.scheduler.calls.refusals import check_unknown_end
from mpi_runtime.scheduler.dispatch.dependencies import come_back
from mpi_runtime.scheduler.dispatch.dispatch import settle
from mpi_runtime.scheduler.protocol.events import Unfilled
from mpi_runtime.scheduler.records.lifecycle import SENT
from mpi_runtime.scheduler.records.state import Client, State
from mpi_runtime.scheduler.values import call_ends
from mpi_runtime.scheduler.values.message_checks import require


def unfilled(state: State, client: Client, event: Unfilled, now: int) -> None:
    """Have a call wait again that was sent behind its arguments, and whose executor has not made one of them."""
    executor = client.as_executor()
    task = executor.assigned.get(event.id)
    if task is None:
        check_unknown_end(executor)
        return
    lacks = event.id in executor.followers and task.state == SENT
    require(lacks, f"a call of {task.function.spec.name} comes back as it cannot")
    executor.drop(event.id)
    cause = "its executor had not made an argument"
    if task.is_cancelled:
        call_ends.cancelled(state, task)
    elif task.actor is not None:
        give_again(state, task.actor, task, cause)
    else:
        come_back(state, task, cause)
    if task.actor is not None:
        state.called[task.actor] = None
    settle(state, executor, now)
