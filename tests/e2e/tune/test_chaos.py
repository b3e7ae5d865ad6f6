"""Searches whose trials and drivers are killed at random moments, until they end: nothing is lost or repeated.

The seed chooses what is killed and when; the machine chooses what happens then, so a failure need not come again.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path

import pytest

from mpi_runtime.errors import JournalError
from mpi_runtime.tune.experiment import journal
from tests.helpers import start_program

APP = """
import json, os, sys, time
import mpi_runtime
from mpi_runtime import tune
from mpi_runtime.tune.schedulers import ASHAScheduler, PopulationBasedTraining

folder, kind, persist_s = sys.argv[1:]

def train(config):
    found = tune.get_checkpoint()
    state = found.to_dict() if found else {"epoch": 0, "steps": []}
    for epoch in range(state["epoch"], 12):
        time.sleep(0.03)
        with open(folder + "/pids", "a") as file:
            file.write(f"{os.getpid()} ")
        state = {"epoch": epoch + 1, "steps": [*state["steps"], epoch]}
        assert state["steps"] == list(range(epoch + 1)), "a checkpoint is whole, and of the report that it came with"
        tune.report({"score": config["a"] * (epoch + 1), "epoch": epoch}, checkpoint=tune.Checkpoint.from_dict(state))

mpi_runtime.init(num_cpus=4)
schedulers = {
    "asha": lambda: ASHAScheduler(max_t=12, reduction_factor=3),
    "pbt": lambda: PopulationBasedTraining(
        "training_iteration", perturbation_interval=3, hyperparam_mutations={"a": tune.uniform(1, 2)}),
}
print("driver", os.getpid(), flush=True)
if tune.Tuner.can_restore(folder + "/e"):
    tuner = tune.Tuner.restore(folder + "/e", train)
else:
    tuner = tune.Tuner(
        train, param_space={"a": tune.uniform(1, 2)},
        tune_config=tune.TuneConfig("score", "max", scheduler=schedulers[kind](), num_samples=8),
        run_config=tune.RunConfig(
            name="e", storage_path=folder, verbose=0, callbacks=[tune.JsonLoggerCallback()],
            failure_config=tune.FailureConfig(max_failures=0, max_crashes=-1),
            checkpoint_config=tune.CheckpointConfig(persist_s=float(persist_s), num_to_keep=2)))
results = tuner.fit()
for one in results:
    assert one.status == "TERMINATED", one.error
    if float(persist_s) == 0:  # else one that ended as the driver was killed may have lost what was in memory
        # Who takes the place of one that has made its last report has nothing left to do, and ends there.
        is_own = os.path.dirname(one.checkpoint.path) == one.path
        assert one.checkpoint.to_dict()["epoch"] == (one.metrics["epoch"] + 1 if is_own else 12), (one, is_own)
    with open(one.path + "/result.json") as file:
        assert [json.loads(line)["epoch"] for line in file] == [report["epoch"] for report in one.history]
print("ended", max(one.metrics["epoch"] for one in results), flush=True)
"""


def lines(folder: Path) -> int:
    try:
        return sum(1 for _ in journal.read(folder / "e"))
    except JournalError:
        return 0


@pytest.mark.parametrize("persist_s", [0.0, 30.0])
@pytest.mark.parametrize("kind", ["asha", "pbt"])
@pytest.mark.timeout(240)
def test_whatever_is_killed_the_search_ends_right(kind: str, persist_s: float, tmp_path: Path) -> None:
    rng = random.Random(f"{kind} {persist_s}")
    for life in range(4):
        with start_program(APP, str(tmp_path), kind, str(persist_s)) as program:
            driver = int(program.wait_for_line("driver").split()[1])
            end = lines(tmp_path) + rng.randrange(8, 16)
            while life < 3 and program.process.poll() is None and lines(tmp_path) < end:
                pids = (tmp_path / "pids").read_text().split()[-4:] if (tmp_path / "pids").exists() else []
                time.sleep(0.05)
                if pids and rng.random() < 0.2:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(rng.choice(pids)), signal.SIGKILL)
            if life < 3 and program.process.poll() is None:
                os.kill(driver, signal.SIGKILL)
                assert program.finish(timeout=30).returncode != 0
                continue
            done = program.finish(timeout=120).expect(0)
            break
    assert "ended 11\n" in done.stdout
    numbers = [line.number for line in journal.read(tmp_path / "e")]
    assert numbers == list(range(len(numbers)))
