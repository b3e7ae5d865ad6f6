"""Simulators as actors: several games of Pong take a step each, in parallel.

    python simulators.py              # 4 games, 200 steps
    python simulators.py 2 20         # games, steps

Needs gymnasium and ale-py (the extra `rl-atari`).
"""

import sys
import time
from typing import Any

import ale_py
import gymnasium as gym
import numpy as np

import mpi_runtime

GAMES, STEPS = (int(sys.argv[at]) if len(sys.argv) > at else default for at, default in ((1, 4), (2, 200)))


@mpi_runtime.remote
class Simulator:
    def __init__(self, seed: int) -> None:
        gym.register_envs(ale_py)
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no greeting from each process
        self.env = gym.make("ALE/Pong-v5")
        self.env.reset(seed=seed)

    def step(self, action: int) -> Any:
        return self.env.step(action)


def main() -> None:
    mpi_runtime.init(num_cpus=GAMES)
    simulators = [Simulator.remote(seed) for seed in range(GAMES)]
    actions = np.random.default_rng(0).integers(0, 6, (STEPS, GAMES)).tolist()
    mpi_runtime.get([simulator.step.remote(0) for simulator in simulators])  # all have started
    started = time.perf_counter()
    for row in actions:
        results = mpi_runtime.get([s.step.remote(action) for s, action in zip(simulators, row, strict=True)])
    seconds = time.perf_counter() - started
    observation = results[0][0]
    print(f"{GAMES} games, {STEPS} steps each: {GAMES * STEPS / seconds:.0f} steps/s")
    print(f"the last step returned an image of {observation.shape}, and reward {results[0][1]:.0f}")


if __name__ == "__main__":
    main()
