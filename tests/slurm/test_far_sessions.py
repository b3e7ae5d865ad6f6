"""A session in an allocation, and programs on the login host, which reach it by srun."""

from __future__ import annotations

import time

from tests.slurm.cluster import Cluster

SCRIPT = """#!/bin/bash
mpi-runtime session start --name far -n 2 --num-cpus 2 && touch started && sleep 100
"""
APP = """
import os, time, numpy
import mpi_runtime as ray
ray.init("session:far", namespace="tests", quiet=True)
@ray.remote(scheduling_strategy="SPREAD")
def where(x):
    time.sleep(0.5)
    return os.uname().nodename, float(x.sum())
@ray.remote
class Runs:
    def __init__(self): self.n = 0
    def add(self): self.n += 1; return self.n
runs = Runs.options(name="runs", lifetime="detached", get_if_exists=True).remote()
found = ray.get([where.remote(ray.put(numpy.ones(2_000_000))) for _ in range(4)])
print(os.uname().nodename, len({host for host, _ in found}), {total for _, total in found}, ray.get(runs.add.remote()))
"""


def test_programs_on_the_login_host_use_the_nodes_of_an_allocation(slurm: Cluster) -> None:
    directory = slurm.directory()
    job = slurm.sbatch(SCRIPT, "-N2", "--exclusive", "--time=5", app=APP, cwd=directory)
    until = time.monotonic() + 60
    while not (directory / "started").exists():
        assert time.monotonic() < until, slurm.output(job)
        time.sleep(0.2)
    for number in (1, 2):
        done = slurm.run("python", "app.py", cwd=directory)
        assert done.stdout == f"login 2 {{2000000.0}} {number}\n", done.stderr
    slurm.run("scancel", job)
    slurm.wait(job)
    done = slurm.run("python", "app.py", cwd=directory, code=1)
    assert "ConnectionError" in done.stderr
