"""A session in an allocation, and programs on the login host, which reach it by srun."""

from __future__ import annotations

import time

import pytest

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


CELLS = [
    """
import os, signal, time, numpy
import mpi_runtime as ray
ray.init("session:notes", namespace="notes", quiet=True)

@ray.remote
class Part:
    "What stays: a part of the data, on each node."
    def __init__(self, number): self.number, self.reads, self.data = number, 0, numpy.full(500_000, number)
    def read(self):
        self.reads += 1
        return os.uname().nodename, self.reads, self.data

@ray.remote(num_cpus=2)
def total(array, file):
    with open(file, "a") as out:
        out.write(os.uname().nodename + "\\n")
    while len(open(file).readlines()) < 4:  # no node is free for a second one
        time.sleep(0.05)
    return os.uname().nodename, float(array.sum())
""",
    """
names = sorted(node["NodeManagerHostname"] for node in ray.nodes())
parts = [
    Part.options(
        name=name, lifetime="detached", get_if_exists=True, num_cpus=0, resources={"node:" + name: 0.01}
    ).remote(number)
    for number, name in enumerate(names)
]
read = ray.get([part.read.remote() for part in parts])
print(os.uname().nodename, [(where == name, reads) for name, (where, reads, _) in zip(names, read)])
""",
    """
if not os.path.exists("restarted"):
    open("restarted", "w").close()
    stay = ray.remote(num_cpus=2)(lambda: (open(f"began.{os.uname().nodename}", "w").close(), time.sleep(1000)))
    refs = [stay.remote() for _ in names]  # they hold the nodes
    import glob
    while len(glob.glob("began.*")) < len(names):
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)
""",
    """
found = ray.get([total.options(scheduling_strategy="SPREAD").remote(array, "ran") for _, _, array in read])
print(len({where for where, _ in found}), [total for _, total in found])
""",
]


def test_a_notebook_on_the_login_host_is_restarted_and_finds_what_it_left_on_four_nodes(slurm: Cluster) -> None:
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("nbconvert")
    pytest.importorskip("ipykernel")
    directory = slurm.directory()
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell.strip()) for cell in CELLS])
    nbformat.write(notebook, str(directory / "study.ipynb"))
    start = ["mpi-runtime", "session", "start", "--name", "notes", "--num-cpus=2"]
    slurm.run(*start, "-N4", "--partition=fragile", "--time=5", cwd=directory)
    execute = ["python", "-m", "jupyter", "nbconvert", "--to", "notebook", "--execute", "study.ipynb"]
    killed = slurm.run(*execute, "--output=first.ipynb", cwd=directory, code=1)
    assert "Kernel died" in killed.stderr
    slurm.run(*execute, "--output=second.ipynb", cwd=directory)
    cells = nbformat.read(str(directory / "second.ipynb"), as_version=4).cells
    assert [one.text for cell in cells for one in cell.outputs if one.output_type == "stream"] == [
        f"login {[(True, 2)] * 4}\n",
        "4 [0.0, 500000.0, 1000000.0, 1500000.0]\n",
    ]
    assert sorted((directory / "ran").read_text().split()) == ["n3", "n4", "n5", "n6"]
    slurm.run("mpi-runtime", "session", "stop", "notes", cwd=directory)
    assert not slurm.run("squeue", "-h").stdout
