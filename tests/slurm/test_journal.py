"""A job with a journal whose work takes several times its time ends, on real Slurm, with the result of one long run."""

import re
from pathlib import Path

import pytest

from tests.helpers import wait_until
from tests.slurm.cluster import Cluster
from tests.slurm.test_signals import submit

APP = """
import time
import mpi_runtime as ray
from mpi_runtime import slurm

ray.init(journal="journal", requeue=True, requeue_before_s=30)
print("life", slurm.allocation().restarts, flush=True)

@ray.remote
def part(x):
    time.sleep(1)
    return x

@ray.remote(checkpoint_s=1000)
class Sum:
    def __init__(self):
        self.steps = []
    def add(self, x):
        time.sleep(1)
        self.steps.append(x)
        return len(self.steps)
    def all(self):
        return self.steps
    def save_state(self):
        return self.steps
    def load_state(self, steps):
        print("loaded", len(steps), flush=True)
        self.steps = steps

total = Sum.remote()
parts = [part.options(num_cpus=0.1).remote(x) for x in range(20)]
counts = [total.add.remote(x) for x in range(60)]
assert ray.get(counts) == list(range(1, 61))
assert ray.get(total.all.remote()) == list(range(60))
print("right", sum(ray.get(parts)), flush=True)
"""


@pytest.mark.dies("time")
@pytest.mark.timeout(600)
def test_a_job_of_several_times_its_time_ends_with_the_result_of_one_run(slurm: Cluster) -> None:
    """60 calls of a second each, one after the other, and half a minute of time: no state is saved but at the end."""
    job = submit(slurm, APP, options=("--time=1",))
    output = Path(slurm.facts(job)["StdOut"])
    wait_until(lambda: output.exists() and "right" in output.read_text(), 500, f"the last life of job {job}")
    ended = slurm.wait(job).expect()
    assert "right 190\n" in ended.stdout
    assert len(set(re.findall(r"life (\d)", ended.stdout))) >= 3
    loaded = [int(count) for count in re.findall(r"loaded (\d+)", ended.stdout)]
    assert loaded
    assert loaded == sorted(loaded)
