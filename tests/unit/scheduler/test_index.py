"""Tests of the index of nodes: it gives the nodes of a search through all, in the same order, and looks at few."""

from __future__ import annotations

import random

import pytest

from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.limits import UNIT
from mpi_runtime.scheduler.protocol.resources import Pool, fits, room
from mpi_runtime.scheduler.records.index import Index
from mpi_runtime.scheduler.records.records import Node

BOTH = Request(2 * UNIT, UNIT)


def node(number: int, cpu: int, gpus: int) -> Node:
    """A node with this much free."""
    free = Pool(cpu * UNIT, 0, {"lane": number % 3 * UNIT}, [UNIT] * gpus)
    return Node(total=free, free=free, number=number, hostname=f"host{number}")


def change(index: Index, one: Node, cpu: int, gpus: int) -> None:
    """Let other amounts be free."""
    one.free = node(one.number, cpu, gpus).free
    one.free.gpu_units += [0] * (4 - gpus)
    index.update(one)


LANE = Request(UNIT, 0, 0, (("lane", UNIT),))


@pytest.mark.parametrize("asked", [BOTH, Request(UNIT, UNIT // 2), LANE, Request(0, UNIT)])
@pytest.mark.parametrize("seed", range(4))
def test_the_nodes_with_room_stand_in_the_order_of_the_rarest_resource_and_then_of_their_moves(
    asked: Request, seed: int
) -> None:
    chance = random.Random(seed)
    index, nodes, moved = Index(), [node(number, 4, 4) for number in range(30)], dict[int, tuple[int, int]]()
    name = "lane" if asked.custom else "GPU"
    for turn in range(200):
        one = nodes[turn] if turn < len(nodes) else chance.choice(nodes)
        change(index, one, chance.choice([0, 0, 0, 1, 4]), chance.randrange(5))
        level = one.free.custom["lane"] if name == "lane" else sum(one.free.gpu_units)
        if moved.get(one.number, (-1, 0))[0] != level:
            moved[one.number] = level, turn
        some = chance.sample(nodes, 6)
        for able in (None, some):
            there = [one for one in (able or nodes) if one.number in moved and fits(asked, one.free)]
            expected = sorted(there, key=lambda one: (-moved[one.number][0], moved[one.number][1]))
            found = [one for one in index.candidates(asked, able) if fits(asked, one.free)]
            assert [one for one in found if one in (able or nodes)] == expected


def test_nodes_that_lack_the_resource_of_which_fewer_have_enough_are_not_looked_at() -> None:
    index, nodes = Index(), [node(number, 0, 4) for number in range(1000)]
    for one in nodes:
        index.update(one)
    assert list(index.candidates(BOTH)) == []
    change(index, nodes[7], 2, 1)
    assert list(index.candidates(BOTH)) == [nodes[7]]
    assert index.find(BOTH, None) is nodes[7]
    change(index, nodes[7], 2, 0)
    assert index.find(BOTH, None) is None


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_of_the_room_is_never_too_low_and_zero_where_one_resource_is_used_up(seed: int) -> None:
    chance = random.Random(seed)
    index, nodes = Index(), [node(number, 4, 4) for number in range(20)]
    for one in nodes:
        change(index, one, chance.randrange(5), chance.randrange(5))
    for most in (1, 3, 50):
        for each in (1, 2, most):
            there = sum(room(BOTH, one.free, each) for one in nodes)
            assert min(most, there) <= index.room(BOTH, most, each) <= most
    for one in nodes:
        change(index, one, 1, 4)
    assert index.room(BOTH, 1, 1) == 0
