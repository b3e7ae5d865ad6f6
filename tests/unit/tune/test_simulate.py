"""Experiments in virtual time: seconds, limits, errors, and settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest

import mpi_runtime
from mpi_runtime import tune, util
from mpi_runtime.tune.schedulers import ASHAScheduler
from tests.helpers import ROOT

Steps = Iterator[tuple[float, dict[str, Any], Any]]


def three_seconds(config: dict[str, Any], checkpoint: int | None) -> Steps:
    for step in range(checkpoint or 0, 3):
        yield 1.0, {"x": config.get("x", 0)}, step + 1


@pytest.mark.parametrize(("slots", "seconds"), [(1, 30), (4, 9), (10, 3), (99, 3)])
def test_slots_share_the_work(slots: int, seconds: float) -> None:
    done = tune.simulate(three_seconds, tune_config=tune.TuneConfig(num_samples=10), slots=slots)
    assert (done.seconds, done.busy_seconds, done.reports) == (seconds, 30, 30)


def test_max_concurrent_trials_is_kept() -> None:
    config = tune.TuneConfig(num_samples=10, max_concurrent_trials=2)
    assert tune.simulate(three_seconds, tune_config=config, slots=10).seconds == 15


@pytest.mark.parametrize("budget", [4.5, timedelta(seconds=4.5)])
def test_a_time_budget_ends_it_to_the_second(budget: Any) -> None:
    config = tune.TuneConfig(num_samples=-1, time_budget_s=budget)
    done = tune.simulate(three_seconds, tune_config=config, slots=2)
    assert (done.seconds, done.reports) == (4.5, 8)
    assert [trial.iteration for trial in done.trials] == [3, 3, 1, 1]


def test_a_trial_that_raises_is_repeated_from_its_checkpoint() -> None:
    def steps(config: dict[str, Any], checkpoint: int | None) -> Steps:
        yield from three_seconds(config, checkpoint)
        if checkpoint is None:
            raise OSError("broken")

    (trial,) = tune.simulate(steps).trials
    assert (trial.status, repr(trial.error)) == ("ERROR", "OSError('broken')")
    again = tune.RunConfig(failure_config=tune.FailureConfig(max_failures=1))
    (trial,) = tune.simulate(steps, run_config=again).trials
    assert (trial.status, trial.failures, trial.iteration) == ("TERMINATED", 1, 3)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (tune.TuneConfig(scheduler="asha"), "ASHAScheduler"),
        (tune.TuneConfig(search_alg="random"), "must be a Searcher"),
    ],
)
def test_settings_of_a_wrong_type_are_refused(config: tune.TuneConfig, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        tune.simulate(three_seconds, tune_config=config)


def test_a_large_experiment_is_the_same_twice() -> None:
    def steps(config: dict[str, Any], checkpoint: int | None) -> Steps:
        for step in range(checkpoint or 0, 27):
            yield 1 + config["x"], {"loss": config["x"] / (step + 1)}, step + 1

    def once() -> tune.Simulated:
        scheduler = ASHAScheduler(max_t=27, reduction_factor=3, type="promotion")
        config = tune.TuneConfig("loss", "min", scheduler=scheduler, num_samples=1000, seed=5)
        return tune.simulate(steps, param_space={"x": tune.uniform(0, 1)}, tune_config=config, slots=100)

    first, second = once(), once()
    assert [trial.last_result for trial in first.trials] == [trial.last_result for trial in second.trials]
    assert first.seconds == second.seconds
    best = min(first.trials, key=lambda trial: trial.config["x"])
    assert best.iteration == 27


@pytest.mark.parametrize("package", [mpi_runtime, tune, util], ids=lambda package: package.__name__)
def test_every_public_name_has_a_home(package: ModuleType) -> None:
    assert all(getattr(package, name) is not None for name in package.__all__)
    assert dir(package) == sorted(package.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        package.nothing  # noqa: B018


def test_the_example_of_the_docs_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "tune.md").read_text(), re.DOTALL)
    (block,) = [block for block in blocks if "simulate(" in block]
    exec(compile(block, "tune.md", "exec"), {})
    assert capsys.readouterr().out.split() == re.findall(r"^print\(.*\)  # (.*)$", block, re.MULTILINE) != []
