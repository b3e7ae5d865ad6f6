"""Which checkpoints are kept: the best n and the last, on disk and in results, also after kills and other versions."""

import math
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime import tune
from mpi_runtime.tune.schedulers import TrialScheduler
from mpi_runtime.tune.schedulers.base import Exploit, Verdicts
from mpi_runtime.tune.trial import Trial
from tests.helpers import run_program

VALUES = [1, 5, 2, 4, 3, 0]
EARLIER = Path(__file__).parent / "recorded" / "earlier.zip"
"""An experiment of a version whose trials were `00000` and so on, and which removed the best checkpoint. It was killed
after three reports of the second of three trials."""


def report(metrics: dict[str, Any], number: int, is_dictionary: bool) -> None:
    """Report with a checkpoint that has a number in it."""
    if is_dictionary:
        tune.report(metrics, checkpoint=tune.Checkpoint.from_dict({"number": number}))
        return
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "number").write_text(str(number))
        tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(folder))


def number_in(checkpoint: tune.Checkpoint) -> int:
    file = Path(checkpoint.path, "number")
    return int(file.read_text()) if file.exists() else checkpoint.to_dict()["number"]


def train(config: dict[str, Any]) -> None:
    """Report values, some of them nested or missing, and save the number of each."""
    checkpoint = tune.get_checkpoint()
    first = number_in(checkpoint) + 1 if checkpoint else 0
    for number, value in list(enumerate(config["values"]))[first:]:
        metrics = {} if value is None else {"acc": value, "env": {"ret": value}}
        report(metrics, number, config["is_dictionary"])


def experiment(folder: Path, values: list[Any], is_dictionary: bool = False, **kept: Any) -> tune.Result:
    run = tune.RunConfig(name="e", storage_path=folder, verbose=0, checkpoint_config=tune.CheckpointConfig(**kept))
    (result,) = tune.Tuner(train, param_space={"values": values, "is_dictionary": is_dictionary}, run_config=run).fit()
    return result


def kept_by(result: tune.Result) -> list[int]:
    """The numbers of the checkpoints of a trial, which its result and its directory agree about."""
    numbers = [number_in(checkpoint) for checkpoint, _ in result.best_checkpoints]
    assert sorted(path.name for path in Path(result.path).glob("checkpoint_*")) == [
        os.path.basename(checkpoint.path) for checkpoint, _ in result.best_checkpoints
    ]
    assert [number_in(checkpoint) for checkpoint, _ in tune.Result.from_path(result.path).best_checkpoints] == numbers
    return numbers


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize("persist_s", [0.0, 30.0])
@pytest.mark.parametrize("is_dictionary", [False, True])
@pytest.mark.parametrize("name", ["acc", "env/ret"])
@pytest.mark.parametrize("order", ["max", "min"])
@pytest.mark.parametrize(("most", "kept"), [(1, [1, 5]), (2, [1, 3, 5]), (3, [1, 3, 4, 5]), (None, [0, 1, 2, 3, 4, 5])])
def test_the_best_checkpoints_and_the_last_stay(
    most: int | None, kept: list[int], order: str, name: str, is_dictionary: bool, persist_s: float, tmp_path: Path
) -> None:
    values = VALUES if order == "max" else [-value for value in VALUES]
    settings = {"checkpoint_score_attribute": name, "checkpoint_score_order": order, "persist_s": persist_s}
    result = experiment(tmp_path, values, is_dictionary, num_to_keep=most, **settings)
    assert kept_by(result) == kept
    best, last = result.get_best_checkpoint(name, order), result.checkpoint
    assert best is not None
    assert last is not None
    assert (number_in(best), number_in(last)) == (1, 5)


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize(
    ("values", "most", "kept"),
    [
        ([2, 2, 2, 1], 1, [2, 3]),  # of equal ones the newest, as in Ray
        ([2, 2, 2, 1], 2, [1, 2, 3]),
        ([math.nan, 1, math.nan, 0], 1, [1, 3]),
        ([0, math.nan], 1, [0, 1]),
        ([1, 2, math.nan, 3, 0], 2, [1, 3, 4]),
        ([1, 2, 3], 1, [2]),
        ([1], 3, [0]),
    ],
)
def test_of_equal_ones_the_newest_and_what_is_not_a_number_is_the_worst(
    values: list[Any], most: int, kept: list[int], tmp_path: Path
) -> None:
    result = experiment(tmp_path, values, num_to_keep=most, checkpoint_score_attribute="acc")
    assert kept_by(result) == kept


@pytest.mark.usefixtures("job")
def test_a_report_without_the_score_ranks_last_and_is_a_warning(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"checkpoint_score_attribute is 'acc', which is not in a report .*rank last"):
        result = experiment(tmp_path, [None, 1, None, 0], num_to_keep=1, checkpoint_score_attribute="acc")
    assert kept_by(result) == [1, 3]
    assert number_in(result.get_best_checkpoint("acc", "max")) == 1
    with pytest.raises(RuntimeError, match="Invalid metric name 'other': the reports with checkpoints have "):
        result.get_best_checkpoint("other", "max")


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize("persist_s", [0.0, 0.0001, 30.0])
@pytest.mark.parametrize(("most", "kept"), [(1, [5]), (3, [3, 4, 5])])
def test_without_a_score_the_last_dictionaries_stay(
    most: int, kept: list[int], persist_s: float, tmp_path: Path
) -> None:
    result = experiment(tmp_path, VALUES, True, num_to_keep=most, persist_s=persist_s)
    assert kept_by(result) == kept
    assert result.checkpoint is not None
    assert number_in(result.checkpoint) == 5


KILLED = """
import os, sys, tempfile, time
from pathlib import Path
from mpi_runtime import tune

folder, is_dictionary, wait_s = Path(sys.argv[1]), sys.argv[2] == "True", float(sys.argv[3])

def train(config):
    checkpoint = tune.get_checkpoint()
    first = 0
    if checkpoint and is_dictionary:
        first = checkpoint.to_dict()["number"] + 1
    elif checkpoint:
        first = int(Path(checkpoint.path, "number").read_text()) + 1
    for number, value in list(enumerate([1, 5, 2, 4, 3, 0]))[first:]:
        if number in (2, 4) and not (folder / str(number)).exists():
            (folder / str(number)).touch()
            time.sleep(wait_s)  # the driver has removed files by then, or has not
            os.kill(int((folder / "pid").read_text()), 9)
            time.sleep(60)
        made = tune.Checkpoint.from_dict({"number": number})
        if not is_dictionary:
            made = tune.Checkpoint.from_directory(tempfile.mkdtemp())
            Path(made.path, "number").write_text(str(number))
        tune.report({"acc": value}, checkpoint=made)

(folder / "pid").write_text(str(os.getpid()))
if tune.Tuner.can_restore(folder / "e"):
    tuner = tune.Tuner.restore(folder / "e", train)
else:
    kept = tune.CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="acc")
    tuner = tune.Tuner(train, run_config=tune.RunConfig(name="e", storage_path=folder, checkpoint_config=kept))
tuner.fit()
"""


@pytest.mark.parametrize("wait_s", [0.0, 2.5])
@pytest.mark.parametrize("is_dictionary", [False, True])
def test_after_kills_the_same_stay(is_dictionary: bool, wait_s: float, tmp_path: Path) -> None:
    arguments = str(tmp_path), str(is_dictionary), str(wait_s)
    for _ in range(2):
        assert run_program(KILLED, *arguments).returncode == -signal.SIGKILL
    run_program(KILLED, *arguments).expect(0)
    (result,) = tune.Tuner.restore(tmp_path / "e").get_results()
    assert kept_by(result) == [1, 3, 5]


IN_MEMORY = """
import os, sys, time
from pathlib import Path
from mpi_runtime import tune

folder, most = Path(sys.argv[1]), int(sys.argv[2])

def train(config):
    checkpoint = tune.get_checkpoint()
    for number in range(checkpoint.to_dict()["number"] + 1 if checkpoint else 0, 6):
        if number == 2:
            time.sleep(0.6)  # the next one is written
        if number == 5 and not checkpoint:
            time.sleep(2.5)  # the driver has removed what it may
            os.kill(int((folder / "pid").read_text()), 9)
            time.sleep(60)
        tune.report({"number": number}, checkpoint=tune.Checkpoint.from_dict({"number": number}))

(folder / "pid").write_text(str(os.getpid()))
if tune.Tuner.can_restore(folder / "e"):
    tuner = tune.Tuner.restore(folder / "e", train)
else:
    kept = tune.CheckpointConfig(num_to_keep=most, persist_s=0.5)
    tuner = tune.Tuner(train, run_config=tune.RunConfig(name="e", storage_path=folder, checkpoint_config=kept))
tuner.fit()
"""


@pytest.mark.parametrize("most", [1, 2])
def test_later_ones_in_memory_do_not_replace_the_last_on_disk(most: int, tmp_path: Path) -> None:
    """After a kill the trial continues from that."""
    assert run_program(IN_MEMORY, str(tmp_path), str(most)).returncode == -signal.SIGKILL
    run_program(IN_MEMORY, str(tmp_path), str(most)).expect(0)
    (result,) = tune.Tuner.restore(tmp_path / "e").get_results()
    numbers = [one["number"] for one in result.history]
    assert (numbers.count(0), numbers.count(1), numbers[-1]) == (1, 1, 5), "not from scratch"
    assert kept_by(result) == [4, 5][-most:]


class Copies(TrialScheduler):
    """At its second report the second trial continues from the checkpoint of the first."""

    needs_metric = False

    def __init__(self) -> None:
        super().__init__("training_iteration", None, None)

    def begin(self, seed: int) -> None:
        self._trials: list[Trial] = []

    def on_trial_add(self, trial: Trial) -> None:
        self._trials.append(trial)

    def on_trial_result(self, trial: Trial, time: float, score: float) -> Verdicts:
        if trial.index == 1 and time == 2 and "copied" not in trial.config:
            return {trial.trial_id: Exploit(self._trials[0], {**trial.config, "copied": True})}
        return {}


def copied(config: dict[str, Any]) -> None:
    """The first trial saves, waits until the second has copied that, and saves more."""

    def wait_for(name: str) -> None:
        while not Path(config["folder"], name).exists():
            time.sleep(0.01)

    if config.get("copied"):
        checkpoint = tune.get_checkpoint()
        Path(config["folder"], "copied").touch()
        wait_for("more")
        assert checkpoint is not None
        assert number_in(checkpoint) == 100
        if config["reports"]:
            report({"acc": 7}, 107, config["is_dictionary"])
    elif config["x"] == 0:
        report({"acc": 9}, 100, config["is_dictionary"])
        Path(config["folder"], "saved").touch()
        wait_for("copied")
        for number in range(1, 4):
            report({"acc": 9 + number}, 100 + number, config["is_dictionary"])
        Path(config["folder"], "more").touch()
    else:
        report({"acc": 8}, 110, config["is_dictionary"])
        wait_for("saved")
        report({"acc": 1}, 111, config["is_dictionary"])


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize("reports", [False, True])
@pytest.mark.parametrize("is_dictionary", [False, True])
def test_a_checkpoint_from_which_another_trial_continues_stays_meanwhile(
    is_dictionary: bool, reports: bool, tmp_path: Path
) -> None:
    kept = tune.CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="acc")
    run = tune.RunConfig(name="e", storage_path=tmp_path, verbose=0, checkpoint_config=kept)
    space = {
        "x": tune.grid_search([0, 1]), "folder": str(tmp_path), "is_dictionary": is_dictionary, "reports": reports,
    }  # fmt: skip
    config = tune.TuneConfig(scheduler=Copies())
    source, copy = tune.Tuner(copied, param_space=space, tune_config=config, run_config=run).fit()
    assert copy.checkpoint is not None
    assert number_in(copy.checkpoint) == (107 if reports else 100)
    assert kept_by(source) == ([103] if reports else [100, 103])
    assert kept_by(copy) == ([110, 107] if reports else [110, 111])


@pytest.mark.usefixtures("job")
def test_a_copy_in_memory_does_not_take_the_place_of_an_own_checkpoint(tmp_path: Path) -> None:
    """The trial ends before it has saved for itself: the copy becomes a checkpoint of its own, with the next number."""
    run = tune.RunConfig(name="e", storage_path=tmp_path, verbose=0)
    space = {"x": tune.grid_search([0, 1]), "folder": str(tmp_path), "is_dictionary": True, "reports": False}
    config = tune.TuneConfig(scheduler=Copies())
    _, copy = tune.Tuner(copied, param_space=space, tune_config=config, run_config=run).fit()
    assert copy.checkpoint is not None
    assert number_in(copy.checkpoint) == 100
    assert kept_by(copy) == [111, 100]


def continued(config: dict[str, Any], values: list[int]) -> None:
    checkpoint = tune.get_checkpoint()
    done = int(Path(checkpoint.path, "done").read_text()) if checkpoint else 0
    for number, value in list(enumerate(values))[done:]:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "done").write_text(str(number + 1))
            tune.report({"acc": value}, checkpoint=tune.Checkpoint.from_directory(folder))


@pytest.mark.usefixtures("job")
def test_an_experiment_of_an_earlier_version_continues(tmp_path: Path) -> None:
    shutil.unpack_archive(EARLIER, tmp_path)
    place = tmp_path / "earlier"
    assert [one.status for one in tune.Tuner.restore(place, earlier()).get_results()] == [
        "TERMINATED", "RUNNING",
    ]  # fmt: skip
    results = tune.Tuner.restore(place, earlier()).fit()
    assert [(one.trial_id, one.status, one.config["x"]) for one in results] == [
        ("00000", "TERMINATED", 0), ("00001", "TERMINATED", 1), ("00002", "TERMINATED", 2),
    ]  # fmt: skip
    assert [[report["acc"] for report in one.history] for one in results] == [VALUES] * 3
    # That version had removed the best, 5, so the best that is left stays.
    assert [[report["acc"] for _, report in one.best_checkpoints] for one in results] == [[0], [4, 0], [5, 0]]
    for one in [*results, *tune.Tuner.restore(place, earlier()).get_results()]:
        there = len(list(Path(one.path).glob("checkpoint_*")))
        assert there == len(one.best_checkpoints) == len(tune.Result.from_path(one.path).best_checkpoints)


def earlier() -> Any:
    """The trainable of that experiment, whose name was `train`."""
    continued.__name__ = "train"
    return tune.with_parameters(continued, values=VALUES)


class Notes(tune.Callback):
    """Notes the checkpoints that it hears of."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_checkpoint(self, iteration: int, trials: Any, trial: Any, checkpoint: Any, **info: Any) -> None:
        self.seen.append(checkpoint.to_dict())


def of_memory(config: dict[str, Any]) -> None:
    for value in range(2):
        tune.report({"loss": value}, checkpoint=tune.Checkpoint.from_dict({"value": value}))


@pytest.mark.usefixtures("job")
def test_callbacks_get_checkpoints_and_not_what_the_driver_passes_on(tmp_path: Path) -> None:
    notes = Notes()
    tune.Tuner(of_memory, run_config=tune.RunConfig(storage_path=tmp_path, verbose=0, callbacks=[notes])).fit()
    assert notes.seen == [{"value": 0}, {"value": 1}]
