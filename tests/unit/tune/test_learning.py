"""What learns: the models of BOHB and PB2, a schedule that is replayed, and searchers of other libraries."""

from __future__ import annotations

import importlib
import math
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mpi_runtime import tune
from mpi_runtime.tune import search
from mpi_runtime.tune.schedulers import PB2, HyperBandForBOHB, PopulationBasedTraining, PopulationBasedTrainingReplay
from mpi_runtime.tune.search.bohb import TuneBOHB
from mpi_runtime.tune.space.flat import domains, named, unflatten_dict
from mpi_runtime.tune.space.unit_cube import UnitCube
from mpi_runtime.tune.space.variants import rng_of

SPACE = {
    "x": tune.uniform(-5.0, 5.0),
    "rate": tune.loguniform(1e-4, 1.0),
    "inner": {"n": tune.randint(1, 9), "kind": tune.choice(["bad", "good", ("odd", 1)])},
    "fixed": 7,
}
LIBRARIES = [
    ("OptunaSearch", "optuna"),
    ("HyperOptSearch", "hyperopt"),
    ("BayesOptSearch", "bayes_opt"),
    ("NevergradSearch", "nevergrad"),
]


def loss_of(config: dict[str, Any]) -> float:
    inner: dict[str, Any] = config["inner"]
    found: float = (float(config["x"]) - 2) ** 2 + (math.log10(config["rate"]) + 2) ** 2 + abs(float(inner["n"]) - 4)
    return found if inner["kind"] == "good" else found + 3


def once(config: dict[str, Any], checkpoint: Any) -> Iterator[tuple[float, dict[str, Any], Any]]:
    yield 1.0, {"loss": loss_of(config)}, 1


def best_after(searcher: Any, count: int, seed: int, space: Any = SPACE) -> float:
    config = tune.TuneConfig("loss", "min", search_alg=searcher, num_samples=count, seed=seed)
    done = tune.simulate(once, param_space=space, tune_config=config, slots=2)
    assert len(done.trials) == count
    assert all(trial.config["fixed"] == 7 for trial in done.trials)
    return min(float(trial.last_result["loss"]) for trial in done.trials)


def test_names_of_nested_domains_lead_there_and_back() -> None:
    assert list(domains(SPACE)) == ["x", "rate", "inner/n", "inner/kind"]
    assert unflatten_dict({"a": 1, "b/c": 2, "b/d": 3}) == {"a": 1, "b": {"c": 2, "d": 3}}
    ordered = unflatten_dict(OrderedDict({"b/c": 2}))
    assert [type(ordered), type(ordered["b"])] == [OrderedDict, OrderedDict]
    assert named({"a": 1, "b": {"c": 2}}, {"b/c": 0, "b/d": 0}) == {"b/c": 2}


def test_two_domains_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two parameters with the name 'a/b'"):
        domains({"a/b": tune.uniform(0, 1), "a": {"b": tune.uniform(0, 1)}})


@pytest.mark.parametrize("seed", range(20))
def test_each_value_has_a_place_in_the_cube(seed: int) -> None:
    space = {**SPACE, "normal": tune.randn(3.0, 2.0), "steps": tune.quniform(0, 1, 0.25), "log": tune.lograndint(1, 99)}
    cube = UnitCube(domains(space))
    values = cube.values(cube.random(rng_of(seed)))
    again = cube.values(cube.point(values))
    for name, value in values.items():
        assert again[name] == (pytest.approx(value) if isinstance(value, float) else value)
    assert values["steps"] in (0, 0.25, 0.5, 0.75, 1)
    assert 1 <= values["inner/n"] < 9
    assert 1 <= values["log"] < 99


def test_bohb_finds_better_values_than_chance() -> None:
    learnt = [best_after(TuneBOHB(), 100, seed) for seed in range(8)]
    drawn = [best_after(None, 100, seed) for seed in range(8)]
    assert np.median(learnt) < 0.9 * np.median(drawn), (learnt, drawn)


def test_bohb_learns_at_the_highest_time_with_enough_results() -> None:
    def learnt(late: bool) -> float:
        searcher = TuneBOHB({"x": tune.uniform(0.0, 1.0)}, {"random_fraction": 1.0}, "loss", "min")
        searcher.set_search_properties(None, None, {}, seed=1)
        for number in range(40):
            trial_id = f"{number:05d}"
            x = searcher.ask(trial_id, None)["x"]
            searcher.on_trial_result(trial_id, {"training_iteration": 1, "loss": x})  # small x is good at first,
            if late and number % 2:
                searcher.on_trial_result(trial_id, {"training_iteration": 9, "loss": 1 - x})  # and large x later
        searcher._random = 0.0
        return float(np.mean([searcher.ask(f"{number:05d}", None)["x"] for number in range(40, 60)]))

    assert learnt(late=False) < 0.2
    assert learnt(late=True) > 0.8


def test_bohb_with_hyperband_ends_in_simulation() -> None:
    def steps(config: dict[str, Any], checkpoint: Any) -> Iterator[tuple[float, dict[str, Any], Any]]:
        for epoch in range(checkpoint or 0, 27):
            yield 1.0, {"loss": loss_of(config) + 10 / (epoch + 1)}, epoch + 1

    config = tune.TuneConfig(
        "loss", "min", search_alg=TuneBOHB(), scheduler=HyperBandForBOHB(max_t=27), num_samples=60, seed=2
    )
    done = tune.simulate(steps, param_space=SPACE, tune_config=config, slots=4)
    assert len(done.trials) == 60
    assert max(trial.last_result["training_iteration"] for trial in done.trials) == 27
    again = tune.simulate(steps, param_space=SPACE, tune_config=config, slots=4)
    assert [trial.config for trial in again.trials] == [trial.config for trial in done.trials], "the same twice"


def climb(config: dict[str, Any], checkpoint: Any) -> Iterator[tuple[float, dict[str, Any], Any]]:
    """Progress is fastest near speed 0.7."""
    step, height = checkpoint or (0, 0.0)
    while step < 40:
        step, height = step + 1, height + 1 - (config["speed"] - 0.7) ** 2 * 2
        yield 1.0, {"height": height}, (step, height)


def climbed(scheduler: Any, seed: int) -> Any:
    config = tune.TuneConfig("height", "max", scheduler=scheduler, num_samples=4, seed=seed)
    run = tune.RunConfig(stop={"training_iteration": 40})
    return tune.simulate(
        climb, param_space={"speed": tune.uniform(0.0, 0.2)}, tune_config=config, run_config=run, slots=4
    )


def test_pb2_finds_where_progress_is_fast() -> None:
    heights = []
    for seed in range(5):
        scheduler = PB2("training_iteration", perturbation_interval=2, hyperparam_bounds={"speed": (0.0, 1.0)})
        heights.append(max(trial.last_result["height"] for trial in climbed(scheduler, seed).trials))
    alone = max(trial.last_result["height"] for trial in climbed(None, 0).trials)
    assert np.median(heights) > alone + 10
    with pytest.raises(ValueError, match="hyperparam_bounds"):
        PB2()


def test_a_schedule_that_was_found_can_be_replayed() -> None:
    found = PopulationBasedTraining(
        "training_iteration", perturbation_interval=2, hyperparam_mutations={"speed": tune.uniform(0.0, 1.0)}
    )
    done = climbed(found, 3)
    best = max(done.trials, key=lambda trial: trial.last_result["height"])
    policy = found.policies[best.trial_id]
    assert len(policy) > 1
    assert policy[-1][1] == best.config
    assert [at for at, _ in policy] == sorted({at for at, _ in policy})
    replay = PopulationBasedTrainingReplay(policy)
    config = tune.TuneConfig(scheduler=replay)
    run = tune.RunConfig(stop={"training_iteration": 40})
    again = tune.simulate(climb, param_space={}, tune_config=config, run_config=run)
    assert again.trials[0].last_result["height"] == pytest.approx(best.last_result["height"])
    with pytest.raises(ValueError, match="begin"):
        PopulationBasedTrainingReplay([(3, {})])


@pytest.mark.parametrize(("name", "library"), LIBRARIES)
@pytest.mark.filterwarnings("default")
def test_searchers_of_other_libraries_beat_chance(name: str, library: str) -> None:
    pytest.importorskip(library)
    space: Any = SPACE
    count = 60
    if library == "bayes_opt":
        space, count = {**SPACE, "inner": {"n": tune.randint(1, 9), "kind": "good"}}, 30
    made = getattr(search, name)
    learnt = [best_after(made(), count, seed, space) for seed in range(3)]
    drawn = [best_after(None, count, seed, space) for seed in range(9)]
    assert np.median(learnt) < np.median(drawn), (learnt, drawn)
    assert best_after(made(), 12, 5, space) == best_after(made(), 12, 5, space), "the seed decides"


@pytest.mark.parametrize(("name", "library"), LIBRARIES)
@pytest.mark.filterwarnings("default")
def test_searchers_of_other_libraries_begin_with_given_points(name: str, library: str) -> None:
    pytest.importorskip(library)
    space: Any = {"x": tune.uniform(-5.0, 5.0), "fixed": 7, "inner": {"n": tune.randint(1, 9)}}
    searcher = getattr(search, name)(points_to_evaluate=[{"x": 1.25, "inner": {"n": 3}}], metric="loss", mode="max")
    searcher.set_search_properties(None, None, space, seed=1)
    first = searcher.suggest("00000")
    assert first["inner"] == {"n": 3}
    assert first["x"] == pytest.approx(1.25)
    assert searcher.suggest("00001") != first
    searcher.on_trial_complete("00001", None, True)
    searcher.on_trial_complete("00000", {"loss": 1.0, "training_iteration": 1})
    assert isinstance(searcher.suggest("00002"), dict)
    searcher.on_trial_complete("00002", None, True)
    assert isinstance(searcher.suggest("00003"), dict)


@pytest.mark.parametrize(("name", "library"), [*LIBRARIES, ("TuneBOHB", "numpy")])
def test_wrong_goals_and_spaces_are_refused(name: str, library: str) -> None:
    pytest.importorskip(library)
    made = getattr(search, name)
    with pytest.raises(ValueError, match="mode must be"):
        made(metric="loss", mode="minimum")
    with pytest.raises(TypeError, match="one reported value"):
        made(metric=["loss", "size"], mode="min")
    if name != "OptunaSearch":
        with pytest.raises(TypeError, match="space must be a dictionary"):
            made(space=lambda trial: None)
    searcher = made(space={"x": tune.uniform(0, 1)}, metric="lost", mode="min")
    assert list(searcher._space) == ["x"]
    config = tune.TuneConfig(search_alg=searcher, num_samples=2)
    for trial in tune.simulate(once, param_space=SPACE, tune_config=config).trials:
        assert f"'lost' is not in the report of trial {trial.trial_id}" in str(trial.error)
    searcher.set_search_properties(None, None, {}, seed=1)
    searcher.suggest("00000")
    searcher.on_trial_complete("00000", {"loss": 1.0, "training_iteration": 1})  # the study has refused it before


def test_a_searcher_may_be_asked_without_an_experiment() -> None:
    for searcher in (TuneBOHB(SPACE, metric="loss", mode="min"), TuneBOHB(SPACE)):
        if searcher.metric is None:
            with pytest.raises(ValueError, match="set metric and mode"):
                searcher.suggest("0")
        else:
            assert isinstance(searcher.suggest("0"), dict)


def test_optuna_takes_a_function_as_space() -> None:
    pytest.importorskip("optuna")

    def space(trial: Any) -> dict[str, Any]:
        kind = trial.suggest_categorical("kind", ["bad", "good"])
        trial.suggest_float("x", -5.0, 5.0)
        trial.suggest_float("rate", 1e-4, 1.0, log=True)
        return {"inner": {"n": trial.suggest_int("n", 1, 9), "kind": kind}}

    searcher = search.OptunaSearch(space, points_to_evaluate=[{"kind": "good", "x": 1.0, "rate": 0.1, "n": 4}])
    assert best_after(searcher, 20, 0, {"fixed": 7}) <= 2.0, "the given point is among them"


@pytest.mark.parametrize(("name", "library"), [*LIBRARIES, ("TuneBOHB", "numpy")])
def test_what_a_searcher_needs_is_said(name: str, library: str) -> None:
    made = getattr(search, name)
    try:
        importlib.import_module(library)
    except ImportError:
        with pytest.raises(ImportError, match=f"{name} needs .*: pip install"):
            made()
        return
    with pytest.raises(ValueError, match="set metric and mode"):
        made().set_search_properties(None, None, {"x": tune.uniform(0, 1)})
    with pytest.raises(ValueError, match="nothing to search"):
        made(metric="loss", mode="min").set_search_properties(None, None, {"x": 1})
    if library == "bayes_opt":
        with pytest.raises(ValueError, match="numbers only"):
            made(metric="loss", mode="min").set_search_properties(None, None, {"x": tune.choice([1, 2])})
