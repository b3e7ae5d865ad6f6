"""What runs beside a training: validation of checkpoints, callbacks; and trainings with other numbers of workers."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.helpers import run_program, start_program, wait_until

pytestmark = pytest.mark.timeout(180)

BEGIN = """
import os, signal, sys, tempfile, time
import mpi_runtime
from mpi_runtime import train

folder, stage = sys.argv[1:]

def save(value, **more):
    with tempfile.TemporaryDirectory() as path:
        open(f"{path}/value", "w").write(str(value))
        train.report({"a": value}, checkpoint=train.Checkpoint.from_directory(path), **more)

def value_of(checkpoint):
    with checkpoint.as_directory() as path:
        return int(open(f"{path}/value").read())

def trainer(loop, workers, config=None, validate=None, callbacks=(), **more):
    return train.DataParallelTrainer(
        loop, train_loop_config=config, scaling_config=train.ScalingConfig(num_workers=workers),
        run_config=train.RunConfig(storage_path=folder, name="mine", verbose=0, callbacks=callbacks, **more),
        validation_config=validate and train.ValidationConfig(validate))
"""

VALIDATED = (
    BEGIN
    + """
def loop():
    last = train.get_checkpoint()
    for value in range(0 if last is None else 1 + value_of(last), 4):
        save(value, validation=True)
        if stage == "killed" and value == 2:
            time.sleep(60)

def validate(checkpoint):
    value = value_of(checkpoint)
    if stage == "killed" and value:
        open(f"{folder}/begun", "w").close()
        time.sleep(60)
    return {"b": 10 * value}

mpi_runtime.init(num_cpus=3)
kept = train.CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="b", checkpoint_score_order="min")
found = trainer(loop, 2, None, validate, checkpoint_config=kept).fit()
again = train.Result.from_path(found.path)
print(found.metrics, [[metrics for _, metrics in one.best_checkpoints] for one in (found, again)])
"""
)


def test_validations_after_a_kill(tmp_path: Path) -> None:
    with start_program(VALIDATED, str(tmp_path), "killed") as program:
        wait_until((tmp_path / "begun").exists, timeout=60)
        os.kill(program.process.pid, signal.SIGKILL)
        assert program.finish(timeout=60).returncode != 0
    done = run_program(VALIDATED, str(tmp_path), "again", timeout=90).expect(0)
    # Those of the first run that were not validated rank last, and the last checkpoint stays on disk besides.
    kept = [{"a": 3, "b": 30}, {"a": 0, "b": 0}]
    assert done.stdout.splitlines() == [f"{kept[0]} {[kept, kept]}"]
    assert "is not in a report" not in done.stderr


IN_MEMORY = (
    BEGIN
    + """
def loop():
    for value in range(3):
        train.report({"a": value}, checkpoint=train.Checkpoint.from_dict({"value": value}), validation=True)

class Notes(train.UserCallback):
    seen = []
    def after_report(self, run_context, metrics, checkpoint):
        self.seen.append(checkpoint.to_dict()["value"])

mpi_runtime.init(num_cpus=2)
found = trainer(loop, 1, None, lambda checkpoint: {"b": 10 * checkpoint.to_dict()["value"]}, [Notes()]).fit()
print([metrics for _, metrics in found.best_checkpoints][-1], Notes.seen)
"""
)


def test_validations_and_callbacks_get_checkpoints_that_are_in_memory(tmp_path: Path) -> None:
    done = run_program(IN_MEMORY, str(tmp_path), "", timeout=60).expect(0)
    assert done.stdout.splitlines() == ["{'a': 2, 'b': 20} [0, 1, 2]"]
    assert "The validation of" not in done.stderr


BESIDE = (
    BEGIN
    + """
class Notes(train.UserCallback):
    seen = []
    def after_report(self, run_context, metrics, checkpoint):
        self.seen.append([[one["rank"] for one in metrics], checkpoint and value_of(checkpoint)])
    def after_exception(self, run_context, worker_exceptions):
        self.seen.append({rank: type(error).__name__ for rank, error in worker_exceptions.items()})

def loop():
    rank, last = train.get_context().get_world_rank(), train.get_checkpoint()
    train.report({"rank": rank})
    if last is None:
        train.collective.barrier()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    with tempfile.TemporaryDirectory() as path:
        open(f"{path}/value", "w").write("7")
        train.report({"rank": rank}, checkpoint=train.Checkpoint.from_directory(path) if rank == 0 else None)

mpi_runtime.init(num_cpus=3)
notes = Notes()
failures = train.FailureConfig(max_crashes=0)
try:
    trainer(loop, 2, callbacks=[notes], failure_config=failures).fit()
except train.WorkerGroupError:
    print(notes.seen)
notes.seen.clear()
def twice():
    train.report({"rank": 0, "size": train.get_context().get_world_size()})
    save(7)
notes.after_report = lambda run_context, metrics, checkpoint: notes.seen.append(metrics)
print(trainer(twice, (1, 9), callbacks=[notes]).fit().metrics, notes.seen[0])

def fails():
    save(1)
    print(os.getpid() == own, train.get_context().get_world_size(), train.get_dataset_shard("x")[0])
    raise KeyError("on purpose")

own = os.getpid()
local = train.DataParallelTrainer(fails, scaling_config=train.ScalingConfig(num_workers=0), datasets={"x": [5]},
                                  run_config=train.RunConfig(storage_path=folder, name="local"))
try:
    local.fit()
except KeyError as error:
    print(error, os.listdir(f"{folder}/local"))
try:
    train.get_context()
except RuntimeError:
    print("no trial is left")
try:
    trainer(fails, (4, 9)).fit()
except mpi_runtime.errors.InfeasibleResourceError:
    print("there is no room for 4")
"""
)


def test_callbacks_and_numbers_of_workers(tmp_path: Path) -> None:
    done = run_program(BESIDE, str(tmp_path), "", timeout=120).expect(0)
    assert done.stdout.splitlines() == [
        "[[[0, 1], None], {1: 'WorkerCrashedError'}]",
        "{'a': 7} [{'rank': 0, 'size': 3}, {'rank': 0, 'size': 3}, {'rank': 0, 'size': 3}]",
        "True 1 5",
        "'on purpose' ['checkpoint_000000']",
        "no trial is left",
        "there is no room for 4",
    ]
