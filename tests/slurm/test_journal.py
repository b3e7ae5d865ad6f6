"""Jobs with a journal whose work takes several lives end, on real Slurm, with the result of one long run."""

import re
from pathlib import Path

import pytest

from tests.helpers import wait_until
from tests.slurm.cluster import Cluster
from tests.slurm.test_signals import submit

APP = """
import pathlib, time
import mpi_runtime as ray
from mpi_runtime import slurm

ray.init(journal="journal", requeue=True)
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
        time.sleep(0.05 if pathlib.Path("last").exists() else 1)
        self.steps.append(x)
        print("a step", flush=True)
        return len(self.steps)
    def all(self):
        return self.steps
    def save_state(self):
        return self.steps
    def load_state(self, steps):
        print("loaded", len(steps), flush=True)
        self.steps = steps

STEPS = 60
total = Sum.remote()
parts = [part.options(num_cpus=0.1).remote(x) for x in range(20)]
counts = [total.add.remote(x) for x in range(STEPS)]
assert ray.get(counts) == list(range(1, STEPS + 1))
assert ray.get(total.all.remote()) == list(range(STEPS))
print("right", sum(ray.get(parts)), flush=True)
"""


@pytest.mark.dies("time")
@pytest.mark.timeout(600)
def test_jobs_of_several_lives_end_with_the_result_of_one_run(slurm: Cluster) -> None:
    """Two jobs side by side. Signals announce the end of one. The time of the other is a minute, the least of Slurm."""
    announced = submit(slurm, APP, options=("--time=10",))
    timed = submit(slurm, APP, options=("--time=1", "--cpus-per-node=1", "--requeue"))
    for life in ("life 0", " loaded "):
        wait_until(lambda life=life: has_come_further(slurm, announced, life), 300, f"a step after {life}")  # type: ignore[misc]
        slurm.run("scancel", "--batch", "--signal=USR1", announced)
    hurry(slurm, announced)
    wait_until(lambda: has_come_further(slurm, timed, " loaded "), 300, "the second life of the other")
    hurry(slurm, timed)
    said = [slurm.wait(job, 300).expect().stdout for job in (announced, timed)]
    it_has_lives_and_saves_its_state_in_each(said[0], 3)
    it_has_lives_and_saves_its_state_in_each(said[1], 2)
    it_is_ended_in_its_second_half(said[1])


def has_come_further(slurm: Cluster, job: str, begin: str) -> bool:
    """Whether it has made a step after it has written this."""
    return "a step" in slurm.output(job).partition(begin)[2]


def hurry(slurm: Cluster, job: str) -> None:
    """Make this life the last one: further steps are quick."""
    Path(slurm.facts(job)["WorkDir"], "last").touch()


def it_has_lives_and_saves_its_state_in_each(said: str, count: int) -> None:
    """60 calls of a second each, one after the other.

    All of them are sent ahead to the actor, and its state is saved at the end of each life alone.
    """
    assert "right 190\n" in said
    assert "have not saved their states" not in said
    lives = re.findall(r"^life (\d+)$", said, re.MULTILINE)
    loaded = [int(count) for count in re.findall(r" loaded (\d+)$", said, re.MULTILINE)]
    print(f"{len(lives)} lives, begun with {loaded} steps: {said}")
    assert lives[:count] == [str(number) for number in range(count)]
    assert len(loaded) == len(lives) - 1
    assert loaded == sorted(set(loaded)), "each life has come further"


def it_is_ended_in_its_second_half(said: str) -> None:
    """`requeue_before_s` is a minute by default: the whole job. The job is ended in its second half instead."""
    assert "is not requeued" not in said
    assert "-0 s" not in said
    assert int(re.findall(r" loaded (\d+)$", said, re.MULTILINE)[0]) > 5, "not at once"
