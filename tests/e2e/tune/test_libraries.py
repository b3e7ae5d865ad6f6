"""What the guide says of other libraries: scikit-learn on tasks, folds as reports, hyperopt's objectives as trials."""

import re
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime import tune
from mpi_runtime.tune.schedulers import ASHAScheduler
from mpi_runtime.tune.search import HyperOptSearch
from tests.helpers import ROOT, run_program

pytestmark = [pytest.mark.usefixtures("job"), pytest.mark.filterwarnings("default")]
GUIDE = (ROOT / "docs" / "tune.md").read_text()


def block(words: str) -> str:
    """The example of the guide with these words."""
    (found,) = [one for one in re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL) if words in one]
    return str(found)


def test_grid_search_of_scikit_learn_finds_the_same_on_tasks() -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("joblib")
    app = block("GridSearchCV") + "\nprint(search.best_params_, round(search.best_score_, 6))\n"
    alone = app.replace('parallel_config(backend="mpi_runtime", n_jobs=-1)', 'parallel_config(backend="sequential")')
    assert alone != app
    first, second = (run_program(one, timeout=90).expect(0).stdout for one in (app, alone))
    assert first == second
    assert "'C'" in first


def test_folds_are_reports_and_bad_candidates_end_early(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    app = block("cross_val_score").replace('storage_path="results"', f"storage_path={str(tmp_path)!r}, verbose=0")
    namespace: dict[str, Any] = {}
    exec(compile(app, "tune.md", "exec"), namespace)
    results = namespace["results"]
    assert len(results) == 12
    folds = [result.metrics["training_iteration"] for result in results]
    assert max(folds) == 5
    assert sum(folds) < 60, "some were stopped"
    assert results.get_best_result().metrics["accuracy"] > 0.9


def test_an_objective_of_hyperopt_is_a_trial(tmp_path: Path) -> None:
    """`fmin(objective, space, algo=tpe.suggest, max_evals=40, trials=SparkTrials(...))`, without Spark."""
    pytest.importorskip("hyperopt")

    def objective(params: dict[str, Any]) -> dict[str, Any]:
        return {"loss": (params["x"] - 3) ** 2 + (params["kind"] == "b"), "status": "ok"}

    results = tune.Tuner(
        objective,
        param_space={"x": tune.uniform(-10, 10), "kind": tune.choice(["a", "b"])},
        tune_config=tune.TuneConfig("loss", "min", search_alg=HyperOptSearch(), num_samples=40, seed=2),
        run_config=tune.RunConfig(name="e", storage_path=tmp_path, verbose=0),
    ).fit()
    assert results.num_terminated == 40
    best = results.get_best_result()
    assert best.metrics["loss"] < 1
    assert best.config["kind"] == "a"
    assert best.metrics["status"] == "ok", "other values are kept"


def by_optuna(train: Any, folder: Path) -> tune.Tuner:
    from mpi_runtime.tune.search import OptunaSearch

    return tune.Tuner(
        train,
        param_space={"x": tune.uniform(-1, 1)},
        tune_config=tune.TuneConfig(
            "loss", "min", search_alg=OptunaSearch(), num_samples=30, max_concurrent_trials=1, seed=4
        ),
        run_config=tune.RunConfig(
            name="e", storage_path=folder, verbose=0, failure_config=tune.FailureConfig(fail_fast=True)
        ),
    )


def test_a_searcher_of_a_library_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """It receives all events again, and then makes the same suggestions."""
    pytest.importorskip("optuna")

    def square(config: dict[str, Any]) -> dict[str, Any]:
        return {"loss": config["x"] ** 2}

    whole = [result.config["x"] for result in by_optuna(square, tmp_path).fit()]
    assert len(set(whole)) == 30
    journal = tmp_path / "e" / "000001.journal"
    journal.write_bytes(journal.read_bytes()[: journal.stat().st_size * 2 // 3])
    cut = tune.Tuner.restore(tmp_path / "e", square)
    assert 15 < len(cut.get_results()) < 25
    assert [result.config["x"] for result in tune.Tuner.restore(tmp_path / "e", square).fit()] == whole


def test_after_fail_fast_all_goes_on_if_asked(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    flag = tmp_path / "broken"
    flag.touch()

    def breaks(config: dict[str, Any]) -> dict[str, Any]:
        if flag.exists() and config["x"] < 0:
            raise OSError("half of them fail")
        return {"loss": config["x"] ** 2}

    cut = by_optuna(breaks, tmp_path).fit()
    assert len(cut) < 30
    assert cut.num_errors == 1
    flag.unlink()
    again = tune.Tuner.restore(tmp_path / "e", breaks, restart_errored=True).fit()
    assert len(again) == again.num_terminated == 30
    assert [again[place].config for place in range(len(cut))] == [result.config for result in cut]


def test_asha_and_a_learning_searcher_together(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    from mpi_runtime.tune.search import OptunaSearch

    def train(config: dict[str, Any]) -> None:
        for epoch in range(9):
            tune.report({"loss": abs(config["x"]) + 1 / (epoch + 1)})

    results = tune.Tuner(
        train,
        param_space={"x": tune.uniform(-1, 1)},
        tune_config=tune.TuneConfig(
            "loss", "min", search_alg=OptunaSearch(), scheduler=ASHAScheduler(max_t=9, reduction_factor=3),
            num_samples=40,
        ),
        run_config=tune.RunConfig(name="e", storage_path=tmp_path, verbose=0),
    ).fit()  # fmt: skip
    assert results.num_terminated == 40
    assert sum(len(result.history) for result in results) < 9 * 40
    assert abs(results.get_best_result().config["x"]) < 0.2
