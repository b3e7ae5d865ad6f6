"""Reinforcement learning: each algorithm is one file to read, on samplers, shared memory and a torch learner.

    from mpi_runtime import rl

    ppo = rl.PPO("CartPole-v1", num_envs=8).learn(100_000)
    print(rl.evaluate(ppo, "CartPole-v1", episodes=20))

The first import loads neither torch nor gymnasium: the extra `rl` has both, and a name loads what it needs.

- `extend.py`: what `tune` uses, beside the public names
- `parts/`: pure parts in numpy: spaces, returns, replay, normalisers, forward passes
- `envs.py`: environments: names and factories, N of them stepped together, an adapter for old gym, wrappers for Atari
- `policies.py`: policies as samplers use them
- `sampler.py`: the sampler: environments and a policy, which fill fragments
- `samplers.py`: the samplers of an algorithm, replaced when they die or hang
- `nets_torch.py`: networks and distributions of learners
- `learner.py`: one step of an optimiser
- `parameters.py`: hyper-parameters, and names of other libraries
- `algorithm.py`: what algorithms share: counting, results, saving
- `checkpoints.py`: files of checkpoints: what they have, and how they are read
- `ppo.py`: PPO
- `a2c.py`: A2C
- `a3c.py`: A3C
- `dqn.py`: DQN: double, duelling, prioritised, n-step
- `apex.py`: Ape-X
- `sac.py`: SAC
- `es.py`: Evolution Strategies
- `config.py`: RLlib's way to make an algorithm
- `presets.py`: hyper-parameters for known environments
- `evaluation.py`: episodes of a policy: `evaluate`, videos
- `curves.py`: learning curves over seeds, with intervals
- `results.py`: the directory of results of a training, and its page
- `cli.py`: the verb `rl` of the command line
- `trainable.py`: algorithms as trials of `mpi_runtime.tune`
"""

from typing import TYPE_CHECKING

from mpi_runtime import _face

_HOMES = {
    "": "parts",
    "algorithm": "Algorithm",
    "a2c": "A2C",
    "a3c": "A3C",
    "apex": "ApeX",
    "checkpoints": "CheckpointError",
    "config": "A2CConfig A3CConfig AlgorithmConfig ApeXConfig DQNConfig ESConfig PPOConfig SACConfig load",
    "curves": "plot_learning_curve",
    "dqn": "DQN",
    "envs": "EnvError atari from_old_gym register_env",
    "es": "ES",
    "evaluation": "Evaluation evaluate",
    "ppo": "PPO",
    "sac": "SAC",
    "samplers": "SamplerError",
}
"""The names of each module, which is loaded when one of them is used: samplers need neither torch nor the learner."""

__all__ = [
    "A2C", "A3C", "DQN", "ES", "PPO", "SAC", "A2CConfig", "A3CConfig", "Algorithm", "AlgorithmConfig", "ApeX",
    "ApeXConfig", "CheckpointError", "DQNConfig", "ESConfig", "EnvError", "Evaluation", "PPOConfig", "SACConfig",
    "SamplerError", "atari", "evaluate", "from_old_gym", "load", "plot_learning_curve", "register_env",
]  # fmt: skip

if TYPE_CHECKING:
    from mpi_runtime.rl.a2c import A2C
    from mpi_runtime.rl.a3c import A3C
    from mpi_runtime.rl.algorithm import Algorithm
    from mpi_runtime.rl.apex import ApeX
    from mpi_runtime.rl.checkpoints import CheckpointError
    from mpi_runtime.rl.config import (
        A2CConfig,
        A3CConfig,
        AlgorithmConfig,
        ApeXConfig,
        DQNConfig,
        ESConfig,
        PPOConfig,
        SACConfig,
        load,
    )
    from mpi_runtime.rl.curves import plot_learning_curve
    from mpi_runtime.rl.dqn import DQN
    from mpi_runtime.rl.envs import EnvError, atari, from_old_gym, register_env
    from mpi_runtime.rl.es import ES
    from mpi_runtime.rl.evaluation import Evaluation, evaluate
    from mpi_runtime.rl.ppo import PPO
    from mpi_runtime.rl.sac import SAC
    from mpi_runtime.rl.samplers import SamplerError
else:  # a checker would take every name for one of ours
    __getattr__, __dir__ = _face(__name__, _HOMES, __all__)
