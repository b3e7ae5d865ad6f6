"""Arguments on their way. A call is sent to its executor when all its arguments are on that host."""

from __future__ import annotations

from mpi_runtime.scheduler import objects
from mpi_runtime.scheduler.lifecycle import SEND, STAGE, advance
from mpi_runtime.scheduler.records import Executor, Task
from mpi_runtime.scheduler.state import State


def stage(state: State, executor: Executor, task: Task) -> bool:
    """Send the values of the call's arguments, or fetch them to the executor's host first.

    Returns whether they were sent.
    """
    number = executor.rank.node.number
    missing = elsewhere(state, task, number)
    if missing:
        advance(state.stories, task, STAGE)
        task.missing = len(missing)
        for id in missing:
            objects.start_fetch(state, state.objects[id], number, (task, executor))
        return False
    send_values(state, executor, task)
    return True


def elsewhere(state: State, task: Task, number: int) -> list[bytes]:
    """The stored arguments of the call that are not on this host."""
    return [
        id
        for id in dict.fromkeys(task.call.arguments)
        if (copies := state.objects[id].copies) is not None and number not in copies
    ]


def send_values(state: State, executor: Executor, task: Task) -> None:
    """Send an executor the arguments of its next call."""
    number = executor.rank.node.number
    for id in task.call.arguments:
        message = objects.value_message(state.objects[id], number)
        assert message is not None
        state.to_client(executor.id, message)


def staged(state: State, task: Task) -> bool:
    """Note that an argument has arrived. Sends the call if that was the last one; returns whether it was sent."""
    executor = task.executor
    assert executor is not None
    task.missing = len(elsewhere(state, task, executor.rank.node.number))
    if task.missing:
        return False
    send_values(state, executor, task)
    executor.in_hand[task.id] = executor.in_hand.pop(task.id)  # the order in hand is the order of sending
    send_call(state, executor, task)
    return True


def send_call(state: State, executor: Executor, task: Task) -> None:
    """Send a call whose arguments have been sent, and first its spec, if the executor does not have it."""
    advance(state.stories, task, SEND)
    if task.call.spec not in executor.known:
        executor.known.add(task.call.spec)
        state.to_client(executor.id, task.function.spec)
    state.to_client(executor.id, task.call)
