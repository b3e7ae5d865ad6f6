"""Trials whose process, memory, GPU, rank or time ends: the experiment continues, and counts right."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from mpi_runtime.errors import JournalError
from mpi_runtime.tune.experiment import journal
from mpi_runtime.tune.study.events import Reported
from mpi_runtime.tune.trial import number_of
from tests.e2e.launch.test_rank_loss import kill, start, workers
from tests.fake_nvml.machines import shown, v100_pairs
from tests.helpers import ROOT, Completed, run_program, start_program, wait_until

BEGIN = """
import os, sys, time
import mpi_runtime as ray
from mpi_runtime import tune

FOLDER = sys.argv[1]

def checkpoint(epoch):
    return tune.Checkpoint.from_dict({"epoch": epoch})

def first():
    found = tune.get_checkpoint()
    return found.to_dict()["epoch"] if found else 0

def fit(train, space, failures=None, **more):
    run = tune.RunConfig(name="e", storage_path=FOLDER, verbose=0,
                         failure_config=tune.FailureConfig(**(failures or {})), **more.pop("run", {}))
    return tune.Tuner(train, param_space=space, tune_config=tune.TuneConfig(**more), run_config=run).fit()

def shown(results):
    for one in results:
        print(one.trial_id[-5:], one.status, one.metrics.get("epoch"), flush=True)
"""


def run(source: str, folder: Path, **more: str | None) -> Completed:
    return run_program(BEGIN + source, str(folder), env=more).expect(0)


def said(folder: Path, trial: int) -> str:
    return next((folder / "e").glob(f"*_{trial:05d}/error.txt")).read_text()


def counted(folder: Path, kind: str) -> int:
    return sum(type(line.event).__name__ == kind for line in journal.read(folder / "e"))


def test_a_process_that_is_killed_at_work_costs_its_trial_a_crash(tmp_path: Path) -> None:
    """By somebody else, between two reports; the other trial does not notice."""
    done = run(
        """
ray.init(num_cpus=2)

def train(config):
    begin = first()
    for epoch in range(begin, 6):
        if config["n"] == 0 and epoch == 3 and not os.path.exists(FOLDER + "/pid"):
            with open(FOLDER + "/part", "w") as file:
                file.write(str(os.getpid()))
            os.rename(FOLDER + "/part", FOLDER + "/pid")
            time.sleep(60)
        if config["n"] == 1 and epoch == 5 and not os.path.exists(FOLDER + "/killed"):
            while not os.path.exists(FOLDER + "/pid"):
                time.sleep(0.01)
            os.kill(int(open(FOLDER + "/pid").read()), 9)
            open(FOLDER + "/killed", "w").close()
        tune.report({"epoch": epoch, "first": begin}, checkpoint=checkpoint(epoch + 1))

results = fit(train, {"n": tune.grid_search([0, 1])})
shown(results)
print([one.metrics["first"] for one in results])
""",
        tmp_path,
    )
    assert done.stdout == "00000 TERMINATED 5\n00001 TERMINATED 5\n[3, 0]\n"
    assert (counted(tmp_path, "Crashed"), counted(tmp_path, "Failed")) == (1, 0)
    assert "SIGKILL" in said(tmp_path, 0)


@pytest.mark.parametrize(("persist_s", "again"), [(30.0, 0), (0.0, 3)])
def test_a_checkpoint_that_is_lost_with_its_host_is_no_failure(persist_s: float, again: int, tmp_path: Path) -> None:
    """The trial continues from its last one on disk, or starts from scratch. The loss is simulated: opening raises."""
    done = run(
        f"""
ray.init(num_cpus=1)

def train(config):
    found = tune.get_checkpoint()
    if found is not None and found.is_in_memory and {persist_s} and not os.path.exists(FOLDER + "/lost"):
        open(FOLDER + "/lost", "w").close()
        raise ray.errors.ObjectLostError("its host is gone")
    begin = first()
    for epoch in range(begin, 5):
        if epoch == 3 and not os.path.exists(FOLDER + "/killed"):
            open(FOLDER + "/killed", "w").close()
            os.kill(os.getpid(), 9)
        tune.report({{"epoch": epoch, "first": begin}}, checkpoint=checkpoint(epoch + 1))

results = fit(train, {{}}, run={{"checkpoint_config": tune.CheckpointConfig(persist_s={persist_s})}})
shown(results)
print(results[0].metrics["first"])
""",
        tmp_path,
    )
    assert done.stdout == f"00000 TERMINATED 4\n{again}\n"
    assert (counted(tmp_path, "Crashed"), counted(tmp_path, "Failed")) == (1, 0)
    # Back to where the disk is, and at the end to the last checkpoint, which is on the disk by then.
    assert counted(tmp_path, "Moved") == (2 if persist_s else 0)


def test_a_trial_that_uses_up_the_memory_is_ended_and_the_others_are_not(tmp_path: Path) -> None:
    done = run(
        """
ray.init(num_cpus=2, memory_limit=300 << 20)

def train(config):
    tune.report({"epoch": 0})
    if config["n"] == 1:
        data = bytearray(600 << 20)
        data[::4096] = b"x" * len(data[::4096])
        time.sleep(60)
    tune.report({"epoch": 1})

shown(fit(train, {"n": tune.grid_search([0, 1, 2])}, {"max_failures": 0, "max_crashes": 1}))
print("after", ray.get(ray.remote(lambda: 1).remote()))
""",
        tmp_path,
    )
    assert done.stdout == "00000 TERMINATED 1\n00001 ERROR 0\n00002 TERMINATED 1\nafter 1\n"
    assert said(tmp_path, 1).count("OutOfMemoryError\n") == 2, "it was tried twice, as max_crashes says"
    assert "of 300.0 MiB of memory are used (memory_limit of init(), " in said(tmp_path, 1)
    assert counted(tmp_path, "Failed") == 0


def test_a_dead_context_of_cuda_is_met_by_one_trial_only(tmp_path: Path) -> None:
    """The process of the trial is not used again: not for its second run, nor for other trials."""
    source = f"""
sys.path.append({str(ROOT / "tests" / "fake_errors")!r})
from cupy_backends.cuda.api.runtime import CUDARuntimeError

ray.init(num_cpus=4)

def train(config):
    for epoch in range(first(), 3):
        with open(FOLDER + "/pids", "a") as file:
            file.write(str(os.getpid()) + "\\n")
        if config["n"] == 1 and epoch == 1 and not os.path.exists(FOLDER + "/dead"):
            with open(FOLDER + "/dead", "w") as file:
                file.write(str(os.getpid()))
            raise CUDARuntimeError(700)
        tune.report({{"epoch": epoch}}, checkpoint=checkpoint(epoch + 1))

wanted = tune.with_resources(train, {{"cpu": 0, "gpu": 1}})
shown(fit(wanted, {{"n": tune.grid_search(list(range(12)))}}, max_concurrent_trials=1))
"""
    done = run_program(BEGIN + source, str(tmp_path), env=shown(v100_pairs())).expect(0)
    assert done.stdout == "".join(f"{number:05d} TERMINATED 2\n" for number in range(12))
    assert "CUDA answered cudaErrorIllegalAddress" in said(tmp_path, 1)
    assert (counted(tmp_path, "Crashed"), counted(tmp_path, "Failed")) == (1, 0)
    dead = (tmp_path / "dead").read_text()
    pids = (tmp_path / "pids").read_text().split()
    assert pids.index(dead) + pids.count(dead) == 5, "the dead process did what it did before, and nothing after"


SLOW = """
ray.init(num_cpus=2)

def train(config):
    for epoch in range(first(), 400):
        time.sleep(0.02)
        if epoch >= 5 and os.path.exists(FOLDER + "/short"):
            return
        tune.report({"epoch": epoch}, checkpoint=checkpoint(epoch + 1))

results = fit(train, {"n": tune.grid_search([0, 1, 2])}, run={"on_walltime": "requeue"})
shown(results)
"""


def test_before_the_time_is_up_trials_stop_and_the_job_is_queued_again(tmp_path: Path) -> None:
    """A stand-in for Slurm's command prints its arguments. The second run continues the first."""
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "scontrol"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\necho JobId=5 Restarts=0 Requeue=1\n')
    program.chmod(0o755)
    job = {"SLURM_JOB_ID": "5", "PATH": f"{programs}:{os.environ['PATH']}"}
    with start_program(BEGIN + SLOW, str(tmp_path), env=job) as started:
        wait_until(lambda: counted_reports(tmp_path) >= 20, timeout=60)
        started.signal(signal.SIGUSR1)
        first = started.finish(timeout=60)
    assert "requeue 5" in (tmp_path / "asked").read_text(), (first.stdout, first.stderr)
    assert first.stdout.count("RUNNING") == 2, first.stdout
    before = epochs_of(tmp_path, 0)
    assert max(before) < 390
    (tmp_path / "short").touch()
    second = run_program(BEGIN + SLOW, str(tmp_path), env=job).expect(0)
    assert second.stdout.count("TERMINATED") == 3
    after = epochs_of(tmp_path, 0)
    assert after[: len(before)] == before
    third = run_program(BEGIN + SLOW, str(tmp_path), env=job).expect(0)
    assert third.stdout == second.stdout
    assert f"The experiment in {tmp_path / 'e'} had ended, so nothing runs" in third.stderr
    assert "had ended" not in second.stderr


def counted_reports(folder: Path) -> int:
    try:
        return counted(folder, "Reported")
    except JournalError:
        return 0


def epochs_of(folder: Path, trial: int) -> list[int]:
    """What a trial has reported, in both runs."""
    events = [line.event for line in journal.read(folder / "e")]
    return [one.metrics["epoch"] for one in events if isinstance(one, Reported) and number_of(one.trial_id) == trial]


RANKS = """
from mpi_runtime import tune

def train(config):
    found = tune.get_checkpoint()
    for epoch in range(found.to_dict()["epoch"] if found else 0, 40):
        time.sleep(0.05)
        tune.report({"epoch": epoch}, checkpoint=tune.Checkpoint.from_dict({"epoch": epoch + 1}))

ray.get([agent.remote() for _ in range(8)])
print("ready", flush=True)
results = tune.Tuner(
    train, param_space={"n": tune.grid_search(list(range(6)))},
    tune_config=tune.TuneConfig("epoch", "max"),
    run_config=tune.RunConfig(name="e", storage_path=FOLDER, verbose=0,
                              checkpoint_config=tune.CheckpointConfig(persist_s=PERSIST)),
).fit()
print("ended", [(one.status, one.metrics["epoch"]) for one in results], ranks(), flush=True)
"""


@pytest.mark.mpi
@pytest.mark.dies("rank with ulfm")
@pytest.mark.parametrize("persist_s", [0.0, 30.0])
def test_trials_on_a_rank_that_is_lost_go_on_elsewhere(persist_s: float, tmp_path: Path) -> None:
    """From their checkpoints on the disk; or, if these were in the memory that was lost, from what there is."""
    source = RANKS.replace("FOLDER", repr(str(tmp_path))).replace("PERSIST", str(persist_s))
    with start(source) as program:
        program.wait_for_line("ready")
        wait_until(lambda: counted_reports(tmp_path) >= 15, timeout=60)
        kill(workers(program)[1])
        completed = program.finish(timeout=150).expect(0)
    assert f"ended {[('TERMINATED', 39)] * 6} [0, 1, 3]" in completed.stdout
    assert counted(tmp_path, "Failed") == 0
    assert sum(1 for _ in journal.read(tmp_path / "e")) > 240
