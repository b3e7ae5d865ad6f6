"""Names of actors: who has which, from the claim before its creation until it is told to end.

A name is claimed before the call that creates the actor is submitted, so that of two clients that want it at the same
time exactly one gets it, and the other hears of the first one's actor: when its creation has been submitted, since the
other's calls must not come before that.
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
    waiting: list[tuple[int, Named]] = []
    """Claims of other clients before the creation; each is answered after it."""


def claim(state: State, client: Client, event: Named) -> None:
    """A client wants a name for an actor that it is about to create. It is told who has the name then."""
    key = (event.namespace, event.name)
    found = state.names.get(key)
    if found is not None and found.actor not in state.actors and found.client != client.id:
        found.waiting.append((client.id, event))
        return
    if found is None or found.actor not in state.actors:  # Ctrl-C may have come between its claim and the creation
        waiting = [] if found is None else found.waiting
        found = state.names[key] = Name(event.actor, event.handle, client.id, event.detached, waiting)
        client.claims[event.actor] = key
    answer(state, client.id, event, found)


def answer(state: State, client: int, event: Named, name: Name) -> None:
    """Tell a client who has the name that it wanted."""
    state.to_client(client, Answer(event.request, msgspec.msgpack.encode([name.actor, name.handle])))


def look_up(state: State, key: tuple[str, str]) -> Name | None:
    """Who has a name, if the actor was created."""
    found = state.names.get(key)
    return found if found is not None and found.actor in state.actors else None


def created(state: State, actor: Actor) -> None:
    """The creation of an actor was submitted: if it is to be detached, nobody's handle counts."""
    client = state.clients[actor.creation.client]
    actor.name = client.claims.pop(actor.id, None)
    if actor.name is None:
        return
    name = state.names[actor.name]
    if name.detached:
        objects.hold(state, actor.id)
    for other, event in name.waiting:
        if other in state.clients:
            answer(state, other, event, name)
    name.waiting = []


def client_died(state: State, client: Client) -> None:
    """What a client had claimed and not created is claimed by those who wait for it."""
    for actor, key in client.claims.items():
        name = state.names.get(key)
        if name is not None and name.actor == actor:
            del state.names[key]
            for other, event in name.waiting:
                if other in state.clients:
                    claim(state, state.clients[other], event)


def ended(state: State, actor: Actor) -> None:
    """The actor takes no more calls: its name is free."""
    if actor.name is None:
        return
    found = state.names.pop(actor.name)
    actor.name = None
    if found.detached:
        objects.release(state, actor.id)
