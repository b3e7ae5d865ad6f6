"""Jobs that Slurm confines to their CPUs and their memory by control groups, as most sites have it."""

from __future__ import annotations

import json
import os
from functools import partial

import pytest

from mpi_runtime.config import MEMORY_USAGE_THRESHOLD
from tests.slurm.cluster import MEET, Cluster, cluster

# What a task finds on each node, without a look at what Slurm's variables say; and what becomes of one that takes more.
APP = """
import json, os, sys, time
import mpi_runtime as ray

ray.init()
meet(*sys.argv[2:])

@ray.remote(num_cpus=0)
def see():
    from mpi_runtime.core.host import machine

    return sorted(os.sched_getaffinity(0)), machine.cpu_count({}), machine.memory_limit({}) >> 20

@ray.remote(max_retries=0)
def take(size, seconds=0):
    taken = b"x" * size
    time.sleep(seconds)
    return len(taken)

names = sorted(node["NodeManagerHostname"] for node in ray.nodes())
seen = {name: ray.get(see.options(resources={f"node:{name}": 0.01}).remote()) for name in names}
try:
    taken = ray.get(take.remote(int(sys.argv[1]) << 20, 60))
except ray.errors.OutOfMemoryError as error:
    taken = str(error)
total = ray.cluster_resources()
print(json.dumps({
    "seen": seen, "taken": taken, "after": ray.get(take.remote(1)), "CPU": total["CPU"], "memory": total["memory"],
}), flush=True)
"""


# Our own watcher is off, so the kernel ends what takes more than the job has; or it ends what takes much of it.
BY_KERNEL, BY_WATCHER = "0", "0.6"


def submit(slurm: Cluster, *options: str, threshold: str, take: int, files: list[str]) -> str:
    directory = slurm.directory()
    (directory / "app.py").write_text(MEET + APP)
    command = ["mpi-runtime", "submit", "--time=5", *options, "app.py", str(take), *files]
    return slurm.run(*command, cwd=directory, env={MEMORY_USAGE_THRESHOLD: threshold}).stdout.strip()


def test_jobs_see_and_get_what_they_were_given() -> None:
    if (os.cpu_count() or 1) < 2:
        pytest.skip("two jobs that share a node take two CPUs")
    with cluster(confined=True) as slurm:
        place = slurm.directory()
        files = [str(place / "first"), str(place / "second")]
        kernel = partial(submit, slurm, "--cpus-per-node=1", "--sbatch=--nodelist=n1", threshold=BY_KERNEL, take=600)
        jobs = {
            300: kernel("--memory=300M", files=files),
            200: kernel("--memory=200M", files=files[::-1]),
            400: submit(
                slurm,
                *("-N2", "--cpus-per-node=2", "--memory=400M", "--sbatch=--nodelist=n[2-3]"),
                threshold=BY_WATCHER,
                take=250,
                files=[files[0]] * 2,
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
    for found in (one, other):
        assert "was killed by signal 9" in found["taken"], "a task that takes more than the job has"
    assert "is nearly used up" in both["taken"], "a task that takes more than the threshold, and less than the job has"
    assert [found["after"] for found in said.values()] == [1, 1, 1], "the others live"
    states = [job.state for job in ended.values()]
    assert states == ["OUT_OF_MEMORY", "OUT_OF_MEMORY", "COMPLETED"], "as Slurm calls it where the kernel ended one"
