"""A list of many small values is had in a few round trips, from the same host and from another one."""

from __future__ import annotations

import json

import pytest

from tests.helpers import run_program
from tests.hosts.lab import Lab

pytestmark = pytest.mark.timeout(240)

COUNT = 1000
ROUNDS_MAX = 20
"""Values of more than 4 KiB are asked for 100 at a time: ten round trips, and some for what else is said meanwhile."""

SOURCE = (
    f"COUNT = {COUNT}"
    """
import json, sys
from itertools import pairwise
import numpy as np
import mpi_runtime as ray
from mpi_runtime.core.client.incoming import Arrivals
from mpi_runtime.core.client.outbox import Outbox

ray.init(num_cpus=2)
hosts = [node["NodeManagerHostname"] for node in ray.nodes() if node["Resources"].get("CPU")]

def on(host):
    return dict(resources={f"node:{host}": 0.001}, num_cpus=0)

def rounds(refs, one_by_one=False):
    '''How often a frame was sent and then one was read, until all values were here.'''
    frames, send, take = [], Outbox._send, Arrivals.take

    def sends(self, frame, count):
        frames.append("sent")
        return send(self, frame, count)

    def takes(self, messages):
        frames.append("read")
        return take(self, messages)

    Outbox._send, Arrivals.take = sends, takes
    try:
        arrays = [ray.get(ref) for ref in refs] if one_by_one else ray.get(refs)
    finally:
        Outbox._send, Arrivals.take = send, take
    assert [int(array[-1]) for array in arrays] == list(range(COUNT))
    return sum(pair == ("sent", "read") for pair in pairwise(frames))

@ray.remote
def make(size):
    return tuple(np.full(size // 8, number) for number in range(COUNT))

@ray.remote
def read(refs, one_by_one):
    return rounds(refs, one_by_one)

def made(size, host):
    refs = make.options(num_returns=COUNT, **on(host)).remote(size)
    ray.wait(refs, num_returns=COUNT)
    return refs

found = {}
for size in (1000, 10_000):
    found[f"put here, {size}"] = rounds([ray.put(np.full(size // 8, number)) for number in range(COUNT)])
    for host in dict.fromkeys((hosts[0], hosts[-1])):
        found[f"made on {host}, {size}"] = rounds(made(size, host))
        found[f"read on {host}, {size}"] = ray.get(read.options(**on(host)).remote([*made(size, hosts[0])], False))
found["one by one"] = ray.get(read.options(**on(hosts[-1])).remote([*made(1000, hosts[0])], True))
print(json.dumps(found))
"""
)


def judge(output: str, hosts: int) -> None:
    found: dict[str, int] = json.loads(output)
    assert found.pop("one by one") >= COUNT, found  # or round trips are not counted
    assert len(found) == 2 + 4 * hosts
    assert {name: rounds for name, rounds in found.items() if rounds > ROUNDS_MAX} == {}
    assert {
        name for name, rounds in found.items() if name.endswith(", 1000") and "read" not in name and rounds
    } == set()


@pytest.mark.parametrize("ranks", [None, pytest.param(3, marks=pytest.mark.mpi)])
def test_a_thousand_values_on_one_host(ranks: int | None) -> None:
    judge(run_program(SOURCE, ranks=ranks).expect().stdout, hosts=1)


@pytest.mark.mpi
@pytest.mark.hosts
def test_a_thousand_values_of_another_host(two_hosts: Lab) -> None:
    with two_hosts.mpirun(SOURCE, ranks={"host1": 1, "host2": 1}) as program:
        judge(program.finish(timeout=120).expect().stdout, hosts=2)
