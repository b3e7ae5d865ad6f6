"""Stoppers: when a trial ends, and when all do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from mpi_runtime import tune
from mpi_runtime.tune.study.stoppers import Stopper, as_stopper, ends_all, time_limit


def ends(stopper: Stopper, values: list[float], trial: str = "a") -> list[bool]:
    return [stopper(trial, {"x": value, "training_iteration": n}) for n, value in enumerate(values, 1)]


def test_any_key_of_a_dictionary_suffices() -> None:
    assert ends(as_stopper({"x": 5, "training_iteration": 4}), [1, 5, 4, 4]) == [False, True, False, True]


def test_a_key_that_is_not_reported_ends_nothing() -> None:
    assert ends(as_stopper({"x": 2, "accuracy": 1, "deep": {"er": 3}}), [1, 2]) == [False, True]


def test_keys_may_be_nested() -> None:
    for limits in ({"deep": {"er": 3}}, {"deep/er": 3}):
        stopper = as_stopper(limits)
        assert [stopper("a", {"deep": {"er": value}}) for value in (2, 3)] == [False, True]


def test_functions_and_nothing() -> None:
    assert ends(as_stopper(lambda trial_id, result: trial_id == "a" and result["x"] > 1), [1, 2]) == [False, True]
    assert ends(as_stopper(None), [1, 2]) == [False, False]
    assert ends(as_stopper([tune.NoopStopper(), tune.MaximumIterationStopper(2)]), [1, 2]) == [False, True]
    stopper = tune.MaximumIterationStopper(2)
    assert as_stopper(stopper) is stopper
    assert ends(stopper, [0, 0, 0]) == [False, True, True]


def test_what_is_no_condition_is_refused() -> None:
    with pytest.raises(TypeError, match="must be a dictionary"):
        as_stopper(3)  # type: ignore[arg-type]


def test_a_trial_on_a_plateau_ends() -> None:
    stopper = tune.TrialPlateauStopper("x", std=0.1, num_results=3, grace_period=2)
    assert ends(stopper, [1, 1, 1]) == [False, False, True], "three values are needed"
    assert ends(stopper, [1, 2, 3, 3, 3], "b") == [False, False, False, False, True]


def test_a_plateau_that_is_not_good_enough_goes_on() -> None:
    more: dict[str, Any] = {"num_results": 2, "grace_period": 0}
    assert ends(tune.TrialPlateauStopper("x", metric_threshold=5, mode="max", **more), [6, 6]) == [False, True]
    assert ends(tune.TrialPlateauStopper("x", metric_threshold=5, mode="max", **more), [4, 4]) == [False, False]
    assert ends(tune.TrialPlateauStopper("x", metric_threshold=5, mode="min", **more), [6, 6]) == [False, False]
    with pytest.raises(ValueError, match="needs mode"):
        tune.TrialPlateauStopper("x", metric_threshold=5)
    with pytest.raises(ValueError, match="metric 'y' of a stopper"):
        ends(tune.TrialPlateauStopper("y"), [1])


def test_an_experiment_whose_best_are_alike_ends() -> None:
    stopper = tune.ExperimentPlateauStopper("x", std=0.1, top=3, mode="max", patience=2)
    assert ends(stopper, [9, 9, 1, float("nan"), 9]) == [False] * 5
    assert not stopper.stop_all()
    assert ends(stopper, [1]) == [True]
    assert stopper.stop_all()


@pytest.mark.parametrize("wrong", [{"mode": "best"}, {"top": 1}, {"patience": -1}, {"std": -1}, {"std": 0}])
def test_a_plateau_needs_a_meaning(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be|needed"):
        tune.ExperimentPlateauStopper("x", **wrong)


def test_several_stoppers_all_learn_of_each_report() -> None:
    first = tune.ExperimentPlateauStopper("x", std=1e-9, top=2)
    both = tune.CombinedStopper(tune.MaximumIterationStopper(1), first)
    assert ends(both, [3]) == [True]
    assert not both.stop_all()
    assert ends(both, [3]) == [True]
    assert both.stop_all()


def test_time_limits_are_found_inside() -> None:
    stopper = tune.CombinedStopper(tune.TimeoutStopper(timedelta(minutes=1)), tune.TimeoutStopper(90))
    assert time_limit(stopper) == 60
    assert time_limit(tune.CombinedStopper()) == float("inf")
    assert ends(stopper, [1]) == [False]
    over = tune.CombinedStopper(tune.TimeoutStopper(0))
    assert over.stop_all()
    assert not ends_all(over), "the study has its own clock"
