"""The index that finds a node with room without a search."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.resources import fits
from mpi_runtime.scheduler.records.grant_sources import Contender
from mpi_runtime.scheduler.records.records import Node


class Index:
    """Nodes by the free amount of each resource: the node with the most is found in constant time."""

    def __init__(self) -> None:
        self._levels: dict[str, list[int]] = {}
        self._nodes: dict[str, dict[int, dict[int, Node]]] = {}
        self._places: dict[int, dict[str, tuple[int, int]]] = {}
        """For each node its level of each resource, and the number of the move that brought it there."""
        self._moves = 0

    def update(self, node: Node) -> None:
        """Move the node to the place of its free resources. Call it after each change of these."""
        places = self._places.setdefault(node.number, {})
        free = node.free
        self._move(node, "CPU", free.cpu, places)
        if free.gpu_units:
            self._move(node, "GPU", sum(free.gpu_units), places)
        for name, units in free.custom.items():
            self._move(node, name, units, places)

    def remove(self, node: Node) -> None:
        """Remove a node that runs no calls any more."""
        for name, (level, _) in self._places.pop(node.number, {}).items():
            self._leave(node, name, level)

    def _move(self, node: Node, name: str, level: int, places: dict[str, tuple[int, int]]) -> None:
        old = places.get(name)
        if old is not None:
            if old[0] == level:
                return
            self._leave(node, name, old[0])
        nodes = self._nodes.setdefault(name, {})
        if level not in nodes:
            nodes[level] = {}
            insort(self._levels.setdefault(name, []), level)
        nodes[level][node.number] = node
        self._moves += 1
        places[name] = level, self._moves

    def _leave(self, node: Node, name: str, level: int) -> None:
        nodes = self._nodes[name]
        del nodes[level][node.number]
        if not nodes[level]:
            del nodes[level]
            levels = self._levels[name]
            del levels[bisect_left(levels, level)]

    def candidates(self, request: Request, able: Sequence[Node] | None = None) -> Iterator[Node]:
        """Nodes that may have room, those with the most of the rarest requested resource first.

        Where fewer nodes have enough of another resource, or are `able`, the others are not looked at.
        """
        name, least = rarest(request)
        if name != "CPU" or able is not None:
            few = self._few(request, name, least, able)
            if few is not None:
                yield from few
                return
        nodes = self._nodes.get(name, {})
        for level in reversed(self._levels.get(name, ())):
            if level < least:
                return
            yield from nodes[level].values()

    def _few(self, request: Request, name: str, least: int, able: Sequence[Node] | None) -> Iterable[Node] | None:
        """The candidates, if they are found faster by another resource or among those that are able."""
        others = [one for one in requested(request) if one[0] != name]
        count, few = min(((self._count(*one), one) for one in [(name, least), *others]), key=itemgetter(0))
        if able is not None and len(able) < count:
            some: Iterable[Node] = able
        elif few[0] != name:
            levels, nodes = self._levels.get(few[0], []), self._nodes.get(few[0], {})
            some = (node for level in levels[bisect_left(levels, few[1]) :] for node in nodes[level].values())
        else:
            return None
        places = ((node, self._places.get(node.number, {}).get(name)) for node in some)
        found = [(*place, node) for node, place in places if place is not None and place[0] >= least]
        found.sort(key=lambda one: (-one[0], one[1]))
        return [node for _, _, node in found]

    def _count(self, name: str, least: int) -> int:
        levels, nodes = self._levels.get(name, []), self._nodes.get(name, {})
        return sum(len(nodes[level]) for level in levels[bisect_left(levels, least) :])

    def room(self, request: Request, most: int, each: int) -> int:
        """A bound: how many of these requests may be served at once, at most `each` by one node, counted up to `most`.

        Each resource is looked at for itself, and reservations are not.
        """
        for name, units in requested(request):
            found, nodes = 0, self._nodes.get(name, {})
            for level in reversed(self._levels.get(name, ())):
                if found >= most or level < units:
                    break
                found += min(level // units, each) * len(nodes[level])
            most = min(most, found)
        return most

    def find(self, request: Request, asks: Contender | None) -> Node | None:
        """A node with room for a request of this queue, in spite of reservations."""
        for node in self.candidates(request):
            # as in `Source.may_take`, but this is asked for every call that is placed
            is_open = node.reserved_for is None or node.is_open_to(request, asks, node.free)
            if is_open and fits(request, node.free) and not node.is_closed():
                return node
        return None


def requested(request: Request) -> list[tuple[str, int]]:
    """The requested resources that the index knows, and how much of each."""
    found = [(name, units) for name, units in request.custom if units]
    if request.gpu:
        found.append(("GPU", request.gpu))
    if request.cpu:
        found.append(("CPU", request.cpu))
    return found


def rarest(request: Request) -> tuple[str, int]:
    """The requested resource that fewest nodes will have, and how much of it."""
    if request.custom:
        return request.custom[0]
    if request.needs_gpu:
        return "GPU", request.gpu
    return "CPU", request.cpu if request.cpu else -(1 << 62)
