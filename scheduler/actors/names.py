"""Names of actors, from the submission of a creation until the actor is ended.

The request for a name contains the creation. So if two clients request a name at the same time, exactly one creates the
actor. The other gets that actor, and its calls arrive after the creation.
"""

from __future__ import annotations

import msgspec

from mpi_runtime.scheduler.protocol.effects import Answer
from mpi_runtime.scheduler.protocol.events import NamedActorRequested
from mpi_runtime.scheduler.records.lifecycle import ENDED
from mpi_runtime.scheduler.records.records import Actor
from mpi_runtime.scheduler.records.state import Client, Name, State
from mpi_runtime.scheduler.values import objects


def give(state: State, event: NamedActorRequested) -> None:
    """Give the actor its name when its creation is submitted, unless it could not be created."""
    actor = state.actors.get(event.creation.id)
    if actor is None or actor.creation.state in ENDED:
        return
    actor.name = (event.namespace, event.name)
    state.names[actor.name] = Name(actor.id, event.handle, event.detached)
    if event.detached:
        objects.hold(state, actor.id)


def answer(state: State, client: Client, event: NamedActorRequested) -> None:
    """Send a client the actor with the requested name. One that could not be created has no name: its calls fail."""
    found = state.names.get((event.namespace, event.name))
    answer = (found.actor, found.handle) if found is not None else (event.creation.id, event.handle)
    state.to_client(client.id, Answer(event.request, msgspec.msgpack.encode(answer)))


def ended(state: State, actor: Actor) -> None:
    """Free the name of an actor that takes no more calls."""
    if actor.name is None:
        return
    found = state.names.pop(actor.name)
    actor.name = None
    if found.detached:
        objects.release(state, actor.id)
