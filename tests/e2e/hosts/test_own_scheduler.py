"""Calls that bring their own scheduler on three hosts: one on each, and the head outside has only them."""

from __future__ import annotations

import pytest

from tests.hosts.lab import lab, missing

pytestmark = [pytest.mark.mpi, pytest.mark.hosts, pytest.mark.timeout(180)]
PROGRAM = """
import os, socket, time
import numpy as np
import mpi_runtime as ray
from mpi_runtime.core.head import inspecting
from mpi_runtime.scheduler.protocol.window_questions import Glance

@ray.remote
def inner(x):
    return socket.gethostname(), x[0]

@ray.remote(num_cpus=2, own_scheduler=True)
def outer(x, calls):
    start = time.monotonic()
    found = ray.get([inner.remote(x) for _ in range(calls)])
    assert {host for host, _ in found} == {socket.gethostname()}
    return socket.gethostname(), calls / (time.monotonic() - start), x + found[-1][1]

ray.init(num_cpus=2)
before = inspecting.ask(os.getpid(), Glance()).counts.ran
x = ray.put(np.ones(200_000))
for calls in (10, 300):
    refs = [outer.remote(x, calls) for _ in range(3)]
    found = ray.get(refs)
    assert sorted(host for host, *_ in found) == ["host1", "host2", "host3"], found
    assert all(value.sum() == 400_000 for *_, value in found)
assert inspecting.ask(os.getpid(), Glance()).counts.ran == before + 6
print("rates", *(round(rate) for _, rate, _ in found))
"""


def test_one_on_each_host() -> None:
    if reason := missing():
        pytest.skip(reason)
    with lab(3) as hosts, hosts.mpirun(PROGRAM, ranks={"host1": 1, "host2": 1, "host3": 1}) as program:
        completed = program.finish().expect(0)
        assert completed.stdout.startswith("rates "), completed.output()
        print(completed.stdout)
