"""Reports of values that are no numbers, or cannot be written: they end no search, and all see the same of them."""

import datetime
import decimal
import fractions
import json
import math
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy
import pytest

from mpi_runtime import train, tune
from mpi_runtime.cli.main import main
from mpi_runtime.files import segments
from mpi_runtime.files.segments import Noted
from mpi_runtime.show.numbers import plural
from mpi_runtime.tune.experiment import journal
from mpi_runtime.tune.experiment.journal_view import Watched
from mpi_runtime.tune.schedulers import ASHAScheduler, HyperBandScheduler, MedianStoppingRule, PopulationBasedTraining
from mpi_runtime.tune.show.page import document
from mpi_runtime.tune.study.events import Reported
from mpi_runtime.tune.trial import text
from tests.odd_values import odd_values

pytestmark = pytest.mark.usefixtures("job")

MISSING = object()


class Plain:
    """Its text has an address."""


def itself() -> list[Any]:
    found: list[Any] = [1]
    found.append(found)
    return found


KEPT: list[tuple[Callable[[], Any], Any]] = [
    (lambda: 2**70, "1180591620717411303424"),
    (lambda: "caf\udce9", "caf\\udce9"),
    (lambda: numpy.longdouble("2.5"), 2.5),
    (lambda: [numpy.float32(0.5), 1j], [0.5, "1j"]),
    (lambda: fractions.Fraction(1, 4), 0.25),
    (lambda: decimal.Decimal("1.5"), 1.5),
    (lambda: Plain(), "<tests.e2e.tune.test_odd_reports.Plain object>"),
    (lambda: {(1, 2): {3: "a", None: 4}}, {"(1, 2)": {3: "a", "None": 4}}),
    (lambda: itself(), [1, "[1, [...]]"]),
    (lambda: {"n": {1}}, {"n": [1]}),
    (lambda: datetime.datetime(2026, 1, 2), "2026-01-02T00:00:00"),
    (lambda: (b"\xff", 10**400), [b"\xff", str(10**400)]),
]
"""Values, and what all see of them."""


def tuner(function: Any, folder: Path, count: int, run: Any = None, **config: Any) -> tune.Tuner:
    run = run or tune.RunConfig(name="e", storage_path=folder, verbose=0)
    space = {"n": tune.grid_search([*range(count)])}
    goal = {"metric": "loss", "mode": "min", **config}
    return tune.Tuner(function, param_space=space, tune_config=tune.TuneConfig(**goal), run_config=run)


def reported(folder: Path, trial_id: str) -> list[Any]:
    """The metrics of a trial on disk."""
    events = [line.event for line in journal.read(folder / "e")]
    return [event.metrics for event in events if isinstance(event, Reported) and event.trial_id.endswith(trial_id)]


def test_what_cannot_be_written_is_the_same_in_memory_on_disk_and_after_a_restore(tmp_path: Path) -> None:
    def reports(config: dict[str, Any]) -> None:
        tune.report({"loss": 1.0, "x": KEPT[config["n"]][0](), "in": {"y": KEPT[config["n"]][0]()}})

    run = tune.RunConfig(name="e", storage_path=tmp_path, verbose=0, files=["json", "csv"])
    with pytest.warns(UserWarning, match=r"has reported what cannot be written in 'x' \(.+\), so"):
        results = tuner(reports, tmp_path, len(KEPT), run).fit()
    restored = tune.Tuner.restore(tmp_path / "e", reports).fit()
    for number, (_, seen) in enumerate(KEPT):
        for place in (results[number].metrics, results[number].history[0], restored[number].metrics):
            assert (place["x"], place["in"]["y"]) == (seen, seen), number
        assert reported(tmp_path, f"{number:05d}")[0]["x"] == seen
        lines = Path(results[number].path, "result.json").read_text().splitlines()
        assert [json.loads(line)["loss"] for line in lines] == [1.0]
    assert results.num_errors == restored.num_errors == 0


def test_the_warning_about_text_appears_once(tmp_path: Path) -> None:
    def reports(config: dict[str, Any]) -> None:
        for _ in range(3):
            tune.report({"loss": 1.0, "x": Plain()})

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        tuner(reports, tmp_path, 4).fit()
    assert ["cannot be written in 'x' (Plain)" in str(one.message) for one in seen] == [True]


FAILING: list[tuple[Any, str]] = [
    (None, "The metric 'loss' of trial 00002 is None, which is not a number. Report one."),
    (MISSING, "The metric 'loss' is not in the report of trial 00002, which has ["),
    ([1], "The metric 'loss' of trial 00002 is [1], which is not a number. Report one."),
    (10**400, f"The metric 'loss' of trial 00002 is '{10**98}, which is too large. Report one."),
    ("low", "The metric 'loss' of trial 00002 is 'low', which is not a number. Report one."),
    ({"a": 1.0}, "The metric 'loss' of trial 00002 is {'a': 1.0}, which is not a number. Report one."),
]
NUMBERS: list[tuple[Any, float]] = [
    (2**70, 2.0**70),
    (numpy.longdouble("2.5"), 2.5),
    (fractions.Fraction(1, 4), 0.25),
    (decimal.Decimal("1.5"), 1.5),
    ("0.5", 0.5),
    (numpy.ones((1, 1)), 1.0),
]


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize(("value", "words"), FAILING, ids=[text[16:50] for _, text in FAILING])
@pytest.mark.filterwarnings("ignore:Trial ")
def test_a_metric_that_is_not_a_number_fails_its_trial_only(value: Any, words: str, at: int, tmp_path: Path) -> None:
    fixed = tmp_path / "fixed"
    is_missing = value is MISSING

    def reports(config: dict[str, Any]) -> None:
        checkpoint = tune.get_checkpoint()
        for epoch in range(checkpoint.to_dict()["next"] if checkpoint else 0, 4):
            loss = {"loss": float(config["n"])}
            if config["n"] == 2 and epoch == at and not fixed.exists():
                loss = {} if is_missing else {"loss": value}
            saved = tune.Checkpoint.from_dict({"next": epoch + 1})
            tune.report({"epoch": epoch, **loss}, checkpoint=saved if epoch == 0 else None)

    results = tuner(reports, tmp_path, 5).fit()
    assert [one.status for one in results] == [*["TERMINATED"] * 2, "ERROR", *["TERMINATED"] * 2]
    (error,) = results.errors
    assert isinstance(error, tune.TuneError)
    words = words.replace("trial ", f"trial {results[2].trial_id[:-5]}")
    assert str(error).startswith(words)
    assert words in Path(results[2].path, "error.txt").read_text()
    assert results.get_best_result().config["n"] == 0
    assert [one["epoch"] for one in results[2].history] == [*range(at + 1)]
    seen = Watched(tmp_path / "e")
    assert str(seen[2].error).startswith(words)
    assert "00002" in json.dumps(document(seen))
    assert main(["tune", "show", str(tmp_path / "e")]) == 0
    assert tune.Result.from_path(results[2].path).best["loss"] == 2.0

    assert str(tune.Tuner.restore(tmp_path / "e", reports).fit().errors[0]).startswith(words)
    assert tune.ExperimentAnalysis(tmp_path / "e").best_config == {"n": 0}
    fixed.touch()
    again = tune.Tuner.restore(tmp_path / "e", reports, resume_errored=True).fit()
    assert (again.num_errors, again.num_terminated) == (0, 5)
    assert [one["epoch"] for one in again[2].history][at + 1 :] == [1, 2, 3], "from its last checkpoint"
    assert again.get_best_result(mode="max", metric="loss").config["n"] == 4


@pytest.mark.parametrize(("value", "number"), NUMBERS, ids=[str(value) for value, _ in NUMBERS])
@pytest.mark.filterwarnings("ignore:Trial ")
def test_a_metric_of_another_class_is_a_number_everywhere(value: Any, number: float, tmp_path: Path) -> None:
    results = tuner(lambda config: tune.report({"loss": value}), tmp_path, 2).fit()
    places = [results[0].metrics, results[0].best, results[0].history[0], Watched(tmp_path / "e")[0].metrics]
    places += [tune.Tuner.restore(tmp_path / "e").get_results()[0].metrics, results.get_best_result().metrics]
    assert [one["loss"] for one in places] == [number] * 6
    assert results.num_errors == 0
    assert main(["tune", "best", str(tmp_path / "e")]) == 0


def test_a_failed_report_counts_as_a_failure(tmp_path: Path) -> None:
    """So it is tried again from its last checkpoint, and `fail_fast` ends the search."""

    def reports(config: dict[str, Any]) -> None:
        first = tune.get_checkpoint() is None
        tune.report({"loss": 1.0}, checkpoint=tune.Checkpoint.from_dict({}))
        tune.report({"loss": None if first and config["n"] == 0 else 0.0})

    def run(name: str, **failures: Any) -> tune.RunConfig:
        config = tune.FailureConfig(**failures)
        return tune.RunConfig(name=name, storage_path=tmp_path, verbose=0, failure_config=config)

    results = tuner(reports, tmp_path, 2, run("again", max_failures=1)).fit()
    assert [(one.status, len(one.history)) for one in results] == [("TERMINATED", 4), ("TERMINATED", 2)]
    with pytest.raises(tune.TuneError, match=r"'loss' of trial \w+_00000 is None"):
        tuner(reports, tmp_path, 2, run("fast", fail_fast="raise")).fit()


def test_a_trial_that_reports_on_without_waiting_is_ended(tmp_path: Path) -> None:
    """Where no report is decided about, trials run ahead of the driver."""

    def reports(config: dict[str, Any]) -> None:
        epoch = 0
        while config["n"] == 1 or epoch < 3:
            tune.report({"loss": None if config["n"] == 1 and epoch == 1 else 1.0})
            epoch += 1

    results = tuner(reports, tmp_path, 3).fit()
    assert [(one.status, len(one.history)) for one in results] == [("TERMINATED", 3), ("ERROR", 2), ("TERMINATED", 3)]


SCHEDULERS: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "asha": lambda: ASHAScheduler(max_t=4, reduction_factor=2),
    "promotion": lambda: ASHAScheduler(max_t=4, reduction_factor=2, type="promotion"),
    "hyperband": lambda: HyperBandScheduler(max_t=4, reduction_factor=2),
    "median": lambda: MedianStoppingRule("training_iteration", grace_period=1, min_samples_required=1),
    "pbt": lambda: PopulationBasedTraining(
        "training_iteration", perturbation_interval=1, hyperparam_mutations={"m": [1, 2]}
    ),
}


VALUES = [None, [1], "x", 10**400, math.nan, math.inf, 1e300, {"a": 1}, b"\xff"]
COUNTS_NOT = {1, 2, 3, 4, 5, 6, 7, 8}
FAILING_VALUES = {
    "loss": {0, 1, 2, 3, 7, 8},
    "training_iteration": COUNTS_NOT,
    "timesteps_this_iter": COUNTS_NOT,
    "time_total_s": set[int](),
    "done": set[int](),
}
"""By the name under which they are reported the numbers of the values that fail a trial."""
COMPARED = ("loss", "training_iteration", "timesteps_this_iter")
ODD = [(name, number) for name in FAILING_VALUES for number in range(len(VALUES))]
SEEN_BY_ALL = [(name, number) for name, number in ODD if name in COMPARED and number not in FAILING_VALUES[name]]
"""What does not fail and is compared: each scheduler gets all of it."""
SEEN_BY_ONE = [odd for odd in ODD if odd not in SEEN_BY_ALL]
"""What fails before a scheduler sees it, or what none looks at: a part for each."""


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.filterwarnings("ignore")
def test_each_scheduler_survives_each_value(scheduler: str, tmp_path: Path) -> None:
    """In the first report of two of three trials."""
    place = [*SCHEDULERS].index(scheduler)
    odd = [*SEEN_BY_ALL, *SEEN_BY_ONE[place :: len(SCHEDULERS)]]
    assert {name for name, _ in odd} == {*FAILING_VALUES}
    reported_by = {n: odd[n - n // 3 - 1] for n in range(len(odd) * 3 // 2 + 1) if n % 3}

    def reports(config: dict[str, Any]) -> None:
        checkpoint = tune.get_checkpoint()
        for epoch in range(checkpoint.to_dict()["next"] if checkpoint else 0, 4):
            report: dict[str, Any] = {"loss": float(config["n"])}
            if epoch == 0 and config["n"] in reported_by:
                name, number = reported_by[config["n"]]
                report[name] = VALUES[number]
            tune.report(report, checkpoint=tune.Checkpoint.from_dict({"next": epoch + 1}))

    run = tune.RunConfig(name="e", storage_path=tmp_path, verbose=0, files=["json", "csv"])
    results = tuner(reports, tmp_path, max(reported_by) + 1, run, scheduler=SCHEDULERS[scheduler]()).fit()
    again = tune.Tuner.restore(tmp_path / "e", reports).fit()
    failing = {n for n, (name, number) in reported_by.items() if number in FAILING_VALUES[name]}
    for found in (results, again):
        assert {one.config["n"] for one in found if one.status != "TERMINATED"} == failing
        assert all((one.status == "ERROR") == isinstance(one.error, tune.TuneError) for one in found)
    assert results.get_best_result().config["n"] == 0
    document(Watched(tmp_path / "e"))


@pytest.mark.parametrize(
    ("stop", "words"),
    [
        ({"x": 0.5}, "`stop` ends trials at x=0.5, and a report has text, which cannot be compared with it."),
        (lambda trial_id, report: report["y"] > 1, "it raised KeyError('y'). The report has ["),
        (lambda trial_id, report: report["x"] > 1, "_00001: it raised TypeError("),
        (tune.TrialPlateauStopper("x"), "_00001, which is not a number. Report one."),
    ],
    ids=["key", "missing", "function", "plateau"],
)
def test_a_report_that_stop_cannot_judge_fails_its_trial_only(stop: Any, words: str, tmp_path: Path) -> None:
    def reports(config: dict[str, Any]) -> None:
        tune.report({"loss": 1.0, "x": "text" if config["n"] == 1 else 0.1, **({} if config["n"] == 1 else {"y": 1})})

    run = tune.RunConfig(stop=stop, name="e", storage_path=tmp_path, verbose=0)
    results = tuner(reports, tmp_path, 3, run).fit()
    assert [one.status for one in results] == ["TERMINATED", "ERROR", "TERMINATED"]
    assert words in str(results[1].error)
    assert tune.Tuner.restore(tmp_path / "e", reports).fit().num_errors == 1


def test_a_training_keeps_odd_values_and_fails_in_words(tmp_path: Path) -> None:
    def loop(config: dict[str, Any]) -> None:
        train.report({"x": 2**70, "name": "caf\udce9", "own": Plain()})
        if config["ends"]:
            train.report({"training_iteration": config["ends"]})

    def trainer(name: str, ends: Any) -> train.DataParallelTrainer:
        run = train.RunConfig(name=name, storage_path=tmp_path, verbose=0)
        scaling = train.ScalingConfig(num_workers=2)
        return train.DataParallelTrainer(loop, train_loop_config={"ends": ends}, scaling_config=scaling, run_config=run)

    with pytest.warns(UserWarning, match="cannot be written in 'x'"):
        metrics = trainer("good", None).fit().metrics
    assert (metrics["x"], metrics["name"]) == (str(2**70), "caf\\udce9")
    assert metrics["own"].startswith("<")
    warned = pytest.warns(UserWarning, match="cannot be written in 'x'")
    with (
        warned,
        pytest.raises(train.TrainingFailedError, match=r"'training_iteration' of trial \w+_00000 is 'x', which"),
    ):
        trainer("bad", "x").fit()


SPACES: dict[str, Callable[[], Any]] = {
    "large": lambda: 2**80,
    "surrogate": lambda: "caf\udce9",
    "object": Plain,
    "set": lambda: {"a", "b", "c", "d"},
    "nan": lambda: math.nan,
    "keys": lambda: {(1, 2): 3},
}


@pytest.mark.parametrize("value", SPACES.values(), ids=SPACES)
def test_a_configuration_that_cannot_be_written_is_text_in_views_and_itself_in_trials(
    value: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def reports(config: dict[str, Any]) -> None:
        tune.report({"loss": float(config["n"]), "kind": type(config["x"]).__name__})

    space = {"n": tune.grid_search([0, 1]), "x": value()}
    run = tune.RunConfig(name="e", storage_path=tmp_path, files=["json", "csv"])
    goal = tune.TuneConfig("loss", "min")
    results = tune.Tuner(reports, param_space=space, tune_config=goal, run_config=run).fit()
    assert {one.metrics["kind"] for one in results} == {type(value()).__name__}
    assert tune.Tuner.restore(tmp_path / "e", reports).fit().num_terminated == 2
    results.write_html()
    for verb in ("show", "best", "ls"):
        assert main(["tune", verb, str(tmp_path / "e")]) == 0
        assert main(["tune", verb, "--json", str(tmp_path / "e")]) == 0
    assert "0x" not in capsys.readouterr().out


def rewritten(folder: Path, change: Callable[[journal.Line], Any]) -> None:
    """Change the lines of a journal, without what keeps out odd values now."""
    (path,) = segments.paths(folder)
    with path.open("rb") as file:
        bodies = [body for _, body in segments.read(file, segments.Damage())]
    data = [segments.header()]
    for body in bodies:
        if isinstance(body, Noted) and body.kind == journal.LINE:
            line = msgspec.msgpack.decode(body.data)
            change(line)
            body = Noted(body.kind, body.number, msgspec.msgpack.encode(line))
        data.append(segments.frame(body))
    path.write_bytes(b"".join(data))


@pytest.mark.parametrize(
    ("odd", "seen"),
    [
        ({"loss": "Fraction(1, 2)"}, "Fraction(1, 2)"),
        ({"loss": None}, None),
        ({1: 2, None: 3, "loss": "0.25"}, 0.25),
        ({"a": {(1, 2): [b"\xff"]}, "loss": "low"}, "low"),
    ],
    ids=["fraction", "none", "keys", "text"],
)
def test_an_old_journal_with_odd_reports_is_restored(odd: Any, seen: Any, tmp_path: Path) -> None:
    """Earlier versions wrote the text of objects that they had judged as numbers."""

    def reports(config: dict[str, Any]) -> None:
        for epoch in range(3):
            tune.report({"loss": float(config["n"]), "epoch": epoch})

    run = tune.RunConfig(stop={"epoch": 1}, name="e", storage_path=tmp_path, verbose=0)
    tuner(reports, tmp_path, 9, run, max_concurrent_trials=2).fit()

    def change(line: Any) -> None:
        event = line[2]
        if event["type"] == "Reported" and event["trial_id"][-5:] in ("00002", "00005") and event["metrics"]["epoch"]:
            del event["metrics"]["loss"]
            event["metrics"] |= odd

    rewritten(tmp_path / "e", change)
    results = tune.Tuner.restore(tmp_path / "e", reports).fit()
    assert [one.status for one in results] == ["TERMINATED"] * 9
    assert [results[number].metrics["loss"] for number in (1, 2, 5)] == [1.0, seen, seen]
    assert results.get_best_result().config["n"] == 0
    assert main(["tune", "show", str(tmp_path / "e")]) == 0
    document(Watched(tmp_path / "e"))


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore:Trial ")
def test_five_hundred_odd_values_end_no_search(tmp_path: Path) -> None:
    """Each is reported beside the metric, then as the metric. Arrays are refused, as ever."""
    values = odd_values()

    def reports(config: dict[str, Any]) -> None:
        value = odd_values()[config["n"]]
        try:
            tune.report({"loss": 1.0, "x": value, "in": {"y": value}})
        except TypeError as error:
            if "is an array of shape" not in str(error):
                raise
        tune.report({"loss": value})

    run = tune.RunConfig(name="e", storage_path=tmp_path, verbose=0, files=["json", "csv"])
    results = tuner(reports, tmp_path, len(values), run).fit()
    restored = tune.Tuner.restore(tmp_path / "e", reports).fit()
    assert len(results) == len(restored) == 500
    assert {one.status for one in results} == {"TERMINATED", "ERROR"}
    told = "which is not a number", "is an array of shape", "which is too large"
    assert all(any(one in str(error) for one in told) for error in results.errors)
    for number, value in enumerate(values):
        first, again = results[number], restored[number]
        assert first.status == again.status
        assert text(first.metrics) == text(again.metrics), text(value)
    assert results.get_best_result().metrics["loss"] is not None
    assert plural(len(Watched(tmp_path / "e")), "trial") == "500 trials"
    document(Watched(tmp_path / "e"))
    results.write_html(os.devnull)
    for verb in ("show", "best", "ls"):
        assert main(["tune", verb, "--json", str(tmp_path / "e")]) == 0


def test_a_trial_ends_at_its_odd_report_and_its_next_attempt_begins_after_that(tmp_path: Path) -> None:
    """Also without a scheduler and `stop`, where trials run ahead of decisions."""
    log = tmp_path / "log"

    def reports(config: dict[str, Any]) -> None:
        attempt = len([line for line in log.read_text().splitlines() if line == "begin"]) if log.exists() else 0
        with log.open("a", buffering=1) as file:
            print("begin", file=file)
            try:
                for epoch in range(30):
                    tune.report({"loss": None if epoch == 1 and not attempt else 1.0})
                    time.sleep(0.05 if epoch < 3 or not attempt else 0.0)
            finally:
                print("end", file=file)

    run = tune.RunConfig(name="e", storage_path=tmp_path, verbose=0, failure_config=tune.FailureConfig(max_failures=1))
    (result,) = tuner(reports, tmp_path, 1, run).fit()
    assert result.error is None
    assert log.read_text().split() == ["begin", "end", "begin", "end"], "one after the other"
