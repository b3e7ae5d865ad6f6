"""The directory of objects: values or their places, waiters, and reference counts.

An object is held by each process with at least one `ObjectRef` or view of it (a process counts for itself and reports
its first and last), by calls that have it as an argument or inside one, by the call that makes it, and by objects that
contain a reference to it. At zero the object is freed, and the references inside it are released in turn.
"""

from __future__ import annotations

from mpi_runtime.scheduler.log import notes, value_moves
from mpi_runtime.scheduler.protocol import effects, events
from mpi_runtime.scheduler.protocol.effects import ClientEffect, Ready
from mpi_runtime.scheduler.protocol.events import OnDisk, Stored, Value
from mpi_runtime.scheduler.protocol.limits import PUSH_BYTES_MAX, WANTED_MAX
from mpi_runtime.scheduler.records import lifecycle
from mpi_runtime.scheduler.records.lifecycle import INLINE, STORED, UNSEALED, advance, so_far
from mpi_runtime.scheduler.records.records import Task
from mpi_runtime.scheduler.records.state import Client, Failure, Object, State
from mpi_runtime.scheduler.values import lineage, spreading
from mpi_runtime.scheduler.values.message_checks import check_ids, check_values


def hold(state: State, id: bytes) -> bool:
    """Add a reference. Returns whether the object still exists."""
    found = state.objects.get(id)
    if found is None:
        return False
    found.references += 1
    return True


def release(state: State, id: bytes) -> None:
    """Remove a reference. With the last one the object is freed, and all objects that only it held."""
    found = state.objects.get(id)
    if found is not None and found.references > 2:  # the frequent case for handles of actors
        found.references -= 1
        return
    pending = [id]
    while pending:
        found = state.objects.get(pending.pop())
        if found is None:
            continue
        found.references -= 1
        assert found.references >= 0, f"object {found.id.hex()} was released more often than held"
        if found.actor is not None:
            if found.references <= 1:  # the last may be that of its creation
                state.unreferenced_actors.append(found.actor)
            continue
        if found.references:
            continue
        del state.objects[found.id]
        if found.failure is not None:
            forget_failure(state, found)
        if found.lineage is not None:
            pending.extend(lineage.forget(state, found))
        if found.copies is not None:
            for copy in found.copies.values():
                if state.extents[copy.rank, copy.offset] == found.id:
                    free_extent(state, copy)
        if found.disk is not None:
            erase(state, found.disk)
        if found.holds:
            pending.extend(found.holds)


def mark(state: State, ids: list[bytes], failure: Failure) -> None:
    """Note that these objects are about to get the error of a failure."""
    failure.objects = len(ids)
    for id in ids:
        state.objects[id].failure = failure


def pass_on(found: Object) -> Failure | None:
    """Note that a further call gets this error. It counts as read here, and returns the record for that call."""
    if found.failure is None:
        return None
    found.failure.is_read = True
    return Failure(found.failure.name, found.failure.text, found.failure.rank)


def forget_failure(state: State, found: Object) -> None:
    """Note that an object is gone. If it was the last one of an error that no client has read, the error is logged."""
    failure, found.failure = found.failure, None
    if failure is not None:
        failure.objects -= 1
        if not failure.objects and not failure.is_read:
            notes.unhandled(state, failure)


def on_error_read(state: State, client: Client, event: events.ErrorRead, now: int) -> None:
    """Note that these errors were raised in user code."""
    for id in event.ids:
        found = state.objects.get(id)
        if found is not None and found.failure is not None:
            found.failure.is_read = True


def free_extent(state: State, place: Stored) -> None:
    """Free an extent of the arena."""
    if state.extents.pop((place.rank, place.offset), None) is not None:
        value_moves.used(state, place, -1)
    state.frees.setdefault(place.rank, []).append(place.offset)


def discard(state: State, *values: Value) -> None:
    """Free the memory of values that nothing needs."""
    for value in values:
        if value.stored is not None:
            free_extent(state, value.stored)


def erase(state: State, place: OnDisk) -> None:
    """Free a part of a spill file."""
    del state.spilling.on_disk[place.rank, place.offset]
    state.spilling.erasures.setdefault(place.rank, []).append(place.offset)
    rank = state.ranks.get(place.rank)
    if rank is not None:
        state.spilling.rooms[rank.node.number].problem = ""


def note_known(state: State, found: Object, client: int) -> None:
    """Note that a client knows the place of an object in the arena of its node."""
    if found.known_by is None:
        found.known_by = {}
    elif len(found.known_by) > 2 * len(state.clients):  # of a value that is read by one process after another
        found.known_by = {one: asked for one, asked in found.known_by.items() if one in state.clients}
    found.known_by[client] = 0


def set_value(state: State, found: Object, value: Value) -> None:
    """Give a pending object its value or the error of user code, and inform its waiters."""
    found.digest = value.digest
    if value.stored is not None:
        place = value.stored
        advance(state.stories, found, lifecycle.STORE)
        found.is_error = value.is_error
        found.made_by = value.made_by
        found.copies = {state.ranks[place.rank].node.number: place}
        if (place.rank, place.offset) not in state.extents:  # one error may be several values
            state.extents[place.rank, place.offset] = found.id
            value_moves.used(state, place, 1)
    else:
        advance(state.stories, found, lifecycle.RAISE if value.is_error else lifecycle.VALUE)
        found.data = value.data
    if value.holds:
        found.holds = [id for id in value.holds if hold(state, id)]
    if found.is_for_all:
        spreading.to_all(state, found)
    announce(state, found)


def fail(state: State, found: Object, code: str, message: bytes) -> None:
    """Give a pending object an error of the runtime."""
    advance(state.stories, found, lifecycle.REFUSE)
    found.code = code
    found.data = message
    announce(state, found)


def conclude(state: State, found: Object, value: Value) -> None:
    """Give an object the value from its call, if anything else holds it."""
    found.task = None
    if found.references > 1 or found.actor is not None:
        set_value(state, found, value)
    else:
        discard(state, value)
    release(state, found.id)


def give_up(state: State, found: Object, code: str, message: bytes) -> None:
    """Give an object an error of the runtime instead of the value from its call, if anything else holds it."""
    found.task = None
    if found.references > 1:
        fail(state, found, code, message)
    release(state, found.id)


def make_again(state: State, found: Object, task: Task, cause: str) -> None:
    """Note that a call makes an object without copies again."""
    advance(state.stories, found, lifecycle.REBUILD, cause)
    found.copies, found.is_error = None, False
    found.owner = -1  # it knows of a value, and subscribes when it wants it
    found.task = task
    found.references += 1


def announce(state: State, found: Object) -> None:
    """Inform the owner, the subscribers, and the calls that wait for it as an argument.

    The owner has not subscribed. It gets the value if that is small or on its host.
    """
    owner = state.clients.get(found.owner)
    if owner is not None and found.id in owner.held:
        if found.state == INLINE and len(found.data) <= PUSH_BYTES_MAX:  # the frequent case
            state.effects.clients[owner.id].append(Ready(found.id, found.data))
        elif found.state == INLINE:
            state.to_client(owner.id, effects.ReadyElsewhere(found.id))
        elif found.state == STORED and owner.node.number in state.spilling.rooms and not found.is_error:
            state.to_client(owner.id, effects.ReadyElsewhere(found.id))  # its extent may be needed before it is read
        else:
            deliver(state, found, owner, fetch=False)
    if found.subscribers is not None:
        for number, fetch in found.subscribers.items():
            client = state.clients.get(number)
            if client is not None and (client is not owner or fetch):
                deliver(state, found, client, fetch)
        found.subscribers = None
    if found.waiters is not None:
        for task in found.waiters:
            task.missing -= 1
            if not task.missing:
                state.woken.append(task)
            elif task.missing <= 2:  # calls of one executor may make the rest
                state.leads.append(task)
        found.waiters = None


def await_value(found: Object, task: Task) -> None:
    """Have a call wait for an object."""
    task.missing += 1
    if found.waiters is None:
        found.waiters = []
    found.waiters.append(task)
    if found.task is not None and len(task.call.arguments) <= WANTED_MAX:
        found.task.call.wanted = True


def deliver(state: State, found: Object, client: Client, fetch: bool) -> None:
    """Inform a client about a sealed object; with `fetch` copy it to its host first if needed."""
    message = value_message(found, client.node.number)
    if message is None:
        if fetch:
            spreading.start(state, found, client.node.number, client.id)
            return
        message = effects.ReadyElsewhere(found.id)
    elif found.copies is not None:
        note_known(state, found, client.id)
    state.to_client(client.id, message)


def value_message(found: Object, number: int) -> ClientEffect | None:
    """Return the message with the value for a client on this host; None: there is no copy."""
    if found.state == INLINE:
        return Ready(found.id, found.data)
    if found.state in (STORED, lifecycle.GONE):
        assert found.copies is not None
        place = found.copies.get(number)
        if place is None:
            return None
        return effects.ReadyStored(found.id, place.rank, place.offset, place.size, found.is_error)
    if found.state == lifecycle.ERROR:
        return effects.ReadyError(found.id, found.data)
    assert found.state == lifecycle.RUNTIME_ERROR, f"object {found.id.hex()} has no value yet"
    return effects.ReadyFailed(found.id, found.code, found.data.decode())


def on_broadcast(state: State, client: Client, event: events.BroadcastRequested, now: int) -> None:
    """Copy values to all nodes, now or when they exist."""
    for id in event.ids:
        found = state.objects.get(id)
        if found is not None:
            found.is_for_all = True
            spreading.to_all(state, found)


def on_put(state: State, client: Client, event: events.Put, now: int) -> None:
    """Handle a put. The client holds the object."""
    check_ids(state, event.id, 1)
    check_values(state, [event.value])
    found = state.objects[event.id] = Object(event.id, -1, 1)  # it knows its own value: do not send it back
    client.held[event.id] = None
    state.totals.put_bytes += event.value.stored.size if event.value.stored is not None else len(event.value.data)
    if event.value.stored is not None:
        note_known(state, found, client.id)
    set_value(state, found, event.value)
    found.owner = client.id


def on_subscribed(state: State, client: Client, event: events.SubscriptionRequested, now: int) -> None:
    """Handle a subscription."""
    for id in event.ids:
        found = state.objects.get(id)
        if found is None:
            before = so_far(state.stories.of(id))
            state.to_client(client.id, effects.ReadyFailed(id, "ObjectLostError", _LOST.format(id.hex()) + before))
        elif found.state not in UNSEALED:
            deliver(state, found, client, event.fetch)
        else:
            subscribe(found, client.id, event.fetch)


def subscribe(found: Object, client: int, fetch: bool) -> None:
    """Note that a client is to be informed when an object has a value, and whether it wants the value then."""
    if found.subscribers is None:
        found.subscribers = {}
    found.subscribers[client] = fetch or found.subscribers.get(client, False)


_LOST = (
    "Object {} no longer exists: its last counted reference is gone. One that was serialised outside the runtime "
    "(pickled to a file, say) does not keep its object alive; keep an ObjectRef somewhere."
)


def on_released(state: State, client: Client, ids: list[bytes]) -> None:
    """Handle the release of a process's last references."""
    held = client.held
    objects = state.objects
    for id in ids:
        if id not in held:
            continue
        del held[id]
        found = objects.get(id)
        if found is None:
            continue
        if (
            found.references == 1
            and found.copies is None
            and not found.holds
            and found.actor is None
            and found.failure is None
            and found.lineage is None
        ):
            del objects[id]  # the frequent case, without the loop of release()
        else:
            let_go(state, client, id)


def let_go(state: State, client: Client, id: bytes) -> None:
    """Release an object for a process, which waits for it no longer, nor for a copy of it."""
    pending = state.objects.get(id)
    if pending is not None and pending.subscribers:
        pending.subscribers.pop(client.id, None)
    if id in state.fetching:
        found = state.objects[id]
        for _ in range(spreading.leave(state, found, client)):
            release(state, id)
    release(state, id)


def on_held(state: State, client: Client, event: events.Held, now: int) -> None:
    """Handle new references of a process, from values or arguments that it has read."""
    for id in event.ids:
        if id not in client.held and hold(state, id):
            client.held[id] = None
            found = state.objects[id]
            if found.copies is not None and client.executor is not None and client.executor.has_as_argument(id):
                note_known(state, found, client.id)  # there may be a view


def holders(state: State, found: Object) -> list[str]:
    """The processes with references to a value, and the assigned calls that have it as an argument, in words."""
    words = []
    for client in state.clients.values():
        executor = client.executor
        if found.id in client.held:
            words.append("driver" if executor is None else str(executor))
        if executor is not None and executor.has_as_argument(found.id):
            running = executor.running()
            words.append(f"argument of {running.function.spec.name if running is not None else 'a call'}, {executor}")
    return words
