"""`mpi-runtime tune ls|best|show|resume`: what each verb prints, of experiments that run, have ended or were killed."""

import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime import tune
from mpi_runtime.cli.main import main
from mpi_runtime.errors import JournalError
from mpi_runtime.tune.experiment import journal
from tests.helpers import start_command, start_program, wait_until

pytestmark = pytest.mark.usefixtures("job")


def falls(config: dict[str, Any]) -> None:
    for epoch in range(3):
        tune.report({"loss": float("nan") if config["a"] == 1 else config["a"] / (epoch + 1)})
    if config["a"] == 4:
        raise OSError("the last one fails")


def experiment(folder: Path, name: str, values: list[int], trainable: Any = falls, **tuning: Any) -> tune.ResultGrid:
    space = {"a": tune.grid_search(values), "net": {"units": [7, 8]}}
    run = tune.RunConfig(name=name, storage_path=folder, verbose=0)
    return tune.Tuner(trainable, param_space=space, tune_config=tune.TuneConfig(**tuning), run_config=run).fit()


def said(capsys: pytest.CaptureFixture[str], *words: str | Path, code: int = 0) -> str:
    capsys.readouterr()
    assert main(["tune", *map(str, words)]) == code
    seen = capsys.readouterr()
    return seen.err if code == 2 else seen.out


def test_ls_has_a_line_for_each_experiment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = experiment(tmp_path, "one", [1, 2, 3, 4], metric="loss", mode="min")
    experiment(tmp_path, "two", [2, 3])
    (tmp_path / "no experiment").mkdir()
    lines = said(capsys, "ls", tmp_path).splitlines()
    assert lines == [
        f"one: 4 trials (3 done, 1 failed), best loss 0.666667 in trial {one[1].trial_id}",
        "two: 2 trials (2 done)",
    ]
    assert said(capsys, "ls", tmp_path / "one").splitlines() == lines[:1]
    assert "has no experiments" in said(capsys, "ls", tmp_path / "no experiment", code=2)
    assert "there is no directory" in said(capsys, "ls", tmp_path / "nowhere", code=2)


def test_best_prints_the_configuration_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, mode, trial, best in (("low", "min", 2, 2), ("high", "max", 1, 3)):
        trial_id = experiment(tmp_path, name, [1, 3, 2], metric="loss", mode=mode)[trial].trial_id
        first, second, *rest = said(capsys, "best", tmp_path / name).splitlines()
        assert first == f"trial {trial_id}, done, 3 reports"
        assert second == f"loss: {best / 3}", "what is not a number is not the best"
        assert json.loads("\n".join(rest)) == {"a": best, "net": {"units": [7, 8]}}
    experiment(tmp_path, "none", [1])
    assert "a metric that is compared" in said(capsys, "best", tmp_path / "none", code=2)


def test_show_has_a_line_for_each_trial(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment(tmp_path, "e", [2, 4], metric="loss", mode="min")
    head, *rows = said(capsys, "show", tmp_path / "e").splitlines()
    assert head == "e: trials of falls, min loss"
    assert len(rows) == 2
    assert re.match(r"\w+_00000 done +3 reports +[\d.]+ s  0\.666\d+ +\{\"a\": 2, ", rows[0])
    assert re.match(r"\w+_00001 failed +3 reports +[\d.]+ s  1\.33\d+ +\{\"a\": 4, ", rows[1])


def test_resume_of_what_has_ended_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment(tmp_path, "good", [2, 3])
    experiment(tmp_path, "bad", [2, 4])
    assert "<ResultGrid of 2 trials, 0 failed" in said(capsys, "resume", tmp_path / "good")
    assert "<ResultGrid of 2 trials, 1 failed" in said(capsys, "resume", tmp_path / "bad", code=1)
    assert "no experiment to restore" in said(capsys, "resume", tmp_path, code=2)


def test_resume_needs_the_values_of_with_parameters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def reads(config: dict[str, Any], data: list[int]) -> dict[str, Any]:
        return {"loss": data[0]}

    experiment(tmp_path, "e", [1], tune.with_parameters(reads, data=[5]))
    assert "made by with_parameters, and its values ended" in said(capsys, "resume", tmp_path / "e", code=2)
    assert "1 done" in said(capsys, "ls", tmp_path), "who only looks needs no values"


APP = """
import os, sys, time
import mpi_runtime
from mpi_runtime import tune

def train(config):
    checkpoint = tune.get_checkpoint()
    first = checkpoint.to_dict()["epoch"] if checkpoint else 0
    for epoch in range(first, 5):
        while epoch == 2 and config["a"] > 2 and os.path.exists(config["hold"]):
            time.sleep(0.05)
        tune.report({"score": config["a"] * (epoch + 1)}, checkpoint=tune.Checkpoint.from_dict({"epoch": epoch + 1}))

mpi_runtime.init(num_cpus=2)
print("driver", os.getpid(), flush=True)
tune.Tuner(
    train, param_space={"a": tune.grid_search([1, 2, 3, 4, 5, 6]), "hold": sys.argv[2]},
    tune_config=tune.TuneConfig("score", "max"),
    run_config=tune.RunConfig(name="e", storage_path=sys.argv[1], verbose=0),
).fit()
"""


def lines(folder: Path) -> int:
    try:
        return sum(1 for _ in journal.read(folder / "e"))
    except JournalError:
        return 0


def command(*words: str | Path) -> Any:
    with start_command([sys.executable, "-m", "mpi_runtime", "tune", *words]) as program:
        return program.finish(timeout=60)


@pytest.mark.timeout(240)
def test_from_the_shell_while_it_runs_and_after_a_kill(tmp_path: Path) -> None:
    """The program is gone, and its function with it: the experiment has all that is needed."""
    hold = tmp_path / "hold"
    hold.touch()
    with start_program(APP, str(tmp_path), str(hold)) as program:
        wait_until(lambda: lines(tmp_path) >= 16, timeout=50)
        assert "; run by " in command("ls", tmp_path).expect(0).stdout
        os.kill(int(program.wait_for_line("driver").split()[1]), signal.SIGKILL)
        assert program.finish(timeout=30).returncode != 0
    hold.unlink()
    shutil.copytree(tmp_path / "e", tmp_path / "moved" / "e")
    listed = command("ls", tmp_path / "moved").expect(0).stdout
    assert listed.startswith("e: 4 trials (2 done, 2 running), best score "), "as it was when it ended"
    assert "<ResultGrid of 6 trials, 0 failed" in command("resume", tmp_path / "moved" / "e").expect(0).stdout
    shown = command("show", tmp_path / "moved" / "e").expect(0).stdout
    assert shown.count(" done ") == 6
    assert "_00005, done, " in command("best", tmp_path / "moved" / "e").expect(0).stdout.splitlines()[0]
    assert command("best", tmp_path / "moved" / "e").expect(0).stdout.splitlines()[1] == "score: 30"
