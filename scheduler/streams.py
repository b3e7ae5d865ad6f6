"""Calls that give their values one by one, while they run: to the client that made the call, and to nobody else.

That client holds each item from the moment it is yielded. A call that is run again yields from the start; what its
client has had already is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpi_runtime.scheduler import objects
from mpi_runtime.scheduler.effects import Demand, Item
from mpi_runtime.scheduler.objects import Object

if TYPE_CHECKING:
    from mpi_runtime.scheduler.events import Consumed, Yielded
    from mpi_runtime.scheduler.nodes import Executor
    from mpi_runtime.scheduler.state import State


def yielded(state: State, executor: Executor, event: Yielded) -> None:
    """A call has yielded its next value."""
    task = executor.in_hand.get(event.call)
    client = None if task is None else state.clients.get(task.client)
    is_known = task is None or event.index < task.yielded
    if task is not None and not is_known:
        task.yielded += 1
    if is_known or client is None or event.call not in client.held:
        if event.value.stored is not None:
            objects.free_extent(state, event.value.stored)
        if task is not None and task.function.spec.backpressure:
            state.to_client(executor.id, Demand(event.call, event.index + 1))  # nobody will take it
        return
    state.objects[event.id] = found = Object(event.id, client.id, 1)
    client.held[event.id] = None
    state.to_client(client.id, Item(event.call, event.id))
    objects.set_value(state, found, event.value)


def consumed(state: State, event: Consumed) -> None:
    """The client of a call has taken so many of its values: the call may yield more."""
    found = state.objects.get(event.call)
    task = found.task if found is not None else None
    if task is not None and task.executor is not None:
        state.to_client(task.executor.id, Demand(event.call, event.count))
