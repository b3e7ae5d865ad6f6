"""Spilling: which values leave a full arena, in which order, and the answers to waiting clients.

1. While clients wait for room, their agent sends `RoomWanted` again and again. From the first one on, clients of that
   node are informed that a value exists, but get its place only when they ask. A value can leave if no client knows its
   place.
2. A copy is dropped if there is another one, in another arena or on disk. If there is none, the value is first written
   to the scratch file of its rank, the oldest value first. No client has to agree: objects do not change.
3. A copy is dropped only if no process can read it: it is not an argument of an assigned call on the node, it is not
   being copied, and each client that knows its place has agreed not to use it (`Forget`, `Forgotten`). A client with a
   view keeps the copy. A client that runs user code answers later.
4. Among the calls that wait for arguments to arrive, the oldest keeps those that have arrived. So one call always gets
   all its arguments, however many wait. Calls that were sent ahead are taken back, and none is sent ahead meanwhile.
5. If nothing can leave, because of views or because the disk is full too, the waiting clients get an error with the
   reason. While running calls may release memory, they wait first, up to ROOM_PATIENCE_US.

   A client that waits for a value on the disk of its host reads it in the file itself (`read_past`).

6. If memory and disk are both full, a value on disk can return only if another one leaves memory. So a part of the disk
   is kept for that: new values may not use it, and it is used only while no client waits (`for_copies`).

A value that is only on disk is read back by the rank that wrote it (`spreading.read`). The file keeps the value, so
that its copy can be dropped again without writing.
"""

from __future__ import annotations

from collections.abc import Iterable

from mpi_runtime.scheduler.dispatch.stealing import ask_all_for_the_rest
from mpi_runtime.scheduler.log import notes, value_moves
from mpi_runtime.scheduler.protocol.amounts import gib
from mpi_runtime.scheduler.protocol.effects import Forget, ReadyStored, RoomAnswer, Spill
from mpi_runtime.scheduler.protocol.events import Forgotten, OnDisk, Stored
from mpi_runtime.scheduler.protocol.limits import (
    HOLDERS_NAMED,
    LARGEST_OBJECTS,
    READ_PAST_US,
    ROOM_PATIENCE_US,
    ROOM_SHARE,
)
from mpi_runtime.scheduler.protocol.rank_events import RoomWanted, Spilled
from mpi_runtime.scheduler.records.lifecycle import STAGING, STORED
from mpi_runtime.scheduler.records.records import Node
from mpi_runtime.scheduler.records.state import Client, Object, Room, State, Writing
from mpi_runtime.scheduler.values import objects, spreading


def wanted(state: State, event: RoomWanted, now: int) -> None:
    """Handle a report about the bytes for which the clients of a rank wait; 0: none wait any more."""
    node = state.ranks[event.rank].node
    room = state.spilling.rooms.setdefault(node.number, Room())
    if not event.size:
        room.wanted.pop(event.rank, None)
        room.waiting.pop(event.rank, None)
        if not room.wanted:
            node.is_full, room.problem, room.last_problem, room.stuck_us = False, "", "", -1
        return
    if not node.is_full:
        node.is_full = True
        for id in [id for id, fetches in state.fetching.items() if node.number in fetches]:
            spreading.serve(state, state.objects[id])  # a receiver that waits for room uses no source
    room.wanted[event.rank] = event.size
    room.waiting[event.rank] = event.clients
    is_coming = make_room(state, node, room)
    if is_coming:
        room.stuck_us = -1
    elif room.stuck_us < 0:
        room.stuck_us = now
    elif now >= room.stuck_us + READ_PAST_US:
        read_past(state, node)
    if not is_coming and now < room.stuck_us + ROOM_PATIENCE_US:
        is_coming = may_end(state)
    state.to_rank(event.rank, RoomAnswer(is_coming, "" if is_coming else why_not(state, node, room)))


def read_past(state: State, node: Node) -> None:
    """Let clients of a node read the values that they wait for in the file, because the arena has no room for them."""
    for fetching in [one for fetches in state.fetching.values() if (one := fetches.get(node.number)) is not None]:
        place, found = fetching.source, state.objects[fetching.id]
        if not isinstance(place, OnDisk) or not (file := state.spilling.files.get(place.rank)):
            continue
        for waiter in fetching.waiting:
            if isinstance(waiter, int) and waiter in state.clients:
                message = ReadyStored(found.id, place.rank, place.offset, place.size, found.is_error, file)
                state.to_client(waiter, message)
        fetching.waiting = [waiter for waiter in fetching.waiting if not isinstance(waiter, int)]
        for _ in range(spreading.give_up_unneeded(state, found)):
            objects.release(state, found.id)


def may_end(state: State) -> bool:
    """Whether a call runs that waits neither for values nor for room: it may release memory."""
    waiting = {
        client for room in state.spilling.rooms.values() for clients in room.waiting.values() for client in clients
    }
    return any(
        executor.assigned and not executor.blocked and executor.running() is not None and executor.id not in waiting
        for executor in state.executors.values()
    )


def make_room(state: State, node: Node, room: Room) -> bool:
    """Do steps 2 to 4. Returns whether something will leave the arena."""
    missing = sum(room.wanted.values()) + node.arena // ROOM_SHARE
    late, room.asked = room.asked, state.spilling.forgets
    pins = pinned(state, node)
    for_copies = not any(room.waiting.get(rank) for rank in room.wanted)
    problem = room.last_problem if for_copies else room.problem
    asked: dict[int, list[bytes]] = {}
    is_coming = False
    for found in candidates(state, node):
        if missing <= 0:
            break
        if found.id in room.writing:
            missing -= found.places()[0].size
            is_coming = True
        if found.id in pins:
            continue
        assert found.copies is not None
        place = found.copies[node.number]
        if len(found.places()) == 1:
            if problem:
                continue
            write(state, room, found, place, for_copies)
            is_coming = True
        knowing = who_knows(state, found, node)
        if not knowing:
            if len(found.places()) > 1:
                drop(state, found, node)
                is_coming = True
        else:
            unasked = [client for client in knowing if not (found.known_by or {})[client]]
            for client in unasked:
                asked.setdefault(client, []).append(found.id)
            if not unasked and min((found.known_by or {})[client] for client in knowing) <= late:
                continue  # a client does not answer: try other values
        missing -= place.size
    for client, ids in asked.items():
        ask(state, client, ids)
    if missing > 0:
        ask_all_for_the_rest(state, node)
    return is_coming


def candidates(state: State, node: Node) -> list[Object]:
    """The values in a node's arena: first those with other copies, then the rest, each part from the oldest on."""
    ranks = {rank.number for rank in node.ranks}
    ids = dict.fromkeys(id for (rank, _), id in state.extents.items() if rank in ranks)
    found = [one for id in ids if (one := state.objects[id]).state == STORED and not one.is_error]
    return sorted(found, key=lambda one: len(one.places()) == 1)


def pinned(state: State, node: Node) -> set[bytes]:
    """Objects with a copy on the node that is in use, or will be, as far as is known. Only for membership."""
    executors = node.executors()
    tasks = [task for executor in executors for task in executor.assigned.values()]
    staging = [task for task in tasks if task.state == STAGING]
    oldest = min(staging, key=lambda task: task.order, default=None)
    pins = {id for task in tasks if task.state != STAGING or task is oldest for id in task.call.arguments}
    pins.update(id for executor in executors for id in executor.kept)
    if node.number in state.spilling.rooms:
        pins.update(state.spilling.rooms[node.number].writing)
    pins.update(
        id
        for id, fetches in state.fetching.items()
        if any(one.source_node == node.number or one.source is None for one in fetches.values())
    )
    return pins


def who_knows(state: State, found: Object, node: Node) -> list[int]:
    """The clients of a node that know the place of an object in its arena."""
    clients = ((number, state.clients.get(number)) for number in found.known_by or ())
    return [number for number, client in clients if client is not None and client.node is node]


def ask(state: State, client: int, ids: list[bytes]) -> None:
    """Ask a client to stop using the places of objects."""
    state.spilling.forgets += 1
    for id in ids:
        known_by = state.objects[id].known_by
        assert known_by is not None
        known_by[client] = state.spilling.forgets
    state.to_client(client, Forget(state.spilling.forgets, ids))


def forgotten(state: State, client: Client, event: Forgotten, now: int) -> None:
    """Handle the answer to a `Forget`: the client stops using the places of `ids`, and keeps the rest of `asked`."""
    forgets = set(event.ids)
    freed = []
    for found in [state.objects[id] for id in event.asked if id in state.objects]:
        if found.known_by is None or found.known_by.get(client.id) != event.request:
            continue  # it has been sent the place again
        if found.id in forgets:
            del found.known_by[client.id]
            freed.append(found)
        else:
            found.known_by[client.id] = 0
    drop_if_full(state, client.node, freed)


def write(state: State, room: Room, found: Object, place: Stored, for_copies: bool) -> None:
    """Have an object written to disk. It is held until the answer."""
    found.references += 1
    room.writing[found.id] = Writing(place, state.stories.now, for_copies)
    state.to_rank(place.rank, Spill(found.id, place.offset, place.size, for_copies))


def spilled(state: State, event: Spilled, now: int) -> None:
    """Handle an object that was written to disk, or could not be written."""
    node = state.ranks[event.rank].node
    room = state.spilling.rooms[node.number]
    written = room.writing.pop(event.id)
    found = state.objects[event.id]
    if event.offset < 0:
        room.problem = event.reason
        if written.for_copies:
            room.last_problem = event.reason
    else:
        found.disk = OnDisk(event.rank, event.offset, written.place.size)
        state.spilling.files[event.rank] = event.file
        state.spilling.on_disk[event.rank, event.offset] = found.id
        value_moves.written(state, found, written.place, written.began_us)
        drop_if_full(state, node, [found])
    objects.release(state, event.id)


def drop_if_full(state: State, node: Node, objects: Iterable[Object]) -> None:
    """Drop the copies on a node that are no longer used, if its arena is still full."""
    if not node.is_full:
        return
    pins = pinned(state, node)
    for found in objects:
        is_unused = found.is_on(node.number) and found.id not in pins and not who_knows(state, found, node)
        if is_unused and len(found.places()) > 1:
            drop(state, found, node)


def drop(state: State, found: Object, node: Node) -> None:
    """Free one of several copies."""
    assert found.copies is not None
    objects.free_extent(state, found.copies.pop(node.number))


def why_not(state: State, node: Node, room: Room) -> str:
    """Why nothing can leave the arena of a node, for an error."""
    pins = pinned(state, node)
    here = candidates(state, node)
    sizes = {found.id: (found.copies or {})[node.number].size for found in here}
    used = sum(size for id, size in sizes.items() if id in pins)
    known = sum(sizes[found.id] for found in here if found.id not in pins and who_knows(state, found, node))
    largest = sorted(here, key=lambda found: (-sizes[found.id], found.id))[:LARGEST_OBJECTS]
    values = ", ".join(f"{gib(sizes[found.id])} {found}{_kept_by(state, found)}" for found in largest)
    return (
        f"Of {len(here)} values {gib(used)} are arguments of calls that run there, and {gib(known)} may be "
        f"looked at by processes that hold references."
        + (f" Nothing can be written to disk: {room.problem}." if room.problem else "")
        + (f" The largest: {values}." if values else "")
    )


def _kept_by(state: State, found: Object) -> str:
    """The origin and the holders of a value, for an error."""
    holders = objects.holders(state, found)
    parts = [f"made by {found.made_by}"] if found.made_by else []
    parts += [f"kept by {notes.listed(holders, HOLDERS_NAMED)}"] if holders else []
    return f" ({'; '.join(parts)})" if parts else ""


def lose_rank(state: State, number: int) -> None:
    """Forget the waiting clients of a lost rank, and the objects that it was writing to disk."""
    for room in state.spilling.rooms.values():
        room.wanted.pop(number, None)
        room.waiting.pop(number, None)
        for id in [id for id, one in room.writing.items() if one.place.rank == number]:
            del room.writing[id]
            objects.release(state, id)
    for node in state.nodes.values():
        if node.number in state.spilling.rooms:
            node.is_full = bool(state.spilling.rooms[node.number].wanted)
