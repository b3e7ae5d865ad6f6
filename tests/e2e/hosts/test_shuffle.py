"""Many values to one call, and all to all, between hosts with little memory."""

from __future__ import annotations

import pytest

from tests.hosts.lab import Lab

pytestmark = [pytest.mark.mpi, pytest.mark.hosts, pytest.mark.timeout(240)]
RANKS = {f"host{number}": 1 for number in range(1, 5)}

MANY_TO_ONE = """
import numpy as np
import mpi_runtime as ray

COUNT, SIZE = 1000, 70_000  # more than what is sent in messages
ray.init(num_cpus=1)
HOSTS = [f"host{number}" for number in range(1, 5)]

def on(host):
    return dict(resources={f"node:{host}": 0.001}, num_cpus=0)

@ray.remote
def make(first):
    return tuple(np.full(SIZE, number % 251, np.uint8) for number in range(first, COUNT, len(HOSTS)))

@ray.remote
def check(*arrays):
    return [int(array[0]) for array in arrays] == [int(array[-1]) for array in arrays] == [
        number % 251 for number in range(COUNT)
    ]

parts = [make.options(**on(host), num_returns=COUNT // 4).remote(n) for n, host in enumerate(HOSTS)]
refs = [parts[number % 4][number // 4] for number in range(COUNT)]
assert ray.get(check.options(**on("host3")).remote(*refs))
assert [int(array[0]) for array in ray.get(refs)] == [number % 251 for number in range(COUNT)]
print("well")
"""

ALL_TO_ALL = """
import os
import numpy as np
import mpi_runtime as ray

MIB = 1 << 20
ARENA, BLOCK, PARTS = 48 * MIB, 4 * MIB, 12
ray.init(num_cpus=1, object_store_memory=ARENA, object_spilling_directory=os.path.dirname(__file__))

@ray.remote(scheduling_strategy="SPREAD", num_returns=PARTS)
def split(seed):
    values = np.random.default_rng(seed).integers(0, 1 << 40, BLOCK)  # 32 MiB
    kinds = values * PARTS >> 40
    return tuple(values[kinds == part] for part in range(PARTS))

@ray.remote(scheduling_strategy="SPREAD")
def merge(part, *pieces):
    hosts = os.uname().nodename
    values = np.concatenate(pieces)
    assert ((values * PARTS >> 40) == part).all()
    return hosts, len(values), int(values.sum())

rows = [split.remote(seed) for seed in range(PARTS)]
found = ray.get([merge.remote(part, *(row[part] for row in rows)) for part in range(PARTS)])
expected = sum(int(np.random.default_rng(seed).integers(0, 1 << 40, BLOCK).sum()) for seed in range(PARTS))
assert sum(total for _, _, total in found) == expected
assert sum(count for _, count, _ in found) == PARTS * BLOCK
nodes = ray.util.memory_summary()
assert len({host for host, _, _ in found}) == 4, found
assert all(node["capacity"] == ARENA for node in nodes), nodes
print(sum(node["used"] + node["on_disk"] for node in nodes) // MIB, "of", PARTS * BLOCK * 8 // MIB)
del rows
"""


def test_a_call_takes_a_thousand_values_of_all_hosts(four_hosts: Lab) -> None:
    with four_hosts.mpirun(MANY_TO_ONE, ranks=RANKS, mpi="mpich") as program:
        assert program.finish(timeout=200).expect().stdout == "well\n"


def test_all_to_all_with_more_than_fits_all_stores(four_hosts: Lab) -> None:
    """384 MiB, and four stores of 48 MiB: a part of it waits on disk."""
    with four_hosts.mpirun(ALL_TO_ALL, ranks=RANKS) as program:
        assert program.finish(timeout=200).expect().stdout.endswith("of 384\n")
