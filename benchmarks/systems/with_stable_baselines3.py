"""The part of Stable-Baselines3 in `benchmarks/rl.py`. Words: `sampling` and a seed, or `train` and a plan."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import stable_baselines3
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy


class Watch(BaseCallback):
    """Notes the mean return of the last 100 episodes after each rollout, and the CPU seconds of rollouts."""

    def __init__(self) -> None:
        super().__init__()
        self.at: list[int] = []
        self.means: list[float] = []
        self.seconds = self.since = 0.0

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        self.since = time.process_time()

    def _on_rollout_end(self) -> None:
        self.seconds += time.process_time() - self.since
        found = [one["r"] for one in self.model.ep_info_buffer]
        self.at.append(self.num_timesteps)
        self.means.append(float(np.mean(found)) if found else float("nan"))


NAMES = {
    "hidden": "net_arch",
    "target_update": "target_update_interval",
    "exploration_final": "exploration_final_eps",
}
"""Hyper-parameters of mpi_runtime.rl that have other names there."""


def translated(settings: dict[str, Any]) -> dict[str, Any]:
    """Return hyper-parameters by their names there."""
    found = {NAMES.get(key, key): value for key, value in settings.items()}
    for key, value in found.items():
        if isinstance(value, str):
            first = float(value.removeprefix("lin_"))
            found[key] = lambda left, first=first: first * left
    if "net_arch" in found:
        found["policy_kwargs"] = {"net_arch": found.pop("net_arch")}
    return found


def train(plan: dict[str, Any]) -> None:
    """Train with each seed, and print a line for each."""
    settings = translated(plan["settings"])
    envs = settings.pop("num_envs", 1)
    for seed in plan["seeds"]:
        env = make_vec_env(plan["env"], n_envs=envs, seed=seed)
        cls = getattr(stable_baselines3, plan["algorithm"])
        model, watch = cls("MlpPolicy", env, device="cpu", seed=seed, **settings), Watch()
        started, wall = time.process_time(), time.perf_counter()
        model.learn(plan["steps"], callback=watch)
        run = {key: plan[key] for key in ("algorithm", "env", "steps")} | {"system": "stable-baselines3", "seed": seed}
        run["cpu_s"] = round(time.process_time() - started, 1)
        run["wall_s"] = round(time.perf_counter() - wall, 1)
        run["evaluation"] = round(float(evaluate_policy(model, env, n_eval_episodes=20)[0]), 1)
        every = max(1, len(watch.at) // 500)
        print(json.dumps({**run, "at": watch.at[::every], "returns": watch.means[::every]}), flush=True)


def sampling(seed: int) -> None:
    """Make rollouts of CartPole without learning, and print their speed."""
    model = PPO("MlpPolicy", make_vec_env("CartPole-v1", n_envs=8, seed=seed), n_steps=32, device="cpu", seed=seed)
    watch = Watch()
    model.train = lambda: None
    model.learn(40_000, callback=watch)
    figures = {"envs": 8, "steps_per_cpu_s": round(model.num_timesteps / watch.seconds)}
    print(json.dumps({"what": "sampling", "system": "stable-baselines3", "seed": seed, **figures}), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "train":
        train(json.loads(sys.argv[2]))
    else:
        sampling(int(sys.argv[2]))
