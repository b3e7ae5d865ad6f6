"""Are our losses and gradients those of Stable-Baselines3? This records its side, for `tests/unit/rl`.

    pip install torch==2.13.0 stable-baselines3==2.9.2
    python benchmarks/systems/rl_fixture.py tests/unit/rl/stable_baselines3.npz

One fragment and one set of weights go through its own `train` methods with a learning rate of 0, so that losses and
gradients can be read afterwards and no weight changes. It needs nothing of this project.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common import logger
from stable_baselines3.common.buffers import RolloutBuffer

OBS = spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = {"discrete": spaces.Discrete(4), "box": spaces.Box(-1, 1, (2,), np.float32)}
STEPS, ENVS, ROWS = 16, 3, 40
GAMMA, LAMBDA = 0.97, 0.9


class Idle(gymnasium.Env):  # type: ignore[misc]
    """An environment that only has spaces."""

    def __init__(self, kind: str) -> None:
        self.observation_space, self.action_space = OBS, ACTIONS[kind]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Return an observation."""
        return np.zeros(3, np.float32), {}


def flat(parameters: Any, gradient: bool = False) -> Any:
    """Return parameters, or their gradients, as one vector."""
    return np.concatenate([(one.grad if gradient else one).detach().numpy().ravel() for one in parameters])


def losses(model: Any) -> dict[str, float]:
    """Return what the last `train` has logged."""
    return {key: float(value) for key, value in model.logger.name_to_value.items()}


def advantages(rng: np.random.Generator) -> dict[str, Any]:
    """Run a fragment with both kinds of ends through its rollout buffer."""
    shape = (STEPS, ENVS)
    terminated = rng.random(shape) < 0.15
    truncated = ~terminated & (rng.random(shape) < 0.15)
    rewards, values, final = (rng.standard_normal(shape).astype(np.float32) for _ in range(3))
    last = rng.standard_normal(ENVS).astype(np.float32)
    buffer = RolloutBuffer(STEPS, OBS, ACTIONS["discrete"], gae_lambda=LAMBDA, gamma=GAMMA, n_envs=ENVS)
    starts = np.ones(ENVS)
    for t in range(STEPS):
        # As its rollouts do: the value of the last observation of a truncated episode is added to the reward.
        shown = rewards[t] + GAMMA * final[t] * truncated[t]
        zeros = np.zeros((ENVS, 3), np.float32), np.zeros((ENVS, 1))
        buffer.add(*zeros, shown, starts, torch.from_numpy(values[t]), torch.zeros(ENVS))
        starts = terminated[t] | truncated[t]
    buffer.compute_returns_and_advantage(torch.from_numpy(last), starts)
    given = {"rewards": rewards, "values": values, "final": final, "last": last}
    ends = {"terminated": terminated, "truncated": truncated}
    return {**given, **ends, "advantages": buffer.advantages, "returns": buffer.returns}


def ppo(rng: np.random.Generator, kind: str, clip_range_vf: float | None) -> dict[str, Any]:
    """Run one minibatch through PPO."""
    settings = {"ent_coef": 0.01, "clip_range_vf": clip_range_vf, "max_grad_norm": 1e9}
    model = PPO(
        "MlpPolicy", Idle(kind), learning_rate=0.0, n_steps=ROWS, batch_size=ROWS, n_epochs=1, device="cpu", **settings,
        policy_kwargs={"net_arch": [8, 8]},
    )  # fmt: skip
    model.set_logger(logger.configure(None, []))
    policy = model.policy
    nets = (policy.mlp_extractor.policy_net, policy.action_net, policy.mlp_extractor.value_net, policy.value_net)
    parameters = [one for net in nets for one in net.parameters()] + ([policy.log_std] if kind == "box" else [])
    with torch.no_grad():
        for one in parameters:
            one.copy_(torch.from_numpy(rng.standard_normal(one.shape).astype(np.float32) * 0.5))
    obs = rng.standard_normal((ROWS, 3)).astype(np.float32)
    actions = rng.integers(0, 4, (ROWS, 1)) if kind == "discrete" else rng.standard_normal((ROWS, 2)).astype(np.float32)
    columns = {name: rng.standard_normal(ROWS).astype(np.float32) for name in ("values", "advantages", "targets")}
    with torch.no_grad():
        shown = torch.from_numpy(actions[:, 0] if kind == "discrete" else actions)
        _, logp, _ = policy.evaluate_actions(torch.from_numpy(obs), shown)
    columns["logp"] = logp.numpy() + rng.normal(0, 0.3, ROWS).astype(np.float32)
    sample = SimpleNamespace(
        observations=torch.from_numpy(obs),
        actions=torch.from_numpy(actions),
        old_values=torch.from_numpy(columns["values"]),
        old_log_prob=torch.from_numpy(columns["logp"]),
        advantages=torch.from_numpy(columns["advantages"]),
        returns=torch.from_numpy(columns["targets"]),
    )
    model.rollout_buffer.get = lambda batch_size: iter([sample])
    model.rollout_buffer.values = model.rollout_buffer.returns = np.ones((ROWS, 1))  # for a figure that it logs
    model.train()
    given = {"obs": obs, "actions": actions, **columns, "weights": flat(parameters)}
    return {**given, "gradient": flat(parameters, True), "loss": losses(model)["train/loss"]}


def replayed(model: Any, columns: dict[str, Any]) -> None:
    """Have a model draw these rows from its replay."""
    rows = SimpleNamespace(**{name: torch.from_numpy(column) for name, column in columns.items()}, discounts=None)
    model.replay_buffer.sample = lambda *_, **__: rows


def rows_of(rng: np.random.Generator, actions: Any) -> dict[str, Any]:
    """Return random rows of a replay."""
    obs, later = (rng.standard_normal((ROWS, 3)).astype(np.float32) for _ in range(2))
    rewards = rng.standard_normal((ROWS, 1)).astype(np.float32)
    dones = (rng.random((ROWS, 1)) < 0.2).astype(np.float32)
    return {"observations": obs, "next_observations": later, "actions": actions, "rewards": rewards, "dones": dones}


def dqn(rng: np.random.Generator) -> dict[str, Any]:
    """Run one batch through DQN."""
    model = DQN(
        "MlpPolicy", Idle("discrete"), learning_rate=0.0, buffer_size=100, gamma=GAMMA, max_grad_norm=1e9, device="cpu",
        policy_kwargs={"net_arch": [8, 8]},
    )  # fmt: skip
    model.set_logger(logger.configure(None, []))
    nets = [list(net.parameters()) for net in (model.q_net, model.q_net_target)]
    with torch.no_grad():
        for one in nets[0] + nets[1]:
            one.copy_(torch.from_numpy(rng.standard_normal(one.shape).astype(np.float32) * 0.5))
    columns = rows_of(rng, rng.integers(0, 4, (ROWS, 1)))
    replayed(model, columns)
    seen: list[Any] = []
    module = sys.modules["stable_baselines3.dqn.dqn"]
    right = torch.nn.functional.smooth_l1_loss
    module.F = SimpleNamespace(smooth_l1_loss=lambda q, y: (seen.append(y), right(q, y))[1])
    model.train(gradient_steps=1, batch_size=ROWS)
    module.F = torch.nn.functional
    given = {**columns, "weights": flat(nets[0]), "target_weights": flat(nets[1])}
    return {
        **given,
        "targets": seen[0].numpy()[:, 0],
        "loss": losses(model)["train/loss"],
        "gradient": flat(nets[0], True),
    }


def sac(rng: np.random.Generator) -> dict[str, Any]:
    """Run one batch through SAC, with given noise."""
    model = SAC(
        "MlpPolicy", Idle("box"), learning_rate=0.0, buffer_size=100, gamma=GAMMA, device="cpu",
        policy_kwargs={"net_arch": [8, 8]},
    )  # fmt: skip
    model.set_logger(logger.configure(None, []))
    actor = model.actor
    # Ours has one last layer for means and deviations.
    actors = [*actor.latent_pi.parameters(), actor.mu.weight, actor.mu.bias, actor.log_std.weight, actor.log_std.bias]
    critics, later = list(model.critic.parameters()), list(model.critic_target.parameters())
    with torch.no_grad():
        for one in [*actors, *critics, *later]:
            one.copy_(torch.from_numpy(rng.standard_normal(one.shape).astype(np.float32) * 0.5))
        model.log_ent_coef.fill_(-0.7)
    weights = {"critics": flat(critics), "later": flat(later)}  # `train` moves the second ones
    columns = rows_of(rng, rng.uniform(-0.9, 0.9, (ROWS, 2)).astype(np.float32))
    replayed(model, columns)
    noise = rng.standard_normal((2, ROWS, 2)).astype(np.float32)
    drawn = iter([noise[0], noise[1]])
    normal = torch.distributions.Normal
    right = normal.rsample
    normal.rsample = lambda self, *_: self.loc + self.scale * torch.from_numpy(next(drawn))
    model.train(gradient_steps=1, batch_size=ROWS)
    normal.rsample = right
    given = {**columns, "noise": noise, **weights, "log_heat": -0.7}
    for name, one in zip(("w0", "b0", "w1", "b1", "mu_w", "mu_b", "std_w", "std_b"), actors, strict=True):
        given[f"actor_{name}"] = one.detach().numpy()
        given[f"gradient_{name}"] = one.grad.numpy()
    found = losses(model)
    names = ("critic_loss", "actor_loss", "ent_coef_loss")
    return {**given, **{name: found[f"train/{name}"] for name in names}}


def main(path: str) -> None:
    """Write everything into one file."""
    rng = np.random.default_rng(0)
    parts = {
        "gae": advantages(rng),
        "ppo_discrete": ppo(rng, "discrete", None),
        "ppo_clipped": ppo(rng, "discrete", 0.2),
        "ppo_box": ppo(rng, "box", None),
        "dqn": dqn(rng),
        "sac": sac(rng),
    }
    arrays = {f"{part}.{name}": np.asarray(value) for part, content in parts.items() for name, value in content.items()}
    versions = f"stable-baselines3 {stable_baselines3.__version__}, torch {torch.__version__}"
    np.savez_compressed(path, versions=versions, **arrays)
    print(f"{path}: {len(arrays)} arrays of {versions}")


if __name__ == "__main__":
    main(*sys.argv[1:])
