"""Ends of calls: their return values, and the release of their arguments."""

from __future__ import annotations

from mpi_runtime.gpu.device import NODE
from mpi_runtime.scheduler.log import errors
from mpi_runtime.scheduler.protocol.events import CANCELLED_TEXT, Faulted, Value
from mpi_runtime.scheduler.records.lifecycle import CANCEL, FAIL, FINISHED, Move, advance, first_line
from mpi_runtime.scheduler.records.records import Driver, Task
from mpi_runtime.scheduler.records.state import Failure, State
from mpi_runtime.scheduler.values import items, journaling, lineage, objects

REPORTED = {
    *("WorkerCrashedError", "GpuExecutorDiedError", "OutOfMemoryError", "TaskTimeoutError"),
    *("InfeasibleResourceError", "ObjectLostError", "ObjectStoreFullError"),
}
"""Errors of the runtime that are logged if no client reads them: no client has asked for them or knows their cause."""

LEFT = "{} was ended, because the driver to which it belonged has left the job."
"""The message of its calls."""


def fail(state: State, task: Task, code: str, message: str, move: Move = FAIL) -> None:
    """Fail a call with an error of the runtime. `code` names the class."""
    if task.leader is None:  # else it is a part of a call on a gang, which is counted once
        is_cancelled = move is CANCEL
        errors.note(state, task, f"{code}: {message}", task.executor, code=code, is_cancelled=is_cancelled)
        _count_failed(state, task, is_cancelled)
    advance(state.stories, task, move, code)
    data = message.encode()
    if code in REPORTED:
        rank = task.executor.rank if task.executor is not None else None
        failure = Failure(task.function.spec.name, f"{code}: {first_line(message)}", rank)
        objects.mark(state, task.return_ids(), failure)
    for id in task.return_ids():
        found = state.objects.get(id)
        if found is None or found.task is not task:
            continue  # the call ran again for another of its values
        objects.give_up(state, found, code, data)
    if task.stream is not None:
        items.ended(state, task)
    release_arguments(state, task)
    forget_child(state, task)
    task.executor = None


def _count_failed(state: State, task: Task, is_cancelled: bool) -> None:
    task.function.failed += 1
    state.failed += 1
    task.function.cancelled += is_cancelled
    state.cancelled += is_cancelled


def is_of_node(fault: Faulted | None) -> bool:
    """Whether an executor's node caused its end, and not its calls: CUDA does not start there."""
    return fault is not None and fault.blame == NODE


def cancelled(state: State, task: Task) -> None:
    """End a call that was cancelled, or whose driver has left."""
    if has_lost_owner(task):
        fail(state, task, "OwnerDiedError", LEFT.format(task.function.spec.name), CANCEL)
        return
    fail(state, task, "TaskCancelledError", CANCELLED_TEXT.format(task.function.spec.name), CANCEL)


def has_lost_owner(task: Task) -> bool:
    """Whether the driver to which a call belongs has left."""
    driver = task.function.driver
    return driver is not None and driver.has_left and bool(task.driver)


def overdue(state: State, task: Task) -> None:
    """Fail a call that was interrupted because it ran longer than its time limit."""
    fail(state, task, "TaskTimeoutError", task.overdue)


def forget_child(state: State, task: Task) -> None:
    """Forget that an executor has submitted this call. An actor's creation may end again."""
    if task.function.driver is not None:
        leave_driver(state, task.function.driver, task)
    if task.depth:
        parent = state.executors.get(task.client)
        if parent is not None:
            parent.children.pop(task.id, None)
        journaling.forget_parent(task)


def leave_driver(state: State, driver: Driver, task: Task) -> None:
    """Note that a call of a function of a driver has ended."""
    driver.end(task)
    if driver.has_left:
        state.alarms.set(driver, state.stories.now)


def conclude(
    state: State, task: Task, values: list[Value], move: Move, failure: Failure | None = None, trace: str = ""
) -> None:
    """End a call with these values: one for each return id, or one error for all, described by `failure`."""
    advance(state.stories, task, move)
    has_failed = task.state != FINISHED or any(value.is_error for value in values)
    is_cancelled = failure is None and move is not FAIL
    if has_failed:
        text = (
            failure.text if failure is not None else "the error of another call" if move is FAIL else "it was cancelled"
        )
        text = f"an argument is {text}" if move is FAIL else text
        code = "TaskCancelledError" if is_cancelled else ""
        errors.note(state, task, text, task.executor, trace, code=code, is_cancelled=is_cancelled)
    ids = task.return_ids()
    if len(values) != len(ids):
        values = shared(state, ids, values[0])
    if failure is not None:
        objects.mark(state, ids, failure)
    for id, value in zip(ids, values, strict=True):
        found = state.objects.get(id)
        if found is not None and found.task is task:
            objects.conclude(state, found, value)
        else:  # the call ran again for another of its values
            objects.discard(state, value)
    if task.stream is not None:
        items.ended(state, task)
    for id in lineage.keep(state, task):
        objects.release(state, id)
    if task.call.actor:
        objects.release(state, task.call.actor)
    forget_child(state, task)
    task.executor = None  # its record may be kept
    if has_failed:
        _count_failed(state, task, is_cancelled)
    else:
        task.function.done += 1
        state.finished += 1


def shared(state: State, ids: list[bytes], error: Value) -> list[Value]:
    """One error for several return values. A stored one belongs to the first wanted object; the others hold it."""
    if error.stored is None:
        return [error] * len(ids)
    wanted = [id for id in ids if state.objects[id].references > 1]
    if not wanted:
        objects.discard(state, error)
    other = Value(b"", error.stored, [*error.holds, *wanted[:1]], is_error=True)
    unwanted = Value(b"", is_error=True)
    return [error if id in wanted[:1] else other if id in wanted else unwanted for id in ids]


def release_arguments(state: State, task: Task) -> None:
    """Release the arguments, the references inside them, and the handle of the called actor."""
    call = task.call
    for id in (*call.arguments, *call.holds):
        objects.release(state, id)
    if call.actor:
        objects.release(state, call.actor)
