"""Which bundle of a placement group goes to which node: arithmetic on pools, no state.

Whether any arrangement exists is a hard question in general. For one bundle on each node the answer is exact. If
several may share a node, the largest are placed first, on few nodes or on many, and all ways that the strategy allows
are tried in turn. If bundles are bound to some of the nodes, all ways are first tried with those that have least choice
in front.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.events import PACK, STRICT_PACK, STRICT_SPREAD
from mpi_runtime.scheduler.protocol.resources import Pool, copy_of, fits, take

Spots = list[tuple[int, int]]
"""(bundle, node) for each bundle. Taken in this order, they get the same devices as in the trial."""


class Asked(NamedTuple):
    """What a bundle asks for."""

    request: Request
    nodes: Collection[int] | None = None
    """The nodes on which it may be; None: all."""

    def may_take(self, number: int, pool: Pool) -> bool:
        """Whether it may be on the node with this number, and the pool of the node has room."""
        return (self.nodes is None or number in self.nodes) and fits(self.request, pool)


def arrange(asked: Sequence[Asked], strategy: str, pools: Mapping[int, Pool]) -> Spots | None:
    """A node for each bundle, such that all fit at once; None if no arrangement was found.

    `strategy`: one of STRATEGIES. `pools`: the usable resources of each node.
    """
    order = sorted(range(len(asked)), key=lambda index: _size(asked[index].request), reverse=True)
    choice = [len(pools if one.nodes is None else one.nodes) for one in asked]
    orders = [sorted(order, key=choice.__getitem__), order] if any(one.nodes is not None for one in asked) else [order]
    if strategy == STRICT_PACK:
        ways = [_on_one]
    elif strategy == STRICT_SPREAD:
        ways = [_on_different]
    elif strategy == PACK:
        ways = [_on_one, _on_few, _on_many, _where_tightest, _on_different]
    else:
        ways = [_on_different, _on_many, _on_few, _where_tightest]
    found = (way(asked, order, pools) for way in ways for order in orders)
    return next((spots for spots in found if spots is not None), None)


def _size(request: Request) -> tuple[int, int, int, int]:
    return request.gpu, sum(units for _, units in request.custom), request.cpu, request.memory


def _on_one(asked: Sequence[Asked], order: list[int], pools: Mapping[int, Pool]) -> Spots | None:
    """All on the node with least to spare. Here and below, bundles without GPUs avoid nodes with GPUs."""
    for number in sorted(pools, key=lambda number: _room(pools, number)):
        spots = _fill(asked, order, {number: pools[number]}, lambda _, left: list(left))
        if spots is not None:
            return spots
    return None


def _on_few(asked: Sequence[Asked], order: list[int], pools: Mapping[int, Pool]) -> Spots | None:
    """On nodes that have one already, else on the largest."""
    numbers = _roomiest_first(pools)

    def preference(used: Counter[int], _: Mapping[int, Pool]) -> Iterable[int]:
        yield from (number for number in numbers if number in used)
        yield from (number for number in numbers if number not in used)

    return _fill(asked, order, pools, preference)


def _on_many(asked: Sequence[Asked], order: list[int], pools: Mapping[int, Pool]) -> Spots | None:
    """On nodes that have fewest of them so far."""
    numbers = _roomiest_first(pools)
    return _fill(asked, order, pools, lambda used, _: sorted(numbers, key=used.__getitem__))


def _where_tightest(asked: Sequence[Asked], order: list[int], pools: Mapping[int, Pool]) -> Spots | None:
    """Where least is left: in some cases the only way in which all fit."""
    return _fill(asked, order, pools, lambda _, left: sorted(left, key=lambda number: _room(left, number)))


def _room(pools: Mapping[int, Pool], number: int) -> tuple[int, int, int]:
    return sum(pools[number].gpu_units), pools[number].cpu, number


def _roomiest_first(pools: Mapping[int, Pool]) -> list[int]:
    return sorted(pools, key=lambda number: (sum(pools[number].gpu_units), -pools[number].cpu, number))


def _fill(
    asked: Sequence[Asked],
    order: list[int],
    pools: Mapping[int, Pool],
    preference: Callable[[Counter[int], Mapping[int, Pool]], Iterable[int]],
) -> Spots | None:
    """Each bundle onto the first node where it fits. `preference` orders them by what was used and what is left."""
    left = {**pools}
    spots: Spots = []
    used = Counter[int]()
    for index in order:
        one = asked[index]
        number = next((number for number in preference(used, left) if one.may_take(number, left[number])), None)
        if number is None:
            return None
        if number not in used:
            left[number] = copy_of(pools[number])
        take(one.request, left[number])
        used[number] += 1
        spots.append((index, number))
    return spots


def _on_different(asked: Sequence[Asked], order: list[int], pools: Mapping[int, Pool]) -> Spots | None:
    """Each on a different node: a matching, in which placed bundles may move to another node."""
    if len(asked) > len(pools):
        return None
    numbers = _roomiest_first(pools)
    left = dict.fromkeys(numbers)
    owner: dict[int, int] = {}
    place: dict[int, int] = {}
    for first in order:
        wanted_by: dict[int, int] = {}
        moving = [first]
        able = (number for number in left if asked[first].may_take(number, pools[number]))
        free = next(able, None)  # most often there is one, and nobody has to move
        if free is not None:
            owner[free], place[first] = first, free
            del left[free]
            continue
        for index in moving:  # it grows
            for number in numbers:
                if number not in wanted_by and asked[index].may_take(number, pools[number]):
                    wanted_by[number] = index
                    if number not in owner:
                        free = number
                        del left[number]
                        break
                    moving.append(owner[number])
            if free is not None:
                break
        while free is not None:
            index = wanted_by[free]
            owner[free] = index
            before = place.get(index)
            place[index] = free
            free = before
        if first not in place:
            return None
    return [(index, place[index]) for index in order]
