"""The index that finds a node with room without a search."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.resources import fits
from mpi_runtime.scheduler.records.grant_sources import Contender
from mpi_runtime.scheduler.records.records import Node


class Index:
    """Nodes by the free amount of each resource: the node with the most is found in constant time."""

    def __init__(self) -> None:
        self._levels: dict[str, list[int]] = {}
        self._nodes: dict[str, dict[int, dict[int, Node]]] = {}
        self._places: dict[int, dict[str, int]] = {}

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
        for name, level in self._places.pop(node.number, {}).items():
            self._leave(node, name, level)

    def _move(self, node: Node, name: str, level: int, places: dict[str, int]) -> None:
        old = places.get(name)
        if old == level:
            return
        if old is not None:
            self._leave(node, name, old)
        nodes = self._nodes.setdefault(name, {})
        if level not in nodes:
            nodes[level] = {}
            insort(self._levels.setdefault(name, []), level)
        nodes[level][node.number] = node
        places[name] = level

    def _leave(self, node: Node, name: str, level: int) -> None:
        nodes = self._nodes[name]
        del nodes[level][node.number]
        if not nodes[level]:
            del nodes[level]
            levels = self._levels[name]
            del levels[bisect_left(levels, level)]

    def candidates(self, request: Request) -> Iterator[Node]:
        """Nodes that may have room, those with the most of the rarest requested resource first."""
        name, least = rarest(request)
        nodes = self._nodes.get(name, {})
        for level in reversed(self._levels.get(name, ())):
            if level < least:
                return
            yield from nodes[level].values()

    def find(self, request: Request, asks: Contender | None) -> Node | None:
        """A node with room for a request of this queue, in spite of reservations."""
        for node in self.candidates(request):
            # as in `Source.may_take`, but this is asked for every call that is placed
            is_open = node.reserved_for is None or node.is_open_to(request, asks, node.free)
            if is_open and fits(request, node.free) and not node.is_closed():
                return node
        return None


def rarest(request: Request) -> tuple[str, int]:
    """The requested resource that fewest nodes will have, and how much of it."""
    if request.custom:
        return request.custom[0]
    if request.needs_gpu:
        return "GPU", request.gpu
    return "CPU", request.cpu if request.cpu else -(1 << 62)
