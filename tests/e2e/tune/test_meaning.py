"""Searches as programs of Ray's users write them: ends, files, warnings, schedulers on real objectives."""

import json
import math
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import mpi_runtime
from mpi_runtime import tune
from mpi_runtime.errors import TaskError
from mpi_runtime.tune.schedulers import HyperBandForBOHB, MedianStoppingRule, PopulationBasedTraining
from mpi_runtime.tune.search import ConcurrencyLimiter, TuneBOHB

pytestmark = pytest.mark.usefixtures("job")


def fitted(trainable: Any, folder: Path, space: Any = None, run: Any = None, **config: Any) -> tune.ResultGrid:
    settings = tune.RunConfig(name="e", storage_path=folder, **{"verbose": 0, **(run or {})})
    return tune.Tuner(trainable, param_space=space, tune_config=tune.TuneConfig(**config), run_config=settings).fit()


class OwnError(ValueError):
    """An error of a program."""


def ends(config: dict[str, Any]) -> None:
    for step in range(1, 23):
        if config.get("fails") == step:
            raise OwnError("on purpose")
        tune.report({"step": step, "done": step == config.get("at"), "deep": {"er": step}})


@pytest.mark.parametrize("stop", [None, {"step": 20}])
def test_done_ends_a_trial_at_once(stop: Any, tmp_path: Path) -> None:
    (result,) = fitted(ends, tmp_path, {"at": 2}, {"stop": stop})
    assert (result.metrics["step"], len(result.history), result.status) == (2, 2, "TERMINATED")


def test_errors_keep_their_class_also_when_restored(tmp_path: Path) -> None:
    results = fitted(ends, tmp_path, {"fails": 3})
    for grid in (results, tune.Tuner.restore(tmp_path / "e", ends).get_results()):
        (error,) = grid.errors
        assert isinstance(error, OwnError)
        assert isinstance(error, TaskError)
        assert "in ends" in str(error)
    Path(results[0].path, "error.pkl").unlink()
    (error,) = tune.Tuner.restore(tmp_path / "e", ends).get_results().errors
    assert isinstance(error, tune.TuneError)
    assert "OwnError: on purpose" in str(error)


def test_a_stop_key_that_is_not_reported_is_a_warning(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"stop has \['accuracy'\], and the first report, of trial \w+_00000, has"):
        (result,) = fitted(ends, tmp_path, {}, {"stop": {"accuracy": 1, "deep": {"er": 7}}})
    assert result.metrics["step"] == 7


def test_one_argument_adds_files_and_their_place_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = {"files": ["json", "csv"], "verbose": 1, "progress_reporter": tune.CLIReporter()}
    (result,) = fitted(ends, tmp_path, {"at": 2}, run)
    lines = Path(result.path, "result.json").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2]
    assert Path(result.path, "progress.csv").exists()
    assert f"results: {tmp_path / 'e'}" in capsys.readouterr().out
    for wrong in ("json", ["jsn"]):
        with pytest.raises(ValueError, match="files must be a list"):
            tune.RunConfig(files=wrong)


def test_wrapped_trainables_are_functions_and_classes(tmp_path: Path) -> None:
    """They hold no values when the program has dropped them. `tests/ray_docs` makes them remote."""

    def total(config: dict[str, Any], data: list[int], more: list[int]) -> dict[str, Any]:
        return {"total": sum(data) + sum(more)}

    class Total(tune.Trainable):
        def setup(self, config: dict[str, Any], **parameters: Any) -> None:
            self.data = parameters["data"]

        def step(self) -> dict[str, Any]:
            return {"total": sum(self.data), "done": True}

    made = tune.with_parameters(total, data=[1, 2], more=mpi_runtime.put([4]))
    made = tune.with_resources(made, {"cpu": 1})
    assert made({}) == {"total": 7}
    assert fitted(made, tmp_path / "function")[0].metrics["total"] == 7
    kind = tune.with_resources(tune.with_parameters(Total, data=[1, 2, 3]), lambda config: {"cpu": 1})
    assert issubclass(kind, tune.Trainable)
    assert kind({}).step()["total"] == 6
    assert fitted(kind, tmp_path / "class")[0].metrics["total"] == 6


# --- schedulers on real objectives ---

POINTS = numpy.random.default_rng(0).normal(size=(200, 5))
POPULATION = 4
LABELS = (POINTS @ numpy.array([1.0, -2.0, 0.5, 0.0, 1.5]) > 0).astype(float)


class Regression(tune.Trainable):
    """Logistic regression by gradient descent: how far it comes in 60 steps depends on the learning rate."""

    def setup(self, config: dict[str, Any], **parameters: Any) -> None:
        """Wait for the whole population: trials that end before others begin learn nothing from them."""
        self.weights = numpy.zeros(5)
        folder = Path(config["folder"])
        (folder / self.trial_id).touch()
        waits_until = time.monotonic() + 30
        while len(list(folder.iterdir())) < POPULATION and time.monotonic() < waits_until:
            time.sleep(0.01)

    def step(self) -> dict[str, Any]:
        guesses = 1 / (1 + numpy.exp(-POINTS @ self.weights))
        self.weights = self.weights - self.config["rate"] * POINTS.T @ (guesses - LABELS) / len(LABELS)
        guesses = numpy.clip(1 / (1 + numpy.exp(-POINTS @ self.weights)), 1e-9, 1 - 1e-9)
        loss = -numpy.mean(LABELS * numpy.log(guesses) + (1 - LABELS) * numpy.log(1 - guesses))
        return {"loss": float(loss)}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"weights": self.weights}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.weights = numpy.array(checkpoint["weights"])


def test_a_population_of_classes_is_better_than_chance(tmp_path: Path) -> None:
    def best(folder: str, scheduler: Any) -> float:
        stop = {"training_iteration": 60}
        started = tmp_path / f"{folder}-started"
        started.mkdir()
        space = {"rate": tune.loguniform(1e-3, 1e-1), "folder": str(started)}
        results = fitted(
            Regression, tmp_path / folder, space, {"stop": stop}, metric="loss", mode="min", scheduler=scheduler,
            num_samples=POPULATION, seed=3, max_concurrent_trials=POPULATION,
        )  # fmt: skip
        return float(results.get_best_result().metrics["loss"])

    population = PopulationBasedTraining(
        "training_iteration",
        perturbation_interval=3,
        hyperparam_mutations={"rate": tune.loguniform(1e-3, 10.0)},
        quantile_fraction=0.5,
        resample_probability=0.5,
    )
    assert best("population", population) < 0.9 * best("chance", None)


def test_the_median_rule_stops_some_of_eight_at_a_time(tmp_path: Path) -> None:
    def curve(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for step in range(1, 31):
            yield {"loss": config["x"] + 1 / step}

    trainable = tune.with_resources(curve, {"cpu": 0.25})
    rule = MedianStoppingRule("training_iteration", grace_period=3, min_samples_required=3)
    space = {"x": tune.grid_search([0.1, 0.9, 0.2, 0.8, 0.3, 0.7, 0.4, 0.6])}
    results = fitted(trainable, tmp_path, space, metric="loss", mode="min", scheduler=rule, max_concurrent_trials=8)
    lengths = {result.config["x"]: result.metrics["training_iteration"] for result in results}
    assert lengths[0.1] == 30
    assert sum(length < 30 for length in lengths.values()) >= 2


def test_bohb_as_on_the_page_of_ray_comes_to_its_end(tmp_path: Path) -> None:
    """Its function reports no checkpoints, so a trial that pauses starts from scratch."""

    def objective(config: dict[str, Any]) -> None:
        for step in range(config["steps"]):
            boost = 10 if config["activation"] == "relu" else 1
            score = (0.1 + config["width"] * step / 100) ** (-1) + config["height"] * 0.1 + boost
            tune.report({"iterations": step, "mean_loss": score})

    space = {
        "steps": 100,
        "width": tune.uniform(0, 20),
        "height": tune.uniform(-100, 100),
        "activation": tune.choice(["relu", "tanh"]),
    }
    scheduler = HyperBandForBOHB("training_iteration", max_t=100, reduction_factor=4, stop_last_trials=False)
    with pytest.warns(UserWarning, match="will start from scratch"):
        results = fitted(
            objective, tmp_path, space, {"stop": {"training_iteration": 100}},
            metric="mean_loss", mode="min", search_alg=ConcurrencyLimiter(TuneBOHB(), 4), scheduler=scheduler,
            num_samples=12,
        )  # fmt: skip
    assert (len(results), results.num_errors) == (12, 0)
    best = results.get_best_result()
    assert math.isfinite(best.metrics["mean_loss"])
    assert max(one.metrics["training_iteration"] for one in results) == 100


def fails_at_2(config: dict[str, Any]) -> None:
    for step in range(1, 8):
        tune.report({"score": step * config["x"], "word": "a", "resources": tune.get_context().get_trial_resources()})
        if config["x"] == 2:
            raise OwnError("on purpose")


def test_several_experiments_have_one_analysis(tmp_path: Path) -> None:
    values = {"a": tune.grid_search([1, 3]), "b": 5, "c": tune.grid_search([2, 4])}
    several = [tune.Experiment(name, fails_at_2, config={"x": x}, storage_path=tmp_path) for name, x in values.items()]
    with pytest.raises(tune.TuneError, match="1 of 5 trials have failed"):
        tune.run(several, verbose=0)
    found = tune.run(several, metric="score", mode="max", raise_on_failed_trial=False, verbose=0)
    assert [trial.config["x"] for trial in found.trials] == [1, 3, 5, 2, 4]
    assert [result.config["x"] for result in found.results_grid] == [1, 3, 5, 2, 4]
    assert (found.best_config, found.best_result["score"], found.get_best_config("score", "min")) == (
        {"x": 5},
        35,
        {"x": 2},
    )
    grid = found.results_grid
    assert (len(grid), grid.num_errors, grid.num_terminated, len(grid.errors)) == (5, 1, 4, 1)
    assert isinstance(grid[3].error, OwnError)
    with pytest.raises(IndexError):
        grid[5]
    assert grid[-1].config == {"x": 4}
    assert Path(grid[2].path).parent != Path(grid[0].path).parent


def test_results_are_analysed_and_pickled(tmp_path: Path) -> None:
    found = tune.run(fails_at_2, config={"x": 1}, stop={"score": 7}, storage_path=tmp_path, verbose=0)
    for analysis in (found, pickle.loads(pickle.dumps(found))):
        (trial,) = analysis.trials
        means = {"avg": 4, "last-5-avg": 5, "last-10-avg": 4}
        assert trial.metric_analysis["score"] == {"max": 7, "min": 1, "last": 7, **means}
        assert {name: list(some) for name, some in trial.metric_n_steps["score"].items()} == {
            "5": [3, 4, 5, 6, 7],
            "10": [1, 2, 3, 4, 5, 6, 7],
        }
        assert not {"config/x", "pid", "timestamp", "word"} & set(trial.metric_analysis)
        assert trial.last_result["resources"] == trial.placement_group_factory
