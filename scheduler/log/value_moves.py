"""Moves of large values, for `timeline()`: copies between nodes, spills to disk and back, and how full arenas are.

A move takes from the head's order to the report of the rank. One is recorded for each copy that arrives, and a level
for each hundredth of an arena that is filled or freed: MOVES_MAX in all.
"""

from __future__ import annotations

from itertools import islice

from mpi_runtime.scheduler.protocol.events import OnDisk, Place, Stored
from mpi_runtime.scheduler.protocol.past import MoveTimes, PastMove, PastMoves, RunNode
from mpi_runtime.scheduler.records.records import Node
from mpi_runtime.scheduler.records.state import Fetching, Object, State

COPY, SPILL, READ, LEVEL = "copy", "spill", "read", "level"
PARTS = 100
"""A level is recorded when it has changed by this part of the arena."""


def arrived(state: State, found: Object, fetching: Fetching) -> None:
    """Record a copy that has arrived on a node, from another node or from disk."""
    node, source = state.nodes[fetching.node], state.nodes.get(fetching.source_node)
    what, host = READ if isinstance(fetching.source, OnDisk) else COPY, source.hostname if source is not None else ""
    _record(state, what, node, fetching.size, fetching.began_us, found.id, found.made_by, host)


def written(state: State, found: Object, place: Stored, began_us: int) -> None:
    """Record a value that was written to disk."""
    _record(state, SPILL, state.ranks[place.rank].node, place.size, began_us, found.id, found.made_by)


def _record(
    state: State, what: str, node: Node, size: int, began_us: int, id: bytes = b"", made_by: str = "", source: str = ""
) -> None:
    state.logs.moved += 1
    times = MoveTimes(began_us, state.stories.now - began_us)
    place = RunNode(node.number, node.hostname)
    state.logs.moves.append(PastMove(what, id.hex(), made_by, size, place, source, times))


def used(state: State, place: Place, sign: int) -> None:
    """Note that an extent of an arena is used (1), or free (-1)."""
    rank = state.ranks.get(place.rank)
    if rank is None:
        return
    rank.stored += sign * place.size
    node = rank.node
    level = sum(one.stored for one in node.ranks)
    if abs(level - node.recorded) * PARTS >= node.arena or not level:
        node.recorded = level
        _record(state, LEVEL, node, level, state.stories.now)


def part(state: State, first: int, most: int) -> PastMoves:
    """At most `most` of the moves, from number `first` on."""
    dropped = state.logs.moved - len(state.logs.moves)
    begin = max(0, first - dropped)
    return PastMoves(dropped, list(islice(state.logs.moves, begin, begin + most)))
