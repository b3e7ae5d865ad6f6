"""A3C, Ape-X and ES on several samplers."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("gymnasium")

from mpi_runtime.rl import A2C, A3C, ES, ApeX
from tests.unit.rl import probes

pytestmark = pytest.mark.usefixtures("job")
SETTINGS: dict[Any, dict[str, Any]] = {
    A3C: {"num_envs": 4, "hidden": (16,), "gamma": 0.5, "learning_rate": 0.01},
    ApeX: {
        "num_envs": 4, "hidden": (16,), "gamma": 0.5, "learning_rate": 0.005, "fragment": 8, "learning_starts": 64,
        "target_update": 64, "replay_ratio": 8, "buffer_size": 2000, "steps_per_iteration": 256,
    },
    ES: {
        "population": 16, "noise_size": 100_000, "hidden": (8,), "learning_rate": 0.1, "sigma": 0.2, "num_samplers": 2,
    },
}  # fmt: skip


def chosen(algorithm: Any, *observations: float) -> list[int]:
    return [int(algorithm.predict(probes.seen(one), deterministic=True)[0]) for one in observations]


@pytest.mark.parametrize(("cls", "steps"), [(A3C, 8000), (ApeX, 2000), (ES, 2000)])
def test_actions_are_found_and_a_checkpoint_continues(cls: Any, steps: int, tmp_path: Path) -> None:
    with cls(probes.ByBoth, **SETTINGS[cls]) as algorithm:
        algorithm.learn(steps)
        assert chosen(algorithm, -1, 1) == [0, 1]
        path = algorithm.save(tmp_path / "c")
        algorithm.train()  # samplers that were drained are asked again
    with cls.load(path) as again:
        assert again.timesteps >= steps
        assert chosen(again, -1, 1) == [0, 1]
        again.train()


def test_the_replay_ratio_of_apex_is_held() -> None:
    with ApeX(probes.ByBoth, **SETTINGS[ApeX]) as algorithm:
        result: dict[str, Any] = {}
        algorithm.learn(3000, callback=lambda found: result.update(found) and None)
    expected = 8 * (algorithm.timesteps - 64) / algorithm.timesteps
    assert result["info"]["replay_ratio"] == pytest.approx(expected, rel=0.05)


def test_one_sampler_of_a3c_learns_as_a2c() -> None:
    settings = {**SETTINGS[A3C], "n_steps": 5, "steps_per_iteration": 400}
    plain = A2C("CartPole-v1", **settings)
    plain.train()
    with A3C("CartPole-v1", **settings, num_samplers=1) as algorithm:
        algorithm.train()
        np.testing.assert_allclose(algorithm.vector(), plain.vector(), atol=1e-6)


def test_es_of_two_samplers_is_es_of_one_process() -> None:
    settings = {**SETTINGS[ES], "num_samplers": 0}
    one = ES("CartPole-v1", **settings).learn(1000)
    with ES("CartPole-v1", **SETTINGS[ES]) as two:
        two.learn(1000)
        np.testing.assert_array_equal(one.vector(), two.vector())
        assert one.timesteps == two.timesteps


@pytest.mark.parametrize("cls", [A3C, ApeX, ES])
def test_a_sampler_that_is_killed_is_replaced(cls: Any) -> None:
    with cls(probes.ByBoth, **SETTINGS[cls]) as algorithm:
        algorithm.train()
        algorithm.samplers.drain()
        os.kill(algorithm.samplers.call("pid")[1], signal.SIGKILL)
        while not algorithm.samplers.restarts:
            algorithm.train()
        assert algorithm.train()["sampler_restarts"] == 1
