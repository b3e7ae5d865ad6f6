"""Spreading: which rank fetches a value for a node, and from which source.

1. A node that wants a value gets a `Fetching`, and a source as soon as one is open: a whole copy, or one that is still
   arriving and passes its parts on (`Arriving`).
2. A place sends at most SHARED_BYTES of a value at a time, or one copy. Further receivers wait for the next source. So
   N nodes get a small value in about log2 N rounds: each copy is a source of the next round. For a large value they
   form chains: each node passes on the parts that arrive, so all have the value soon after the first one.
3. A chain has at most one node for each HOP_BYTES of the value. Each hop costs a little time; with this bound the last
   node has the value at most a quarter later than the first.
4. If its source is lost, a receiver keeps its parts and continues from another source. The nodes behind it continue.
5. A fetch that nothing needs is stopped (`StopFetch`). Receivers that took parts of its copy begin again.

A receiver that waits for room in its arena uses no source.
"""

from __future__ import annotations

from mpi_runtime.scheduler.protocol.effects import Fetch, Restore, StopFetch
from mpi_runtime.scheduler.protocol.events import OnDisk, Place, Stored
from mpi_runtime.scheduler.protocol.limits import HOP_BYTES, PIPELINED_BYTES, SHARED_BYTES
from mpi_runtime.scheduler.records.state import Client, Fetching, Object, State, Waiter


def start(state: State, found: Object, number: int, waiter: Waiter | None) -> None:
    """Fetch a copy for a node, or join a fetch under way. The fetch holds the object. No waiter: ahead of use."""
    fetching = state.fetching.get(found.id, {}).get(number)
    is_new = fetching is None
    if fetching is None:
        fetching = begin(state, found, number)
    if waiter is None:
        fetching.is_ahead = True
    else:
        fetching.waiting.append(waiter)
    if is_new:
        serve(state, found)


def to_all(state: State, found: Object) -> None:
    """Fetch copies for all nodes that run calls and have room, ahead of use."""
    if found.copies is None or found.is_error:
        return
    for node in list(state.nodes.values()):
        if node.hosts_executors and not node.is_full and node.number not in found.copies:
            start(state, found, node.number, None)


def begin(state: State, found: Object, number: int) -> Fetching:
    """Add a fetch for a node, without a source. The fetch holds the object."""
    size = found.places()[0].size
    fetching = Fetching(found.id, number, state.nodes[number].ranks[0].number, size)
    state.fetching.setdefault(found.id, {})[number] = fetching
    found.references += 1
    return fetching


def serve(state: State, found: Object) -> None:
    """Assign sources to the fetches of an object that have none."""
    fetches = state.fetching.get(found.id, {})
    waiting = [one for one in fetches.values() if one.source is None]
    if not waiting:
        return
    assert found.copies is not None
    left = open_sources(state, found, fetches)
    goes_on = False
    for one in waiting:
        if one.source is not None:
            continue  # it reads from disk now
        is_tried = all(place.rank in one.tried for place in found.copies.values())
        if is_tried and not can_read(state, found):
            one.tried.clear()  # try all again: there are no other copies
        usable = [
            (depth > 0, state.sending.get(place.rank, 0), depth, node)
            for node, (place, depth, _) in left.items()
            if place.rank not in one.tried and not leads_to(fetches, node, one)
        ]
        if usable:
            node = min(usable)[-1]
            place, depth, free = left[node]
            assign(state, one, place, node)
            goes_on = goes_on or one.offset >= 0
            left[node] = place, depth, free - takes_source(state, one)
            if not left[node][-1]:
                del left[node]
        elif is_tried and can_read(state, found):
            read(state, found)
    if goes_on:
        serve(state, found)  # its parts are a source too, now that the rest arrives


def can_read(state: State, found: Object) -> bool:
    """Whether a value should be read from disk: it is on disk, and that node has no copy in its arena."""
    if found.disk is None:
        return False
    return state.ranks[found.disk.rank].node.number not in (found.copies or {})


def read(state: State, found: Object) -> None:
    """Read a value from disk into the arena of the node that wrote it."""
    assert found.disk is not None
    home = state.ranks[found.disk.rank].node.number
    fetches = state.fetching[found.id]
    reader = fetches.get(home) or begin(state, found, home)
    if reader.source is None:
        if reader.offset >= 0:
            restart(state, fetches, reader)
        reader.rank = found.disk.rank
        assign(state, reader, found.disk, -1)


def open_sources(state: State, found: Object, fetches: dict[int, Fetching]) -> dict[int, tuple[Stored, int, int]]:
    """The open sources by node: the place, its hops to a whole copy, and how many more receivers it may have."""
    counts: dict[int, int] = {}
    for one in fetches.values():
        if one.source is not None and takes_source(state, one):
            counts[one.source_node] = counts.get(one.source_node, 0) + 1
    size = next(iter(fetches.values())).size
    most = max(1, SHARED_BYTES // size)
    assert found.copies is not None
    open = {
        node: (place, 0, most - counts.get(node, 0))
        for node, place in found.copies.items()
        if counts.get(node, 0) < most
    }
    if size >= PIPELINED_BYTES:
        depths = dict.fromkeys(found.copies, 0)
        for one in fetches.values():
            if one.offset < 0 or one.source is None or one.reason or counts.get(one.node, 0) >= most:
                continue
            depth = depth_of(fetches, one, depths)
            if depth < size // HOP_BYTES:
                open[one.node] = Stored(one.rank, one.offset, size), depth, most - counts.get(one.node, 0)
    return open


def takes_source(state: State, fetching: Fetching) -> bool:
    """Whether a fetch uses a part of its source: not while it may wait for room."""
    node = state.nodes.get(fetching.node)
    return fetching.offset >= 0 or node is None or not node.is_full


def depth_of(fetches: dict[int, Fetching], fetching: Fetching, depths: dict[int, int]) -> int:
    """The number of hops to a whole copy. `depths` caches it by node."""
    chain = []
    node = fetching.node
    while node not in depths:
        one = fetches.get(node)
        if one is None:
            break
        chain.append(node)
        node = one.source_node
    depth = depths.get(node, 0)
    for passed in reversed(chain):
        depth += 1
        depths[passed] = depth
    return depth


def leads_to(fetches: dict[int, Fetching], node: int, fetching: Fetching) -> bool:
    """Whether a node gets its copy by way of this fetch."""
    if fetching.offset < 0:
        return False
    while (one := fetches.get(node)) is not None:
        if one is fetching:
            return True
        node = one.source_node
    return False


def assign(state: State, fetching: Fetching, place: Place, node: int) -> None:
    """Order a copy from a place: the arena of a node, or the file of the fetching rank."""
    state.fetch_orders += 1
    fetching.order = state.fetch_orders
    if fetching.offset < 0:
        fetching.since, fetching.began_us = state.fetch_orders, state.stories.now
    fetching.source, fetching.source_node, fetching.reason = place, node, ""
    if isinstance(place, OnDisk):
        state.to_rank(fetching.rank, Restore(fetching.id, place.offset, place.size, fetching.order))
        return
    state.sending[place.rank] = state.sending.get(place.rank, 0) + 1
    state.to_rank(fetching.rank, Fetch(fetching.id, place.rank, place.offset, place.size, fetching.order))


def unassign(state: State, fetching: Fetching) -> None:
    """Take its source from a fetch."""
    if isinstance(fetching.source, Stored):
        state.sending[fetching.source.rank] -= 1
        if not state.sending[fetching.source.rank]:
            del state.sending[fetching.source.rank]
    fetching.source, fetching.source_node, fetching.reason = None, -1, ""


def restart(state: State, fetches: dict[int, Fetching], fetching: Fetching) -> None:
    """Drop the parts of a fetch. Fetches that took parts of it begin again too."""
    state.to_rank(fetching.rank, StopFetch(fetching.id))
    unassign(state, fetching)
    had, fetching.offset = fetching.offset, -1
    if had >= 0:
        restart_behind(state, fetches, fetching.node)


def restart_behind(state: State, fetches: dict[int, Fetching], number: int) -> None:
    """Restart the fetches that took parts of an arriving copy: it is given up."""
    for one in [one for one in fetches.values() if one.source_node == number]:
        restart(state, fetches, one)


def remove(state: State, fetching: Fetching) -> None:
    """Remove a fetch that has ended. The caller releases the object."""
    fetches = state.fetching[fetching.id]
    unassign(state, fetching)
    del fetches[fetching.node]
    if not fetches:
        del state.fetching[fetching.id]


def give_up(state: State, fetching: Fetching) -> None:
    """Stop a fetch that is not needed or cannot succeed. The caller releases the object and serves the others."""
    fetches = state.fetching[fetching.id]
    if fetching.order:
        state.to_rank(fetching.rank, StopFetch(fetching.id))
    remove(state, fetching)
    if fetching.offset >= 0:
        restart_behind(state, fetches, fetching.node)


def unneeded(state: State, id: bytes) -> list[Fetching]:
    """Fetches without a waiter, and without a receiver behind them."""
    fetches = state.fetching.get(id, {}).values()
    idle = [one for one in fetches if not one.waiting and not one.is_ahead]
    if not idle:
        return []
    passing = {one.source_node for one in fetches}  # only for membership
    is_awaited = any(one.source is None for one in fetches)
    return [one for one in idle if one.node not in passing and not (is_awaited and isinstance(one.source, OnDisk))]


def leave(state: State, found: Object, client: Client) -> int:
    """Note that a process waits for no copy. Returns how many fetches were stopped: these do not hold the object."""
    fetches = state.fetching[found.id]
    mine = fetches.get(client.node.number)
    if mine is not None:
        mine.waiting = [one for one in mine.waiting if one != client.id]
    if found.references == len(fetches) + 1:  # no other process wants it
        for one in fetches.values():
            one.is_ahead = False
    return give_up_unneeded(state, found)


def give_up_unneeded(state: State, found: Object) -> int:
    """Stop the fetches that nothing needs, and then those that served only these. Returns how many were stopped."""
    stopped = 0
    while some := unneeded(state, found.id):
        for one in some:
            give_up(state, one)
        stopped += len(some)
    if stopped:
        serve(state, found)
    return stopped
