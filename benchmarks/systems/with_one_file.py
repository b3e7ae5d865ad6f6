"""PPO as one short file, in the manner of CleanRL, for `benchmarks/rl.py throughput`. Words: `train` and a plan.

A vector environment of gymnasium, a network of torch and a loop, for discrete actions; nothing of this project.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical


def layer(inputs: int, outputs: int, gain: float) -> Any:
    """Make an orthogonal layer."""
    made = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(made.weight, gain)
    nn.init.zeros_(made.bias)
    return made


def net(inputs: int, outputs: int, gain: float) -> Any:
    """Make an MLP of two hidden layers."""
    root = 2**0.5
    return nn.Sequential(layer(inputs, 64, root), nn.Tanh(), layer(64, 64, root), nn.Tanh(), layer(64, outputs, gain))


def scheduled(value: Any, left: float) -> float:
    """Return a rate now; "lin_0.001" is a line to 0."""
    return float(value.removeprefix("lin_")) * left if isinstance(value, str) else float(value)


def improve(actor: Any, critic: Any, optimiser: Any, columns: list[Any], clip: float, given: dict[str, Any]) -> None:
    """Learn from a fragment."""
    for _ in range(given.get("n_epochs", 10)):
        for rows in torch.randperm(len(columns[0])).split(given.get("batch_size", 64)):
            obs, actions, old, better, aim = (column[rows] for column in columns)
            chances = Categorical(logits=actor(obs))
            better = (better - better.mean()) / (better.std() + 1e-8)
            ratio = (chances.log_prob(actions) - old).exp()
            gain = torch.min(better * ratio, better * ratio.clamp(1 - clip, 1 + clip)).mean()
            loss = -gain + 0.5 * (critic(obs)[:, 0] - aim).square().mean()
            loss = loss - given.get("ent_coef", 0.0) * chances.entropy().mean()
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_([*actor.parameters(), *critic.parameters()], 0.5)
            optimiser.step()


def ppo(env: str, steps: int, seed: int, given: dict[str, Any]) -> tuple[list[int], list[float]]:
    """Train; return steps and mean returns of the last 100 episodes."""
    torch.manual_seed(seed)
    count, length = given.get("num_envs", 1), given.get("n_steps", 2048)
    gamma, weight = given.get("gamma", 0.99), given.get("gae_lambda", 0.95)
    mode = gymnasium.vector.AutoresetMode.SAME_STEP
    envs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make(env)] * count, autoreset_mode=mode)
    sizes = envs.single_observation_space.shape[0], int(envs.single_action_space.n)
    actor, critic = net(*sizes, 0.01), net(sizes[0], 1, 1.0)
    optimiser = torch.optim.Adam([*actor.parameters(), *critic.parameters()], eps=1e-5)
    obs, actions = torch.zeros(length, count, sizes[0]), torch.zeros(length, count, dtype=torch.int64)
    logp, values, rewards, ends = (torch.zeros(length, count) for _ in range(4))
    seen = torch.tensor(envs.reset(seed=seed)[0])
    totals, ended = np.zeros(count), list[float]()
    at, returns = list[int](), list[float]()
    for done in range(0, steps, count * length):
        left = 1 - done / steps
        optimiser.param_groups[0]["lr"] = scheduled(given.get("learning_rate", 3e-4), left)
        clip = scheduled(given.get("clip_range", 0.2), left)
        for t in range(length):
            with torch.no_grad():
                chances = Categorical(logits=actor(seen))
                chosen = chances.sample()
                obs[t], actions[t], logp[t], values[t] = seen, chosen, chances.log_prob(chosen), critic(seen)[:, 0]
            found, gained, terminated, truncated, info = envs.step(chosen.numpy())
            totals += gained
            rewards[t], ends[t] = torch.tensor(gained), torch.tensor(terminated | truncated, dtype=torch.float32)
            for i in np.flatnonzero(terminated | truncated):
                ended.append(totals[i])
                totals[i] = 0
                if not terminated[i]:
                    with torch.no_grad():
                        rewards[t, i] += gamma * critic(torch.tensor(info["final_obs"][i]))[0]
            seen = torch.tensor(found)
        with torch.no_grad():
            later, advantage, advantages = critic(seen)[:, 0], torch.zeros(count), torch.zeros(length, count)
            for t in reversed(range(length)):
                error = rewards[t] + gamma * later * (1 - ends[t]) - values[t]
                advantage = error + gamma * weight * (1 - ends[t]) * advantage
                advantages[t], later = advantage, values[t]
        columns = [one.flatten(0, 1) for one in (obs, actions, logp, advantages, advantages + values)]
        improve(actor, critic, optimiser, columns, clip, given)
        at.append(done + count * length)
        returns.append(float(np.mean(ended[-100:])) if ended else float("nan"))
    return at, returns


def train(plan: dict[str, Any]) -> None:
    """Train with each seed, and print a line for each."""
    for seed in plan["seeds"]:
        started, wall = time.process_time(), time.perf_counter()
        at, returns = ppo(plan["env"], plan["steps"], seed, plan["settings"])
        run = {"algorithm": "PPO", "env": plan["env"], "steps": at[-1], "system": "one file", "seed": seed}
        run |= {"cpu_s": round(time.process_time() - started, 1), "wall_s": round(time.perf_counter() - wall, 1)}
        print(json.dumps({**run, "at": at, "returns": returns}), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    train(json.loads(sys.argv[2]))
