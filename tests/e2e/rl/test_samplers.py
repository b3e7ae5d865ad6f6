"""Samplers as actors: the same as in one process, killed, hanging, too many of them."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("gymnasium")

import mpi_runtime
from mpi_runtime.rl import PPO, EnvError, PPOConfig, SamplerError
from mpi_runtime.rl.parameters import Common, checked
from mpi_runtime.util import collective
from tests.unit.rl import probes

pytestmark = pytest.mark.usefixtures("job")
QUICK: dict[str, Any] = {"n_steps": 32, "num_envs": 2, "batch_size": 64, "n_epochs": 2, "num_samplers": 2}


def test_two_samplers_learn_and_resume_bit_for_bit(tmp_path: Path) -> None:
    with PPO("CartPole-v1", **QUICK) as algorithm:
        algorithm.learn(512)
        path = algorithm.save(tmp_path / "c")
        seeds = algorithm.samplers.call("get_state")
        assert len(set(seeds)) == 2, "no two samplers are in the same state"
        algorithm.learn(512)
        expected = algorithm.vector()
    with PPO.load(path) as again:
        again.learn(512)
        assert again.vector().tobytes() == expected.tobytes()


def test_samplers_that_work_ahead_use_weights_of_the_update_before(tmp_path: Path) -> None:
    with PPO("CartPole-v1", **QUICK, sample_ahead=True) as algorithm:
        assert [algorithm.train()["info"]["lag"] for _ in range(3)] == [0.0, 1.0, 1.0]
        assert not algorithm.samplers.idle(), "they have begun already"
        path = algorithm.save(tmp_path / "c")
        assert [algorithm.train()["info"]["lag"] for _ in range(2)] == [0.0, 1.0]
        expected = algorithm.vector()
    with PPO.load(path) as again:
        again.train()
        again.train()
        assert again.vector().tobytes() == expected.tobytes()
    for wrong in ({"num_samplers": 0}, {}):
        with pytest.raises(ValueError, match="sample_ahead is for PPO, A2C, DQN and SAC, and needs num_samplers=1"):
            checked(Common, {"num_samplers": 1, "sample_ahead": True, **wrong}, "PPO" if wrong else "A3C")


def test_samplers_have_no_torch() -> None:
    with PPO("CartPole-v1", **QUICK) as algorithm:
        algorithm.train()
        for pid in algorithm.samplers.call("pid"):
            assert "libtorch" not in Path(f"/proc/{pid}/maps").read_text()


def test_a_sampler_that_is_killed_is_replaced_and_its_fragment_made_again(caplog: pytest.LogCaptureFixture) -> None:
    with PPO("CartPole-v1", **QUICK) as algorithm:
        algorithm.train()
        pids = algorithm.samplers.call("pid")
        os.kill(pids[1], signal.SIGKILL)
        result = algorithm.train()
        assert result["timesteps_this_iter"] == 128
        assert result["sampler_restarts"] == 1
        assert algorithm.samplers.call("pid")[0] == pids[0]
        assert "sampler 1 is replaced" in caplog.text
        algorithm.train()


class Hangs(probes.ByAction):
    """Hangs in its 40th step, while there is a file."""

    steps = 0

    def __init__(self, config: dict[str, Any]) -> None:
        self.file = Path(config["file"])

    def step(self, action: Any) -> Any:
        self.steps += 1
        while self.steps == 40 and self.file.exists():
            time.sleep(0.01)
        return super().step(action)


def test_a_sampler_that_hangs_is_killed_and_replaced(tmp_path: Path) -> None:
    file = tmp_path / "hang"
    with PPO(Hangs, env_config={"file": str(file)}, sample_timeout_s=5.0, **QUICK) as algorithm:
        algorithm.train()
        file.touch()
        # The new samplers would hang in their 40th step, too, but this fragment has 32.
        assert algorithm.train()["sampler_restarts"] == 2


def test_a_sampler_that_always_dies_ends_the_training() -> None:
    class Deadly(probes.ByAction):
        def step(self, action: Any) -> Any:
            os.kill(os.getpid(), signal.SIGKILL)

    with PPO(Deadly, **QUICK) as algorithm, pytest.raises(SamplerError, match="failed 4 times in a row"):
        algorithm.train()


def test_an_environment_that_raises_in_a_sampler_is_named() -> None:
    class Broken(probes.ByAction):
        def step(self, action: Any) -> Any:
            raise ZeroDivisionError("in the middle")

    with PPO(Broken, **QUICK) as algorithm, pytest.raises(EnvError, match=r"(?s)\(Broken, seed \d+\).*in the middle"):
        algorithm.train()


def test_spaces_that_differ_between_samplers_are_named() -> None:
    from gymnasium import spaces

    class Changing(probes.ByAction):
        def __init__(self) -> None:
            if "driver" not in os.environ.get("RL_TEST_PLACE", ""):
                self.observation_space = spaces.Box(-1, 1, (2,), np.float32)

        def first(self) -> Any:
            return np.zeros(self.observation_space.shape, np.float32)

    os.environ["RL_TEST_PLACE"] = "driver"
    try:
        with PPO(Changing, **QUICK) as algorithm, pytest.raises(EnvError, match=r"The spaces of sampler . differ"):
            algorithm.train()
    finally:
        del os.environ["RL_TEST_PLACE"]


def test_more_samplers_than_cpus_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"num_samplers=100 needs 100 CPUs, and this job has 4: pass num_samplers=4"):
        PPO("CartPole-v1", num_samplers=100)


def test_the_way_of_rllib(tmp_path: Path) -> None:
    config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=2, num_envs_per_env_runner=2)
    algorithm = config.training(lr=1e-3, train_batch_size=128, minibatch_size=64, num_epochs=2).build_algo()
    result = algorithm.train()
    names = {"training_iteration", "timesteps_total", "episode_reward_mean", "episode_len_mean", "time_total_s"}
    assert names <= result.keys()
    assert result["timesteps_total"] == 128
    path = algorithm.save(tmp_path / "c")
    algorithm.restore(path)
    assert algorithm.train()["training_iteration"] == 2
    algorithm.stop()
    with pytest.raises(ValueError, match="no environment is set"):
        PPOConfig().build_algo()


def test_several_learners_average_their_gradients() -> None:
    """Each has a seed, and so experience, of its own; after each step all have the same weights."""

    @mpi_runtime.remote
    class Learner:
        def train(self, rank: int) -> Any:
            collective.init_collective_group(2, rank, group_name="learners")
            settings = {"n_steps": 16, "num_envs": 2, "batch_size": 16, "n_epochs": 1, "hidden": (8,)}
            algorithm = PPO("CartPole-v1", seed=rank, learner_group="learners", **settings)
            before = algorithm.vector()
            algorithm.train()
            return before, algorithm.vector(), algorithm.samplers.local.state.obs

    learners = [Learner.remote() for _ in range(2)]
    one, two = mpi_runtime.get([learner.train.remote(rank) for rank, learner in enumerate(learners)])
    collective.destroy_collective_group("learners")
    np.testing.assert_array_equal(one[0], two[0])
    np.testing.assert_array_equal(one[1], two[1])
    assert np.abs(one[1] - one[0]).max() > 0
    assert not np.array_equal(one[2], two[2])


def test_fragments_are_views_of_shared_memory() -> None:
    from mpi_runtime.rl.sampler import Sampler

    with PPO("CartPole-v1", **{**QUICK, "n_steps": 2000, "num_samplers": 0}) as algorithm:
        spec, weights = algorithm.sampler_spec(), algorithm.weights()
        actor = mpi_runtime.remote(Sampler).remote(spec, 0)
        fragment = mpi_runtime.get(actor.sample.remote(mpi_runtime.put(weights), 2000))
        assert not fragment.obs.flags.writeable
        assert fragment.obs.nbytes > 16_000
        np.testing.assert_array_equal(fragment.obs, algorithm.samplers.sample(weights, 2000).obs)
        mpi_runtime.kill(actor)
