"""Algorithms as trials: `tune.Tuner("PPO", param_space={"env": "CartPole-v1", "lr": tune.loguniform(1e-5, 1e-2)})`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mpi_runtime
from mpi_runtime.rl.algorithm import Result
from mpi_runtime.rl.config import algorithm_named
from mpi_runtime.rl.envs import maker, registered
from mpi_runtime.rl.parameters import Given, given_as

FILE = "checkpoint"
"""In the directory of a trial's checkpoint."""


def trainable(name: str) -> type:
    """Return the class whose trials train the algorithm of this name.

    The configuration has `env`, `env_config` and hyper-parameters. A trial reserves a CPU for itself and one for each
    of its samplers, so trials cannot wait for each other's.
    """
    # Trials run in other processes, where nothing was registered.
    made = {one: maker(creator) for one, creator in registered().items()}
    tune: Any = mpi_runtime.tune  # by its public names: it imports this module when an algorithm is asked for

    class AlgorithmTrainable(tune.Trainable):  # type: ignore[misc]
        def setup(self, config: Given) -> None:
            config = dict(config)
            if "env" not in config:
                raise ValueError(f'the space of {name} needs an environment: param_space={{"env": "CartPole-v1", ...}}')
            env = config.pop("env")
            env_config = config.pop("env_config", None)
            self.algorithm = algorithm_named(name)(made.get(env, env), env_config=env_config, **config)

        def step(self) -> Result:
            return self.algorithm.train()

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            self.algorithm.save(Path(checkpoint_dir) / FILE)

        def load_checkpoint(self, checkpoint: str) -> None:
            self.algorithm.restore(Path(checkpoint) / FILE)

        def cleanup(self) -> None:
            self.algorithm.stop()

        @classmethod
        def default_resource_request(cls, config: Given) -> Any:
            count = given_as(config, "num_samplers", algorithm_named(name).Parameters.num_samplers)
            return tune.PlacementGroupFactory([{"CPU": 1}] * (1 + int(count)))

    AlgorithmTrainable.__name__ = AlgorithmTrainable.__qualname__ = name
    return AlgorithmTrainable
