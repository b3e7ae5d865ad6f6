"""The part of RLlib in `benchmarks/rl.py throughput`. Words: `train` and a plan, as Stable-Baselines3's part has.

It samples and learns in this process, as the others do. Its schedules count the steps of all iterations.
"""

from __future__ import annotations

import json
import math
import sys
import time
from typing import Any

import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig


def rate(value: Any, steps: int) -> Any:
    """Return a rate, or "lin_0.001" as a schedule."""
    return [[0, float(value.removeprefix("lin_"))], [steps, 0.0]] if isinstance(value, str) else value


def config(plan: dict[str, Any], seed: int) -> Any:
    """Return its configuration for the hyper-parameters of a plan, with Stable-Baselines3's defaults for the others."""
    given = plan["settings"]
    envs, length = given.get("num_envs", 1), given.get("n_steps", 2048)
    clip = given.get("clip_range", 0.2)  # it takes no schedule
    return (
        PPOConfig()
        .environment(plan["env"])
        .env_runners(num_env_runners=0, num_envs_per_env_runner=envs, rollout_fragment_length=length)
        .learners(num_learners=0)
        .training(
            train_batch_size_per_learner=envs * length,
            minibatch_size=given.get("batch_size", 64),
            num_epochs=given.get("n_epochs", 10),
            gamma=given.get("gamma", 0.99),
            lambda_=given.get("gae_lambda", 0.95),
            lr=rate(given.get("learning_rate", 3e-4), plan["steps"]),
            clip_param=float(clip.removeprefix("lin_")) if isinstance(clip, str) else clip,
            entropy_coeff=given.get("ent_coef", 0.0),
            vf_loss_coeff=0.5,
            vf_clip_param=math.inf,
            use_kl_loss=False,
            grad_clip=0.5,
        )
        .rl_module(
            model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="tanh", vf_share_layers=False)
        )
        .debugging(seed=seed, log_level="ERROR")
    )


def train(plan: dict[str, Any]) -> None:
    """Train with each seed, and print a line for each."""
    if plan["algorithm"] != "PPO":
        raise SystemExit("this part has PPO alone")
    for seed in plan["seeds"]:
        algorithm = config(plan, seed).build_algo()
        started, wall = time.process_time(), time.perf_counter()
        at, returns, steps = list[int](), list[float](), 0
        while steps < plan["steps"]:
            found = algorithm.train()["env_runners"]
            steps = int(found["num_env_steps_sampled_lifetime"])
            at.append(steps)
            returns.append(float(found.get("episode_return_mean", math.nan)))
        run = {"algorithm": "PPO", "env": plan["env"], "steps": steps, "system": "rllib", "seed": seed}
        run |= {"cpu_s": round(time.process_time() - started, 1), "wall_s": round(time.perf_counter() - wall, 1)}
        print(json.dumps({**run, "at": at, "returns": returns}), flush=True)
        algorithm.stop()


if __name__ == "__main__":
    torch.set_num_threads(1)
    train(json.loads(sys.argv[2]))
