"""Atari: samplers play Pong from pixels, and a learner with a GPU, if there is one, trains a convolutional network.

A sketch of a long run: pass steps, such as 10000000, to learn to play. Needs ale-py and opencv-python-headless.
"""

import functools
import sys

import mpi_runtime
from mpi_runtime import rl


def train(steps: int) -> None:
    with rl.PPO(
        functools.partial(rl.atari, "ALE/Pong-v5"),
        num_samplers=2,
        num_envs=2,
        n_steps=32,
        batch_size=64,
        n_epochs=2,
        learning_rate=2.5e-4,
        clip_range=0.1,
        ent_coef=0.01,
    ) as ppo:
        print(f"the learner computes on {ppo.device.type}; the network has {ppo.vector().size} weights")
        ppo.learn(
            steps,
            callback=lambda result: print(f"{result['timesteps_total']} steps, {result['info']['entropy']:.2f} nats"),
        )


def main() -> None:
    mpi_runtime.init(num_cpus=3)
    # A task sees the GPUs that it asks for: the learner asks for one, the samplers for none.
    gpus = int(mpi_runtime.cluster_resources().get("GPU", 0) >= 1)
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 256
    mpi_runtime.get(mpi_runtime.remote(num_gpus=gpus)(train).remote(steps))


if __name__ == "__main__":
    main()
