"""Hyper-parameters for known environments, as rl-zoo 2.x lists them; and those of RLlib 1.x for PPO.

Presets of rl-zoo: https://github.com/DLR-RM/rl-baselines3-zoo, folder `hyperparams`: each was compared with `ppo.yml`
at commit 208b6fdf, `a2c.yml` at c6c209e7, `dqn.yml` at ce95481b and `sac.yml` at c94924e5. There LunarLander is v2, and
Pendulum's PPO has state-dependent exploration; both are otherwise the same here.
"""

from __future__ import annotations

from mpi_runtime.rl.parameters import Given

ZOO: dict[tuple[str, str], Given] = {
    ("PPO", "CartPole-v1"): {
        "num_envs": 8, "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20,
        "learning_rate": "lin_0.001", "clip_range": "lin_0.2",
    },
    ("PPO", "LunarLander-v3"): {
        "num_envs": 16, "n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98, "gamma": 0.999, "n_epochs": 4,
        "ent_coef": 0.01,
    },
    ("PPO", "Acrobot-v1"): {
        "num_envs": 16, "n_steps": 256, "gae_lambda": 0.94, "gamma": 0.99, "n_epochs": 4, "normalize_obs": True,
        "normalize_reward": True,
    },
    ("PPO", "MountainCar-v0"): {
        "num_envs": 16, "n_steps": 16, "gae_lambda": 0.98, "gamma": 0.99, "n_epochs": 4, "normalize_obs": True,
        "normalize_reward": True,
    },
    ("PPO", "Pendulum-v1"): {
        "num_envs": 4, "n_steps": 1024, "gae_lambda": 0.95, "gamma": 0.9, "n_epochs": 10, "learning_rate": 1e-3,
    },
    ("A2C", "CartPole-v1"): {"num_envs": 8},
    ("A2C", "LunarLander-v3"): {
        "num_envs": 8, "n_steps": 5, "gamma": 0.995, "learning_rate": "lin_0.00083", "ent_coef": 1e-5,
    },
    ("A2C", "Acrobot-v1"): {"num_envs": 16, "normalize_obs": True, "normalize_reward": True},
    ("A2C", "MountainCar-v0"): {"num_envs": 16, "normalize_obs": True, "normalize_reward": True},
    ("DQN", "CartPole-v1"): {
        "learning_rate": 2.3e-3, "batch_size": 64, "buffer_size": 100_000, "learning_starts": 1000, "gamma": 0.99,
        "target_update": 10, "train_freq": 256, "gradient_steps": 128, "exploration_fraction": 0.16,
        "exploration_final": 0.04, "hidden": (256, 256),
    },
    ("DQN", "LunarLander-v3"): {
        "learning_rate": 6.3e-4, "batch_size": 128, "buffer_size": 50_000, "learning_starts": 0, "gamma": 0.99,
        "target_update": 250, "train_freq": 4, "gradient_steps": 4, "exploration_fraction": 0.12,
        "exploration_final": 0.1, "hidden": (256, 256),
    },
    ("DQN", "Acrobot-v1"): {
        "learning_rate": 6.3e-4, "batch_size": 128, "buffer_size": 50_000, "learning_starts": 0, "gamma": 0.99,
        "target_update": 250, "train_freq": 4, "gradient_steps": 4, "exploration_fraction": 0.12,
        "exploration_final": 0.1, "hidden": (256, 256),
    },
    ("DQN", "MountainCar-v0"): {
        "learning_rate": 4e-3, "batch_size": 128, "buffer_size": 10_000, "learning_starts": 1000, "gamma": 0.98,
        "target_update": 600, "train_freq": 16, "gradient_steps": 8, "exploration_fraction": 0.2,
        "exploration_final": 0.07, "hidden": (256, 256),
    },
    ("SAC", "Pendulum-v1"): {"learning_rate": 1e-3},
}  # fmt: skip

RLLIB: dict[str, Given] = {
    "PPO": {
        "num_samplers": 2, "n_steps": 2000, "batch_size": 128, "n_epochs": 30, "learning_rate": 5e-5, "clip_range": 0.3,
        "kl_coeff": 0.2, "kl_target": 0.01, "gae_lambda": 1.0, "gamma": 0.99, "hidden": (256, 256), "vf_coef": 1.0,
        "max_grad_norm": None, "normalize_advantage": "batch", "init": "normc", "adam_eps": 1e-8,
    },
}  # fmt: skip
"""Defaults of RLlib 1.x, with which the articles trained: 4 000 steps in an iteration, from two workers."""


def preset(algorithm: str, env: str) -> Given:
    """Return rl-zoo's hyper-parameters; those that differ from the defaults. Empty: it has none that are known here."""
    return dict(ZOO.get((algorithm, env), {}))
