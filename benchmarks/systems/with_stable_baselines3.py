"""The part of Stable-Baselines3 in `benchmarks/rl.py`: sampling, PPO on CartPole, and its curve. Words: part, seed."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
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
        self.means: list[float] = []
        self.seconds = self.since = 0.0

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        self.since = time.process_time()

    def _on_rollout_end(self) -> None:
        self.seconds += time.process_time() - self.since
        found = [one["r"] for one in self.model.ep_info_buffer]
        self.means.append(float(np.mean(found)) if found else float("nan"))


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
        if part == "curves":
            figures = {"area": round(float(np.nanmean(watch.means)), 1), "mean_475_at": at}
        else:
            figures["evaluation"] = float(evaluate_policy(model, env, n_eval_episodes=20)[0])
    print(json.dumps({"what": part, "system": "stable-baselines3", "seed": seed, **figures}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
