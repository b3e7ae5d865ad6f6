"""Where the members of a gang are placed: all at once, consecutive ranks on a node. Arithmetic on pools, no state."""

from __future__ import annotations

from collections.abc import Sequence

from mpi_runtime.scheduler.places import constraints, gpu_pool
from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.limits import EXPLAINED_MAX
from mpi_runtime.scheduler.protocol.resources import Pool, pool_for, room
from mpi_runtime.scheduler.records.grant_sources import Source
from mpi_runtime.scheduler.records.records import Function, node_of
from mpi_runtime.scheduler.records.state import State


def arrange(request: Request, ranks: int, per_node: int, spread: bool, pools: Sequence[Pool]) -> list[int] | None:
    """The index of a pool for each rank, in rising order; None: they do not fit.

    All members have the same request, so the answer is exact. `per_node`: the number of members in each pool but the
    last; 0: any number. `spread`: use many pools. Else the one with least to spare is used, or as few as possible.
    """
    rooms = [room(request, pool, per_node or ranks) for pool in pools]
    if per_node:
        parts = _in_parts(ranks, per_node, rooms)
    elif spread:
        parts = _dealt(ranks, rooms)
    else:
        parts = _packed(ranks, rooms)
    return None if parts is None else [index for index in sorted(parts) for _ in range(parts[index])]


def _in_parts(ranks: int, per_node: int, rooms: list[int]) -> dict[int, int] | None:
    """Equal parts on different pools. The last pool may get fewer."""
    whole, rest = divmod(ranks, per_node)
    able = [index for index, there in enumerate(rooms) if there >= per_node]
    if len(able) < whole:
        return None
    parts = dict.fromkeys(able[:whole], per_node)
    if rest:
        last = next((index for index, there in enumerate(rooms) if there >= rest and index not in parts), None)
        if last is None:
            return None
        parts[last] = rest
    return parts


def _dealt(ranks: int, rooms: list[int]) -> dict[int, int] | None:
    """One for each pool in turn."""
    if sum(rooms) < ranks:
        return None
    parts = dict[int, int]()
    while ranks:
        for index, there in enumerate(rooms):
            if ranks and parts.get(index, 0) < there:
                parts[index] = parts.get(index, 0) + 1
                ranks -= 1
    return parts


def _packed(ranks: int, rooms: list[int]) -> dict[int, int] | None:
    """All in the first pool with room for all, else in the fewest pools."""
    whole = next((index for index, there in enumerate(rooms) if there >= ranks), None)
    if whole is not None:
        return {whole: ranks}
    parts = dict[int, int]()
    for index in sorted(range(len(rooms)), key=lambda index: (-rooms[index], index)):
        if not ranks:
            break
        if rooms[index]:
            parts[index] = min(ranks, rooms[index])
            ranks -= parts[index]
    return None if ranks else parts


def in_order(sources: Sequence[Source], spread: bool) -> list[Source]:
    """Sources in the order in which `arrange` should try them; bundles of one node stay together.

    Nodes with few free GPUs and CPUs come first, so that gangs without GPUs leave those with GPUs alone.
    """
    sign = -1 if spread else 1

    def fullness(source: Source) -> tuple[int, int, int]:
        node = node_of(source)
        return sum(node.free.gpu_units), sign * node.free.cpu, node.number

    return sorted(sources, key=fullness)


def spots(state: State, function: Function, sources: Sequence[Source], pools: Sequence[Pool]) -> list[Source] | None:
    """The source of each rank, if the members of a gang fit into the pools of these sources at once."""
    gang = function.spec.gang
    assert gang is not None
    found = arrange(function.spec.asks, gang.ranks, gang.ranks_per_node, function.where.spread, pools)
    return None if found is None else [sources[index] for index in found]


def why_never(state: State, function: Function) -> str:
    """Why the present nodes can never hold a gang for the function's calls; empty if they can."""
    gang, name, where, request = function.spec.gang, function.spec.name, function.where, function.spec.asks
    assert gang is not None
    if where.group:
        group = state.groups.get(where.group)
        if group is None:
            return ""  # its calls fail because it was removed
        pools = [pool_for(one) for index, one in enumerate(group.requests) if where.bundle in (-1, index)]
        there, advice = f"the bundles of placement group {where.group.hex()}", "make more bundles, or larger ones"
    else:
        nodes, wanted = constraints.able(state, where.labels), constraints.in_words(where.labels)
        if wanted and not nodes:
            return constraints.no_match(state, name, wanted)
        pools = [node.total for node in nodes]
        rooms = [f"{node.hostname}: {room(request, node.total, gang.ranks)}" for node in nodes[:EXPLAINED_MAX]]
        those = f" with {wanted}" if wanted else ""
        there = f"{len(nodes)} node(s){those}, with room for this number of members: {', '.join(rooms) or 'none'}"
        few = constraints.why_few_cpus(nodes, gang.ranks * request.cpu)
        there += f".{few}{gpu_pool.why_not(nodes, request)}".rstrip(".")
        advice = "start the job with more, or state what nodes have with init(num_cpus=..., num_gpus=...)"
    if arrange(request, gang.ranks, gang.ranks_per_node, False, pools) is not None:
        return ""
    layout = f", {gang.ranks_per_node} on each node" if gang.ranks_per_node else ""
    return (
        f"{name} asks for a gang of {gang.ranks} members{layout}, each with {request}, at the same time, and that "
        f"never fits. There is: {there}. Ask for less, or {advice}."
    )
