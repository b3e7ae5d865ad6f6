"""Algorithms as trials: resources, checkpoints, population based training, names of environments."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("gymnasium")

from mpi_runtime import rl, tune
from mpi_runtime.tune.schedulers import PopulationBasedTraining
from tests.unit.rl import probes

pytestmark = pytest.mark.usefixtures("job")
SPACE: dict[str, Any] = {"n_steps": 32, "num_envs": 2, "batch_size": 64, "n_epochs": 2, "hidden": (16,), "gamma": 0.5}


def run(name: str, space: dict[str, Any], path: Path, stop: int = 2, config: Any = None, **more: Any) -> Any:
    settings = tune.RunConfig(name="e", storage_path=path, verbose=0, stop={"training_iteration": stop}, **more)
    config = config or tune.TuneConfig("episode_reward_mean", "max")
    return tune.Tuner(name, param_space={**SPACE, **space}, tune_config=config, run_config=settings).fit()


@pytest.mark.timeout(180)
def test_trials_reserve_their_samplers_too(tmp_path: Path) -> None:
    """Three trials of two processes on four CPUs: without the reservation, each would wait for the others' samplers."""
    rl.register_env("a probe", probes.ByAction)
    space = {"env": "a probe", "lr": tune.grid_search([0.1, 0.01, 0.001]), "num_samplers": 1}
    results = run("PPO", space, tmp_path)
    assert not results.errors
    assert [result.metrics["timesteps_total"] for result in results] == [128] * 3
    made = tune.Tuner("PPO", param_space=space)._prepared
    assert made.request({"num_samplers": 3}).required_resources == {"CPU": 4}
    assert made.request({"num_env_runners": 1}).required_resources == {"CPU": 2}
    assert made.request({}).required_resources == {"CPU": 1}


@pytest.mark.timeout(180)
def test_a_population_changes_learning_rates_and_inherits_weights(tmp_path: Path) -> None:
    tune.register_env("another probe", lambda config: probes.ByAction())
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=2,
        hyperparam_mutations={"lr": tune.loguniform(1e-4, 1e-1)},
        quantile_fraction=0.5,
    )
    config = tune.TuneConfig("episode_reward_mean", "max", scheduler=scheduler, num_samples=2, seed=1)
    results = run(
        "PPO",
        {"env": "another probe", "lr": tune.loguniform(1e-4, 1e-1), "seed": tune.grid_search([0, 1])},
        tmp_path,
        stop=6,
        config=config,
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=2),
    )
    assert not results.errors
    assert {result.metrics["timesteps_total"] for result in results} == {6 * 64}
    best = results.get_best_result()
    assert best.checkpoint is not None
    with best.checkpoint.as_directory() as folder:
        found = rl.load(Path(folder) / "checkpoint", probes.ByAction)
        assert found.timesteps in (4 * 64, 6 * 64)


def test_a_space_without_an_environment_is_named(tmp_path: Path) -> None:
    (result,) = run("PPO", {}, tmp_path)
    assert 'param_space={"env": "CartPole-v1", ...}' in str(result.error)
