"""`rl train` in jobs of a real Slurm: the end of the time, a requeue, and `srun`. Needs root, as `tests/slurm`."""

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("gymnasium")

from tests.helpers import start_command, wait_until
from tests.slurm.cluster import Cluster, cluster

POLES = """
import pathlib, time
import gymnasium

class Pole(gymnasium.Wrapper):
    "CartPole, which is slow until there is a file `free`."
    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))
    def reset(self, **more):
        if not pathlib.Path("free").exists():
            time.sleep(0.2)
        return super().reset(**more)
"""
TRAIN = ["rl", "train", "--run", "ES", "--env", "poles:Pole", "--num-samplers", "2", "--local-dir", "results"]
SMALL = ["--config", '{"noise_size": 10000, "population": 4}']


@pytest.fixture(scope="module")
def slurm() -> Iterator[Cluster]:
    with cluster() as running:
        yield running


@pytest.mark.timeout(240)
def test_a_training_continues_in_the_next_life_of_its_job(slurm: Cluster) -> None:
    folder = slurm.directory()
    (folder / "poles.py").write_text(POLES)
    stop = ["--stop", '{"training_iteration": 30}', *SMALL, "--requeue"]
    words = ["submit", "-N", "2", "--cpus-per-node=2", "--time=5", "-m", "mpi_runtime", *TRAIN, *stop]
    job = slurm.run("mpi-runtime", *words, cwd=folder).stdout.strip()
    other = slurm.directory()
    (other / "poles.py").write_text(POLES)
    (other / "free").touch()
    words = [*TRAIN, *SMALL, "--stop", '{"training_iteration": 2}']
    script = f"#!/bin/sh\nsrun --mpi=pmix mpi-runtime {shlex.join(words)}\n"
    by_srun = slurm.sbatch(script, "-N2", "--ntasks-per-node=1", "-c2", cwd=other)

    results = folder / f"results/default/ES_Pole_job{job}/result.json"
    wait_until(lambda: len(lines(results)) >= 3, 90, "the third iteration")
    (folder / "free").touch()
    slurm.run("scancel", "--batch", "--signal=URG", job)  # as Slurm does before the end of the time
    ended = slurm.wait_for_requeued(job).expect()
    assert "it is requeued, and continues from the last checkpoint" in ended.stdout
    found = [json.loads(line) for line in lines(results)]
    assert [one["training_iteration"] for one in found] == list(range(1, 31)), "each iteration once, in one directory"
    steps = [one["timesteps_total"] for one in found]
    assert steps == sorted(steps)
    assert len({one["pid"] for one in found}) == 2

    at_once = slurm.wait(by_srun).expect()
    assert at_once.stdout.count("== Status ==") == 3, "one of the two ranks trains"
    assert "2/4 CPUs" in at_once.stdout


@pytest.mark.timeout(60)
def test_outside_of_a_job_nothing_can_be_requeued(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mpi_runtime", *TRAIN, "--requeue"]
    with start_command(command, cwd=tmp_path) as program:
        refused = program.finish(timeout=50).expect(2)
    assert "--requeue: this is not a job of Slurm or Grid Engine. Submit it with" in refused.stderr
    assert not (tmp_path / "results").exists()


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
