"""Commands with ranks on several nodes: in jobs that share a batch, and in a stream. Jobs with a range of nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import mpi_python, wait_until
from tests.slurm.cluster import Cluster

PROGRAM = """
import os, time
from mpi4py import MPI
hosts = MPI.COMM_WORLD.gather(os.uname().nodename)
if hosts:
    print(len(hosts), *sorted(set(hosts)), flush=True)
    while not os.path.exists("go"):
        time.sleep(0.1)
"""


def ranks_of(folder: Path) -> dict[str, str]:
    """The size of the world and the hosts of each run, by name."""
    return {path.stem: path.read_text().strip() for path in folder.glob("run*.out") if path.read_text().strip()}


@pytest.mark.timeout(240)
def test_jobs_of_two_nodes_share_runs_on_two_nodes_each(slurm: Cluster) -> None:
    """A run never spans jobs. Both have whole nodes, of which two CPUs are there."""
    folder = slurm.directory()
    (folder / "program.py").write_text(PROGRAM)
    line = f"{mpi_python('openmpi')} program.py #batch ranks=4 ranks_per_node=2 name=run{{}}\n"
    (folder / "jobs.txt").write_text("".join(line.format(number) for number in range(4)))
    words = ["--batch", "jobs.txt", "--max-jobs", "2", "-p", "main,fragile", "-N", "2", "--time=5"]
    jobs = slurm.run("mpi-runtime", "submit", *words, cwd=folder).stdout.split()
    output = folder / "batch-jobs"
    wait_until(lambda: len(ranks_of(output)) == 2, 90, "a run in each job")
    first, second = ({*text.split()[1:]} for text in ranks_of(output).values())
    assert len(first) == len(second) == 2
    assert not first & second
    (folder / "go").touch()
    for job in jobs:
        slurm.wait(job).expect()
    found = {text.split(" ", 1)[0]: None for text in ranks_of(output).values()}
    assert [*found] == ["4"]
    assert {tuple(text.split()[1:]) for text in ranks_of(output).values()} == {
        tuple(sorted(one)) for one in (first, second)
    }


def test_a_stream_runs_ranks_on_the_nodes_of_its_job(slurm: Cluster) -> None:
    folder = slurm.directory()
    (folder / "program.py").write_text(PROGRAM)
    (folder / "go").touch()
    line = f'{{"name": "run", "command": "{mpi_python("openmpi")} program.py", "ranks": 4, "ranks_per_node": 2}}'
    script = f"#!/bin/sh\necho '{line}' | mpi-runtime batch -n 2 - --directory out\n"
    job = slurm.sbatch(script, "-N2", "--cpus-per-task=2", "--ntasks-per-node=1", "--time=5", cwd=folder)
    assert "1 of 1 done" in slurm.wait(job).expect().stdout
    size, *hosts = ranks_of(folder / "out")["run"].split()
    assert size == "4"
    assert len(hosts) == 2


def test_a_job_with_a_range_of_nodes_uses_those_that_it_gets(slurm: Cluster) -> None:
    """The partition has three nodes, and another job has one of them."""
    folder = slurm.directory()
    blocking = slurm.sbatch("#!/bin/sh\nsleep 300\n", "-N1", "--exclusive", "--time=5", "-w", "n1")
    slurm.wait_until_running(blocking)
    line = "uname -n >> hosts; until [ $(sort -u hosts | wc -l) -gt 1 ]; do sleep 0.1; done #batch num_cpus=2\n"
    (folder / "jobs.txt").write_text(2 * line)
    words = ["submit", "--wait", "--batch", "jobs.txt", "-N", "1-3", "--cpus-per-node=2", "--time=2"]
    done = slurm.start("mpi-runtime", *words, cwd=folder).finish().expect(0)
    slurm.run("scancel", blocking)
    slurm.wait(blocking)
    assert "2 of 2 done" in done.output()
    assert {*(folder / "hosts").read_text().split()} == {"n2", "n3"}
