"""`util.optuna.optimize`: an unchanged objective over tasks, with pruning, and its trials in the user's study."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import mpi_runtime

optuna = pytest.importorskip("optuna")

from mpi_runtime.util.optuna import optimize  # noqa: E402

pytestmark = [pytest.mark.usefixtures("own_job"), pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def own_job() -> Iterator[None]:
    """Not `job`: handles of an actor that was killed may live on in idle executors until these collect garbage."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with mpi_runtime.init(num_cpus=2):
        yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def objective(trial: Any) -> float:
    x = trial.suggest_float("x", -10, 10)
    kind = trial.suggest_categorical("kind", ["a", "b"])
    for step in range(5):
        trial.report(x * x + step, step)
        if trial.should_prune():
            raise optuna.TrialPruned()
    trial.set_user_attr("kind", kind)
    return float(x * x)


def study(**more: Any) -> Any:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=1)
    return optuna.create_study(sampler=sampler, pruner=optuna.pruners.MedianPruner(n_startup_trials=4), **more)


def test_trials_come_back_with_values_and_pruned_ones_with_steps(tmp_path: Path) -> None:
    found = study(storage=f"sqlite:///{tmp_path}/study.db")
    heard: list[int] = []
    optimize(found, objective, 40, callbacks=[lambda _, trial: heard.append(trial.number)])
    states = [trial.state.name for trial in found.trials]
    assert len(states) == len(heard) == 40
    assert set(states) == {"COMPLETE", "PRUNED"}
    assert found.best_value < 5
    assert found.best_trial.user_attrs["kind"] == found.best_params["kind"]
    assert all(trial.intermediate_values for trial in found.trials)
    optimize(found, objective, 5)
    assert len(found.trials) == 45


def test_errors_end_it_or_count_as_failed() -> None:
    def fails(trial: Any) -> float:
        raise ArithmeticError("no value")

    found = study()
    with pytest.raises(ArithmeticError):
        optimize(found, fails, 3)
    assert found.trials[0].state.name == "FAIL"
    optimize(found, fails, 3, catch=(ArithmeticError,))
    assert [trial.state.name for trial in found.trials[-3:]] == ["FAIL"] * 3
    with pytest.raises(ValueError, match="n_trials=0"):
        optimize(found, fails, 0)


def test_a_trial_has_what_a_trial_of_optuna_has() -> None:
    def curious(trial: Any) -> float:
        trial.suggest_int("n", 1, 9)
        trial.set_user_attr("a", [1])
        assert trial.user_attrs == {"a": [1]}
        assert trial.params == {"n": trial.params["n"]}
        assert list(trial.distributions) == ["n"]
        assert trial.datetime_start.year > 2000
        assert not hasattr(trial, "study")
        assert not hasattr(trial, "no_such_name")
        return float(trial.number)

    found = study()
    optimize(found, curious, 3)
    assert sorted(trial.value for trial in found.trials) == [0, 1, 2]


def test_enqueued_trials_are_run_first() -> None:
    found = study()
    found.enqueue_trial({"x": 1.5, "kind": "a"})
    with pytest.raises(ValueError, match=r"1 enqueued trials.*n_trials=1"):
        optimize(found, objective, 3)
    found.optimize(objective, n_trials=1)
    optimize(found, objective, 3)
    assert len(found.trials) == 4
    assert found.trials[0].params["x"] == 1.5
