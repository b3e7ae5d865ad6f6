"""Calls that yield: items go one by one to the client that made the call, and to no other.

That client holds each item at once. A call that runs again yields from the start. Items that its client has had are
dropped, unless every copy of them has been lost meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mpi_runtime.scheduler.protocol.effects import Demand, Item
from mpi_runtime.scheduler.protocol.events import STREAMING, Consumed, RefusedError, Yielded
from mpi_runtime.scheduler.records.lifecycle import STAGING, so_far
from mpi_runtime.scheduler.records.parts import Stream
from mpi_runtime.scheduler.records.records import Executor, Task
from mpi_runtime.scheduler.records.state import Client, Object, State
from mpi_runtime.scheduler.values import objects
from mpi_runtime.scheduler.values.message_checks import check_ids, check_values, require

ALL = 1 << 62
"""More values than there will ever be."""
LOOK_EACH = 1024
"""The number of values after which values without a reference are forgotten."""


def yielded(state: State, client: Client, event: Yielded, now: int) -> None:
    """A call has yielded its next value."""
    executor = client.as_executor()
    task = executor.assigned.get(event.call)
    stream = task.stream if task is not None and task.state != STAGING else None
    if task is not None:
        if stream is None:
            raise RefusedError(f"a call of {task.function.spec.name} yields, and may not")
        require(event.index <= stream.yielded, f"item {event.index} comes before item {stream.yielded}")
        check_ids(state, event.id, 1)
    check_values(state, [event.value])
    executor.progress_us = now
    taker = None if task is None else state.clients.get(task.client)
    is_known = stream is None or event.index < stream.yielded
    is_wanted = not is_known and taker is not None and event.call in taker.held
    if task is not None and stream is not None:
        stream.yielded += not is_known
        stream.position = event.index + 1
        if not is_wanted:
            stream.consumed = max(stream.consumed, event.index + 1)  # no client will consume it
        if task.function.spec.backpressure and stream.consumed > event.index:
            state.to_client(executor.id, Demand(event.call, stream.consumed))
    if not is_wanted:
        found = _of(state, stream, event.index)
        if found is not None and found.task is not None:
            objects.conclude(state, found, event.value)
        else:
            objects.discard(state, event.value)
        return
    assert stream is not None
    assert taker is not None
    if event.value.stored is not None:
        if not event.index % LOOK_EACH:  # a call may yield for ever
            stream.items = {index: id for index, id in stream.items.items() if id in state.objects}
        stream.items[event.index] = event.id
    state.objects[event.id] = found = Object(event.id, taker.id, 1)
    taker.held[event.id] = None
    state.to_client(taker.id, Item(event.call, event.id))
    objects.set_value(state, found, event.value)


def _of(state: State, stream: Stream | None, index: int) -> Object | None:
    """The object of an earlier attempt's value in an arena, while it has references."""
    return None if stream is None else state.objects.get(stream.items.get(index, b""))


def lost(state: State, without: Mapping[bytes, Object], calls: Iterable[Task], cause: str) -> None:
    """Note which objects without a copy these open calls will yield again."""
    for task in calls:
        stream = task.stream
        for index in stream.items if stream is not None else ():
            found = _of(state, stream, index)
            if found is not None and found.id in without and stream is not None and index >= stream.position:
                objects.make_again(state, found, task, cause)


def ended(state: State, task: Task) -> None:
    """Give up items that an ended call has not yielded again."""
    stream, task.stream = task.stream, None
    for index in stream.items if stream is not None else ():
        found = _of(state, stream, index)
        if found is not None and found.task is task:
            before = so_far(state.stories.of(found.id, "object"))
            why = f"{task.function.spec.name}, which was to yield it again, ended before that."
            message = f"{found} is lost: {why}{before}"
            objects.give_up(state, found, "ObjectLostError", message.encode())


def consumed(state: State, client: Client, event: Consumed, now: int) -> None:
    """Note that the client of a call has consumed items: the call may yield more."""
    found = state.objects.get(event.call)
    if found is not None and found.task is not None:
        streams = found.task.function.spec.num_returns == STREAMING
        require(streams, "items are taken of a call that yields none")
        if found.task.stream is not None:
            demand(state, found.task, found.task.stream, event.count)


def demand(state: State, task: Task, stream: Stream, count: int) -> None:
    """Raise the number of consumed items of a call. It is kept for a call that does not run yet."""
    stream.consumed = max(stream.consumed, count)
    if task.executor is not None:
        state.to_client(task.executor.id, Demand(task.id, stream.consumed))


def client_died(state: State, executor: Executor) -> None:
    """Let the calls that a dead executor has submitted yield without waiting: nothing consumes their items."""
    for task in executor.children.values():
        if task.stream is not None and task.function.spec.backpressure:
            demand(state, task, task.stream, ALL)
