"""The part of Stable-Baselines3 in `benchmarks/rl.py`. Words: `sampling` or `ppo` and a seed; `curves` and a plan."""

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

ZOO = {"n_steps": 32, "batch_size": 256, "n_epochs": 20, "gamma": 0.98, "gae_lambda": 0.8}


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


def curves(plan: dict[str, Any]) -> None:
    """Train with each seed, and print the curves."""
    torch.set_num_threads(1)
    settings = translated(plan["settings"])
    envs = settings.pop("num_envs", 1)
    for seed in plan["seeds"]:
        env = make_vec_env(plan["env"], n_envs=envs, seed=seed)
        cls = getattr(stable_baselines3, plan["algorithm"])
        model, watch = cls("MlpPolicy", env, device="cpu", seed=seed, **settings), Watch()
        started = time.process_time()
        model.learn(plan["steps"], callback=watch)
        run = {key: plan[key] for key in ("algorithm", "env", "steps")} | {"system": "stable-baselines3", "seed": seed}
        run["cpu_s"] = round(time.process_time() - started, 1)
        run["evaluation"] = round(float(evaluate_policy(model, env, n_eval_episodes=20)[0]), 1)
        every = max(1, len(watch.at) // 500)
        print(json.dumps({**run, "at": watch.at[::every], "returns": watch.means[::every]}), flush=True)


def main(part: str, seed: int) -> None:
    """Run a part, and print its figures."""
    torch.set_num_threads(1)
    env = make_vec_env("CartPole-v1", n_envs=8, seed=seed)
    settings: dict[str, Any] = {"learning_rate": lambda left: 1e-3 * left, "clip_range": lambda left: 0.2 * left}
    if part == "sampling":
        settings = {"n_steps": 32, "batch_size": 256}
        model = PPO("MlpPolicy", env, device="cpu", seed=seed, **settings)
        watch = Watch()
        # Its rollouts alone: `train` is left out.
        model.train = lambda: None
        model.learn(40_000, callback=watch)
        figures: dict[str, Any] = {"envs": 8, "steps_per_cpu_s": round(model.num_timesteps / watch.seconds)}
    else:
        model = PPO("MlpPolicy", env, device="cpu", seed=seed, **ZOO, **settings)
        watch = Watch()
        started = time.process_time()
        model.learn(100_000, callback=watch)
        seconds = time.process_time() - started
        at = next((256 * (k + 1) for k, mean in enumerate(watch.means) if mean >= 475), None)
        figures = {"steps_per_cpu_s": round(model.num_timesteps / seconds), "mean_475_at": at}
        figures["evaluation"] = float(evaluate_policy(model, env, n_eval_episodes=20)[0])
    print(json.dumps({"what": part, "system": "stable-baselines3", "seed": seed, **figures}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "curves":
        curves(json.loads(sys.argv[2]))
    else:
        main(sys.argv[1], int(sys.argv[2]))
