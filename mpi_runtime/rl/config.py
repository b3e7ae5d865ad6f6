"""RLlib's way to make an algorithm: `PPOConfig().environment(...).training(...).build_algo()`. One class for all."""

from __future__ import annotations

import os
from functools import partial
from importlib import import_module

from mpi_runtime.rl.algorithm import Algorithm
from mpi_runtime.rl.checkpoints import CheckpointError, read
from mpi_runtime.rl.envs import Env, EnvConfig
from mpi_runtime.rl.parameters import Given

ALGORITHMS = {"PPO": "ppo", "A2C": "a2c", "A3C": "a3c", "DQN": "dqn", "ApeX": "apex", "SAC": "sac", "ES": "es"}
"""Algorithms by name, and their modules."""


def algorithm_named(name: str) -> type[Algorithm]:
    """Return the class of an algorithm; upper and lower case are the same. ValueError: no algorithm has this name."""
    found = next((own for own in ALGORITHMS if own.lower() == name.lower()), None)
    if found is None:
        raise ValueError(f"there is no algorithm {name!r}; there are: {', '.join(ALGORITHMS)}")
    cls: type[Algorithm] = getattr(import_module(f"mpi_runtime.rl.{ALGORITHMS[found]}"), found)
    return cls


def load(path: str | os.PathLike[str], env: Env = None, **changes: object) -> Algorithm:
    """Return the algorithm of a checkpoint, whichever it is: see `Algorithm.load`.

    Raises:
        CheckpointError: it cannot be read.
    """
    name = read(path)["algorithm"]
    if name not in ALGORITHMS:
        raise CheckpointError(f"{path} is a checkpoint of {name!r}, which is not an algorithm of this version")
    return algorithm_named(name).load(path, env, **changes)


class AlgorithmConfig:
    """Collects the settings of an algorithm. Each method returns the same object."""

    def __init__(self, algorithm: str) -> None:
        self.algorithm = algorithm
        self.env: Env = None
        self.env_config: EnvConfig | None = None
        self.parameters: Given = {}

    def environment(self, env: Env = None, *, env_config: EnvConfig | None = None) -> AlgorithmConfig:
        """Set the environment and its configuration."""
        self.env = self.env if env is None else env
        self.env_config = self.env_config if env_config is None else env_config
        return self

    def env_runners(self, **parameters: object) -> AlgorithmConfig:
        """Set `num_env_runners`, `num_envs_per_env_runner` and others that concern sampling."""
        return self._set(parameters)

    rollouts = env_runners
    """The older name of `env_runners`."""

    def training(self, *, model: Given | None = None, **parameters: object) -> AlgorithmConfig:
        """Set hyper-parameters; `model` has `fcnet_hiddens` and `fcnet_activation`."""
        return self._set({**parameters, **(model or {})})

    def resources(self, *, num_gpus: float = 0) -> AlgorithmConfig:
        """Set whether the learner uses a GPU of its process."""
        return self._set({"device": "gpu" if num_gpus else "cpu"})

    def fault_tolerance(self, **parameters: object) -> AlgorithmConfig:
        """Set `restart_failed_envs` and `sample_timeout_s`."""
        return self._set(parameters)

    def debugging(self, *, seed: int) -> AlgorithmConfig:
        """Set the seed."""
        return self._set({"seed": seed})

    def framework(self, framework: str = "torch") -> AlgorithmConfig:
        """Do nothing: the learner is torch's.

        Raises:
            ValueError: it is another one.
        """
        if framework != "torch":
            raise ValueError(f"framework={framework!r}: learners are written in torch")
        return self

    def build_algo(self, env: Env = None) -> Algorithm:
        """Make the algorithm.

        Raises:
            ValueError: no environment is set. Also what the algorithm raises.
        """
        chosen = self.env if env is None else env
        if chosen is None:
            raise ValueError("no environment is set: call environment('CartPole-v1') first")
        return algorithm_named(self.algorithm)(chosen, env_config=self.env_config, **self.parameters)

    build = build_algo
    """The older name of `build_algo`."""

    def _set(self, parameters: Given) -> AlgorithmConfig:
        self.parameters.update({key: value for key, value in parameters.items() if value is not None})
        return self


# RLlib's names are those of classes. Each makes the settings of its algorithm.
PPOConfig = partial(AlgorithmConfig, "PPO")
A2CConfig = partial(AlgorithmConfig, "A2C")
A3CConfig = partial(AlgorithmConfig, "A3C")
DQNConfig = partial(AlgorithmConfig, "DQN")
ApeXConfig = partial(AlgorithmConfig, "ApeX")
SACConfig = partial(AlgorithmConfig, "SAC")
ESConfig = partial(AlgorithmConfig, "ES")
