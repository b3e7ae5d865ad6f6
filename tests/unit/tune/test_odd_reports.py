"""Reported values of all classes: in schedulers, searchers and stoppers, and as they are written."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy
import pytest

from mpi_runtime import tune
from mpi_runtime.tune.experiment import journal
from mpi_runtime.tune.experiment.kept_checkpoints import KeptCheckpoints
from mpi_runtime.tune.experiment.resuming import resumed
from mpi_runtime.tune.search import TuneBOHB
from mpi_runtime.tune.show.loggers import CSVLoggerCallback, JsonLoggerCallback
from mpi_runtime.tune.show.progress import _short
from mpi_runtime.tune.study.events import Failed
from mpi_runtime.tune.study.settings import CheckpointConfig, ResumeConfig
from mpi_runtime.tune.study.stoppers import ExperimentPlateauStopper, Stopper, TrialPlateauStopper
from mpi_runtime.tune.study.virtual_time import _Simulation
from mpi_runtime.tune.trial import Trial, text
from mpi_runtime.tune.trials.checkpoint import Saved
from mpi_runtime.tune.trials.json_values import written
from mpi_runtime.tune.trials.reporting import plain
from tests.odd_values import odd_values, recursive_dictionary, simple
from tests.unit.tune.test_edges import SEARCHERS, Journaled, each_scheduler, made, replayed

STOPS: dict[str, Any] = {
    "none": None,
    "key": {"x": 2},
    "function": lambda trial_id, report: report["x"] > 2,
    "plateaus": [TrialPlateauStopper("x"), ExperimentPlateauStopper("x", top=3)],
}


def steps(names: list[str], seed: int) -> Any:
    """Nine reports in which these values are odd now and then."""
    kinds = simple()

    def steps(config: dict[str, Any], checkpoint: Any) -> Iterator[tuple[float, dict[str, Any], Any]]:
        rng = random.Random(f"{seed} {config['x']}")
        for epoch in range(9):
            report = {"score": config["x"] * epoch, "x": epoch}
            odd = rng.random() < 0.1
            for name in names if odd and epoch >= (0 if checkpoint is None else checkpoint.number) else ():
                report[name] = rng.choice(kinds)
            if checkpoint is None or epoch >= checkpoint.number:
                yield 1.0, report, Saved(epoch + 1, str(epoch + 1))

    return steps


@each_scheduler
@pytest.mark.parametrize("searcher", SEARCHERS.values(), ids=SEARCHERS)
@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS)
@pytest.mark.filterwarnings("ignore")
def test_odd_values_end_no_search(scheduler: Any, searcher: Any, stop: Any) -> None:
    names = ["score", "x", "training_iteration", "timesteps_this_iter", "time_total_s", "done", "time_s", "own"]
    for seed in range(2):
        config = tune.TuneConfig(
            "score", "max", scheduler=scheduler(), search_alg=searcher(), num_samples=20, seed=seed
        )
        run = tune.RunConfig(stop=stop, failure_config=tune.FailureConfig(max_failures=seed))
        space = {"x": tune.uniform(0, 1)}
        done = [
            tune.simulate(steps(names, seed), param_space=space, tune_config=config, run_config=run, slots=4)
            for _ in range(2)
        ]
        for trials in (one.trials for one in done):
            assert len(trials) == 20 or stop is STOPS["plateaus"]
            assert {trial.status for trial in trials} <= {Trial.TERMINATED, Trial.ERROR}
            assert all(isinstance(trial.error, tune.TuneError) for trial in trials if trial.status == Trial.ERROR)


@pytest.mark.parametrize("name", ["optuna", "hyperopt", "bayes_opt", "nevergrad"])
@pytest.mark.filterwarnings("ignore")
def test_odd_values_end_no_search_with_another_library(name: str) -> None:
    pytest.importorskip(name)
    found = {"optuna": "OptunaSearch", "hyperopt": "HyperOptSearch", "bayes_opt": "BayesOptSearch"}
    searcher = getattr(tune.search, found.get(name, "NevergradSearch"))()
    config = tune.TuneConfig("score", "max", search_alg=searcher, num_samples=12)
    space = {"x": tune.uniform(0, 1)}
    done = tune.simulate(steps(["score", "x"], 1), param_space=space, tune_config=config, slots=4)
    assert len(done.trials) == 12


def test_a_searcher_with_a_metric_of_its_own_needs_it_in_each_report() -> None:
    def once(config: dict[str, Any], checkpoint: Any) -> Iterator[tuple[float, dict[str, Any], Any]]:
        yield 1.0, {"score": 1.0, **({"own": 1.0} if config["x"] < 0.5 else {})}, None

    config = tune.TuneConfig("score", "max", search_alg=TuneBOHB(metric="own", mode="min"), num_samples=20)
    done = tune.simulate(once, param_space={"x": tune.uniform(0, 1)}, tune_config=config)
    for trial in done.trials:
        assert (trial.status == Trial.ERROR) == (trial.config["x"] >= 0.5)
        assert trial.error is None or "metric 'own' of TuneBOHB is not in the report" in str(trial.error)


def test_a_value_that_is_missing_or_none_does_not_reach_its_limit() -> None:
    def reports(config: dict[str, Any], checkpoint: Any) -> Iterator[tuple[float, dict[str, Any], Any]]:
        for accuracy in ({}, {"accuracy": None}, {"accuracy": 0.9}, {"accuracy": 0.1}):
            yield 1.0, accuracy, None

    (trial,) = tune.simulate(reports, run_config=tune.RunConfig(stop={"accuracy": 0.5})).trials
    assert (trial.status, trial.iteration) == (Trial.TERMINATED, 3)


def test_an_error_of_a_stopper_is_that_of_the_trial() -> None:
    class Broken(Stopper):
        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            raise ArithmeticError("of the stopper")

    def once(config: dict[str, Any], checkpoint: Any) -> Iterator[tuple[float, dict[str, Any], Any]]:
        yield 1.0, {"score": 1.0}, None

    (trial,) = tune.simulate(once, run_config=tune.RunConfig(stop=Broken())).trials
    assert "report 1 of trial 00000: it raised ArithmeticError('of the stopper'). The report has [" in str(trial.error)


def test_what_is_written_is_what_is_read() -> None:
    refused = 0
    for value in odd_values(2000):
        try:
            metrics, _ = plain({"x": value, "in": {"y": [value]}})
        except TypeError as error:
            assert "is an array of shape" in str(error)  # noqa: PT017
            refused += 1
            continue
        data = msgspec.msgpack.encode(metrics)
        assert msgspec.msgpack.encode(msgspec.msgpack.decode(data)) == data
        assert msgspec.msgpack.encode(written(metrics)) == data, "twice is the same"
        assert json.loads(json.dumps(metrics, default=repr)).keys() == {"x", "in"}
    assert 0 < refused < 300


@pytest.mark.parametrize(
    ("value", "seen", "odd"),
    [
        (numpy.int64(3), 3, ""),
        (numpy.str_("a"), "a", ""),
        (numpy.ones((1, 1)), 1.0, ""),
        ((1, {2}), [1, [2]], ""),
        ({numpy.int64(3): 0.5}, {3: 0.5}, ""),
        ({1: {2: {3: 1j}}}, {1: {2: {3: "1j"}}}, "'x' (complex)"),
        (-(2**63) - 1, "-9223372036854775809", "'x' (int of more than 64 bits)"),
        (10**5000, hex(10**5000), "'x' (int of more than 64 bits)"),
        ("\udcff", "\\udcff", "'x' (str that is not UTF-8)"),
        ({(1,): 2}, {"(1,)": 2}, "'x' (tuple)"),
        (numpy.clongdouble(1j), "np.clongdouble('1j')", "'x' (clongdouble)"),
    ],
    ids=range(11),
)
def test_a_value_becomes_text_only_if_it_must(value: Any, seen: Any, odd: str) -> None:
    metrics, words = plain({"x": value})
    assert (metrics, words) == ({"x": seen}, odd)
    assert type(metrics["x"]) is type(seen)


def test_a_dictionary_in_itself_has_an_end() -> None:
    metrics, _ = plain({"x": recursive_dictionary()})
    assert metrics["x"]["a"] == 1
    assert len(json.dumps(metrics)) < 10_000


@pytest.mark.filterwarnings("ignore")
def test_files_and_tables_have_a_row_for_each_odd_report(tmp_path: Path) -> None:
    """Loggers receive reports as they are written; configurations are those of the user."""
    kinds = [value for value in odd_values(300) if type(value) is not numpy.ndarray]
    trial = Trial("00000", 0, {"all": dict(enumerate(kinds))}, local_path=str(tmp_path))
    loggers = [JsonLoggerCallback(), CSVLoggerCallback()]
    reports = [plain({f"x{number % 20}": [value], "s": value})[0] for number, value in enumerate(kinds[:100])]
    for logger in loggers:
        logger.setup()
        logger.on_trial_start(0, [trial], trial)
        for report in reports:
            logger.on_trial_result(0, [trial], trial, {**report, "config": trial.config})
        logger.on_experiment_end([trial])
    assert len((tmp_path / "result.json").read_text().splitlines()) == len(reports)
    assert len(json.loads((tmp_path / "params.json").read_text())["all"]) == len(kinds)
    csv.field_size_limit(1_000_000)
    with (tmp_path / "progress.csv").open(newline="") as file:
        assert len(list(csv.reader(file))) == len(reports) + 1
    csv.field_size_limit(131_072)
    for value in kinds:
        assert len(_short(value).encode()) <= 60
        assert text(value).encode() is not None


@each_scheduler
def test_a_search_with_odd_reports_ends_after_a_cut_at_any_line(scheduler: Any, tmp_path: Path) -> None:
    """Also between a report and the failure that follows from it. Every third line is tried."""

    def reports(config: dict[str, Any], checkpoint: Any) -> Iterator[tuple[float, dict[str, Any], Any]]:
        rng = random.Random(config["x"])
        odd = {rng.randrange(9): rng.choice([None, [1], "x"])} if rng.random() < 0.5 else {}
        for epoch in range(0 if checkpoint is None else checkpoint.number, 9):
            yield 1.0, {"score": odd.get(epoch, config["x"])}, Saved(epoch + 1, str(epoch + 1))

    for epoch in range(1, 10):
        (tmp_path / str(epoch)).mkdir()  # where the checkpoints would be
    log = journal.Journal(tmp_path, 0, journal.Header())
    Journaled(made(scheduler, TuneBOHB, 2), reports, log).run()
    log.close()
    lines = list(journal.read(tmp_path))
    assert any(isinstance(line.event, Failed) for line in lines)
    for cut in range(1, len(lines) + 1, 3):
        study = made(scheduler, TuneBOHB, 2)
        now = replayed(study, lines[:cut])
        first = resumed(study, KeptCheckpoints(CheckpointConfig(), tmp_path), 2, ResumeConfig())
        orders = [order for event in first for order in study.handle(event, now)]
        _Simulation(study, reports).to_the_end(orders, now)
        assert {trial.status for trial in study.trials.values()} <= {Trial.TERMINATED, Trial.ERROR}, cut
        assert len(study.trials) == 10
