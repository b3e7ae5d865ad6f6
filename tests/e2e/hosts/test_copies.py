"""One value to many hosts: each passes on what it gets, so that none sends much more than the value."""

from __future__ import annotations

import pytest

from tests.hosts.lab import Lab

pytestmark = [pytest.mark.mpi, pytest.mark.hosts, pytest.mark.timeout(240)]

HOSTS = 4
SIZE = 48 << 20

SOURCE = f"""
import os, time
import numpy as np
import mpi_runtime as ray

ray.init(num_cpus=1)
HOSTS = [f"host{{number}}" for number in range(1, {HOSTS} + 1)]

def on(host):
    return dict(resources={{f"node:{{host}}": 0.001}}, num_cpus=0)

@ray.remote
def make(seed):
    return np.random.default_rng(seed).integers(0, 255, {SIZE}, dtype=np.uint8)

@ray.remote
def sent():
    with open("/proc/net/dev") as lines:
        return sum(int(line.split(":")[1].split()[8]) for line in lines if ":" in line and " lo:" not in line)

@ray.remote
def check(seed, array):
    assert np.array_equal(array, np.random.default_rng(seed).integers(0, 255, {SIZE}, dtype=np.uint8))
    return os.uname().nodename

def count():
    return ray.get([sent.options(**on(host)).remote() for host in HOSTS])

def most_after(action):
    before = count()
    action()
    return max(after - first for after, first in zip(count(), before)) / {SIZE}

def as_arguments():
    value = make.options(**on("host2")).remote(1)
    assert sorted(ray.get([check.options(**on(host)).remote(1, value) for host in HOSTS])) == HOSTS

def ahead():
    value = make.options(**on("host3")).remote(2)
    ray.util.broadcast(value)  # it is not there yet
    deadline = time.monotonic() + 120
    while True:
        nodes = ray.util.memory_summary()
        if all(node["used"] >= {SIZE} and not node["in_flight"] for node in nodes):
            break
        assert time.monotonic() < deadline, nodes
        time.sleep(0.05)
    assert most_after(lambda: ray.get([check.options(**on(host)).remote(2, value) for host in HOSTS])) < 0.2

print(round(most_after(as_arguments), 2), flush=True)
events = ray.timeline()
names = {{event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}}
found = [event for event in events if event["name"] == "copy" and event["args"]["bytes"] >= {SIZE}]
assert sorted(names[event["pid"]] for event in found) == ["Node host1", "Node host3", "Node host4"], found
assert all(event["dur"] > 0 and event["args"]["source"] in HOSTS for event in found), found
print(round(most_after(ahead), 2), flush=True)
"""


def test_one_value_to_many_hosts(four_hosts: Lab) -> None:
    with four_hosts.mpirun(SOURCE, ranks={f"host{number}": 1 for number in range(1, HOSTS + 1)}) as program:
        most = [float(line) for line in program.finish(timeout=200).expect().stdout.split()]
    assert len(most) == 2
    assert all(0.9 < one < 1.6 for one in most), most  # one source for all would have sent it three times


OVER_2_GIB = """
import numpy as np
import mpi_runtime as ray

SIZE = (2 << 30) + (150 << 20) + 12_345
STEP = 1_000_003  # of the places that are written: all others are zero, and cost no memory
ray.init(num_cpus=1, object_store_memory=SIZE + (200 << 20))

@ray.remote(resources={"node:host1": 0.001})
def make():
    array = np.zeros(SIZE, np.uint8)
    array[::STEP] = np.arange(len(array[::STEP])) % 251 + 1
    return array

@ray.remote(resources={"node:host2": 0.001})
def check(array):
    assert array.shape == (SIZE,)
    expected = np.arange(len(array[::STEP])) % 251 + 1
    assert np.array_equal(array[::STEP], expected)
    return int(np.count_nonzero(array)) - len(expected)

print(ray.get(check.remote(make.remote())))
"""


@pytest.mark.slow
def test_a_value_of_more_than_2_gib(four_hosts: Lab) -> None:
    """No count of bytes on the way is one of 32 bits."""
    with four_hosts.mpirun(OVER_2_GIB, ranks={"host1": 1, "host2": 1}) as program:
        assert program.finish(timeout=220).expect().stdout == "0\n"
