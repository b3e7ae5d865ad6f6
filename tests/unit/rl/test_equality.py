"""Losses and gradients beside Stable-Baselines3, to 1e-6: one fragment, one set of weights, no statistics.

`benchmarks/systems/rl_fixture.py` has made the file with its side.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("gymnasium")

from gymnasium import spaces  # noqa: E402

from mpi_runtime.rl import DQN, PPO, SAC, dqn, ppo, sac  # noqa: E402
from mpi_runtime.rl.nets_torch import Network  # noqa: E402
from mpi_runtime.rl.parts.episodes import Fragment  # noqa: E402
from mpi_runtime.rl.parts.returns import gae  # noqa: E402
from mpi_runtime.rl.parts.weights import assign  # noqa: E402
from tests.unit.rl import probes  # noqa: E402

GAMMA, LAMBDA = 0.97, 0.9
EXACT: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}
"""1e-6 in numbers of the size of 1; gradients and losses of these weights are up to 30."""


@pytest.fixture(scope="module")
def recorded() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    with np.load(Path(__file__).with_name("stable_baselines3.npz")) as arrays:
        for name in arrays.files:
            part, _, key = name.partition(".")
            found.setdefault(part, {})[key] = arrays[name]
    return found


class Discrete(probes.Probe):
    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Discrete(4)

    def first(self) -> Any:
        return np.zeros(3, np.float32)


class Continuous(Discrete):
    action_space = spaces.Box(-1, 1, (2,), np.float32)


def tensor(array: Any) -> Any:
    return torch.from_numpy(np.array(array))


def gradient(parameters: Any, loss: Any) -> Any:
    return np.concatenate([one.numpy().ravel() for one in torch.autograd.grad(loss, parameters)])


def test_advantages(recorded: dict[str, dict[str, Any]]) -> None:
    one = recorded["gae"]
    none = np.zeros(one["rewards"].shape, bool)
    nothing = np.zeros((*none.shape, 1), np.float32)
    ends = (one["terminated"], one["truncated"], none)
    final = one["final"] * one["truncated"]
    fragment = Fragment(nothing, nothing, one["rewards"], *ends, nothing[0], nothing, one["values"], final, one["last"])
    advantages, targets = gae(fragment, GAMMA, LAMBDA)
    np.testing.assert_allclose(advantages, one["advantages"], **EXACT)
    np.testing.assert_allclose(targets, one["returns"], **EXACT)


@pytest.mark.parametrize(
    ("part", "env", "clip"),
    [("ppo_discrete", Discrete, None), ("ppo_clipped", Discrete, 0.2), ("ppo_box", Continuous, None)],
)
def test_ppo(recorded: dict[str, dict[str, Any]], part: str, env: Any, clip: float | None) -> None:
    one = recorded[part]
    algorithm = PPO(env, hidden=(8, 8), ent_coef=0.01, clip_range_vf=clip)
    assign(one["weights"], algorithm.network.parameters)
    actions = one["actions"][:, 0] if env is Discrete else one["actions"]
    columns = (one["obs"], actions, one["logp"], one["values"], one["advantages"], one["targets"])
    p = algorithm.parameters
    policy, value, entropy, _, _ = ppo.losses(algorithm.network, ppo.Batch(*map(tensor, columns)), p, 0.2)
    loss = policy + p.vf_coef * value + p.ent_coef * entropy
    np.testing.assert_allclose(loss.item(), one["loss"], **EXACT)
    np.testing.assert_allclose(gradient(algorithm.network.parameters, loss), one["gradient"], **EXACT)


def rows(one: dict[str, Any], actions: Any) -> dict[str, Any]:
    """The recorded rows as ours."""
    factors = GAMMA * (1 - one["dones"][:, 0])
    columns = (one["observations"], actions, one["rewards"][:, 0], one["next_observations"], factors.astype(np.float32))
    return dict(zip(("obs", "actions", "rewards", "next_obs", "factors"), map(tensor, columns), strict=True))


def test_dqn(recorded: dict[str, dict[str, Any]]) -> None:
    one = recorded["dqn"]
    algorithm = DQN(Discrete, hidden=(8, 8))
    assign(one["weights"], algorithm.network.parameters)
    assign(one["target_weights"], algorithm.target.parameters)
    batch = rows(one, one["actions"][:, 0])
    y = dqn.targets(algorithm.network, algorithm.target, batch, double=False)
    np.testing.assert_allclose(y.numpy(), one["targets"], **EXACT)
    loss, _ = dqn.loss_of(algorithm.network, batch, y)
    np.testing.assert_allclose(loss.item(), one["loss"], **EXACT)
    np.testing.assert_allclose(gradient(algorithm.network.parameters, loss), one["gradient"], **EXACT)


def test_sac(recorded: dict[str, dict[str, Any]]) -> None:
    one = recorded["sac"]
    algorithm = SAC(Continuous, hidden=(8, 8))

    def joined(kind: str) -> Any:
        """The weights in the order of ours, whose last layer has means and deviations."""
        first = [one[f"{kind}_{name}"].ravel() for name in ("w0", "b0", "w1", "b1")]
        last = [np.concatenate([one[f"{kind}_{name}_{what}"] for name in ("mu", "std")]).ravel() for what in ("w", "b")]
        return np.concatenate([*first, *last])

    assign(joined("actor"), algorithm.actor.parameters)
    assign(one["critics"], algorithm.critics.parameters)
    assign(one["later"], algorithm.later.parameters)
    batch, noise = rows(one, one["actions"]), tensor(one["noise"])
    heat = torch.tensor([float(one["log_heat"])]).exp()
    critic = sac.critic_loss(algorithm.critics, algorithm.later, algorithm.actor, batch, noise[1], heat)
    actor, logp = sac.actor_loss(algorithm.critics, algorithm.actor, batch["obs"], noise[0], heat)
    np.testing.assert_allclose(critic.item(), one["critic_loss"], **EXACT)
    np.testing.assert_allclose(actor.item(), one["actor_loss"], **EXACT)
    temperature = sac.temperature_loss(torch.tensor([float(one["log_heat"])]), logp, -2.0)
    np.testing.assert_allclose(temperature.item(), one["ent_coef_loss"], **EXACT)
    np.testing.assert_allclose(gradient(algorithm.actor.parameters, actor), joined("gradient"), **EXACT)


def test_a_network_has_its_parameters_in_the_order_of_its_shapes() -> None:
    for cls, env in ((PPO, Discrete), (PPO, Continuous), (DQN, Discrete), (SAC, Continuous)):
        spec = cls(env, hidden=(8, 4)).net_spec()
        assert [tuple(one.shape) for one in Network(spec).parameters] == spec.shapes()
