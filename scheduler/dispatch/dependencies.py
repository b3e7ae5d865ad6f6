"""Brings the arguments of a call to the host of its executor, and then sends the call."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from mpi_runtime.scheduler.protocol.events import Call
from mpi_runtime.scheduler.records.lifecycle import (
    RUNTIME_ERROR,
    SEND,
    STAGE,
    STAGING,
    UNFILLED,
    UNSEALED,
    WAIT_AGAIN,
    advance,
)
from mpi_runtime.scheduler.records.records import Executor, Task
from mpi_runtime.scheduler.records.state import State
from mpi_runtime.scheduler.values import journaling, objects, spreading


def assign(state: State, executor: Executor, task: Task) -> bool:
    """Assign a call to an executor: send it, or first fetch its arguments. Returns whether it was sent."""
    executor.take(task, 0)
    if task.call.arguments and not stage(state, executor, task):
        return False
    send_call(state, executor, task)
    return True


def stage(state: State, executor: Executor, task: Task) -> bool:
    """Send the values of the call's arguments, or fetch them to the executor's host. Returns whether they were sent."""
    number = executor.rank.node.number
    missing = elsewhere(state, task, number)
    if missing:
        advance(state.stories, task, STAGE)
        task.missing = len(missing)
        for id in missing:
            spreading.start(state, state.objects[id], number, (task, executor))
        return False
    send_values(state, executor, task)
    return True


def are_lost(state: State, task: Task) -> bool:
    """Whether a call has lost arguments. After an argument that is an error they do not matter."""
    is_error = False
    for id in task.call.arguments:
        found = state.objects[id]
        if found.state in UNSEALED or (found.state == RUNTIME_ERROR and not is_error):
            return True
        is_error = is_error or found.is_error
    return False


def wait_again(state: State, task: Task) -> bool:
    """If a call has lost arguments, have it wait until they are rebuilt, or fail."""
    if not task.call.arguments or not are_lost(state, task):
        return False
    advance(state.stories, task, WAIT_AGAIN, "an argument is lost")
    journaling.forget_key(task)
    task.missing = 0
    await_lost(state, task, task.call.arguments)
    if not task.missing:
        state.woken.append(task)
    return True


def come_back(state: State, task: Task, cause: str) -> None:
    """Have a call that was sent behind its arguments, and has not begun, wait for them again, or fail with one."""
    advance(state.stories, task, UNFILLED, cause)
    task.executor, task.missing = None, 0
    await_lost(state, task, task.call.arguments)
    if not task.missing:
        state.woken.append(task)


def await_lost(state: State, task: Task, ids: Iterable[bytes]) -> None:
    """Have a call wait for the arguments that are rebuilt."""
    for id in ids:
        found = state.objects[id]
        if found.state in UNSEALED:
            objects.await_value(found, task)


def elsewhere(state: State, task: Task, number: int) -> list[bytes]:
    """The stored arguments of the call that are not on this node."""
    return [
        id
        for id in dict.fromkeys(task.needs)
        if (copies := state.objects[id].copies) is not None and number not in copies
    ]


def send_values(state: State, executor: Executor, task: Task) -> None:
    """Send an executor the arguments of its next call."""
    number = executor.rank.node.number
    executor_held = state.clients[executor.id].held
    for id in task.needs:
        found = state.objects[id]
        message = objects.value_message(found, number)
        assert message is not None
        if found.copies is not None and id in executor_held:
            objects.note_known(state, found, executor.id)
        state.to_client(executor.id, message)


def staged(state: State, task: Task) -> bool:
    """Note that an argument has arrived. Sends the call with the last one; returns whether it was sent."""
    executor = task.executor
    assert executor is not None
    number = executor.rank.node.number
    missing = elsewhere(state, task, number)
    task.missing = len(missing)
    if missing:
        for id in missing:  # it may have been dropped for want of room
            if number not in state.fetching.get(id, {}):
                spreading.start(state, state.objects[id], number, (task, executor))
        return False
    send_values(state, executor, task)
    executor.assigned[task.id] = executor.assigned.pop(task.id)  # they are in the order of sending
    send_call(state, executor, task)
    return True


def send_call(state: State, executor: Executor, task: Task) -> None:
    """Send a call after its arguments, and first its spec, if the executor does not have it."""
    advance(state.stories, task, SEND)
    call, messages = task.call, state.effects.clients[executor.id]
    if call.spec not in executor.known:
        executor.known.add(call.spec)
        messages.append(task.function.spec)
    messages.append(replace(call, arguments=task.needs, scattered=0) if call.scattered else call)


def not_sent(state: State, executor: Executor, assigned: list[Task]) -> set[bytes]:
    """Calls that an executor cannot have begun: they wait for copies, or leave with this decision. For membership."""
    leaving = {one.id for one in state.effects.clients.get(executor.id, ()) if type(one) is Call}
    return {task.id for task in assigned if task.state == STAGING or task.id in leaving}
