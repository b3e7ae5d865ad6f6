"""A large batch with four kinds of resources on a thousand virtual nodes, through the scheduler of real jobs."""

import random
from collections.abc import Iterator

import pytest

from mpi_runtime.batch.extend import Asked
from mpi_runtime.whatif.virtual_cluster import Ran, Shape, VirtualCluster, Work, asked

KINDS = ("CPUs", "GPUs", "memory", "licences")
NODES = [
    Shape(64, 4 if number % 2 else 0, 256 << 30, (("licence", 2.0),) if number % 10 == 0 else ())
    for number in range(1000)
]


def some_works(count: int) -> list[Work]:
    """Of each kind of resource a quarter; CPUs for all."""
    chance = random.Random(1)
    works = []
    for number in range(count):
        kind = KINDS[number % 4]
        shape = Shape(
            chance.choice((1, 4, 16, 64)),
            chance.choice((0.25, 0.5, 1, 2, 4)) if kind == "GPUs" else 0,
            chance.choice((8, 32, 128)) << 30 if kind == "memory" else 0,
            (("licence", 1.0),) if kind == "licences" else (),
        )
        duration_us = chance.randrange(1, 60) * 1_000_000
        works.append(Work(kind, asked(shape, 60_000_000, chance.randrange(2)), duration_us))
    return works


def amounts(one: Shape | Asked) -> tuple[float, ...]:
    if isinstance(one, Shape):
        return one.cpus, one.gpus, one.memory, dict(one.resources).get("licence", 0.0)
    return one.num_cpus, one.num_gpus, one.memory, one.resources.get("licence", 0.0)


def most_on_a_node(ran: list[Ran]) -> Iterator[tuple[int, tuple[float, ...]]]:
    """For each node and moment at which something begins: what its calls have together."""
    changes: dict[int, list[tuple[int, int, tuple[float, ...]]]] = {}
    for one in ran:
        had = amounts(one.work.asked)
        changes.setdefault(one.node, []).append((one.start_us, 1, had))
        changes[one.node].append((one.end_us, 0, tuple(-amount for amount in had)))
    for node, steps in changes.items():
        held = (0.0,) * len(KINDS)
        for _, _, step in sorted(steps):  # what ends at a moment goes before what begins then
            held = tuple(have + more for have, more in zip(held, step, strict=True))
            yield node, held


@pytest.mark.timeout(240)
def test_four_kinds_of_resources_on_a_thousand_nodes() -> None:
    works = some_works(1200)
    cluster = VirtualCluster(NODES)
    cluster.submit(works)
    ran = cluster.run()
    assert sorted((one.work for one in ran), key=repr) == sorted(works, key=repr), "each has run once"
    for node, held in most_on_a_node(ran):
        whole = amounts(NODES[node])
        assert all(have <= most + 1e-6 for have, most in zip(held, whole, strict=True)), (node, held, whole)
    in_all = [sum(column) for column in zip(*map(amounts, NODES), strict=True)]
    needed = [0.0] * len(KINDS)
    for work in works:
        needed = [sum_ + one * work.duration_us for sum_, one in zip(needed, amounts(work.asked), strict=True)]
    bounds_us = [need / most for need, most in zip(needed, in_all, strict=True)]
    longest_us = max(work.duration_us for work in works)
    least_us = max(*bounds_us, longest_us)
    assert KINDS[bounds_us.index(max(bounds_us))] == "licences"
    assert least_us <= max(one.end_us for one in ran) <= 1.1 * least_us + longest_us
    urgent, other = (
        [one.start_us for one in ran if one.work.asked.priority == level and one.work.name == "licences"]
        for level in (1, 0)
    )
    assert sum(urgent) / len(urgent) < sum(other) / len(other)
