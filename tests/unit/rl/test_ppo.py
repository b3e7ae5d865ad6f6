"""PPO: probe environments, the same with planted bugs, resume, names, errors."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("gymnasium")

from mpi_runtime.rl import PPO, CheckpointError, EnvError, evaluate, policies, ppo  # noqa: E402
from mpi_runtime.rl.parts.returns import gae  # noqa: E402
from tests.unit.rl import probes  # noqa: E402

QUICK: dict[str, Any] = {
    "n_steps": 32,
    "num_envs": 4,
    "batch_size": 32,
    "n_epochs": 4,
    "learning_rate": 0.01,
    "hidden": (16,),
}


def trained(env: Any, steps: int = 4000, **more: Any) -> PPO:
    return PPO(env, **{**QUICK, "gamma": 0.5, **more}).learn(steps)


def values(algorithm: Any, *observations: float) -> list[float]:
    found: list[float] = algorithm.policy().values(np.array(observations, np.float32)[:, None]).tolist()
    return found


def chosen(algorithm: Any, *observations: float) -> list[Any]:
    return [algorithm.predict(probes.seen(one), deterministic=True)[0].tolist() for one in observations]


def test_values_are_found() -> None:
    assert values(trained(probes.OneStep), 0) == pytest.approx([1], abs=0.05)
    assert values(trained(probes.ByObservation), -1, 1) == pytest.approx([-1, 1], abs=0.1)
    assert values(trained(probes.TwoSteps), 0, 1) == pytest.approx([0.5, 1], abs=0.1)
    assert values(trained(probes.Forever), 0) == pytest.approx([2], abs=0.1)


def test_actions_are_found() -> None:
    assert chosen(trained(probes.ByAction), 0) == [1]
    assert chosen(trained(probes.ByBoth, 6000), -1, 1) == [0, 1]
    assert chosen(trained(probes.NextEpisodePays, 6000), 0) == [0]
    assert chosen(trained(probes.TwoSwitches), 0) == [[1, 2]]
    assert chosen(trained(probes.Aim, 12000), 0)[0] == pytest.approx([0.5], abs=0.2)


def leaky_gae(fragment: Any, gamma: float, lam: float) -> Any:
    """Advantages that flow over truncations."""
    deltas = fragment.rewards + gamma * ppo_following(fragment) - fragment.values
    advantages, carried = np.zeros_like(deltas), np.zeros(deltas.shape[1], np.float32)
    for t in range(len(deltas) - 1, -1, -1):
        carried = deltas[t] + gamma * lam * ~fragment.terminated[t] * carried
        advantages[t] = carried
    return advantages, advantages + fragment.values


def ppo_following(fragment: Any) -> Any:
    from mpi_runtime.rl.parts.returns import following_values

    return following_values(fragment)


def no_bootstrap(fragment: Any, gamma: float, lam: float) -> Any:
    """Truncation taken for termination."""
    fragment.terminated = fragment.terminated | fragment.truncated
    return gae(fragment, gamma, lam)


def test_planted_advantages_that_flow_over_a_truncation_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ppo, "gae", leaky_gae)
    assert chosen(trained(probes.NextEpisodePays, 6000), 0) == [1]


def test_planted_truncation_taken_for_termination_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ppo, "gae", no_bootstrap)
    assert values(trained(probes.Forever), 0)[0] < 1.7


def test_planted_log_probability_of_the_wrong_action_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ppo.log_probabilities
    monkeypatch.setattr(
        ppo, "log_probabilities", lambda network, outputs, actions: right(network, outputs, 1 - actions)
    )
    assert chosen(trained(probes.ByAction), 0) == [0]


def test_numpy_and_torch_compute_the_same() -> None:
    from mpi_runtime.rl.nets_torch import Network, TorchPolicy, log_probabilities

    rng = np.random.default_rng(0)
    for probe in (probes.ByAction, probes.Aim, probes.TwoSwitches):
        for kind in ("actor_critic", "q", "squashed"):
            for activation, duelling in (("tanh", False), ("relu", True)):
                if (kind == "q" and probe is not probes.ByAction) or (kind == "squashed" and probe is not probes.Aim):
                    continue
                algorithm = PPO(probe, hidden=(16, 8), activation=activation)
                spec = algorithm.net_spec()
                spec = type(spec)(**{**vars(spec), "kind": kind, "duelling": duelling, "init": "torch"})
                network = Network(spec)
                vector = policies_vector(network)
                mine, theirs = policies.policy_of(spec), TorchPolicy(spec)
                mine.load(vector)
                theirs.load(vector)
                obs = rng.standard_normal((50, 1)).astype(np.float32)
                seen = torch.from_numpy(obs)
                with torch.no_grad():
                    if kind == "squashed":
                        mean, _ = network.mean_and_log_std(seen)
                        np.testing.assert_allclose(mine.best(obs), np.tanh(mean.numpy()), atol=1e-5)
                        continue
                    np.testing.assert_allclose(mine.values(obs), theirs.values(obs), atol=1e-5)
                    np.testing.assert_allclose(mine.best(obs), theirs.best(obs), atol=1e-5)
                    if kind == "actor_critic":
                        actions, logp, _ = mine.act(obs, rng, 0.0)
                        again, _ = log_probabilities(network, network.outputs(seen), torch.from_numpy(actions))
                        np.testing.assert_allclose(logp, again.numpy(), atol=1e-5)


def policies_vector(network: Any) -> Any:
    from mpi_runtime.rl.parts.weights import flatten

    return flatten(network.parameters)


@pytest.mark.parametrize("more", [{}, {"normalize_obs": True, "normalize_reward": True}, {"kl_coeff": 0.2}])
def test_a_resumed_training_is_the_uninterrupted_one_bit_for_bit(tmp_path: Path, more: dict[str, Any]) -> None:
    settings = {**QUICK, "learning_rate": "lin_0.001", **more}
    whole = PPO("CartPole-v1", **settings).learn(1280)
    part = PPO("CartPole-v1", **settings).learn(1280, callback=lambda result: result["timesteps_total"] < 640)
    path = part.save(tmp_path / "there" / "checkpoint-5")
    again = PPO.load(path)
    assert (again.timesteps, again.goal) == (640, 1280)
    again.learn(1280, resume=True)
    assert again.vector().tobytes() == whole.vector().tobytes()
    assert again.episodes == whole.episodes
    assert part.learn(1280, resume=True).vector().tobytes() == whole.vector().tobytes()
    assert again.iteration == whole.iteration == 10


def test_the_same_seed_is_the_same_run_and_another_one_is_not() -> None:
    def run(seed: int) -> bytes:
        return bytes(PPO("CartPole-v1", seed=seed, **QUICK).learn(256).vector().tobytes())

    assert run(1) == run(1) != run(2)


def test_environments_that_cannot_be_pickled_begin_new_episodes(tmp_path: Path) -> None:
    class Stubborn(probes.ByAction):
        def __reduce__(self) -> Any:
            raise TypeError("no")

    algorithm = PPO(Stubborn, **QUICK).learn(128)
    again = PPO.load(algorithm.save(tmp_path / "c"))
    assert not again.resumes_episodes
    assert again.learn(128).timesteps == 256


def test_a_checkpoint_of_something_else_is_refused_with_all_differences(tmp_path: Path) -> None:
    path = PPO(probes.ByAction, **QUICK).save(tmp_path / "c")
    with pytest.raises(CheckpointError, match=r"(?s)hidden: \(8,\) here, \(16,\) there"):
        PPO.load(path, hidden=(8,))
    with pytest.raises(CheckpointError, match="actions: "):
        PPO(probes.Aim, **QUICK).restore(path)
    (tmp_path / "other").write_text("hello")
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        PPO.load(tmp_path / "other")
    with pytest.raises(CheckpointError, match="no checkpoint can be read"):
        PPO.load(tmp_path / "nowhere")


def test_a_wrong_name_has_the_nearest_in_its_error() -> None:
    with pytest.raises(TypeError, match=r"PPO has no hyper-parameter 'learning_rat'; did you mean 'learning_rate'\?"):
        PPO("CartPole-v1", learning_rat=1)
    with pytest.raises(TypeError, match="'lr' is another name of 'learning_rate'"):
        PPO("CartPole-v1", learning_rate=1.0, lr=1.0)
    with pytest.raises(ValueError, match="gamma must be between 0 and 1, not 99"):
        PPO("CartPole-v1", gamma=99)
    with pytest.raises(ValueError, match="n_steps must be a whole number, 1 or more"):
        PPO("CartPole-v1", n_steps=0)
    with pytest.raises(ValueError, match="there is no environment 'CartPol-v1'"):
        PPO("CartPol-v1")
    with pytest.raises(ValueError, match="sample_timeout_s needs num_samplers"):
        PPO("CartPole-v1", sample_timeout_s=1.0)
    for wrong, text in (
        ({"seed": -1}, "seed must be a whole number, 0 or more, not -1"),
        ({"seed": 2**63}, "seed must be below"),
        ({"learning_rate": -0.1}, "learning_rate must be 0 or more"),
        ({"hidden": 64}, r"hidden must be the widths of layers, such as \(64, 64\), not 64"),
        ({"hidden": (0,)}, "hidden must be the widths"),
        ({"hidden": "64"}, "hidden must be the widths"),
        ({"hidden": [1e300, float("inf")]}, "hidden must be the widths"),
        ({"reward_clip": -1}, "reward_clip must be a number above 0"),
        ({"device": "quantum"}, "must be 'auto', 'cpu', 'gpu', or a GPU's name"),
    ):
        with pytest.raises(ValueError, match=text):
            PPO("CartPole-v1", **wrong)
    assert type(PPO("CartPole-v1", seed=np.int64(3)).parameters.seed) is int
    assert PPO("CartPole-v1", lr=0.5, lambda_=0.7, train_batch_size=4000, num_envs=4).parameters.n_steps == 1000


def test_an_environment_that_raises_is_named_with_its_traceback() -> None:
    class Broken(probes.ByAction):
        steps = 0

        def step(self, action: Any) -> Any:
            self.steps += 1
            if self.steps == 20:
                raise ZeroDivisionError("in the middle")
            return super().step(action)

    with pytest.raises(EnvError, match=r"(?s)environment 0 of 4 \(Broken, seed \d+\) raised.*in the middle"):
        PPO(Broken, **QUICK).learn(100)
    algorithm = PPO(Broken, restart_failed_envs=True, **QUICK).learn(1024)
    assert algorithm.timesteps == algorithm.episodes.total >= 1024, "steps that were none are not counted"
    assert algorithm.samplers.local.envs.failures > 10
    with pytest.raises(EnvError, match="in the middle"):
        PPO(Broken, restart_failed_envs=3, **QUICK).learn(1024)


def test_numbers_that_are_not_finite_are_named() -> None:
    class Wild(probes.ByAction):
        def step(self, action: Any) -> Any:
            return probes.seen(0), float("nan"), True, False, {}

    class Blind(probes.TwoSteps):
        def step(self, action: Any) -> Any:
            return (probes.seen(float("nan")), *super().step(action)[1:])

    with pytest.raises(EnvError, match=r"sampler 0: environment 0 \(seed \d+\) gave a reward that is not finite"):
        PPO(Wild, **QUICK).learn(100)
    with pytest.raises(EnvError, match="gave an observation that is not finite"):
        PPO(Blind, **QUICK).learn(100)


class Old:
    """As the old gym."""

    observation_space, action_space = probes.Probe.observation_space, probes.Probe.action_space

    def seed(self, seed: int) -> None:
        self.seeded = seed

    def reset(self) -> Any:
        return probes.seen(0)

    def step(self, action: int) -> Any:
        return probes.seen(0), 1.0 if action == 1 else -1.0, True, {}


def test_an_environment_of_old_gym_needs_the_adapter() -> None:
    from mpi_runtime.rl import from_old_gym

    with pytest.raises(EnvError, match="from_old_gym"):
        PPO(Old, **QUICK)
    assert chosen(trained(lambda: from_old_gym(Old())), 0) == [1]

    class HalfOld(probes.ByAction):
        def step(self, action: Any) -> Any:
            return super().step(action)[:4]

    with pytest.raises(EnvError, match="step\\(\\) does not answer as in gymnasium"):
        PPO(HalfOld, **QUICK).learn(100)


@pytest.mark.parametrize("wrong", [np.zeros(3, np.float32), np.zeros(2, np.float32), 0.5, None, "text"], ids=repr)
def test_observations_that_do_not_fit_in_the_middle_of_an_episode_are_named(wrong: Any) -> None:
    """A single number would be copied to all places of a vector, without an error of numpy."""
    from gymnasium import spaces

    class Late(probes.Probe):
        observation_space = spaces.Box(-1, 1, (4,), np.float32)

        def first(self) -> Any:
            return np.zeros(4, np.float32)

        def step(self, action: Any) -> Any:
            return wrong, 0.0, False, False, {}

    with pytest.raises(EnvError, match=r"environment 0 of 4 \(Late, seed \d+\) returned an observation that does"):
        PPO(Late, **QUICK).learn(100)


def test_images_of_another_shape_are_named() -> None:
    from gymnasium import spaces

    class Turned(probes.OneStep):
        observation_space = spaces.Box(0, 255, (36, 40, 1), np.uint8)

        def first(self) -> Any:
            return np.zeros((40, 36, 1), np.uint8)

    with pytest.raises(EnvError, match=r"its shape is \(40, 36, 1\)"):
        PPO(Turned, **QUICK)


@pytest.mark.parametrize("shape", [(), (2, 3)], ids=["number", "matrix"])
def test_boxes_of_other_dimensions_are_flattened_for_the_network(shape: tuple[int, ...]) -> None:
    from gymnasium import spaces

    class Shaped(probes.ByBoth):
        observation_space = spaces.Box(-1, 1, shape, np.float32)

        def first(self) -> Any:
            return np.full(shape, super().first()[0], np.float32)

        def step(self, action: Any) -> Any:
            return (np.zeros(shape, np.float32), *super().step(action)[1:])

    algorithm = PPO(Shaped, **QUICK).learn(64)
    rows = np.random.default_rng(0).standard_normal((5, *shape)).astype(np.float32)
    with torch.no_grad():
        expected = algorithm.network.values(torch.from_numpy(rows.reshape(5, -1))).numpy()
    assert algorithm.policy().values(rows) == pytest.approx(expected, abs=1e-5)
    assert int(algorithm.predict(rows[0])[0]) in (0, 1)
    assert algorithm.predict(rows)[0].shape == (5,)


def test_observations_that_do_not_fit_their_space_are_named() -> None:
    class Wide(probes.ByAction):
        def first(self) -> Any:
            return np.zeros(3, np.float32)

    with pytest.raises(EnvError, match="does not fit its observation_space"):
        PPO(Wide, **QUICK)


def test_any_torch_module_is_a_network() -> None:
    class Mine(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.body = torch.nn.Linear(inputs, 16)
            self.pi, self.vf = torch.nn.Linear(16, outputs), torch.nn.Linear(16, 1)

        def forward(self, obs: Any) -> Any:
            seen = torch.tanh(self.body(obs))
            return self.pi(seen), self.vf(seen)

    algorithm = trained(probes.ByBoth, 6000, network=lambda observations, outputs: Mine(observations.size, outputs))
    assert chosen(algorithm, -1, 1) == [0, 1]


def test_images_have_a_convolutional_network() -> None:
    from gymnasium import spaces

    class Light(probes.ByBoth):
        observation_space = spaces.Box(0, 255, (36, 36, 1), np.uint8)

        def first(self) -> Any:
            super().first()
            return np.full((36, 36, 1), 255 * (self.now > 0), np.uint8)

        def step(self, action: Any) -> Any:
            return (np.zeros((36, 36, 1), np.uint8), *super().step(action)[1:])

    settings = {**QUICK, "learning_rate": 1e-3, "n_steps": 16}
    algorithm = PPO(Light, **settings).learn(768)
    shown = [np.full((36, 36, 1), 255 * bright, np.uint8) for bright in (0, 1)]
    assert [int(algorithm.predict(one, deterministic=True)[0]) for one in shown] == [0, 1]

    class Tiny(Light):
        observation_space = spaces.Box(0, 255, (8, 8, 1), np.uint8)

    with pytest.raises(ValueError, match="too small for the built-in network"):
        PPO(Tiny)


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP"])
def test_vector_environments_of_both_ways_to_reset(mode: str) -> None:
    """A step that only resets is not a transition: with it the value of the probe would be another."""
    import gymnasium

    class Env(gymnasium.Env):  # type: ignore[misc, type-arg, unused-ignore]
        observation_space, action_space = probes.Probe.observation_space, probes.Probe.action_space

        def __init__(self) -> None:
            self.inner = probes.Forever()

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return self.inner.reset(seed=seed)

        def step(self, action: Any) -> Any:
            return self.inner.step(action)

    def make() -> Any:
        autoreset = getattr(gymnasium.vector.AutoresetMode, mode)
        return gymnasium.vector.SyncVectorEnv([Env] * 4, autoreset_mode=autoreset)

    algorithm = trained(make)
    assert values(algorithm, 0) == pytest.approx([2], abs=0.1)
    assert set(algorithm.episodes.returns) == {2.0}
    assert set(algorithm.episodes.lengths) == {2}


class Counted:
    """Two environments of three steps, as one, whose kind of reset is that of `metadata` and `finals`."""

    num_envs = 2
    single_observation_space, single_action_space = probes.Probe.observation_space, probes.Probe.action_space
    observation_space, action_space = single_observation_space, single_action_space
    metadata: ClassVar[dict[str, Any]] = {}
    finals = "final_observation"

    def reset(self, *, seed: int | None = None) -> Any:
        self.at = np.zeros((2, 1), np.float32)
        return self.at.copy(), {}

    def step(self, actions: Any) -> Any:
        self.at += 1
        ended = self.at[:, 0] == 3
        info = {self.finals: self.at.copy()} if ended.any() and self.finals else {}
        self.at[ended] = 0
        return self.at.copy(), np.ones(2), ended, np.zeros(2, bool), info

    def close(self) -> None:
        pass


def test_vector_environments_from_before_gymnasium_1_reset_at_once() -> None:
    algorithm = PPO(Counted, num_envs=2, n_steps=8, batch_size=16).learn(64)
    assert set(algorithm.episodes.lengths) == {3}
    assert algorithm.timesteps == 64, "no step is void"


def test_vector_environments_that_do_not_reset_are_refused() -> None:
    class Never(Counted):
        metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": "AutoresetMode.DISABLED"}

    class Secret(Counted):
        metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": "AutoresetMode.SAME_STEP"}
        finals = ""

    for cls, text in ((Never, "does not reset itself"), (Secret, "has no final_obs")):
        with pytest.raises(EnvError, match=text):
            PPO(cls, num_envs=2, n_steps=8).learn(64)


def test_evaluation_of_nothing_is_refused() -> None:
    algorithm = PPO(probes.ByAction, **QUICK)
    for episodes, seed in ((0, 0), (1, -1)):
        with pytest.raises(ValueError, match="episodes must be 1 or more and seed 0 or more"):
            evaluate(algorithm, episodes=episodes, seed=seed)
    with pytest.raises(ValueError, match=r"ByAction has no render\(\)"):
        evaluate(algorithm, episodes=1, video="episodes.gif")


def test_evaluation() -> None:
    algorithm = trained(probes.ByAction)
    found = evaluate(algorithm, episodes=5)
    assert (found.mean, found.deviation, found.lengths) == (1.0, 0.0, (1,) * 5)
    mean, deviation = found
    assert (mean, deviation) == (1.0, 0.0)
    assert str(found) == "1.0 ± 0.0 over 5 episodes"


def test_cartpole_is_learned() -> None:
    from mpi_runtime.rl.presets import preset

    algorithm = PPO("CartPole-v1", seed=1, **preset("PPO", "CartPole-v1"))
    algorithm.learn(100_000, callback=lambda result: result["episode_reward_mean"] < 475)
    assert algorithm.episodes.summary()["episode_reward_mean"] >= 475
    assert evaluate(algorithm, episodes=5).mean >= 475
