"""Submits calls, actors, objects and placement groups, and makes the references for the caller."""

from __future__ import annotations

from typing import Any

import msgspec

from mpi_runtime.core.client.client import Client
from mpi_runtime.core.client.generators import ObjectRefGenerator
from mpi_runtime.core.client.object_ref import ActorRef, ObjectRef
from mpi_runtime.core.objects.serialize import Serialized
from mpi_runtime.errors.frames import user_line
from mpi_runtime.scheduler.protocol.events import (
    DYNAMIC,
    STREAMING,
    BundleSpec,
    Call,
    GroupRequested,
    NamedActorRequested,
    Spec,
    Value,
)
from mpi_runtime.scheduler.protocol.ids import return_ids


def submit(client: Client, call: Call, spec: Spec) -> Any:
    """Send a call whose spec is registered.

    The references are made before it is sent, so that they are dropped even if an interrupt arrives right after
    that.

    Returns:
        The caller's result: a reference, a list of them for several return values, None for 0, or a generator.
    """
    id = client.line.last_call = call.id
    counts, outbox = client.references.counts, client.outbox
    counts[id] = 1
    count = spec.num_returns
    if count == 1 or count == DYNAMIC:
        ref: ObjectRef[object] = ObjectRef(id, client)
        outbox.post(call)
        return ref
    if count == STREAMING:
        client.items.begin(id, bool(spec.backpressure))
        generator: ObjectRefGenerator[object] = ObjectRefGenerator(ObjectRef(id, client), client)
        outbox.post(call)
        return generator
    ids = return_ids(id, count)
    counts.update(dict.fromkeys(ids, 1))
    refs: list[ObjectRef[object]] = [ObjectRef(id, client) for id in ids]
    outbox.post(call)
    return refs if count else None  # the only one is dropped


def create_actor(client: Client, call: Call) -> ActorRef:
    """Send the creation of an actor. Its handles count as references to the id of this call."""
    client.references.counts[call.id] = 1
    ref = ActorRef(call.id, client)
    client.outbox.post(call)
    return ref


def create_named_actor(
    client: Client, creation: Call, namespace: str, name: str, handle: bytes, detached: bool
) -> tuple[ActorRef, bytes, bytes]:
    """Send the creation of an actor with a name.

    Returns:
        The new actor, and id and handle of the actor with the name. If that is an earlier one, the new actor is
        not created.
    """
    request = client.questions.number()
    client.references.counts[creation.id] = 1
    ref = ActorRef(creation.id, client)
    client.outbox.request(NamedActorRequested(request, namespace, name, handle, detached, creation))
    return ref, *msgspec.msgpack.decode(client.questions.answer(request), type=tuple[bytes, bytes])


def put(client: Client, serialized: Serialized) -> ObjectRef[Any]:
    """Make an object of a serialised value, and return its reference.

    Raises:
        ObjectStoreFullError: the store has no room for it.
    """
    value = client.store.write(serialized)
    if value.stored is not None:
        value.made_by = user_line()
    elif serialized.identity:
        from mpi_runtime.core.journal import value_files  # not at the top: most jobs have no journal

        value.digest = value_files.digest_of([(0, serialized.identity)])
    return put_written(client, value)


def put_written(client: Client, value: Value) -> ObjectRef[Any]:
    """Make an object of a value that the store has written, which may be an error. Return its reference."""
    id = client.scopes.next_ids(1)
    message = client.references.made(id, value)
    ref: ObjectRef[object] = ObjectRef(id, client)
    client.outbox.post(message)
    return ref


def new_ref(client: Client) -> ObjectRef[object]:
    """Return the first reference to a future object."""
    id = client.scopes.next_ids(1)
    client.references.counts[id] = 1
    return ObjectRef(id, client)


def create_group(
    client: Client,
    ref: ObjectRef[object],
    bundles: list[BundleSpec],
    strategy: str,
    data: bytes,
    name: str,
    detached: bool,
) -> bool:
    """Request a placement group with the id of a new reference. Return False if its name is taken.

    `detached`: whether it outlives a driver that leaves a session.
    """
    request = client.questions.number() if name else 0
    namespace = client.inherited.namespace
    asked = GroupRequested(ref.binary(), bundles, strategy, data, namespace, name, request, detached)
    client.outbox.request(asked)
    return not name or msgspec.msgpack.decode(client.questions.answer(request), type=bool)
