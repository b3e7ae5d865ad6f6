"""Stacks of calls on another host than the one where the user sits."""

from __future__ import annotations

import sys

import pytest

from tests.helpers import ROOT, start_command
from tests.hosts.lab import Lab

pytestmark = [pytest.mark.mpi, pytest.mark.hosts, pytest.mark.timeout(180)]

PROGRAM = """
import os, sys, time
import mpi_runtime as ray

ray.init(num_cpus=1)

@ray.remote
def turns_in_circles(gate):
    while not os.path.exists(gate):
        time.sleep(0.02)
    return os.uname().nodename

ref = turns_in_circles.options(resources={"node:host2": 0.001}).remote(sys.argv[1])
while not any(one.state == "RUNNING" for one in ray.util.state.list_tasks()):
    time.sleep(0.05)
print("up", flush=True)
print(ray.get(ref), flush=True)
"""


def test_a_call_on_another_host(two_hosts: Lab) -> None:
    gate = two_hosts.place / "gate"
    with two_hosts.mpirun(PROGRAM, str(gate), ranks={"host1": 1, "host2": 1}) as program:
        program.wait_for_line("up")
        words = [*two_hosts.enter("host1"), sys.executable, "-m", "mpi_runtime", "stack"]
        with start_command(words, env={"PYTHONPATH": str(ROOT)}) as asking:
            said = asking.finish(timeout=60).expect(0).stdout
        gate.touch()
        assert program.finish(timeout=60).expect().stdout.splitlines()[-1] == "host2"
    assert "rank 1 on host2, pid" in said
    assert "turns_in_circles (" in said, said
