"""Jobs with a journal whose work takes several times their time end, on real Slurm, with the result of one long run."""

import re

import pytest

from tests.helpers import wait_until
from tests.slurm.cluster import Cluster
from tests.slurm.test_signals import submit

APP = """
import sys, time
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

STEPS = int(sys.argv[1])
total = Sum.remote()
parts = [part.options(num_cpus=0.1).remote(x) for x in range(20)]
counts = [total.add.remote(x) for x in range(STEPS)]
assert ray.get(counts) == list(range(1, STEPS + 1))
assert ray.get(total.all.remote()) == list(range(STEPS))
print("right", sum(ray.get(parts)), flush=True)
"""


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

print("right", sum(ray.get([part.remote(x) for x in range(70)])), flush=True)
"""


@pytest.mark.dies("time")
@pytest.mark.timeout(600)
def test_jobs_of_several_times_their_time_end_with_the_result_of_one_run(slurm: Cluster) -> None:
    """Two jobs side by side, whose time is a minute, the least that Slurm has."""
    jobs = (
        submit(slurm, APP, "64", options=("--time=1",)),
        submit(slurm, SHORT, options=("--time=1", "--cpus-per-node=1", "--requeue")),
    )
    for job in jobs:
        wait_until(lambda job=job: "right" in slurm.output(job), 540, f"the last life of job {job}")  # type: ignore[misc]
    said = [slurm.wait(job).expect().stdout for job in jobs]
    it_has_three_lives_and_saves_its_state_in_each(said[0])
    it_is_ended_in_its_second_half(said[1])


def it_has_three_lives_and_saves_its_state_in_each(said: str) -> None:
    """64 calls of a second each, one after the other, and half a minute for each life.

    All of them are sent ahead to the actor, and its state is saved at the end of each life alone.
    """
    assert "right 190\n" in said
    assert "have not saved their states" not in said
    lives = re.findall(r"^life (\d+)$", said, re.MULTILINE)
    loaded = [int(count) for count in re.findall(r" loaded (\d+)$", said, re.MULTILINE)]
    print(f"{len(lives)} lives, begun with {loaded} steps: {said}")
    assert len(lives) >= 3
    assert len(loaded) == len(lives) - 1
    assert loaded == sorted(set(loaded)), "each life has come further"


def it_is_ended_in_its_second_half(said: str) -> None:
    """`requeue_before_s` is a minute by default: the whole job. The job is ended in its second half instead."""
    assert "right 2415\n" in said
    assert "is not requeued" not in said
    assert "-0 s" not in said
    assert re.findall(r"^life (\d+)$", said, re.MULTILINE)[:2] == ["0", "1"]
