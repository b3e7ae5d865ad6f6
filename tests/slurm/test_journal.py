"""A job with a journal whose work takes several times its time ends, on real Slurm, with the result of one long run."""

import re

import pytest

from tests.helpers import wait_until
from tests.slurm.cluster import Cluster
from tests.slurm.test_signals import submit

APP = """
import sys, time
import mpi_runtime as ray
from mpi_runtime import slurm

ray.init(journal="journal", requeue=True, requeue_before_s=25)
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

STEPS = int(sys.argv[1])
total = Sum.remote()
parts = [part.options(num_cpus=0.1).remote(x) for x in range(20)]
counts = [total.add.remote(x) for x in range(STEPS)]
assert ray.get(counts) == list(range(1, STEPS + 1))
assert ray.get(total.all.remote()) == list(range(STEPS))
print("right", sum(ray.get(parts)), flush=True)
"""


@pytest.mark.dies("time")
@pytest.mark.timeout(600)
def test_a_job_of_several_times_its_time_ends_with_the_result_of_one_run(slurm: Cluster) -> None:
    """80 calls of a second each, one after the other, and 35 seconds for each life.

    All of them are sent ahead to the actor, and its state is saved at the end of each life alone.
    """
    job = submit(slurm, APP, "80", options=("--time=1",))
    wait_until(lambda: "right" in slurm.output(job), 540, f"the last life of job {job}")
    ended = slurm.wait(job).expect()
    assert "right 190\n" in ended.stdout
    assert "have not saved their states" not in ended.stdout
    lives = re.findall(r"^life (\d+)$", ended.stdout, re.MULTILINE)
    loaded = [int(count) for count in re.findall(r" loaded (\d+)$", ended.stdout, re.MULTILINE)]
    print(f"{len(lives)} lives, begun with {loaded} steps: {ended.stdout}")
    assert len(lives) >= 3
    assert len(loaded) == len(lives) - 1
    assert loaded == sorted(set(loaded)), "each life has come further"


SHORT = """
import time
import mpi_runtime as ray
from mpi_runtime import slurm

ray.init(journal="journal", requeue=True)
print("life", slurm.allocation().restarts, flush=True)

@ray.remote
def part(x):
    time.sleep(1)
    return x

print("right", sum(ray.get([part.remote(x) for x in range(100)])), flush=True)
"""


@pytest.mark.dies("time")
@pytest.mark.timeout(400)
def test_a_job_of_one_minute_is_requeued_and_ends(slurm: Cluster) -> None:
    """`requeue_before_s` is a minute by default: the whole job. The job is ended in its second half instead."""
    job = submit(slurm, SHORT, options=("--time=1", "--cpus-per-node=1", "--requeue"))
    wait_until(lambda: "right" in slurm.output(job), 360, f"the last life of job {job}")
    ended = slurm.wait(job).expect()
    assert "right 4950\n" in ended.stdout
    assert "is not requeued" not in ended.stdout
    assert "-0 s" not in ended.stdout
    assert re.findall(r"^life (\d+)$", ended.stdout, re.MULTILINE)[:2] == ["0", "1"]
