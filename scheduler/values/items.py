"""Calls that yield: items go one by one to the client that made the call, and to no other.

That client holds each item from the moment it is yielded. A call that is run again yields from the start; what its
client has had already is dropped, unless every copy of it has been lost meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mpi_runtime.scheduler.protocol.effects import Demand, Item
from mpi_runtime.scheduler.protocol.events import Consumed, Yielded
from mpi_runtime.scheduler.records.lifecycle import REBUILD, advance, so_far
from mpi_runtime.scheduler.records.records import Executor, Task
from mpi_runtime.scheduler.records.state import Client, Object, State
from mpi_runtime.scheduler.values import objects

ALL = 1 << 62
"""As many values as there will ever be."""
LOOK_EACH = 1024
"""After so many values those are forgotten to which there is no reference any more."""


def yielded(state: State, client: Client, event: Yielded, now: int) -> None:
    """A call has yielded its next value."""
    executor = client.as_executor()
    executor.progress_us = now
    task = executor.assigned.get(event.call)
    taker = None if task is None else state.clients.get(task.client)
    is_known = task is None or event.index < task.yielded
    is_wanted = not is_known and taker is not None and event.call in taker.held
    if task is not None:
        task.yielded += not is_known
        task.position = event.index + 1
        if not is_wanted:
            task.consumed = max(task.consumed, event.index + 1)  # nobody will take it
        if task.function.spec.backpressure and task.consumed > event.index:
            state.to_client(executor.id, Demand(event.call, task.consumed))
    if not is_wanted:
        found = _of(state, task, event.index)
        if found is not None and found.task is not None:
            objects.conclude(state, found, event.value)
        elif event.value.stored is not None:
            objects.free_extent(state, event.value.stored)
        return
    assert task is not None
    assert taker is not None
    if event.value.stored is not None:
        task.items = task.items or {}
        if not event.index % LOOK_EACH:  # a call may yield for ever
            task.items = {index: id for index, id in task.items.items() if id in state.objects}
        task.items[event.index] = event.id
    state.objects[event.id] = found = Object(event.id, taker.id, 1)
    taker.held[event.id] = None
    state.to_client(taker.id, Item(event.call, event.id))
    objects.set_value(state, found, event.value)


def _of(state: State, task: Task | None, index: int) -> Object | None:
    """The object of an earlier attempt's value in an arena, while there is a reference to it."""
    return None if task is None or task.items is None else state.objects.get(task.items.get(index, b""))


def lost(state: State, without: Mapping[bytes, Object], calls: Iterable[Task], cause: str) -> None:
    """Note which objects without a copy these calls, which have not ended, will yield again."""
    for task in calls:
        for index in task.items or ():
            found = _of(state, task, index)
            if found is not None and found.id in without and index >= task.position:
                advance(state.stories, found, REBUILD, cause)
                found.copies, found.is_error = None, False
                found.owner = -1  # it was told that there is a value, and asks if it wants it
                found.task = task
                found.references += 1


def ended(state: State, task: Task) -> None:
    """A call has ended. What it was to yield again and has not is lost for good."""
    for index in task.items or ():
        found = _of(state, task, index)
        if found is not None and found.task is task:
            before = so_far(state.stories.of(found.id, "object"))
            why = f"{task.function.spec.name}, which was to yield it again, ended before that."
            message = f"{found} is lost: {why}{before}"
            objects.give_up(state, found, "ObjectLostError", message.encode())
    task.items = None


def consumed(state: State, client: Client, event: Consumed, now: int) -> None:
    """The client of a call has taken so many of its values: the call may yield more."""
    found = state.objects.get(event.call)
    if found is not None and found.task is not None:
        demand(state, found.task, event.count)


def demand(state: State, task: Task, count: int) -> None:
    """Of a call so many values need not be waited for any more.

    It may not be running, or about to run elsewhere. So the count is kept, and is told with the next values too.
    """
    task.consumed = max(task.consumed, count)
    if task.executor is not None:
        state.to_client(task.executor.id, Demand(task.id, task.consumed))


def client_died(state: State, executor: Executor) -> None:
    """Nobody takes the values any more of calls that an executor has submitted: they need not wait."""
    for task in executor.children.values():
        if task.function.spec.backpressure:
            demand(state, task, ALL)
