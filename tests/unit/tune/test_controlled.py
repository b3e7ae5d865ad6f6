"""Schedulers written for Ray Tune, in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime import tune
from mpi_runtime.tune.schedulers import (
    PB2,
    ASHAScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    TrialScheduler,
)
from mpi_runtime.tune.trial import Trial


def steps(config: dict[str, Any], checkpoint: Any) -> Iterator[tuple[float, dict[str, Any], Any]]:
    for epoch in range(checkpoint or 0, 6):
        yield 1.0, {"epoch": epoch, "score": epoch * config["x"]}, epoch + 1


def run(scheduler: Any, slots: int = 1, **settings: Any) -> list[tuple[int, int, str]]:
    """The parameter, the last epoch and the status of each trial."""
    config = tune.TuneConfig(scheduler=scheduler, **settings)
    done = tune.simulate(steps, param_space={"x": tune.grid_search([1, 2, 3])}, tune_config=config, slots=slots)
    return [(trial.config["x"], trial.last_result["epoch"], trial.status) for trial in done.trials]


class Asked(FIFOScheduler):
    """Returns a word at the epoch of each trial."""

    def __init__(self, word: Any, epoch: int = 2) -> None:
        super().__init__()
        self.word, self.epoch = word, epoch
        self.heard: list[Any] = []

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:  # type: ignore[override]
        self.heard.append(("add", trial.config["x"]))

    def on_trial_result(self, tune_controller: Any, trial: Any, result: Any) -> Any:  # type: ignore[override]
        self.heard.append((trial.config["x"], result["epoch"], result["config/x"]))
        return self.word if result["epoch"] == self.epoch else TrialScheduler.CONTINUE

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: Any) -> None:
        self.heard.append(("complete", trial.config["x"], result["epoch"]))


def test_it_stops_trials() -> None:
    scheduler = Asked(TrialScheduler.STOP)
    assert run(scheduler) == [(x, 2, "TERMINATED") for x in (1, 2, 3)]
    assert scheduler.heard[:5] == [("add", 1), (1, 0, 1), (1, 1, 1), (1, 2, 1), ("complete", 1, 2)]


@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize("word", ["PAUSE", "NOOP", "CONTINUE", None, {}])
def test_each_trial_ends_whatever_it_returns(word: Any, slots: int) -> None:
    scheduler = Asked(word)
    assert run(scheduler, slots) == [(x, 5, "TERMINATED") for x in (1, 2, 3)]
    if word == "PAUSE" and slots == 1:
        order = [one[0] for one in scheduler.heard if len(one) == 3 and one[0] != "complete"]
        assert order == [1, 1, 1, 2, 2, 2, 3, 3, 3] * 2, "new trials go before paused ones"


def test_what_is_no_decision_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"Asked.on_trial_result\(\) returned 'HALT', which is not a decision"):
        run(Asked("HALT"))


def test_the_controller_stops_other_trials() -> None:
    class Winner(TrialScheduler):
        def on_trial_result(self, tune_controller: Any, trial: Any, result: Any) -> str:  # type: ignore[override]
            live = tune_controller.get_live_trials()
            if result["epoch"] == 1 and trial.config["x"] == 1:
                for other in live:
                    if other is not trial:
                        tune_controller.stop_trial(other)
            return "CONTINUE"

    assert run(Winner(), 3) == [(1, 5, "TERMINATED"), (2, 1, "TERMINATED"), (3, 1, "TERMINATED")]


def test_paused_trials_that_it_does_not_choose_end() -> None:
    class Forgets(Asked):
        def choose_trial_to_run(self, tune_controller: Any) -> None:
            return None

    assert run(Forgets("PAUSE")) == [(x, 2, "TERMINATED") for x in (1, 2, 3)]


def test_the_goal_is_that_of_the_experiment_or_its_own() -> None:
    class Own(Asked):
        _metric = "score"

    assert run(Own("STOP"))
    scheduler = Asked("STOP")
    run(scheduler, metric="score", mode="max")
    assert (scheduler._metric, scheduler._mode) == ("score", "max")
    with pytest.raises(ValueError, match="Own has a goal of its own: set it once"):
        run(Own("STOP"), metric="score", mode="max")


def test_what_the_controller_lacks_is_named() -> None:
    class Wants(TrialScheduler):
        def on_trial_result(self, tune_controller: Any, trial: Any, result: Any) -> Any:  # type: ignore[override]
            return tune_controller.pause_trial(trial)

    with pytest.raises(AttributeError, match=r"the controller has no 'pause_trial' here: .* get_trials\(\)"):
        run(Wants())


ALGORITHMS: list[tuple[type[TrialScheduler], dict[str, Any]]] = [
    (ASHAScheduler, {"reduction_factor": 2}),
    (ASHAScheduler, {"reduction_factor": 2, "type": "promotion", "max_t": 6}),
    (HyperBandScheduler, {"max_t": 6, "reduction_factor": 2}),
    (MedianStoppingRule, {"time_attr": "training_iteration", "grace_period": 1, "min_samples_required": 1}),
    (MedianStoppingRule, {"time_attr": "training_iteration", "grace_period": 1, "hard_stop": False}),
    (PB2, {"time_attr": "training_iteration", "perturbation_interval": 2, "hyperparam_bounds": {"x": [1, 9]}}),
    (
        PopulationBasedTraining,
        {"time_attr": "training_iteration", "perturbation_interval": 2, "hyperparam_mutations": {"x": [1, 2, 3, 9]}},
    ),
]


@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize(("kind", "settings"), ALGORITHMS)
def test_it_may_derive_from_an_algorithm(kind: Any, settings: dict[str, Any], slots: int) -> None:
    class Own(kind):  # type: ignore[misc]
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.heard: list[str] = []

        def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
            self.heard.append("add")
            super().on_trial_add(tune_controller, trial)

        def on_trial_result(self, tune_controller: Any, trial: Any, result: Any) -> Any:
            self.heard.append("result")
            assert {"score", "training_iteration"} <= set(result)
            return super().on_trial_result(tune_controller, trial, result)

        def on_trial_complete(self, tune_controller: Any, trial: Any, result: Any) -> None:
            self.heard.append("complete")
            super().on_trial_complete(tune_controller, trial, result)

    own = Own(**settings)
    assert run(own, slots, metric="score", mode="max") == run(kind(**settings), slots, metric="score", mode="max")
    assert [own.heard.count(word) for word in ("add", "complete")] == [3, 3]


def test_its_own_word_wins() -> None:
    class Changed(ASHAScheduler):
        def on_trial_result(self, tune_controller: Any, trial: Any, result: Any) -> str:  # type: ignore[override]
            super().on_trial_result(tune_controller, trial, result)
            return "CONTINUE" if trial.config["x"] == 1 else "STOP"

    found = run(Changed(reduction_factor=2), metric="score", mode="max")
    assert found == [(1, 5, "TERMINATED"), (2, 0, "TERMINATED"), (3, 0, "TERMINATED")]


def test_it_may_only_hear_of_new_trials() -> None:
    class Adds(ASHAScheduler):
        def on_trial_add(self, tune_controller: Any, trial: Any) -> None:  # type: ignore[override]
            super().on_trial_add(tune_controller, trial)  # type: ignore[call-arg]
            added.append(len(tune_controller.get_trials()))

    added: list[int] = []
    run(Adds(), metric="score", mode="max")
    assert added == [1, 2, 3]


def test_an_algorithm_is_asked_by_hand(tmp_path: Path) -> None:
    scheduler = ASHAScheduler(metric="score", mode="max", grace_period=1, reduction_factor=2, max_t=9)
    trials = [Trial(f"t{x}", x, {}) for x in range(3)]
    controller: Any = None
    for trial in trials:
        scheduler.on_trial_add(controller, trial)  # type: ignore[call-arg]

    def asked(one: TrialScheduler, x: int, time: int, score: float) -> Any:
        judged: Any = one.on_trial_result
        return judged(controller, trials[x], {"training_iteration": time, "score": score})

    assert [asked(scheduler, 0, 1, 5), asked(scheduler, 1, 1, 9)] == ["CONTINUE", "CONTINUE"]
    scheduler.save(str(tmp_path / "state"))
    for one in (scheduler, ASHAScheduler()):
        one.restore(str(tmp_path / "state"))
        assert [asked(one, 2, 1, 1), asked(one, 2, 9, 9)] == ["STOP", "STOP"]
    with pytest.raises(NotImplementedError):
        FIFOScheduler().save(str(tmp_path / "other"))


class Ends(FIFOScheduler):
    """Hears of ends alone."""

    heard: list[tuple[int, int]]

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: Any) -> None:
        self.heard.append((trial.config["x"], result["epoch"]))


def test_it_may_hear_of_ends_alone() -> None:
    scheduler = Ends()
    scheduler.heard = []
    assert run(scheduler) == [(x, 5, "TERMINATED") for x in (1, 2, 3)]
    assert scheduler.heard == [(1, 5), (2, 5), (3, 5)]


def test_it_does_not_decide_about_a_report_at_which_a_trial_is_stopped() -> None:
    scheduler = Asked("CONTINUE")
    config = tune.TuneConfig(scheduler=scheduler)
    tune.simulate(steps, param_space={"x": 1}, tune_config=config, run_config=tune.RunConfig(stop={"epoch": 2}))
    assert scheduler.heard == [("add", 1), (1, 0, 1), (1, 1, 1), ("complete", 1, 2)]
