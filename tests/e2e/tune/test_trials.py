"""Experiments of real trials: what functions and classes report, what becomes of them, and what is found afterwards."""

import csv
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import mpi_runtime
from mpi_runtime import tune
from mpi_runtime.errors import InfeasibleResourceError, JournalError, TaskError
from mpi_runtime.show import log
from mpi_runtime.tune.experiment import driver as study_driver
from mpi_runtime.tune.schedulers import (
    ASHAScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    PopulationBasedTraining,
    TrialScheduler,
)
from mpi_runtime.tune.search import BasicVariantGenerator
from mpi_runtime.tune.trials.trainable import wrap_function
from tests.helpers import run_program, wait_until

pytestmark = pytest.mark.usefixtures("job")


def quiet(folder: Path, **more: Any) -> tune.RunConfig:
    return tune.RunConfig(name="e", storage_path=folder, verbose=0, **more)


def counts(config: dict[str, Any]) -> None:
    checkpoint = tune.get_checkpoint()
    first = checkpoint.to_dict()["epoch"] if checkpoint else 0
    for epoch in range(first, 9):
        tune.report({"score": config["a"] * epoch}, checkpoint=tune.Checkpoint.from_dict({"epoch": epoch + 1}))


def fitted(trainable: Any, folder: Path, space: Any = None, run: Any = None, **config: Any) -> tune.ResultGrid:
    tuning = tune.TuneConfig(**config)
    return tune.Tuner(trainable, param_space=space, tune_config=tuning, run_config=run or quiet(folder)).fit()


def test_each_point_of_a_grid_is_a_trial(tmp_path: Path) -> None:
    results = fitted(counts, tmp_path, {"a": tune.grid_search([1, 3, 2])}, metric="score", mode="max")
    assert [(one.config["a"], one.metrics["score"]) for one in results] == [(1, 8), (3, 24), (2, 16)]
    assert results.get_best_result().config == {"a": 3}
    assert results.get_best_result(mode="min", metric="score").config == {"a": 1}
    assert (results.num_terminated, results.num_errors, results.errors) == (3, 0, [])
    assert [one["score"] for one in results[1].history] == [3 * epoch for epoch in range(9)]
    assert {"pid", "hostname", "timestamp", "time_total_s", "training_iteration"} <= results[0].metrics.keys()
    checkpoint = results[2].checkpoint
    assert checkpoint is not None
    assert checkpoint.to_dict() == {"epoch": 9}


def prints(config: dict[str, Any]) -> None:
    print("once", config["a"])
    tune.report({"where": os.getcwd()})
    print("twice", config["a"])


def test_output_of_a_trial_is_in_files_too(tmp_path: Path) -> None:
    results = fitted(prints, tmp_path, {"a": tune.grid_search([1, 2])}, run=quiet(tmp_path, log_to_file=("out", "err")))
    for one in results:
        assert Path(one.path, "out").read_text() == f"once {one.config['a']}\ntwice {one.config['a']}\n"
        assert Path(one.path, "err").read_text() == ""
        assert one.metrics["where"] == os.getcwd()
    for wrong in (7, ("a",), ("a", 1), {"a": 1}):
        with pytest.raises(ValueError, match="log_to_file must be True, the name of a file, or the names of two"):
            tune.RunConfig(log_to_file=wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"name must be text, not .*: pass other settings by name"):
        tune.RunConfig({"x": 1})  # type: ignore[arg-type]


IN_DIRECTORIES = """
import os, tempfile
from ray import tune

def trial(config):
    tune.report({"name": os.path.basename(os.getcwd())})

settings = tune.RunConfig("e", tempfile.mkdtemp(), verbose=0)
result = tune.Tuner(trial, run_config=settings).fit()[0]
print(result.metrics["name"] == os.path.basename(result.path), result.metrics["name"] == os.path.basename(os.getcwd()))
"""


@pytest.mark.parametrize(("value", "expected"), [("1", "True False"), ("0", "False True")])
def test_as_ray_trials_run_in_their_directories_unless_a_variable_says_no(value: str, expected: str) -> None:
    env = {"RAY_CHDIR_TO_TRIAL_DIR": value}
    completed = run_program(IN_DIRECTORIES, options=("-m", "mpi_runtime", "--as-ray"), env=env).expect(0)
    assert completed.stdout.strip() == expected


FILES = """
import os, tempfile
from ray import tune

folder = tempfile.mkdtemp()
result = tune.Tuner(lambda config: tune.report({"orig": os.environ["TUNE_ORIG_WORKING_DIR"]}),
                    run_config=tune.RunConfig("e", folder, verbose=0)).fit()[0]
print(sorted(os.listdir(result.path)), result.metrics["orig"] == os.getcwd())
"""


@pytest.mark.parametrize(
    ("value", "expected"), [("0", ["params.json", "params.pkl", "progress.csv", "result.json"]), ("1", [])]
)
def test_as_ray_trials_have_files_unless_a_variable_says_no(value: str, expected: list[str]) -> None:
    env = {"TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": value}
    completed = run_program(FILES, options=("-m", "mpi_runtime", "--as-ray"), env=env).expect(0)
    assert completed.stdout.strip() == f"{expected} True"


STEPS = """
import logging, os, sys, tempfile
from ray import logger, tune

class Steps(tune.Trainable):
    def step(self):
        logger.info("a line")
        return {"x": self.iteration}
    def save_checkpoint(self, checkpoint_dir):
        return {"i": self.iteration}
    def load_checkpoint(self, checkpoint):
        pass

checkpoints = tune.CheckpointConfig(checkpoint_frequency=int(sys.argv[1]))
settings = tune.RunConfig(
    "e", tempfile.mkdtemp(), verbose=0, stop={"training_iteration": 3}, checkpoint_config=checkpoints, log_to_file=True)
result = tune.Tuner(Steps, run_config=settings).fit()[0]
print([(os.path.basename(one.path), report["training_iteration"]) for one, report in result.best_checkpoints])
print(open(result.path + "/stderr").read().count("-- a line"))
"""


@pytest.mark.parametrize(
    ("frequency", "expected"),
    [
        ("1", "[('checkpoint_000000', 1), ('checkpoint_000001', 2), ('checkpoint_000002', 3)]"),
        ("2", "[('checkpoint_000000', 2), ('checkpoint_000001', 3)]"),
    ],
)
def test_as_ray_all_checkpoints_of_a_class_are_kept_and_its_last_step_has_one(frequency: str, expected: str) -> None:
    completed = run_program(STEPS, frequency, options=("-m", "mpi_runtime", "--as-ray")).expect(0)
    assert completed.stdout.splitlines() == [expected, "3"]
    assert completed.stderr.count("-- a line") == 3, "lines of this logger are shown from INFO on, as in Ray"


def named(trial: tune.trial.Trial) -> str:
    return "odd" if trial.config["x"] % 2 else f"x={trial.config['x']}"


def test_directories_have_names_of_the_program(tmp_path: Path) -> None:
    def trial(config: dict[str, Any]) -> None:
        if not (tmp_path / "ok").exists() and config["x"] == 2:
            raise ValueError("not yet")
        for epoch in range(3):
            (tmp_path / "saved").mkdir(exist_ok=True)
            tune.report({"x": config["x"], "epoch": epoch}, tune.Checkpoint.from_directory(tmp_path / "saved"))

    space = {"x": tune.grid_search([1, 2, 3])}
    run = quiet(tmp_path, checkpoint_config=tune.CheckpointConfig(num_to_keep=2))
    results = fitted(trial, tmp_path, space, run, trial_dirname_creator=named)
    folders = [Path(one.path).name for one in results]
    assert folders == ["odd", "x=2", f"odd_{results[2].trial_id}"]
    assert sorted(one.name for one in (tmp_path / "e").iterdir() if one.is_dir()) == sorted(folders)
    (tmp_path / "ok").touch()
    results = tune.Tuner.restore(tmp_path / "e", trial, resume_errored=True).fit()
    assert [Path(one.path).name for one in results] == folders
    assert not results.errors
    for one in results:
        assert [Path(kept.path).parent for kept, _ in one.best_checkpoints] == [Path(one.path)] * 2
        assert len([*Path(one.path).glob("checkpoint_*")]) == 2
        assert tune.Result.from_path(one.path).trial_id == one.trial_id
        assert tune.Result.from_path(one.path).path == one.path


class Pausing(FIFOScheduler):
    """Pauses at each report."""

    def on_trial_result(self, tune_controller: Any, trial: Any, result: Any) -> Any:  # type: ignore[override]
        return TrialScheduler.PAUSE


class Three(tune.Trainable):
    """Ends at its third step."""

    count = 0

    def step(self) -> dict[str, Any]:
        self.count += 1
        return {"count": self.count, "done": self.count == 3}

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        return {"count": self.count}

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.count = checkpoint["count"]


@pytest.mark.parametrize("at_end", [None, False])
@pytest.mark.parametrize("most", [1, 2])
def test_a_class_that_pauses_is_saved(most: int, at_end: bool | None, tmp_path: Path) -> None:
    space = {"x": tune.grid_search([1, 2])}
    run = quiet(tmp_path, checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=at_end))
    results = fitted(Three, tmp_path, space, run, scheduler=Pausing(), max_concurrent_trials=most)
    assert [(one.metrics["count"], one.metrics["training_iteration"]) for one in results] == [(3, 3)] * 2
    assert len(tune.Tuner.restore(tmp_path / "e", Three).get_results()) == 2  # its journal can be replayed


class Slow(Three):
    """Takes a while to save."""

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        time.sleep(0.3)
        return super().save_checkpoint(checkpoint_dir)


def test_a_class_that_is_done_has_time_to_save(tmp_path: Path) -> None:
    results = fitted(Slow, tmp_path, num_samples=3)
    assert [one.checkpoint is not None and one.checkpoint.to_dict() for one in results] == [{"count": 3}] * 3


class Lost(Three):
    """Cannot save."""

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        raise OSError("no room")


def test_a_last_state_that_cannot_be_saved_is_logged(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    run = quiet(tmp_path, checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True))
    [result] = fitted(Lost, tmp_path, run=run)
    assert result.checkpoint is None
    assert "raised an error after its last report: OSError('no room')" in capfd.readouterr().err + caplog.text


@pytest.mark.parametrize("name", ["", ".", "a/b", "é" * 200])
def test_odd_names_of_directories(name: str, tmp_path: Path) -> None:
    if len(name) == 200:
        [result] = fitted(returns, tmp_path, {"a": 1}, trial_dirname_creator=lambda trial: name)
        assert Path(result.path).name == "é" * 100
        return
    with pytest.raises(ValueError, match="trial_dirname_creator returned"):
        fitted(returns, tmp_path, {"a": 1}, trial_dirname_creator=lambda trial: name)


def test_a_function_may_be_wrapped_in_a_class(tmp_path: Path) -> None:
    [result] = fitted(wrap_function(returns), tmp_path, {"a": 2})
    assert result.metrics["x"] == 2
    with pytest.raises(RuntimeError, match="no steps by hand"):
        wrap_function(returns)().train()
    with pytest.raises(tune.TuneError, match="is a class already"):
        wrap_function(Three)


def test_history_and_metrics_have_the_same_names(tmp_path: Path) -> None:
    [result] = fitted(counts, tmp_path, {"a": 2})
    assert {*result.history[-1]} == {*result.metrics, "time_s"} - {"experiment_tag"}
    for one in result.history:
        assert one["time_since_restore"] == one["time_total_s"]
        assert (one["config"], one["trial_id"]) == ({"a": 2}, result.trial_id)
    assert result.history[-1]["time_total_s"] == result.metrics["time_total_s"]


def test_a_changed_configuration_is_in_the_journal(tmp_path: Path) -> None:
    scheduler = PopulationBasedTraining(
        perturbation_interval=2, hyperparam_mutations={"a": [1, 2, 3, 4]}, quantile_fraction=0.5
    )
    space = {"a": tune.grid_search([1, 2, 3, 4])}
    results = fitted(counts, tmp_path, space, metric="score", mode="max", scheduler=scheduler, max_concurrent_trials=4)
    again = tune.Tuner.restore(results.experiment_path, counts).fit()
    for one, other in zip(results, again, strict=True):
        assert one.history[-1]["config"] == one.config == other.config


def returns(config: dict[str, Any]) -> dict[str, Any]:
    return {"x": config["a"]}


def yields(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for number in range(3):
        yield {"x": number}


def old(config: dict[str, Any], reporter: Any) -> None:
    for number in range(3):
        reporter(x=number)


def in_numpy(config: dict[str, Any]) -> None:
    tune.report({"x": numpy.float32(2.5), "nested": {"y": numpy.array([7])}})


@pytest.mark.parametrize(
    ("function", "x", "reports"), [(returns, 5, 1), (yields, 2, 3), (old, 2, 3), (in_numpy, 2.5, 1)]
)
def test_functions_of_every_form_report(function: Any, x: float, reports: int, tmp_path: Path) -> None:
    results = fitted(function, tmp_path, {"a": 5})
    assert results[0].metrics["x"] == x
    assert results[0].metrics["training_iteration"] == reports
    if function is in_numpy:
        assert results[0].metrics["nested"] == {"y": 7}


def test_an_array_is_no_metric(tmp_path: Path) -> None:
    results = fitted(lambda config: tune.report({"x": numpy.zeros(3)}), tmp_path)
    assert "array of shape (3,)" in str(results[0].error)


def test_a_metric_that_nobody_reports_is_an_error_at_the_first_report(tmp_path: Path) -> None:
    with pytest.raises(tune.TuneError, match=r"No report of any trial .*'scores' is not in the report.*'score'"):
        fitted(counts, tmp_path, {"a": 1}, metric="scores", mode="max")


def stops(config: dict[str, Any]) -> None:
    try:
        while True:
            tune.report({"x": 1})
    except Exception:
        Path(config["folder"], "swallowed").touch()
    finally:
        Path(config["folder"], "ended").touch()


def test_an_error_of_a_searcher_ends_all_trials_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They notice that the driver reads no more reports, and their `finally` blocks run."""

    class Broken(BasicVariantGenerator):
        def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
            if result["score"] == 0:
                raise ValueError("the searcher is broken")

    def waits(config: dict[str, Any]) -> None:
        try:
            (tmp_path / f"began{config['a']}").touch()  # inside: the driver may end it from now on
            while config["a"] == 3 and len(list(tmp_path.glob("began*"))) < 4:
                time.sleep(0.01)  # a trial that had not begun would be cancelled, without a `finally`
            for _ in range(50):
                tune.report({"score": 0.0 if config["a"] == 3 else 1.0})
                time.sleep(0.01)
        finally:
            (tmp_path / f"ended{config['a']}").touch()

    monkeypatch.setattr(study_driver, "GRACE_S", 1000.0)  # it does not wait for those that wait for it
    with pytest.raises(ValueError, match="the searcher is broken"):
        fitted(
            waits,
            tmp_path,
            {"a": tune.grid_search([0, 1, 2, 3])},
            metric="score",
            mode="max",
            search_alg=Broken(),
        )
    wait_until(lambda: len(list(tmp_path.glob("ended*"))) == 4)


def test_a_space_that_cannot_be_copied_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="so trials cannot have it: lock: cannot pickle"):
        fitted(counts, tmp_path, {"a": 1, "lock": threading.Lock()})
    with (
        Path(os.devnull).open() as file,  # cloudpickle would pickle it
        pytest.raises(TypeError, match=r"trials cannot have it: cannot pickle"),
    ):
        fitted(counts, tmp_path, {"a": 1, "file": file})


def test_what_is_no_space_no_number_and_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"param_space must be a dictionary .*, not \[1, 2\]"):
        tune.Tuner(counts, param_space=[1, 2])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"num_samples=1\.5: it must be a whole number"):
        fitted(counts, tmp_path, num_samples=1.5)
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"cannot be written: Not a directory\. Choose RunConfig\(storage_path=...\)"):
        fitted(counts, tmp_path, run=quiet(tmp_path / "file" / "in"))


def test_a_class_saves_at_its_end_unless_told_not_to(tmp_path: Path) -> None:
    """As in Ray. A later look at the experiment finds the same checkpoint."""
    for at_end, value in ((None, "5"), (True, "5"), (False, "4")):
        config = tune.CheckpointConfig(checkpoint_frequency=2, checkpoint_at_end=at_end)
        folder = tmp_path / str(at_end)
        run = quiet(folder, stop={"training_iteration": 5}, checkpoint_config=config)
        first = fitted(tune.with_parameters(Counting, big=7), folder, {"a": 1}, run)
        later = tune.Tuner.restore(folder / "e", tune.with_parameters(Counting, big=7)).get_results()
        for results in (first, later):
            checkpoint = results[0].checkpoint
            assert checkpoint is not None
            assert Path(checkpoint.path, "value").read_text() == value


def values_of_kept(result: tune.Result) -> list[tuple[str, int]]:
    return [(Path(one.path, "value").read_text(), metrics["value"]) for one, metrics in result.best_checkpoints]


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"checkpoint_frequency": 2}, [("2", 2), ("4", 4), ("5", 5)]),
        ({"checkpoint_frequency": 2, "checkpoint_at_end": False}, [("2", 2), ("4", 4)]),
        ({"checkpoint_frequency": 2, "num_to_keep": 1}, [("5", 5)]),
        ({"checkpoint_at_end": True}, [("5", 5)]),
    ],
)
def test_the_checkpoint_at_the_end_is_kept_with_the_last_report(
    tmp_path: Path, settings: dict[str, Any], kept: list[tuple[str, int]]
) -> None:
    run = quiet(tmp_path, stop={"training_iteration": 5}, checkpoint_config=tune.CheckpointConfig(**settings))
    first = fitted(Counting, tmp_path, {"a": 1}, run)[0]
    later = tune.Tuner.restore(tmp_path / "e", Counting).get_results()[0]
    assert values_of_kept(first) == values_of_kept(later) == values_of_kept(tune.Result.from_path(first.path)) == kept
    best = later.get_best_checkpoint("value", "max")
    assert best is not None
    assert Path(best.path, "value").read_text() == kept[-1][0]


def test_checkpoints_in_memory_are_found_later_where_they_were_written(tmp_path: Path) -> None:
    def trial(config: dict[str, Any]) -> None:
        for value in range(2):
            tune.report({"value": value}, checkpoint=tune.Checkpoint.from_dict({"value": value}))

    fitted(trial, tmp_path, {})
    [later] = tune.Tuner.restore(tmp_path / "e", trial).get_results()
    assert [(one.to_dict(), metrics["value"]) for one, metrics in later.best_checkpoints] == [({"value": 1}, 1)]


def test_the_report_at_which_a_trial_stops_is_its_last(tmp_path: Path) -> None:
    run = quiet(tmp_path, stop={"training_iteration": 7})
    results = fitted(stops, tmp_path, {"folder": str(tmp_path)}, run)
    assert results[0].metrics["training_iteration"] == 7
    assert results[0].metrics["done"]
    assert (tmp_path / "ended").exists()
    assert not (tmp_path / "swallowed").exists()


def test_time_is_up_in_the_midst_of_work(tmp_path: Path) -> None:
    def sleeps(config: dict[str, Any]) -> None:
        time.sleep(60)

    started = time.monotonic()
    results = fitted(sleeps, tmp_path, time_budget_s=0.5, num_samples=20)
    assert time.monotonic() - started < 40
    assert {one.status for one in results} == {"TERMINATED"}


def test_asha_ends_bad_trials_early(tmp_path: Path) -> None:
    scheduler = ASHAScheduler(max_t=9, grace_period=1, reduction_factor=3)
    space = {"a": tune.grid_search([9, 8, 7, 6, 5, 4, 3, 2, 1])}

    def linear(config: dict[str, Any]) -> None:
        for epoch in range(9):
            tune.report({"score": config["a"] + epoch})

    results = fitted(linear, tmp_path, space, metric="score", mode="max", scheduler=scheduler, max_concurrent_trials=1)
    assert [one.metrics["training_iteration"] for one in results] == [9, *[1] * 8]


@pytest.mark.parametrize(
    "scheduler", [ASHAScheduler(max_t=9, reduction_factor=3, type="promotion"), HyperBandScheduler(max_t=9)]
)
def test_trials_that_pause_go_on_from_their_checkpoints(scheduler: Any, tmp_path: Path) -> None:
    space = {"a": tune.grid_search([1, 2, 3, 4, 5, 6, 7, 8, 9])}
    results = fitted(counts, tmp_path, space, metric="score", mode="max", scheduler=scheduler)
    best = results.get_best_result()
    assert best.metrics["training_iteration"] == 9
    assert [one["score"] for one in best.history] == [best.config["a"] * epoch for epoch in range(9)], "none twice"
    assert sum(len(one.history) for one in results) < 81


def test_the_worst_go_on_from_checkpoints_of_the_best(tmp_path: Path) -> None:
    ahead, lifted = tmp_path / "ahead", tmp_path / "lifted"

    def climbs(config: dict[str, Any]) -> None:
        checkpoint = tune.get_checkpoint()
        height = checkpoint.to_dict()["height"] if checkpoint else 0.0
        # Neither may end before the other one was compared with it.
        if checkpoint is not None:
            lifted.touch()
        elif config["speed"] == 1:
            wait_until(ahead.exists, timeout=60)
        for step in range(20):
            if checkpoint is None and step == 4:
                ahead.touch()
                wait_until(lifted.exists, timeout=60)
            height += config["speed"]
            tune.report({"height": height}, checkpoint=tune.Checkpoint.from_dict({"height": height}))

    scheduler = PopulationBasedTraining(
        "training_iteration", perturbation_interval=2, hyperparam_mutations={"speed": [1, 2, 3, 4]},
        quantile_fraction=0.5,
    )  # fmt: skip
    space = {"speed": tune.grid_search([1, 4])}
    run = quiet(tmp_path, stop={"training_iteration": 20})
    results = fitted(climbs, tmp_path, space, run, metric="height", mode="max", scheduler=scheduler)
    assert min(one.metrics["height"] for one in results) > 20, "who was slow was lifted"


class Counting(tune.Trainable):
    def setup(self, config: dict[str, Any], **parameters: Any) -> None:
        self.value = 0
        self.times = 0
        self.parameters = parameters

    def step(self) -> dict[str, Any]:
        self.value += self.config["a"]
        return {"value": self.value, "object": self.times, "pid_now": os.getpid(), **self.parameters}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "value").write_text(str(self.value))

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.value = int(Path(checkpoint, "value").read_text())

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.value = 0
        self.times += 1
        return True


def test_a_class_makes_steps_until_it_is_stopped(tmp_path: Path) -> None:
    config = tune.CheckpointConfig(checkpoint_frequency=2, checkpoint_at_end=True)
    run = quiet(tmp_path, stop={"training_iteration": 5}, checkpoint_config=config)
    results = fitted(tune.with_parameters(Counting, big=7), tmp_path, {"a": tune.grid_search([1, 2])}, run)
    assert [one.metrics["value"] for one in results] == [5, 10]
    assert results[0].metrics["big"] == 7
    folders = [one.checkpoint.path for one in results if one.checkpoint is not None]
    assert [Path(folder, "value").read_text() for folder in folders] == ["5", "10"]


def test_an_object_serves_several_trials_if_it_may(tmp_path: Path) -> None:
    run = quiet(tmp_path, stop={"training_iteration": 1})
    space = {"a": tune.grid_search([1, 2, 3])}
    results = fitted(Counting, tmp_path, space, run, reuse_actors=True, max_concurrent_trials=1)
    assert [one.metrics["value"] for one in results] == [1, 2, 3]
    times: dict[int, int] = {}
    for one in results:
        assert one.metrics["object"] == times.get(one.metrics["pid_now"], 0), "it is the one of its process"
        times[one.metrics["pid_now"]] = one.metrics["object"] + 1


def test_each_trial_has_a_process_of_its_own_if_asked(tmp_path: Path) -> None:
    run = quiet(tmp_path, stop={"training_iteration": 1})
    space = {"a": tune.grid_search([1, 2, 3])}
    results = fitted(Counting, tmp_path, space, run, reuse_actors=False, max_concurrent_trials=1)
    assert len({one.metrics["pid_now"] for one in results}) == 3


def fails(config: dict[str, Any]) -> None:
    checkpoint = tune.get_checkpoint()
    first = checkpoint.to_dict()["epoch"] if checkpoint else 0
    for epoch in range(first, 4):
        tune.report({"epoch": epoch, "first": first}, checkpoint=tune.Checkpoint.from_dict({"epoch": epoch + 1}))
        if epoch == config["at"] and first <= epoch:
            if config["how"] == "raise":
                raise ArithmeticError("a trial raised")
            os.kill(os.getpid(), 9)


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_a_trial_that_fails_goes_on_from_its_checkpoint(how: str, tmp_path: Path) -> None:
    run = quiet(tmp_path, failure_config=tune.FailureConfig(max_failures=1, max_crashes=1))
    results = fitted(fails, tmp_path, {"at": 1, "how": how}, run)
    assert (results[0].status, results[0].metrics["epoch"], results[0].metrics["first"]) == ("TERMINATED", 3, 2), Path(
        results[0].path, "error.txt"
    ).read_text()
    assert ("ArithmeticError" if how == "raise" else "SIGKILL") in Path(results[0].path, "error.txt").read_text()


def test_crashes_are_not_failures(tmp_path: Path) -> None:
    results = fitted(fails, tmp_path, {"at": tune.grid_search([1, 9]), "how": "kill"})
    assert [one.status for one in results] == ["TERMINATED"] * 2, "three crashes are allowed, no failure"


def test_the_first_failure_may_end_the_experiment(tmp_path: Path) -> None:
    run = quiet(tmp_path, failure_config=tune.FailureConfig(fail_fast=True))
    results = fitted(fails, tmp_path, {"at": 1, "how": "raise"}, run, num_samples=50, max_concurrent_trials=1)
    assert len(results) == 1
    assert "a trial raised" in str(results.errors[0])
    grid = tune.Tuner.restore(tmp_path / "e", fails, restart_errored=True).get_results()
    assert [one.status for one in grid] == ["ERROR"]
    run = quiet(tmp_path / "raised", failure_config=tune.FailureConfig(fail_fast="raise"))
    with pytest.raises(TaskError, match="a trial raised"):
        fitted(fails, tmp_path, {"at": 1, "how": "raise"}, run, num_samples=50)
    for wrong in ({"fail_fast": "rise"}, {"fail_fast": True, "max_failures": 1}):
        with pytest.raises(ValueError, match="fail_fast"):
            tune.FailureConfig(**wrong)


def test_errors_of_halted_trials_are_not_logged(tmp_path: Path) -> None:
    source = f"""
from mpi_runtime import tune
run = tune.RunConfig(storage_path={str(tmp_path)!r}, verbose=0, failure_config=tune.FailureConfig(fail_fast=True))
for _ in range(10):
    tune.Tuner(lambda config: 1 / 0, tune_config=tune.TuneConfig("loss", "min", num_samples=20), run_config=run).fit()
"""
    done = run_program(source, env={"MPI_RUNTIME_QUIET": None}).expect()
    assert "mpi_runtime: 1 rank" in done.stderr
    assert "unhandled" not in done.stderr


def test_trials_start_actors_within_their_placement_group(tmp_path: Path) -> None:
    """Four CPUs, and eight trials that need three each: without a group two trials would wait for each other."""

    def samples(config: dict[str, Any]) -> None:
        @mpi_runtime.remote(num_cpus=1)
        class Sampler:
            def number(self) -> int:
                return 1

        samplers = [Sampler.remote() for _ in range(2)]
        for _ in range(3):
            tune.report({"sum": sum(mpi_runtime.get([one.number.remote() for one in samplers]))})

    wanted = tune.PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}, {"CPU": 1}])
    results = fitted(tune.with_resources(samples, wanted), tmp_path, num_samples=8)
    assert [one.metrics["sum"] for one in results] == [2] * 8
    assert mpi_runtime.util.placement_group_table() == {} or all(
        one["state"] == "REMOVED" for one in mpi_runtime.util.placement_group_table().values()
    )


def test_what_no_node_has_is_refused_before_the_first_trial(tmp_path: Path) -> None:
    with pytest.raises(InfeasibleResourceError, match="'CPU': 100"):
        fitted(tune.with_resources(counts, {"cpu": 100}), tmp_path, {"a": 1})


def test_as_many_run_at_a_time_as_have_room(tmp_path: Path) -> None:
    def marks(config: dict[str, Any]) -> None:
        mine = Path(config["folder"], str(os.getpid()))
        mine.touch()
        tune.report({"running": len(os.listdir(config["folder"]))})
        time.sleep(0.05)
        mine.unlink()

    (tmp_path / "marks").mkdir()
    space = {"folder": str(tmp_path / "marks")}
    results = fitted(tune.with_resources(marks, {"cpu": 2}), tmp_path, space, num_samples=10)
    assert max(one.metrics["running"] for one in results) <= 2


def test_files_of_loggers_can_be_read(tmp_path: Path) -> None:
    def grows(config: dict[str, Any]) -> None:
        tune.report({"x": 1})
        tune.report({"x": 2, "later": {"y": 3}})

    run = quiet(tmp_path, callbacks=[tune.JsonLoggerCallback(), tune.CSVLoggerCallback()])
    results = fitted(grows, tmp_path, {"a": 5}, run)
    folder = Path(results[0].path)
    lines = [json.loads(line) for line in (folder / "result.json").read_text().splitlines()]
    assert [line["x"] for line in lines] == [1, 2]
    assert lines[0]["config"] == json.loads((folder / "params.json").read_text()) == {"a": 5}
    with (folder / "progress.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["x"], row["later/y"]) for row in rows] == [("1", ""), ("2", "3")]


def test_callbacks_hear_what_happens_in_order(tmp_path: Path) -> None:
    heard: list[tuple[Any, ...]] = []

    class Hears(tune.Callback):
        def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            heard.append(("start", trial.trial_id[-5:], len(trials)))

        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
            heard.append(("result", result["x"]))

        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            heard.append(("complete", trial.trial_id[-5:]))

        def on_experiment_end(self, trials: Any, **info: Any) -> None:
            heard.append(("end", len(trials)))

        def __reduce__(self) -> Any:
            return tune.Callback, ()

    fitted(yields, tmp_path, None, quiet(tmp_path, callbacks=[Hears()]))
    assert heard == [
        ("start", "00000", 1), ("result", 0), ("result", 1), ("result", 2), ("complete", "00000"), ("end", 1),
    ]  # fmt: skip


def test_a_second_experiment_of_the_same_name_runs_beside_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(log, "say", lambda line, quiet: said.append(line.text))
    runs = [fitted(returns, tmp_path, {"a": value}) for value in (1, 2, 3)]
    assert [one.experiment_path for one in runs] == [str(tmp_path / name) for name in ("e", "e_1", "e_2")]
    assert [one[0].metrics["x"] for one in runs] == [1, 2, 3]
    lines = [line for line in said if "already" in line]
    assert [line.partition("so this one is in ")[2].partition(". To")[0] for line in lines] == [
        one.experiment_path for one in runs[1:]
    ]
    again = tune.Tuner.restore(tmp_path / "e", returns)
    assert again.fit()[0].metrics["x"] == again.get_results()[0].metrics["x"] == 1
    assert any(line.startswith(f"The experiment in {tmp_path / 'e'} had ended, so nothing runs") for line in said)
    with pytest.raises(ValueError, match="was made for 'returns'"):
        tune.Tuner.restore(tmp_path / "e", yields)
    with pytest.raises(ValueError, match="another space"):
        tune.Tuner.restore(tmp_path / "e", returns, param_space={"b": 1})
    with pytest.raises(JournalError, match="no experiment"):
        tune.Tuner.restore(tmp_path, returns)


def test_ids_of_trials_are_those_of_one_experiment(tmp_path: Path) -> None:
    def named(config: dict[str, Any]) -> dict[str, Any]:
        return {"id": tune.get_context().get_trial_id(), "name": tune.get_context().get_trial_name()}

    found = [fitted(named, tmp_path, {"a": tune.grid_search([1, 2])}) for _ in range(3)]
    assert len({one.trial_id for results in found for one in results}) == 6
    for results in found:
        ids = [one.trial_id for one in results]
        assert [re.fullmatch(r"([0-9a-f]{5})_0000[01]", id) is not None for id in ids] == [True, True]
        assert len({id[:5] for id in ids}) == 1
        assert [(one.metrics["id"], one.metrics["name"], Path(one.path).name) for one in results] == [
            (id, f"named_{id}", id) for id in ids
        ]
        analysis = tune.ExperimentAnalysis(results.experiment_path, "training_iteration", "max")
        assert [trial.trial_id for trial in analysis.trials] == ids
        assert analysis.best_trial.trial_id in ids
        for name in (ids[1], "00001"):
            assert tune.Result.from_path(Path(results.experiment_path, name)).trial_id == ids[1]


def test_global_generators_begin_anew_in_each_trial(tmp_path: Path) -> None:
    def draws(config: dict[str, Any]) -> dict[str, Any]:
        import random

        return {"a": random.random(), "b": float(numpy.random.random())}

    first = fitted(draws, tmp_path / "1", num_samples=4, seed=3)
    second = fitted(draws, tmp_path / "2", num_samples=4, seed=3, max_concurrent_trials=1)
    assert [(one.metrics["a"], one.metrics["b"]) for one in first] == [
        (one.metrics["a"], one.metrics["b"]) for one in second
    ]
    assert len({one.metrics["a"] for one in first}) == 4


def test_old_names_run_experiments(tmp_path: Path) -> None:
    tune.register_trainable("counts", counts)
    analysis = tune.run(
        "counts", config={"a": tune.grid_search([1, 2])}, metric="score", mode="max", storage_path=tmp_path, name="r",
        verbose=0, resources_per_trial={"cpu": 1, "gpu": 0},
    )  # fmt: skip
    assert analysis.best_config == {"a": 2}
    assert analysis.best_result["score"] == 16
    assert tune.ExperimentAnalysis(tmp_path / "r").best_config == {"a": 2}
    spec = {"run": "counts", "config": {"a": 3}, "stop": {"score": 9}, "storage_path": tmp_path}
    trials = tune.run_experiments({"one": spec, "two": spec}, verbose=0)
    assert [trial.last_result["score"] for trial in trials] == [9, 9]
    with pytest.raises(tune.TuneError, match="1 of 1 trials"):
        tune.run(fails, config={"at": 0, "how": "raise"}, storage_path=tmp_path, name="f", verbose=0)
