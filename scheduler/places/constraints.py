"""Where calls may run, apart from their request: on which nodes, or in which bundles of a placement group.

The `Where` of a function is resolved once (`resolve`): to ANYWHERE for most calls. Calls in a placement group wait for
it as for an argument.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from operator import attrgetter

from mpi_runtime.scheduler.places import gpu_pool
from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.events import EXISTS, IN, NODE_ID, NOT_IN, Label, Where
from mpi_runtime.scheduler.protocol.limits import EXPLAINED_MAX
from mpi_runtime.scheduler.protocol.resources import Pool, copy_of, fits, pool_for, subtract, subtract_gpus
from mpi_runtime.scheduler.records.grant_sources import NOTHING, Source
from mpi_runtime.scheduler.records.lifecycle import UNSEALED
from mpi_runtime.scheduler.records.records import ANYWHERE, Bundle, Function, Node, Queue, Task
from mpi_runtime.scheduler.records.state import State
from mpi_runtime.scheduler.values.objects import await_value

_number = attrgetter("number")
ABLE_MAX = 256
"""Conditions on labels for which the nodes are kept."""


def matches(wanted: tuple[Label, ...], labels: dict[str, str]) -> bool:
    """Whether the labels of a node meet a condition."""
    return all(_holds(label, labels.get(label.key)) for label in wanted)


def _holds(label: Label, value: str | None) -> bool:
    if label.operator == IN:
        return value in label.values
    if label.operator == NOT_IN:
        return value not in label.values
    return (value is not None) == (label.operator == EXISTS)


def resolve(state: State, where: Where, request: Request) -> Where:
    """The resolved place of calls.

    A stated node becomes a condition on its label; a soft one only if the node can ever serve the request.
    """
    labels = where.labels
    if where.node:
        only = (*labels, Label(NODE_ID, IN, (where.node,)))
        if not where.soft or any(fits(request, node.total) for node in able(state, only)):
            labels = only
    resolved = Where(where.spread, group=where.group, bundle=where.bundle, labels=labels, preferred=where.preferred)
    return ANYWHERE if resolved == ANYWHERE else resolved


def able(state: State, labels: tuple[Label, ...] = ()) -> list[Node]:
    """The nodes that run calls and match these labels. The list is kept until nodes change."""
    found = state.able.get(labels)
    if found is None:
        named = named_nodes(state, labels)
        nodes = state.nodes.values() if named is None else named
        found = [node for node in nodes if node.hosts_executors and matches(labels, node.labels)]
        if named is None:
            if len(state.able) >= ABLE_MAX:
                state.able.clear()
            state.able[labels] = found
    return found


def named_nodes(state: State, labels: tuple[Label, ...]) -> list[Node] | None:
    """The nodes that the labels name by their ids, found without a search; None: the labels name no ids."""
    for label in labels:
        if label.key == NODE_ID and label.operator == IN:
            return [node for id in label.values if (node := state.nodes.get(number_of(id))) is not None]
    return None


def number_of(id: str) -> int:
    """The number of the node with this id; -1 if it is not an id."""
    try:
        return int(id, 16)
    except ValueError:
        return -1


# Finding a place


def allows(where: Where, source: Source) -> bool:
    """Whether calls with this place may use resources of this node or bundle."""
    if where.group:
        return isinstance(source, Bundle) and source.group == where.group and where.bundle in (-1, source.index)
    return isinstance(source, Node) and matches(where.labels, source.labels)


def sources(state: State, where: Where) -> Iterable[Source]:
    """All nodes or bundles that calls with this place may use."""
    if where.group:
        bundles = state.groups[where.group].bundles
        return [bundle for index, bundle in bundles.items() if where.bundle in (-1, index)]
    return able(state, where.labels)


def with_room(state: State, request: Request, where: Where) -> Iterable[Source]:
    """The nodes or bundles that calls with this place may use, without most of those that lack room for a request."""
    if where.group:
        return sources(state, where)
    some = able(state, where.labels)
    return state.index.candidates(request, some if where.labels else None)


def reachable(source: Source) -> Pool:
    """The resources of a source that can become free by waiting: not those of actors and placement groups."""
    pool = copy_of(source.total)
    pool.cpu -= source.actor_cpu
    if pool.gpu_units:
        subtract_gpus(gpu_pool.held_by_actors(source), pool)
    if isinstance(source, Node):
        for bundle in source.bundles:
            subtract(bundle.grant, pool)
    return pool


def longest_us(state: State, queue: Queue) -> int:
    """The longest call with the queue's request and place that can start now; NOTHING: any; -1: none."""
    where, most_us = queue.where, -1
    for source in with_room(state, queue.request, where):
        if source.is_closed() or not allows(where, source) or not fits(queue.request, source.free):
            continue
        if source.reserved_for in (None, queue.family) or source.reserved_for.spares(queue.request, source.free):
            return NOTHING
        most_us = max(most_us, source.begins_in_us)
    return most_us


def find_source(state: State, queue: Queue) -> Source | None:
    """Find a source for a queue: the node of its data if that has room, else the node with most free; None: no room."""
    where = queue.where
    if where is ANYWHERE:
        node = state.nodes.get(queue.near)
        has_room = node is not None and node.may_take(queue.request, queue)
        return node if has_room else state.index.find(queue.request, queue)
    if where.group:
        near = [one for one in sources(state, where) if one.may_take(queue.request, queue)]
        return min(near, key=lambda one: isinstance(one, Bundle) and one.node.number != queue.near, default=None)
    if where.spread:
        return next_in_turn(state, queue, where.labels)
    for labels in dict.fromkeys((where.labels + where.preferred, where.labels)):
        near_nodes = [state.nodes[queue.near]] if queue.near in state.nodes else []
        is_any = named_nodes(state, labels) is None
        some = able(state, labels)
        for node in chain(near_nodes, state.index.candidates(queue.request, some) if is_any else some):
            if node.may_take(queue.request, queue) and matches(labels, node.labels):
                return node
    return None


def next_in_turn(state: State, queue: Queue, labels: tuple[Label, ...]) -> Node | None:
    """The next node with room, after the node that got the last spread call."""
    some = able(state, labels)  # by number
    few = state.index.room(queue.request, len(some), 1)
    if few * few <= len(some):  # else one of them is met sooner in turn
        there = state.index.candidates(queue.request, some if labels else None)
        some = sorted((node for node in there if matches(labels, node.labels)), key=_number)
    start = bisect_right(some, state.last_spread, key=_number)
    in_turn = chain(islice(some, start, None), islice(some, start))
    return next((node for node in in_turn if node.may_take(queue.request, queue)), None)


# Placement groups


def await_group(state: State, task: Task) -> None:
    """Have a call wait for its placement group, if that exists and has not been placed."""
    group = task.function.where.group
    if group in state.groups and (found := state.objects[group]).state in UNSEALED:
        await_value(found, task)


def why_removed(state: State, function: Function) -> str:
    """Why the calls can never run, if their placement group was removed; else empty."""
    group = function.where.group
    if not group or group in state.groups:
        return ""
    return f"{function.spec.name} was to run in placement group {group.hex()}, which has been removed."


# Requests that can never be served


def why_nowhere(state: State, function: Function) -> str:
    """Why no allowed node or bundle can ever serve the function's request; empty if one can."""
    name, request, where = function.spec.name, function.spec.asks, function.where
    if where.group:
        return _why_no_bundle(state, name, request, where)
    nodes = able(state, where.labels)
    if any(fits(request, node.total) for node in nodes):
        return ""
    wanted = in_words(where.labels) or "any label"
    if not nodes:
        return no_match(state, name, wanted)
    there = ", ".join(node.hostname for node in nodes[:EXPLAINED_MAX])
    return (
        f"{name} asks for {request} on a node with {wanted}, and none of these ({there}) owns that much."
        f"{why_few_cpus(nodes, request.cpu)}{gpu_pool.why_not(nodes, request)} Ask for less, or for another node."
    )


def no_match(state: State, name: str, wanted: str) -> str:
    """The message for a function that needs a node with other labels than there are."""
    return (
        f"{name} is to run on a node with {wanted}, but no node matches. Labels of nodes: "
        f"{labels_of_nodes(state)}. Take another node (see nodes()), or state labels with init(labels=...) or, for "
        "one host, MPI_RUNTIME_LABELS."
    )


def why_few_cpus(nodes: Sequence[Node], cpu: int) -> str:
    """Why nodes have fewer CPUs than their hosts, if these CPU units are more than each of them has."""
    if any(node.total.cpu >= cpu for node in nodes):
        return ""
    return "".join(f" On {node.hostname} {node.cpu_limit}." for node in nodes[:EXPLAINED_MAX] if node.cpu_limit)


def _why_no_bundle(state: State, name: str, request: Request, where: Where) -> str:
    group = state.groups.get(where.group)
    if group is None:
        return ""  # its calls fail because it was removed
    here = f"placement group {where.group.hex()}"
    if where.bundle >= len(group.requests):
        return f"{name} is to run in bundle {where.bundle} of {here}, which has {len(group.requests)} bundle(s)."
    chosen = [index for index in range(len(group.requests)) if where.bundle in (-1, index)]
    asked = [group.requests[index] for index in chosen]
    placed = {index: group.bundles[index] for index in chosen if index in group.bundles}
    pools = [placed[index].total if index in placed else pool_for(group.requests[index]) for index in chosen]
    if any(fits(request, pool) for pool in pools):
        return ""
    which = f"any bundle of {here}" if where.bundle < 0 else f"bundle {where.bundle} of {here}"
    have = "; ".join(str(bundle) for bundle in asked[:EXPLAINED_MAX])
    out = sum(gpu_pool.is_out(bundle, [id for id, _, _ in bundle.grant.gpus]) for bundle in placed.values())
    lost = f" {out} of them have lost a GPU that is quarantined." if out else ""
    never = f"{name} asks for {request} in {which}, and that never fits: {have}.{lost}"
    return f"{never} Ask for less, or make larger bundles."


def in_words(labels: Sequence[Label]) -> str:
    """Return the words of a message for conditions on labels that must all hold. Without conditions: an empty text."""
    return " and ".join(words(label) for label in labels)


def words(label: Label) -> str:
    """A condition, for messages."""
    if label.operator in (IN, NOT_IN):
        is_one = "=" if label.operator == IN else "!="
        return f"{label.key!r} {is_one} {' or '.join(repr(value) for value in label.values)}"
    return f"{'some' if label.operator == EXISTS else 'no'} {label.key!r}"


def labels_of_nodes(state: State) -> str:
    """The labels of some nodes, for messages."""
    nodes = able(state)[:EXPLAINED_MAX]
    return "; ".join(f"{one.hostname}: {', '.join(f'{key}={one.labels[key]}' for key in one.labels)}" for one in nodes)
