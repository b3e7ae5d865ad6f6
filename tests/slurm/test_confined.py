"""Jobs that Slurm confines to their CPUs and their memory by control groups, as most sites have it."""

from __future__ import annotations

import json
import os

import pytest

from tests.slurm.cluster import MEET, Cluster, cluster

# What a task finds on each node, without a look at what Slurm's variables say; and what becomes of one that takes more.
APP = """
import json, os, sys
import mpi_runtime as ray

ray.init()
meet(*sys.argv[1:])

@ray.remote(num_cpus=0)
def see():
    from mpi_runtime.host import machine

    return sorted(os.sched_getaffinity(0)), machine.cpu_count({}), machine.memory_limit({}) >> 20

@ray.remote(max_retries=0)
def take(size):
    return len(b"x" * size)

names = sorted(node["NodeManagerHostname"] for node in ray.nodes())
seen = {name: ray.get(see.options(resources={f"node:{name}": 0.01}).remote()) for name in names}
try:
    taken = ray.get(take.remote(600 << 20))
except ray.errors.OutOfMemoryError as error:
    taken = str(error)
total = ray.cluster_resources()
print(json.dumps({
    "seen": seen, "taken": taken, "after": ray.get(take.remote(1)), "CPU": total["CPU"], "memory": total["memory"],
}), flush=True)
"""


def submit(slurm: Cluster, *options: str, files: list[str]) -> str:
    directory = slurm.directory()
    (directory / "app.py").write_text(MEET + APP)
    command = ["mpi-runtime", "submit", "--time=5", *options, "app.py", *files]
    return slurm.run(*command, cwd=directory).stdout.strip()


def test_jobs_see_and_get_what_they_were_given() -> None:
    if (os.cpu_count() or 1) < 2:
        pytest.skip("two jobs that share a node take two CPUs")
    with cluster(confined=True) as slurm:
        place = slurm.directory()
        files = [str(place / "first"), str(place / "second")]
        share = ("--cpus-per-node=1", "--sbatch=--nodelist=n1")
        jobs = {
            300: submit(slurm, *share, "--memory=300M", files=files),
            200: submit(slurm, *share, "--memory=200M", files=files[::-1]),
            400: submit(
                slurm, "-N2", "--cpus-per-node=2", "--memory=400M", "--sbatch=--nodelist=n[2-3]", files=[files[0]] * 2
            ),
        }
        ended = {memory: slurm.wait(job) for memory, job in jobs.items()}
    said = {}
    for memory, job in ended.items():
        lines = [line for line in job.stdout.splitlines() if line.startswith("{")]
        assert lines, f"the job with {memory} MB: {job.state}\n{job.stdout}"
        said[memory] = json.loads(lines[0])
    one, other, both = said[300], said[200], said[400]
    assert (one["seen"]["n1"][1:], other["seen"]["n1"][1:]) == ([1, 300], [1, 200])
    assert one["seen"]["n1"][0] != other["seen"]["n1"][0], "each has a CPU of its own"
    assert [len(cpus) for cpus, *_ in both["seen"].values()] == [2, 2]
    assert [rest for _, *rest in both["seen"].values()] == [[2, 400], [2, 400]]
    assert sorted(both["seen"]) == ["n2", "n3"]
    assert [found["CPU"] for found in said.values()] == [1, 1, 4]
    assert [found["memory"] for found in said.values()] == [300 << 20, 200 << 20, 800 << 20]
    for memory, found in said.items():
        # The kernel ends the task that takes more than the job has, which Slurm tells, or the agent; or both do.
        by_kernel = "was killed by signal 9" in found["taken"]
        assert by_kernel or "was ended because the memory of n" in found["taken"], found["taken"]
        assert found["after"] == 1, "the others live"
        assert ended[memory].state == "OUT_OF_MEMORY" or (ended[memory].state == "COMPLETED" and not by_kernel)
