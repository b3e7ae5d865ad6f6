"""A2C, DQN, SAC and ES: probe environments, planted bugs, resume, equality of parts with their definitions."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("gymnasium")

from mpi_runtime.rl import A2C, DQN, ES, SAC, Algorithm, ApeX, es, evaluate  # noqa: E402
from mpi_runtime.rl.apex import epsilons  # noqa: E402
from mpi_runtime.rl.sac import temperature_loss  # noqa: E402
from tests.unit.rl import probes  # noqa: E402

Q: dict[str, Any] = {
    "num_envs": 4, "train_freq": 16, "gradient_steps": 8, "batch_size": 32, "learning_rate": 0.005, "hidden": (16,),
    "buffer_size": 2000, "target_update": 64, "exploration_fraction": 0.5, "steps_per_iteration": 256, "gamma": 0.5,
}  # fmt: skip
SETTINGS: dict[Any, dict[str, Any]] = {
    A2C: {"num_envs": 8, "learning_rate": 0.01, "hidden": (16,), "gamma": 0.5},
    DQN: Q,
    SAC: {
        "num_envs": 4, "train_freq": 16, "gradient_steps": 8, "batch_size": 64, "learning_rate": 0.005, "hidden": (16,),
        "tau": 0.05, "buffer_size": 2000, "steps_per_iteration": 256, "gamma": 0.5,
    },
    ES: {"population": 16, "noise_size": 100_000, "hidden": (8,), "learning_rate": 0.1, "sigma": 0.2},
}  # fmt: skip


def trained(cls: Any, env: Any, steps: int, **more: Any) -> Any:
    return cls(env, **{**SETTINGS[cls], **more}).learn(steps)


def values(algorithm: Algorithm, *observations: float) -> list[float]:
    found: list[float] = algorithm.policy().values(np.array(observations, np.float32)[:, None]).tolist()
    return found


def chosen(algorithm: Algorithm, *observations: float) -> list[Any]:
    return [algorithm.predict(probes.seen(one), deterministic=True)[0].tolist() for one in observations]


def test_a2c_finds_values_and_actions() -> None:
    assert values(trained(A2C, probes.TwoSteps, 8000), 0, 1) == pytest.approx([0.5, 1], abs=0.15)
    assert values(trained(A2C, probes.Forever, 4000), 0) == pytest.approx([2], abs=0.15)
    assert chosen(trained(A2C, probes.ByBoth, 4000), -1, 1) == [0, 1]


VARIANTS: list[dict[str, Any]] = [{}, {"double": True, "duelling": True, "prioritised": True, "n": 2}]


@pytest.mark.parametrize("more", VARIANTS, ids=["plain", "all"])
def test_dqn_finds_values_and_actions(more: dict[str, Any]) -> None:
    assert values(trained(DQN, probes.TwoSteps, 1500, **more), 0, 1) == pytest.approx([0.5, 1], abs=0.15)
    assert values(trained(DQN, probes.Forever, 1500, **more), 0) == pytest.approx([2], abs=0.2)
    assert chosen(trained(DQN, probes.ByBoth, 1000, **more), -1, 1) == [0, 1]


def test_updates_begin_after_the_fragment_in_which_random_actions_end() -> None:
    """As in Stable-Baselines3: with rl-zoo's CartPole after 1 024 steps, not after the next 256."""
    found = [
        DQN(probes.Forever, train_freq=256, learning_starts=1000, gradient_steps=2).learn(steps).updates
        for steps in (768, 1024, 1280)
    ]
    assert found == [0, 2, 4]


@pytest.mark.parametrize("cls", [DQN, SAC])
def test_an_update_for_each_step_of_an_environment(cls: Any) -> None:
    steps = {"num_envs": 2, "train_freq": 8, "gradient_steps": -1, "learning_starts": 0, "batch_size": 4}
    counts = list[int]()

    class Counting(cls):  # type: ignore[misc]
        def update(self) -> dict[str, float]:
            counts.append(self.timesteps)
            found: dict[str, float] = super().update()
            return found

    Counting(probes.ByAction if cls is DQN else probes.Aim, hidden=(4,), **steps).learn(24)
    assert counts == [8] * 8 + [16] * 8 + [24] * 8


def test_planted_target_network_that_is_never_updated_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DQN, "move_target", lambda self, tau: None)
    assert abs(values(trained(DQN, probes.Forever, 1500), 0)[0] - 2) > 0.4


def test_planted_targets_that_bootstrap_after_the_end_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from mpi_runtime.rl import dqn

    right = dqn.transitions

    def wrong(fragment: Any, gamma: float, n: int) -> Any:
        return {**right(fragment, gamma, n), "factors": np.full(fragment.rewards.size, gamma, np.float32)}

    monkeypatch.setattr(dqn, "transitions", wrong)
    assert values(trained(DQN, probes.ByAction, 1500), 0)[0] > 1.5


def test_sac_finds_a_number() -> None:
    assert chosen(trained(SAC, probes.Aim, 1500), 0)[0] == pytest.approx([0.5], abs=0.15)


def test_sac_scales_actions_to_their_bounds() -> None:
    from gymnasium import spaces

    class Wide(probes.Aim):
        action_space = spaces.Box(-10, 30, (1,), np.float32)

        def step(self, action: Any) -> Any:
            return probes.seen(0), -float(((action[0] - 20) / 20) ** 2), True, False, {}

    assert chosen(trained(SAC, Wide, 1500), 0)[0] == pytest.approx([20], abs=3)

    class Unbounded(probes.Aim):
        action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    with pytest.raises(ValueError, match="finite bounds"):
        SAC(Unbounded)


def test_the_temperature_falls_when_the_entropy_is_above_its_target() -> None:
    log_heat = torch.zeros(1, requires_grad=True)
    temperature_loss(log_heat, torch.tensor([-3.0, -1.0]), target=-1.0).backward()
    assert log_heat.grad.item() == pytest.approx(3.0), "entropy 2, target -1: the descent lowers it"


def test_es_finds_actions() -> None:
    assert chosen(trained(ES, probes.ByBoth, 2000, normalize_obs=False), -1, 1) == [0, 1]
    assert chosen(trained(ES, probes.Aim, 2000), 0)[0] == pytest.approx([0.5], abs=0.15)


def test_es_estimates_the_gradient_of_a_quadratic() -> None:
    rng = np.random.default_rng(0)
    noise = rng.standard_normal(200_000).astype(np.float32)
    at, aim = rng.standard_normal(5), rng.standard_normal(5)
    places = rng.integers(0, len(noise) - 5, 4000)

    def fitness(x: Any) -> float:
        return -float(np.square(x - aim).sum())

    sides = [[at + 0.1 * sign * noise[p : p + 5] for sign in (1, -1)] for p in places]
    returns = np.array([[fitness(x) for x in pair] for pair in sides])
    found, exact = es.gradient(returns, noise, places, 5, 0.1), 2 * (aim - at)
    assert found @ exact / np.linalg.norm(found) / np.linalg.norm(exact) > 0.99


def test_ranks_are_centred_and_equal_values_share_theirs() -> None:
    assert es.centred_ranks(np.array([[3.0, 1.0], [2.0, 10.0]])).tolist() == pytest.approx(
        np.array([[1 / 6, -0.5], [-1 / 6, 0.5]])
    )
    assert es.centred_ranks(np.array([[1.0, 1.0], [1.0, 1.0]])).tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_es_does_not_depend_on_how_many_episodes_run_side_by_side(env: str) -> None:
    vectors = []
    for num_envs in (2, 6, 20):
        algorithm = ES(env, noise_size=100_000, population=14, num_envs=num_envs, seed=3)
        for _ in range(3):
            algorithm.train()
        vectors.append((algorithm.timesteps, algorithm.vector(), algorithm.moments[0].mean))
    for steps, vector, mean in vectors[1:]:
        assert steps == vectors[0][0]
        np.testing.assert_array_equal(vector, vectors[0][1])
        np.testing.assert_array_equal(mean, vectors[0][2])


def test_an_environment_that_fails_ends_only_its_own_episode_in_es() -> None:
    class ThreeSteps(probes.Probe):
        is_sound = False

        def first(self) -> Any:
            self.at = 0
            return probes.seen(0)

        def step(self, action: Any) -> Any:
            self.at += 1
            if self.at == 2 and not ThreeSteps.is_sound:
                ThreeSteps.is_sound = True
                raise RuntimeError("once")
            return probes.seen(0), 1.0, self.at == 3, False, {}

    algorithm = ES(ThreeSteps, population=4, noise_size=100_000, hidden=(8,), restart_failed_envs=True)
    algorithm.train()
    assert list(algorithm.episodes.lengths) == [2, 3, 3, 3]
    assert list(algorithm.episodes.returns) == [1, 3, 3, 3]


def test_es_runs_pairs() -> None:
    with pytest.raises(ValueError, match=r"ES runs episodes in pairs: num_envs must be even, not 3"):
        ES("CartPole-v1", num_envs=3)


def test_es_learns_cartpole() -> None:
    algorithm = ES("CartPole-v1", noise_size=500_000, seed=1)
    algorithm.learn(300_000, callback=lambda result: result["episode_reward_mean"] < 300)
    assert evaluate(algorithm, episodes=5).mean >= 300


@pytest.mark.parametrize(
    ("cls", "env", "more"),
    [
        (A2C, "CartPole-v1", {}),
        (DQN, "CartPole-v1", {}),
        (DQN, "CartPole-v1", {"prioritised": True, "double": True, "duelling": True, "n": 3}),
        (SAC, "Pendulum-v1", {"steps_per_iteration": 64, "learning_starts": 32}),
        (ES, "CartPole-v1", {}),
    ],
)
def test_a_resumed_training_is_the_uninterrupted_one_bit_for_bit(
    tmp_path: Path, cls: Any, env: str, more: dict[str, Any]
) -> None:
    settings = {**SETTINGS[cls], **more}
    steps = 192 if cls is SAC else 1024
    whole = cls(env, **settings).learn(steps)
    part = cls(env, **settings).learn(steps, callback=lambda result: False)
    assert part.timesteps < whole.timesteps
    again = cls.load(part.save(tmp_path / "c")).learn(steps, resume=True)
    assert again.vector().tobytes() == whole.vector().tobytes()
    assert again.episodes == whole.episodes


def test_algorithms_that_do_not_fit_the_actions_name_those_that_do() -> None:
    with pytest.raises(ValueError, match=r"DQN does not fit box actions .*PPO, A2C, A3C, SAC and ES"):
        DQN("Pendulum-v1")
    with pytest.raises(ValueError, match=r"SAC does not fit discrete actions .*PPO, A2C, A3C, DQN, ApeX and ES"):
        SAC("CartPole-v1")


def test_epsilons_of_samplers() -> None:
    assert epsilons(3) == pytest.approx((0.4, 0.4**4.5, 0.4**8))
    assert epsilons(1) == (0.4,)
    with pytest.raises(ValueError, match="ApeX is asynchronous"):
        ApeX("CartPole-v1", num_samplers=0)


@pytest.mark.parametrize(("cls", "env"), [(A2C, "CartPole-v1"), (DQN, "CartPole-v1"), (SAC, "Pendulum-v1")])
def test_an_iteration_after_the_goal_of_learn_makes_steps_too(cls: Any, env: str) -> None:
    algorithm = trained(cls, env, 64)
    assert algorithm.train()["timesteps_this_iter"] >= SETTINGS[cls].get("steps_per_iteration", 1000)
