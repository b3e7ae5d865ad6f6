"""A summary of the object store by node, computed on request."""

from __future__ import annotations

from mpi_runtime.scheduler.protocol.entries import NodeStoreEntry, StoredValue
from mpi_runtime.scheduler.records.records import Node
from mpi_runtime.scheduler.records.state import Object, State
from mpi_runtime.scheduler.values import objects

LISTED_MAX = 20
"""The most values of each node that are listed: the largest."""


def store(state: State) -> list[NodeStoreEntry]:
    """One entry for each node: the content of its arena and its files."""
    return [_of_node(state, node) for node in state.nodes.values()]


def _of_node(state: State, node: Node) -> NodeStoreEntry:
    ranks = {rank.number for rank in node.ranks}
    here = _objects(state, [id for (rank, _), id in state.extents.items() if rank in ranks])
    on_disk = _objects(state, [id for (rank, _), id in state.spilling.on_disk.items() if rank in ranks])
    coming = [one for fetches in state.fetching.values() for one in fetches.values() if one.node == node.number]
    room = state.spilling.rooms.get(node.number)
    largest = sorted({found.id: found for found in (*here, *on_disk)}.values(), key=_size, reverse=True)
    return NodeStoreEntry(
        node_id=node.id,
        hostname=node.hostname,
        capacity=node.arena,
        used=sum(map(_size, here)),
        objects=len(here),
        on_disk=sum(map(_size, on_disk)),
        objects_on_disk=len(on_disk),
        in_flight=sum(fetching.size for fetching in coming),
        being_written=sum(one.place.size for one in room.writing.values()) if room is not None else 0,
        wanted=sum(room.wanted.values()) if room is not None else 0,
        largest=[_described(state, found, node) for found in largest[:LISTED_MAX]],
    )


def _objects(state: State, ids: list[bytes]) -> list[Object]:
    return [found for id in dict.fromkeys(ids) if (found := state.objects.get(id)) is not None]


def _size(found: Object) -> int:
    return next((place.size for place in found.places()), 0)


def _described(state: State, found: Object, node: Node) -> StoredValue:
    return StoredValue(
        object_id=found.id.hex(),
        size=_size(found),
        in_memory=found.is_on(node.number),
        on_disk=found.disk is not None and found.disk.rank in {rank.number for rank in node.ranks},
        made_by=found.made_by,
        held_by=objects.holders(state, found),
    )
