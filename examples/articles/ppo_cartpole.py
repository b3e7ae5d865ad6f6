"""PPO on CartPole with the settings of RLlib 1.x: the table of 20 iterations, then ten episodes.

    python ppo_cartpole.py             # 20 iterations of 4000 steps
    python ppo_cartpole.py 2 200       # iterations, steps in an iteration

The same from the shell, with checkpoints: `mpi-runtime rl train --run PPO --env CartPole-v1 ...`, see docs/rl.md.
"""

import sys

import mpi_runtime
from mpi_runtime import rl
from mpi_runtime.rl.presets import RLLIB
from mpi_runtime.show.tables import boxed

ITERATIONS, STEPS = (int(sys.argv[at]) if len(sys.argv) > at else default for at, default in ((1, 20), (2, 4000)))


def main() -> None:
    mpi_runtime.init(num_cpus=3)  # two samplers, and this process
    with rl.PPO("CartPole-v1", **{**RLLIB["PPO"], "n_steps": STEPS // 2}) as ppo:
        rows = []
        for _ in range(ITERATIONS):
            result = ppo.train()
            keys = ("training_iteration", "time_total_s", "timesteps_total", "episode_reward_mean")
            iteration, seconds, steps, reward = (result[key] for key in keys)
            rows.append([iteration, f"{seconds:.2f}", steps, f"{reward:.2f}"])
        print("\n".join(boxed([("iter", "time (s)", "ts", "reward"), *rows])))
        rl.evaluate(ppo, episodes=10, each=lambda number, total: print(f"Episode #{number}: reward: {total}"))


if __name__ == "__main__":
    main()
