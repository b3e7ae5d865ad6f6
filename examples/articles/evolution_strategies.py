"""Evolution strategies with actors: each tries perturbed policies, and this process moves the weights.

    python evolution_strategies.py           # until the mean return is 475
    python evolution_strategies.py 2         # two iterations

40 lines of numpy, to be read. `rl.ES` is the same with a shared table of noise, ranks, a normaliser and checkpoints.
"""

import sys
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

import mpi_runtime

Array = npt.NDArray[np.float64]
ITERATIONS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
WORKERS, PAIRS, SIGMA, RATE = 2, 20, 0.1, 0.1


def noise(seed: int) -> Array:
    return np.random.default_rng(seed).normal(size=(4, 2))


@mpi_runtime.remote
class Worker:
    def __init__(self) -> None:
        self.env = gym.make("CartPole-v1")

    def episode(self, weights: Array, seed: int) -> float:
        """Return the sum of rewards of a policy: the action with the larger output."""
        seen, _ = self.env.reset(seed=seed)
        total, ended = 0.0, False
        while not ended:
            seen, reward, terminated, truncated, _ = self.env.step(int((seen @ weights).argmax()))
            total, ended = total + float(reward), terminated or truncated
        return total

    def pairs(self, weights: Array, seeds: list[int]) -> list[tuple[float, float]]:
        """Return the returns with noise added and subtracted. A seed stands for its noise, so messages are small."""
        return [
            (
                self.episode(weights + SIGMA * noise(seed), seed),
                self.episode(weights - SIGMA * noise(seed), seed),
            )
            for seed in seeds
        ]


def main() -> None:
    mpi_runtime.init(num_cpus=WORKERS)
    workers: list[Any] = [Worker.remote() for _ in range(WORKERS)]
    weights, episodes = np.zeros((4, 2)), 0
    for iteration in range(1, ITERATIONS + 1):
        seeds = np.split(np.arange(PAIRS) + iteration * PAIRS, WORKERS)
        tried = [worker.pairs.remote(weights, own.tolist()) for worker, own in zip(workers, seeds, strict=True)]
        returns = np.concatenate(mpi_runtime.get(tried))
        episodes += returns.size
        better = (returns[:, 0] - returns[:, 1]) / (returns.std() + 1e-8)
        moves = [each * noise(seed) for each, seed in zip(better, np.concatenate(seeds).tolist(), strict=True)]
        weights = weights + RATE * np.mean(moves, axis=0)
        if iteration % 5 == 0 or iteration in (1, ITERATIONS) or returns.mean() >= 475:
            print(f"iteration {iteration:3}: mean return {returns.mean():6.1f} of {returns.size} episodes")
        if returns.mean() >= 475:
            break
    found = mpi_runtime.get([worker.episode.remote(weights, 10_000 + k) for k, worker in enumerate(5 * workers)])
    print(f"after {episodes} episodes the policy without noise has {np.mean(found):.1f}")


if __name__ == "__main__":
    main()
