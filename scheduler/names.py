"""Names of actors: who has which, from the claim before its creation until it is told to end.

A name is claimed before the call that creates the actor is submitted, so that of two clients that want it at the same
time exactly one gets it, and the other hears of the first one's actor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from mpi_runtime.scheduler import objects
from mpi_runtime.scheduler.effects import Answer

if TYPE_CHECKING:
    from mpi_runtime.scheduler.actors import Actor
    from mpi_runtime.scheduler.events import Named
    from mpi_runtime.scheduler.state import Client, State


class Name(Struct, eq=False, gc=False):
    """One name that is taken."""

    actor: bytes
    handle: bytes
    """What a handle is made of, for those who look the name up; opaque."""
    client: int
    """Who claimed it."""
    detached: bool
    """Whether the actor lives until it is killed or the job ends, whoever has handles."""


def claim(state: State, client: Client, event: Named) -> None:
    """A client wants a name for an actor that it is about to create. It is told who has the name then."""
    key = (event.namespace, event.name)
    found = look_up(state, key)
    if found is None or (found.client == client.id and found.actor not in state.actors):
        found = state.names[key] = Name(event.actor, event.handle, client.id, event.detached)
        client.claims[event.actor] = key
    state.to_client(client.id, Answer(event.request, msgspec.msgpack.encode([found.actor, found.handle])))


def look_up(state: State, key: tuple[str, str]) -> Name | None:
    """Who has a name. A claim whose client died before it had created the actor counts for nothing."""
    found = state.names.get(key)
    if found is not None and found.actor not in state.actors and found.client not in state.clients:
        del state.names[key]
        return None
    return found


def created(state: State, actor: Actor) -> None:
    """The creation of an actor was submitted: if it is to be detached, nobody's handle counts."""
    client = state.clients[actor.creation.client]
    actor.name = client.claims.pop(actor.id, None)
    if actor.name is not None and state.names[actor.name].detached:
        objects.hold(state, actor.id)


def ended(state: State, actor: Actor) -> None:
    """The actor takes no more calls: its name is free."""
    if actor.name is None:
        return
    found = state.names.pop(actor.name)
    actor.name = None
    if found.detached:
        objects.release(state, actor.id)
