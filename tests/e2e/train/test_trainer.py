"""Trainers without torch: workers, reports, checkpoints; failures of workers and of the job; trainings as trials."""

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
from mpi_runtime import train, tune
from mpi_runtime.train import DataParallelTrainer, ScalingConfig

folder = sys.argv[1]

def run_config(**more):
    return train.RunConfig(storage_path=folder, verbose=0, **more)

def trainer(loop, workers=2, config=None, datasets=None, **more):
    return DataParallelTrainer(loop, train_loop_config=config, scaling_config=ScalingConfig(num_workers=workers),
                               run_config=run_config(**more), datasets=datasets)

def save(epoch):
    # Each rank saves a file of its own.
    rank = train.get_context().get_world_rank()
    with tempfile.TemporaryDirectory() as path:
        open(f"{path}/rank{rank}", "w").write(str(epoch))
        train.report({"epoch": epoch, "rank": rank}, checkpoint=train.Checkpoint.from_directory(path))

def saved():
    # The epoch from which this attempt starts.
    checkpoint = train.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as path:
        assert sorted(os.listdir(path)) == ["rank0", "rank1"]
        return 1 + int(open(f"{path}/rank{train.get_context().get_world_rank()}").read())

def error_of(training):
    try:
        training.fit()
    except train.TrainingFailedError as error:
        return str(error)
"""

MEANING = (
    BEGIN
    + """
import numpy

mpi_runtime.init(num_cpus=3)

def loop(config):
    here = train.get_context()
    numbers, array = train.get_dataset_shard("config"), train.get_dataset_shard("array")
    own = [here.get_world_rank(), here.get_world_size(), here.get_local_rank(), here.get_local_world_size()]
    assert own[0] == int(os.environ["RANK"]) and own[1] == int(os.environ["WORLD_SIZE"])
    for epoch in range(config["epochs"]):
        made = train.Checkpoint.from_dict({"epoch": epoch}) if own[0] == 0 else None
        train.report({"own": own, "sum": sum(numbers), "shape": list(array.shape), "node": here.get_node_rank(),
                      "name": here.get_experiment_name(), "trial": here.get_trial_name()[-5:]}, checkpoint=made)
    return {"weights": numpy.ones(2), "rank": own[0]}

references = [mpi_runtime.put(number) for number in range(5)]
found = trainer(loop, 3, {"epochs": 2}, {"config": references, "array": numpy.zeros((7, 2))}, name="first").fit()
print([found.metrics[key] for key in ("own", "sum", "shape", "node", "name", "trial")])
print(found.checkpoint.to_dict(), len(found.history), [sorted(one) == sorted(found.metrics) for one in found.history])
print(sorted(found.metrics), found.path == folder + "/first", os.path.dirname(found.checkpoint.path) == found.path)
again = train.Result.from_path(found.path)
print([[one.return_value["rank"], float(one.return_value["weights"].sum())] for one in (found, again)])
print([getattr(again, name) == getattr(found, name) for name in ("trial_id", "status", "history", "error", "config")],
      again.checkpoint.to_dict(), len(again.best_checkpoints), again.metrics["own"], again.best)
for path in (found.path + "1", folder, found.path + "/1"):
    try:
        train.Result.from_path(path)
    except (RuntimeError, ValueError) as error:
        print("doesn't exist!" in str(error), "a journal doesn't exist in the folder" in str(error),
              f"no trial '1': it has {found.trial_id}" in str(error))

def no_argument():
    train.report({"a": 1})
done = trainer(no_argument, 1).fit()
print(done.metrics["a"], done.return_value)

def cannot_be_pickled():
    import threading
    return threading.Lock()
print(trainer(cannot_be_pickled, 1).fit().return_value)

def uneven():
    for _ in range(1 + train.get_context().get_world_rank()):
        train.report({"a": 1})
print("rank 1 reports, and the function of rank(s) 0 has ended" in error_of(trainer(uneven)))

def wrong_value():
    train.report({"a": numpy.zeros(2)})
print("array of shape (2,)" in error_of(trainer(wrong_value)))

def wrong_rank():
    train.report({"a": 1}, checkpoint=train.Checkpoint.from_dict({}))
print("only rank 0 may report" in error_of(trainer(wrong_rank)))

def together(config):
    rank = train.get_context().get_world_rank()
    if rank or config["rank"] < 0:
        train.collective.barrier()
        assert train.collective.broadcast_from_rank_zero([rank]) == [0]
    if config["rank"] == 0:
        train.report({"a": 1})
    train.report({"a": 2})
print(trainer(together, 2, {"rank": -1}).fit().metrics["a"])

@mpi_runtime.remote(num_cpus=0)
class Numbers:
    def __init__(self):
        self.known = []
    def add(self, number):
        self.known.append(number)
    def last(self):
        return self.known[-1]

def told(config):
    for number in range(50):
        if train.get_context().get_world_rank() == 0:
            for _ in range(3):
                config["numbers"].add.remote(number)
        train.collective.barrier()
        if train.get_context().get_world_rank() == 1:
            assert mpi_runtime.get(config["numbers"].last.remote()) == number
        train.collective.barrier()
trainer(told, 2, {"numbers": Numbers.remote()}).fit()

print("does something else: all workers" in error_of(trainer(together, 2, {"rank": 0})))

def gone():
    with tempfile.TemporaryDirectory() as path:
        made = train.Checkpoint.from_directory(path)
    train.report({"a": 1}, made)
print("does not exist: report() copies it" in error_of(trainer(gone)))

def no_data():
    train.get_dataset_shard("x")
print("no data set 'x'" in error_of(trainer(no_data)))

try:
    DataParallelTrainer(no_argument, run_config=train.RunConfig(storage_path="s3://bucket/results")).fit()
except ValueError as error:
    print("'s3://bucket/results' is an address" in str(error))

def on(hostname):
    scaling = ScalingConfig(2, label_selector={"hostname": hostname})
    return DataParallelTrainer(no_argument, scaling_config=scaling, run_config=run_config())
host = mpi_runtime.nodes()[0]["NodeName"]
print(on(f"in({host},elsewhere)").fit().metrics["a"])
try:
    on("!" + host).fit()
except mpi_runtime.errors.InfeasibleResourceError as error:
    print("on nodes with the labels" in str(error))

try:
    trainer(no_argument, 4).fit()
except mpi_runtime.errors.InfeasibleResourceError as error:
    print("no trial of this size fits" in str(error))
"""
)


@pytest.mark.parametrize("ranks", [None, pytest.param(2, marks=pytest.mark.mpi)])
def test_what_workers_see_and_report(ranks: int | None, tmp_path: Path) -> None:
    completed = run_program(MEANING, str(tmp_path), ranks=ranks, mpi="mpich" if ranks else None, timeout=120).expect(0)
    assert completed.stdout.splitlines() == [
        "[[0, 3, 0, 3], 0, [2, 2], 0, 'first', '00000']",
        "{'epoch': 1} 2 [True, True]",
        "['name', 'node', 'own', 'shape', 'sum', 'trial'] True True",
        "[[0, 2.0], [0, 2.0]]",
        "[True, True, True, True, True] {'epoch': 1} 1 [0, 3, 0, 3] {}",
        "True False False",
        "False True False",
        "False False True",
        "1 None",
        "None",
        *["True"] * 3,
        "2",
        *["True"] * 4,
        "1",
        "True",
        "True",
    ]
    assert "returned a lock that cannot be pickled" in completed.stdout + completed.stderr


FAILURES = (
    BEGIN
    + """
import errno, re
from mpi_runtime.tune.experiment.journal import Journal

mpi_runtime.init(num_cpus=2)

def loop(config):
    begin = saved()
    for epoch in range(begin, 4):
        if epoch == 2 and not begin and train.get_context().get_world_rank() == config["rank"]:
            if config["dies"]:
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("once")
        save(epoch)
        known = train.get_all_reported_checkpoints()
        assert [one.metrics["epoch"] for one in known] == [*range(epoch + 1)], known
        assert open(f"{known[-1].checkpoint.path}/rank1").read() == str(epoch)

for rank in (0, 1):
    for dies in (False, True):
        failures = train.FailureConfig(max_failures=0 if dies else 1)
        found = trainer(loop, 2, {"rank": rank, "dies": dies}, failure_config=failures).fit()
        names = sorted(os.listdir(found.checkpoint.path))
        print([one["epoch"] for one in found.history], found.metrics["rank"], names)
left = [name for path, names, _ in os.walk(folder) for name in names if name.startswith(".")]
print(left, "once" in error_of(trainer(loop, 2, {"rank": 1, "dies": False})))

add = Journal.add
def full(*arguments):
    raise OSError(errno.ENOSPC, "No space left on device")
Journal.add = full
try:
    trainer(loop, 2, {"rank": -1}).fit()
except OSError as error:
    advice = str(error).partition(", then ")[2]
Journal.add = add
print("Tuner" in advice, advice.startswith("run the program again with RunConfig("))
name, path = re.findall("'(.+?)'", advice)
print(os.path.samefile(path, folder), [one["epoch"] for one in trainer(loop, 2, {"rank": -1}, name=name).fit().history])
"""
)


def test_workers_that_raise_or_die(tmp_path: Path) -> None:
    completed = run_program(FAILURES, str(tmp_path), timeout=120).expect(0)
    assert completed.stdout.splitlines() == [
        *["[0, 1, 2, 3] 0 ['rank0', 'rank1']"] * 4,
        "[] True",
        "False True",
        "True [0, 1, 2, 3]",
    ]


RESTARTED = (
    BEGIN
    + """
mpi_runtime.init(num_cpus=2)

def loop(config):
    for epoch in range(saved(), 6):
        time.sleep(config["s"])
        save(epoch)

print("driver", os.getpid(), flush=True)
found = trainer(loop, 2, {"s": float(sys.argv[2])}, name="mine").fit()
print([one["epoch"] for one in found.history], flush=True)
"""
)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_job_that_ends_continues_by_its_name(number: int, tmp_path: Path) -> None:
    with start_program(RESTARTED, str(tmp_path), "0.2") as program:
        pid = int(program.wait_for_line("driver").split()[1])
        wait_until(lambda: list(tmp_path.glob("mine/checkpoint_000002")), timeout=60)
        os.kill(pid, number)
        assert program.finish(timeout=60).returncode != 0
    completed = run_program(RESTARTED, str(tmp_path), "0", timeout=60).expect(0)
    epochs = completed.stdout.splitlines()[1]
    assert epochs in ("[0, 1, 2, 3, 4, 5]", "[0, 1, 2, 3, 3, 4, 5]", "[0, 1, 2, 2, 3, 4, 5]")
    again = run_program(RESTARTED, str(tmp_path), "0", timeout=60).expect(0)
    assert again.stdout.splitlines()[1] == epochs
    assert "There is a training in" in again.stderr


TWICE = (
    BEGIN
    + """
mpi_runtime.init(num_cpus=2)

def loop(config):
    for epoch in range(saved(), config["epochs"]):
        save(epoch)
    return config["epochs"]

def forgets(config):
    train.report({"epoch": config["epoch"]})

for epochs in (2, 2, 4):
    found = trainer(loop, 2, {"epochs": epochs}, name="mine").fit()
    print([one["epoch"] for one in found.history], found.metrics["epoch"], found.status, found.return_value,
          train.Result.from_path(found.path).status)
for epoch in (7, 8):
    print(trainer(forgets, 2, {"epoch": epoch}, name="other").fit().metrics["epoch"])
"""
)


def test_the_same_name_runs_again_from_the_last_checkpoint(tmp_path: Path) -> None:
    completed = run_program(TWICE, str(tmp_path)).expect(0)
    assert completed.stdout.splitlines() == [
        "[0, 1] 1 TERMINATED 2 TERMINATED",
        "[0, 1] 1 TERMINATED 2 TERMINATED",
        "[0, 1, 2, 3] 3 TERMINATED 4 TERMINATED",
        "7",
        "8",
    ]
    assert completed.stderr.count(f"There is a training in {tmp_path / 'mine'} already: it continues from") == 2
    assert completed.stderr.count(f"There is a training in {tmp_path / 'other'} already") == 1


OTHERS = (
    BEGIN
    + """
mpi_runtime.init(num_cpus=2)

def loop(config):
    last = train.get_checkpoint()
    first = 1 + value_of(last) if last else 0
    for epoch in range(first, config["epochs"]):
        path = tempfile.mkdtemp(dir=sys.argv[1])
        open(f"{path}/value", "w").write(str(epoch))
        train.report({"epoch": epoch}, train.Checkpoint(path))
        train.get_all_reported_checkpoints()
        if epoch in config["fails"]:
            raise RuntimeError("on purpose")

def value_of(checkpoint):
    return int(open(f"{checkpoint.path}/value").read())

for epochs, fails, most, stop in (
    (9, [0, 1], 1, None), (4, [2], 1, None), (9, [], 0, {"epoch": 5}), (9, [6], 1, {"epoch": 7}), (10, [], 0, None)
):
    config = {"epochs": epochs, "fails": fails}
    failures = train.FailureConfig(max_failures=most)
    training = trainer(loop, 1, config, name="mine", failure_config=failures, stop=stop)
    try:
        found = training.fit()
    except train.WorkerGroupError as error:
        found = error.result
    print([one["epoch"] for one in found.history], found.status)
"""
)


def test_a_training_is_continued_with_other_settings_of_failures_and_stops(tmp_path: Path) -> None:
    """What an earlier run has decided stays: its journal is read whatever the settings are now."""
    assert run_program(OTHERS, str(tmp_path)).expect(0).stdout.splitlines() == [
        "[0, 1] ERROR",
        "[0, 1, 2, 3] TERMINATED",
        "[0, 1, 2, 3, 4, 5] TERMINATED",
        "[0, 1, 2, 3, 4, 5, 6, 7] TERMINATED",
        "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9] TERMINATED",
    ]


NAMED = (
    BEGIN
    + """
mpi_runtime.init(num_cpus=2)
ASYNC = train.CheckpointUploadMode.ASYNC

def loop(config):
    last = train.get_checkpoint()
    known = len(train.get_all_reported_checkpoints())
    first = 1 + int(last.path.rpartition("=")[2]) if last else 0
    for epoch in range(first, 4):
        for options in ({}, {"checkpoint_upload_mode": ASYNC}):  # the second replaces the first
            path = tempfile.mkdtemp(dir=sys.argv[1])
            train.report({"epoch": epoch, "first": first, "known": known}, train.Checkpoint(path),
                         checkpoint_dir_name=f"epoch={epoch}", **options)
            assert os.path.exists(path) == (not options)
        assert train.get_checkpoint().path.endswith(f"epoch={epoch}")
        train.collective.barrier()
        if epoch in (0, 2):
            raise RuntimeError("on purpose")

kept = train.CheckpointConfig(num_to_keep=3)
for _ in range(2):
    found = trainer(loop, name="mine", failure_config=train.FailureConfig(max_failures=2), checkpoint_config=kept).fit()
    print([tuple(one.values()) for _, one in found.best_checkpoints], sorted(one.name for one in os.scandir(found.path)
          if one.name.startswith("epoch")), len(train.Result.from_path(found.path).best_checkpoints))

def wrong(config):
    train.report({}, train.Checkpoint(folder), **config)
for options in ({"checkpoint_dir_name": "../x"}, {"checkpoint_upload_mode": "NO_UPLOAD"},
                {"checkpoint_upload_fn": lambda *_: None}):
    try:
        trainer(wrong, 1, options).fit()
    except train.WorkerGroupError as error:
        print(type(error.worker_failures[0].cause).__name__, str(error.worker_failures[0].cause).split(":")[0][:40])
"""
)


def test_checkpoints_have_names(tmp_path: Path) -> None:
    completed = run_program(NAMED, str(tmp_path), timeout=120).expect(0)
    kept = "[(1, 1, 1), (2, 1, 1), (3, 3, 3)] ['epoch=1', 'epoch=2', 'epoch=3'] 3"
    assert completed.stdout.splitlines()[:2] == [kept, kept]
    assert [line.split()[:2] for line in completed.stdout.splitlines()[2:]] == [
        ["ValueError", "checkpoint_dir_name='../x'"],
        ["ValueError", "the"],
        ["ValueError", "checkpoint_upload_fn"],
    ]


TUNED = (
    BEGIN
    + """
from mpi_runtime.tune.schedulers import ASHAScheduler

mpi_runtime.init(num_cpus=4)

def loop(config):
    for step in range(1, 10):
        train.report({"loss": config["base"] + config["x"] / step})

def tuned(workers, space, **settings):
    return tune.Tuner(trainer(loop, workers, {"base": 1}), param_space=space, run_config=run_config(),
                      tune_config=tune.TuneConfig("loss", "min", **settings)).fit()

grid = tuned(2, {"train_loop_config": {"x": tune.grid_search([1, 2, 3, 4, 5, 6])}})
print([one.metrics["training_iteration"] for one in grid], round(grid.get_best_result().metrics["loss"], 3))
grid = tuned(4, {"train_loop_config": {"x": tune.uniform(1, 9)}}, num_samples=6, scheduler=ASHAScheduler(max_t=9))
print(grid.num_terminated, sum(one.metrics["training_iteration"] for one in grid) < 54)
print(str(tuned(2, {"x": 1}).errors[0].cause))

def saving(config):
    for step in range(1, 5):
        saves = step % 2 == 0 and train.get_context().get_world_rank() == 0
        made = train.Checkpoint.from_directory(sys.argv[2]) if saves else None
        train.report({"loss": config["x"] / step, "step": step}, checkpoint=made)

def driver(config):
    name = "inner" + tune.get_context().get_trial_id()
    trainer(saving, 2, config, name=name, callbacks=[train.TuneReportCallback()]).fit()

grid = tune.Tuner(driver, param_space={"x": tune.grid_search([1, 2, 3, 4, 5, 6])}, run_config=run_config(),
                  tune_config=tune.TuneConfig("loss", "min", scheduler=ASHAScheduler(max_t=4, grace_period=1))).fit()
print(grid.num_terminated, [one.metrics["step"] for one in grid][:1], len(grid[0].history), grid[0].config)
places = [one.get("checkpoint_path", "") for one in grid[0].history]
while mpi_runtime.available_resources().get("CPU") != 4:  # members of an ended training end a little later
    time.sleep(0.05)
names = [os.path.relpath(place, folder).split("/") for place in places if place]
print(names[0][0] == "inner" + grid[0].trial_id, [name[1] for name in names])
again = tune.Tuner(driver, param_space={"x": 7}, run_config=run_config()).fit()
print(again[0].metrics["loss"], again[0].metrics["step"])
try:
    train.Result.from_path(grid.experiment_path)
except ValueError as error:
    print("pass the directory of one of them" in str(error))
try:
    train.TuneReportCallback()
except RuntimeError as error:
    print("This is not a trial" in str(error))
"""
)


def test_each_trial_is_a_gang_and_needs_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    completed = run_program(TUNED, str(tmp_path), str(tmp_path / "model"), timeout=120).expect(0)
    assert completed.stdout.splitlines() == [
        "[9, 9, 9, 9, 9, 9] 1.111",
        "6 True",
        'the space of a trainer has the key "train_loop_config" and no other: not x',
        "6 [4] 4 {'x': 1}",
        "True ['checkpoint_000000', 'checkpoint_000001']",
        "1.75 4",
        "True",
        "True",
    ]
