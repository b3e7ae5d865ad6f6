"""Experiments that are interrupted at any moment, and continue from their journals and checkpoints."""

import errno
import json
import os
import pickle
import random
import re
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpi_runtime import tune
from mpi_runtime.cli.main import main
from mpi_runtime.errors import JournalError
from mpi_runtime.files import segments
from mpi_runtime.files.segments import Noted
from mpi_runtime.tune.experiment import driver as study_driver
from mpi_runtime.tune.experiment import journal
from mpi_runtime.tune.experiment.journal_view import Watched
from mpi_runtime.tune.schedulers import ASHAScheduler, PopulationBasedTraining
from mpi_runtime.tune.study.events import Reported
from tests.helpers import run_program, start_program, wait_until

APP = """
import os, sys, time
import mpi_runtime
from mpi_runtime import tune
from mpi_runtime.tune.schedulers import ASHAScheduler

def train(config):
    checkpoint = tune.get_checkpoint()
    first = checkpoint.to_dict()["epoch"] if checkpoint else 0
    for epoch in range(first, 9):
        time.sleep(0.02)
        tune.report({"score": config["a"] * (epoch + 1)}, checkpoint=tune.Checkpoint.from_dict({"epoch": epoch + 1}))

mpi_runtime.init(num_cpus=2)
folder = sys.argv[1]
print("driver", os.getpid(), flush=True)
if tune.Tuner.can_restore(folder + "/e"):
    tuner = tune.Tuner.restore(folder + "/e", train)
else:
    tuner = tune.Tuner(
        train, param_space={"a": tune.uniform(1, 2)},
        tune_config=tune.TuneConfig(
            "score", "max", scheduler=ASHAScheduler(max_t=9, reduction_factor=3), num_samples=12),
        run_config=tune.RunConfig(name="e", storage_path=folder, verbose=0,
                                  checkpoint_config=tune.CheckpointConfig(persist_s=0.0, num_to_keep=1)),
    )
results = tuner.fit()
print("ended", len(results), results.num_terminated, flush=True)
"""


def lines(folder: Path) -> int:
    try:
        return sum(1 for _ in journal.read(folder / "e"))
    except JournalError:
        return 0


@pytest.mark.parametrize("ranks", [None, pytest.param(3, marks=pytest.mark.mpi)])
@pytest.mark.timeout(240)
def test_a_driver_that_is_killed_goes_on(ranks: int | None, tmp_path: Path) -> None:
    for least in (6, 20):
        with start_program(APP, str(tmp_path), ranks=ranks) as program:
            wait_until(lambda least=least: lines(tmp_path) >= least, timeout=50)  # type: ignore[misc]
            pid = int(program.wait_for_line("driver").split()[1])
            os.kill(pid, signal.SIGKILL)
            assert program.finish(timeout=30).returncode != 0
    with start_program(APP, str(tmp_path), ranks=ranks) as program:
        completed = program.finish(timeout=60).expect(0)
    assert "ended 12 12\n" in completed.stdout
    seen: dict[str, list[float]] = {}
    for line in journal.read(tmp_path / "e"):
        if isinstance(line.event, Reported):
            seen.setdefault(line.event.trial_id, []).append(line.event.metrics["score"])
    assert len(seen) == 12
    best = max(seen.values(), key=lambda scores: scores[-1] / len(set(scores)))
    assert len(set(best)) == 9, "the best trial has made all epochs"


def grow(config: dict[str, Any]) -> None:
    checkpoint = tune.get_checkpoint()
    first = checkpoint.to_dict()["epoch"] if checkpoint else 0
    for epoch in range(first, 4):
        tune.report({"score": config["a"] * (epoch + 1)}, checkpoint=tune.Checkpoint.from_dict({"epoch": epoch + 1}))


def made(folder: Path) -> tune.ResultGrid:
    return tune.Tuner(
        grow,
        param_space={"a": tune.uniform(1, 2)},
        tune_config=tune.TuneConfig(
            "score", "max", scheduler=ASHAScheduler(max_t=4, reduction_factor=2), num_samples=4,
            max_concurrent_trials=1,
        ),
        run_config=tune.RunConfig(
            name="e", storage_path=folder, verbose=0, checkpoint_config=tune.CheckpointConfig(persist_s=0.0)
        ),
    ).fit()  # fmt: skip


def outcome(results: tune.ResultGrid) -> list[tuple[Any, ...]]:
    return [(one.config["a"], one.status, one.metrics["score"], one.metrics["training_iteration"]) for one in results]


@pytest.mark.usefixtures("job")
@pytest.mark.timeout(600)
def test_an_experiment_that_is_cut_at_any_line_or_within_it_ends_the_same(tmp_path: Path) -> None:
    expected = outcome(made(tmp_path))
    path = tmp_path / "e" / "000001.journal"
    data = path.read_bytes()
    with path.open("rb") as file:
        places = [
            position
            for position, body in segments.read(file, segments.Damage())
            if isinstance(body, Noted) and body.kind == journal.LINE
        ][1:]
    assert len(places) > 10
    for number, place in enumerate([*places, len(data)]):
        cut = tmp_path / f"cut{number}" / "e"
        shutil.copytree(tmp_path / "e", cut)
        (cut / "000001.journal").write_bytes(data[: place + 7 * (number % 2)])  # at a line, or within it
        results = tune.Tuner.restore(cut, grow).fit()
        assert outcome(results) == expected, number
        numbers = [line.number for line in journal.read(cut)]
        assert numbers == list(range(len(numbers)))


def own_random(config: dict[str, Any]) -> None:
    tune.report({"score": config["list"][0], "x": config["deep"]["x"]})
    if not Path(config["folder"], "repaired").exists():
        raise ValueError("not yet")


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize("search", [None, "numbers"])
def test_what_functions_of_the_space_have_drawn_by_themselves_stays(search: str | None, tmp_path: Path) -> None:
    class Numbers(tune.search.Searcher):
        def suggest(self, trial_id: str) -> dict[str, Any]:
            return {"n": len(trial_id)}

    space = {
        "deep": {"x": tune.sample_from(lambda: random.random())},
        "y": tune.sample_from(lambda config: config["deep"]["x"] + 1),
        "list": [tune.sample_from(lambda: np.float64(random.random()))],
        "both": tune.sample_from(lambda: {"a": random.randint(0, 10**9), "b": (random.random(), "text", None)}),
        "several": tune.sample_from(lambda: [random.random()] * random.randint(1, 5)),
        "choice": tune.grid_search([tune.sample_from(lambda: str(random.random())), 3]) if search is None else 3,
        "folder": str(tmp_path),
    }
    first = tune.Tuner(
        own_random,
        param_space=space,
        tune_config=tune.TuneConfig(num_samples=2, search_alg=Numbers() if search else None),
        run_config=tune.RunConfig("e", tmp_path, verbose=0),
    ).fit()
    read = tune.ExperimentAnalysis(tmp_path / "e").results_grid
    assert [one.config for one in read] == [one.config for one in first]
    assert [one.metrics for one in read] == [one.metrics for one in first]
    kept = pickle.loads(pickle.dumps(tune.ExperimentAnalysis(read)))
    assert [one.config for one in kept.trials] == [one.config for one in first]
    (tmp_path / "repaired").touch()
    again = tune.Tuner.restore(tmp_path / "e", own_random, resume_errored=True).fit()
    assert not again.errors
    assert [one.config for one in again] == [one.config for one in first]
    for one in again:
        assert one.config["y"] - 1 == pytest.approx(one.config["deep"]["x"]) == one.metrics["x"]
    assert all(type(one.config["list"][0]) is np.float64 and type(one.config["both"]["b"]) is tuple for one in again)


@pytest.mark.usefixtures("job")
def test_a_damaged_middle_costs_what_comes_after_it(tmp_path: Path) -> None:
    expected = outcome(made(tmp_path))
    path = tmp_path / "e" / "000001.journal"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    assert outcome(tune.Tuner.restore(tmp_path / "e", grow).fit()) == expected
    assert outcome(tune.Tuner.restore(tmp_path / "e", grow).get_results()) == expected


@pytest.mark.usefixtures("job")
def test_failed_trials_are_tried_again_if_asked(tmp_path: Path) -> None:
    flag = tmp_path / "broken"
    flag.touch()

    def breaks(config: dict[str, Any]) -> dict[str, Any]:
        if Path(config["flag"]).exists():
            raise OSError("no file system")
        return {"x": 1}

    run = tune.RunConfig(name="e", storage_path=tmp_path, verbose=0)
    first = tune.Tuner(breaks, param_space={"flag": str(flag)}, run_config=run).fit()
    assert [one.status for one in first] == ["ERROR"]
    flag.unlink()
    assert [one.status for one in tune.Tuner.restore(tmp_path / "e", breaks).fit()] == ["ERROR"]
    again = tune.Tuner.restore(tmp_path / "e", breaks, restart_errored=True).fit()
    assert [(one.status, one.metrics["x"]) for one in again] == [("TERMINATED", 1)]


@pytest.mark.usefixtures("job")
def test_failed_trials_go_on_from_their_checkpoints_if_asked(tmp_path: Path) -> None:
    flag = tmp_path / "broken"
    flag.touch()

    def breaks(config: dict[str, Any]) -> None:
        checkpoint = tune.get_checkpoint()
        first = checkpoint.to_dict()["epoch"] if checkpoint else 0
        for epoch in range(first, 6):
            if epoch == 3 and flag.exists() and config["n"] != 1:
                raise OSError("no file system")
            tune.report({"first": first}, checkpoint=tune.Checkpoint.from_dict({"epoch": epoch + 1}))

    run = tune.RunConfig(name="e", storage_path=tmp_path, verbose=0)
    tune.Tuner(breaks, param_space={"n": tune.grid_search([0, 1, 2])}, run_config=run).fit()
    flag.unlink()
    again = tune.Tuner.restore(tmp_path / "e", breaks, resume_errored=True).fit()
    assert [(one.status, one.metrics["first"]) for one in again] == [
        ("TERMINATED", 3), ("TERMINATED", 0), ("TERMINATED", 3)
    ]  # fmt: skip
    assert [len(one.history) for one in again] == [6, 6, 6], "each report was made once, and by one process"


class Counts(tune.Callback):
    """Has a state, and breaks off when a trial has ended."""

    def __init__(self, breaks_off: bool = False) -> None:
        self.breaks_off, self.count = breaks_off, 0

    def on_trial_complete(self, *given: Any, **info: Any) -> None:
        self.count += 1
        if self.breaks_off:
            raise InterruptedError("on purpose")

    def get_state(self) -> dict[str, Any]:
        return {"count": self.count}

    def set_state(self, state: dict[str, Any]) -> None:
        self.breaks_off, self.count = False, state["count"]


def reports(config: dict[str, Any]) -> None:
    tune.report({"n": config["n"]})


@pytest.mark.usefixtures("job")
def test_trials_that_had_not_ended_may_be_left_out(tmp_path: Path) -> None:
    """Also those that had not begun, and again after another resume. Callbacks have the states of the earlier run."""
    run = tune.RunConfig(name="e", storage_path=tmp_path, verbose=0, callbacks=[Counts(breaks_off=True)])
    config = tune.TuneConfig(max_concurrent_trials=1)
    with pytest.raises(InterruptedError):
        tune.Tuner(reports, param_space={"n": tune.grid_search([0, 1, 2])}, tune_config=config, run_config=run).fit()
    again = tune.Tuner.restore(tmp_path / "e", reports, resume_unfinished=False)
    results = again.fit()
    assert [(one.status, one.metrics.get("n")) for one in results] == [
        ("TERMINATED", 0), ("TERMINATED", None), ("TERMINATED", None)
    ]  # fmt: skip
    assert [one.count for one in again._callbacks if isinstance(one, Counts)] == [3]
    assert [one.metrics.get("n") for one in tune.Tuner.restore(tmp_path / "e", reports).fit()] == [0, None, None]


class Breaks(tune.Callback):
    """Breaks off after some reports, once."""

    def __init__(self, left: int, marker: Path) -> None:
        self.left, self.marker = left, marker

    def on_trial_result(self, *given: Any, **info: Any) -> None:
        self.left -= 1
        if self.left == 0 and not self.marker.exists():
            self.marker.touch()
            raise InterruptedError("on purpose")


def learns(config: dict[str, Any]) -> None:
    checkpoint = tune.get_checkpoint()
    for step in range(checkpoint.to_dict()["step"] if checkpoint else 0, 6):
        tune.report({"score": step + config["a"]}, checkpoint=tune.Checkpoint.from_dict({"step": step + 1}))


@pytest.mark.usefixtures("job")
def test_a_population_that_waits_goes_on_as_it_was(tmp_path: Path) -> None:
    """Wherever it was interrupted, and its schedules are in the files once."""

    def tuner(name: str, left: int = 0) -> tune.Tuner:
        scheduler = PopulationBasedTraining(
            "training_iteration", "score", "max", 2, hyperparam_mutations={"c": [1, 2]}, synch=True
        )
        run = tune.RunConfig(
            name=name, storage_path=tmp_path, verbose=0, callbacks=[Breaks(left, tmp_path / f"{name}-broke")]
        )
        space = {"a": tune.grid_search([10, 20, 40]), "c": 1}
        return tune.Tuner(learns, param_space=space, tune_config=tune.TuneConfig(scheduler=scheduler), run_config=run)

    def files(name: str) -> list[list[Any]]:
        return [json.loads(line) for line in (tmp_path / name / "pbt_global.txt").read_text().splitlines()]

    whole = tuner("whole").fit()
    assert [one.config["a"] for one in whole] == [40, 40, 40]
    for place in (1, 5, 8, 11):
        with pytest.raises(InterruptedError):
            tuner(str(place), place).fit()
        results = tune.Tuner.restore(tmp_path / str(place), learns).fit()
        assert [(one.status, one.config["a"]) for one in results] == [("TERMINATED", 40)] * 3
        assert [one[:4] for one in files(str(place))] == [one[:4] for one in files("whole")]


REFERENCES = """
import os, sys
import mpi_runtime
from mpi_runtime import tune

folder = sys.argv[1]
path = folder + "/e"

def reads(config):
    value = mpi_runtime.get(config["ref"])
    if value == 2 and not os.path.exists(folder + "/mended"):
        raise OSError("no file system")
    return {"value": value}

def space():
    return {"ref": tune.grid_search([mpi_runtime.put(1), mpi_runtime.put(2)])}

def show(results):
    print([one.status if one.error is None else str(one.error).split()[-1] for one in results])
    print("ObjectLostError" in str(results.errors), [one.metrics.get("value") for one in results])

mpi_runtime.init(num_cpus=1)
run = tune.RunConfig(name="e", storage_path=folder, verbose=0)
show(tune.Tuner(reads, param_space=space(), run_config=run).fit())
mpi_runtime.shutdown()
open(folder + "/mended", "w").close()
mpi_runtime.init(num_cpus=1)
show(tune.Tuner.restore(path, reads, resume_errored=True).fit())
show(tune.Tuner.restore(path, reads, param_space=space(), resume_errored=True).fit())
"""


def test_references_of_a_space_are_replaced_by_those_of_the_next_job(tmp_path: Path) -> None:
    """They ended with their job. Without new ones the error says so."""
    assert run_program(REFERENCES, str(tmp_path)).expect(0).stdout.splitlines() == [
        "['TERMINATED', 'system']",
        "False [1, None]",
        "['TERMINATED', 'somewhere.']",
        "True [1, None]",
        "['TERMINATED', 'TERMINATED']",
        "False [1, 2]",
    ]


@pytest.mark.usefixtures("job")
def test_a_disk_that_is_full_before_the_first_line_is_named_with_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: Any, data: bytes) -> None:
        file.write(data[:5])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(segments, "write_all", full)
        with pytest.raises(OSError, match=r"cannot be written: No space left on device\. Make room there.*/e'"):
            made(tmp_path)
    assert outcome(made(tmp_path)) == outcome(made(tmp_path / "whole"))


@pytest.mark.usefixtures("job")
def test_a_full_disk_ends_it_and_with_more_room_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add, count = journal.Journal.add, 0

    def full(self: Any, *arguments: Any) -> None:
        nonlocal count
        count += 1
        if count == 8:
            raise OSError(errno.ENOSPC, "No space left on device")
        add(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(journal.Journal, "add", full)
        patch.setattr(study_driver, "GRACE_S", 1000.0)  # it does not wait for trials that are to end
        with pytest.raises(OSError, match=r"No space left on device, so the experiment ends\. Make room for .*, then"):
            made(tmp_path)
    results = tune.Tuner.restore(tmp_path / "e", grow).fit()
    assert outcome(results) == outcome(made(tmp_path / "whole"))


@pytest.mark.usefixtures("job")
def test_a_searcher_that_draws_otherwise_cannot_be_resumed(tmp_path: Path) -> None:
    class Otherwise(tune.search.Searcher):
        def suggest(self, trial_id: str) -> dict[str, Any]:
            return {"a": os.urandom(4).hex()}

    run = tune.RunConfig(name="e", storage_path=tmp_path, verbose=0)
    tune.Tuner(lambda config: {"x": 1}, tune_config=tune.TuneConfig(search_alg=Otherwise()), run_config=run).fit()
    with pytest.raises(JournalError, match=r"Trial \w+_00000 had the configuration"):
        tune.Tuner.restore(tmp_path / "e").fit()


@pytest.mark.usefixtures("job")
def test_loggers_have_each_report_once_after_a_resume(tmp_path: Path) -> None:
    run = tune.RunConfig(name="e", storage_path=tmp_path, verbose=0, callbacks=[tune.JsonLoggerCallback()])
    (result,) = tune.Tuner(grow, param_space={"a": 1}, run_config=run).fit()
    file = Path(result.path, "result.json")
    whole = file.read_text()
    file.write_text(whole + "half a li")
    tune.Tuner.restore(tmp_path / "e", grow).fit()
    assert [line.count('"score"') for line in file.read_text().splitlines()] == [1] * 4


@pytest.mark.usefixtures("job")
def test_the_command_line_shows_and_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = made(tmp_path)
    best = results.get_best_result()
    folder = str(tmp_path / "e")
    assert main(["tune", "ls", str(tmp_path)]) == 0
    assert re.search(r"e: 4 trials \(\d done(, \d stopped early)?\), best score", capsys.readouterr().out)
    assert main(["tune", "best", folder]) == 0
    assert f"trial {best.trial_id}, done" in capsys.readouterr().out
    assert main(["tune", "show", folder]) == 0
    assert len(re.findall(" done | stopped early ", capsys.readouterr().out)) == 4
    assert main(["tune", "show", folder, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["seconds"] for one in shown] == [one.metrics["time_total_s"] for one in Watched(tmp_path / "e")], (
        "each from its own start"
    )
    assert main(["tune", "resume", folder]) == 0
    assert "ResultGrid of 4 trials" in capsys.readouterr().out
    assert main(["journal", "list", folder]) == 0
    assert "events of an experiment: mpi-runtime tune show" in capsys.readouterr().out
    assert main(["journal", "compact", folder]) == 2
    assert "needs every line" in capsys.readouterr().err
    assert main(["tune", "best", str(tmp_path / "nothing")]) == 2


@pytest.mark.usefixtures("job")
def test_two_programs_cannot_run_one_experiment(tmp_path: Path) -> None:
    made(tmp_path)
    log = journal.Journal(tmp_path / "e", 99, journal.Header())
    try:
        with pytest.raises(JournalError, match="in use by"):
            tune.Tuner.restore(tmp_path / "e", grow).fit()
    finally:
        log.close()


def test_lines_are_on_the_disk_before_what_they_supersede_is_removed(tmp_path: Path) -> None:
    done: list[str] = []
    log = journal.Journal(tmp_path, 0, journal.Header())
    log.after_sync(lambda: done.append("removed"))
    log.turn()
    assert done == []
    time.sleep(journal.SYNC_S)
    log.turn()
    assert done == ["removed"]
    log.close()


@pytest.mark.usefixtures("job")
def test_an_experiment_that_others_may_write_to_is_not_loaded(tmp_path: Path) -> None:
    made(tmp_path)
    folder = tmp_path / "e"
    assert folder.stat().st_mode & 0o777 == 0o700, "whatever the umask is"

    def refused(why: str) -> None:
        with pytest.raises(PermissionError, match=rf"loading its values can run code, and \S+ {why}"):
            tune.Tuner.restore(folder, grow)

    folder.chmod(0o777)
    refused("can be written to by other users")
    folder.chmod(0o755)
    file = folder / "tuner.pickle"
    file.chmod(0o666)
    refused("can be written to by other users")
    folder.chmod(0o700)
    tune.Tuner.restore(folder, grow)  # nobody else reaches the file
    (folder / "link").symlink_to("/tmp")
    refused("is a symbolic link")
    run = tune.RunConfig(name="new", storage_path=tmp_path)
    (tmp_path / "new").mkdir()
    (tmp_path / "new").chmod(0o777)
    with pytest.raises(OSError, match="cannot be written: loading its values can run code"):
        tune.Tuner(grow, run_config=run).fit()
