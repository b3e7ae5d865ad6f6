"""How fast do samplers and learners work, and do they learn as Stable-Baselines3 does? `python -m benchmarks.rl NAME`.

Names: `sampling`, `ppo`, `articles`, `samplers`, `weights`, `es`, and `curves` (in `rl_curves.py`). Each prints its
figures as JSON lines; CPU seconds count, so that a busy machine disturbs little. With `--peer PYTHON`, an interpreter
that has stable-baselines3, `sampling`, `ppo` and `curves` take turns with it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.rl_curves import PEER, curves


def show(**figures: Any) -> None:
    """Print figures as one line."""
    print(json.dumps(figures), flush=True)


def peer(python: str, *words: str) -> None:
    """Run the other library's part, if an interpreter has it."""
    if python:
        subprocess.run([python, PEER, *words], check=True)


class Notes(list[dict[str, Any]]):
    """The results of a training."""

    def reached(self, mean: float) -> int | None:
        """Return the number of steps after which the mean return was reached."""
        return next((one["timesteps_total"] for one in self if one["episode_reward_mean"] >= mean), None)


def sampling(python: str, seeds: range) -> None:
    """Steps of CartPole a CPU second, with a policy of 2 x 64 and no learning."""
    from mpi_runtime.rl import PPO

    for seed in seeds:
        for envs, vectorize in ((8, False), (64, True)):
            algorithm = PPO("CartPole-v1", seed=seed, num_envs=envs, n_steps=32, vectorize=vectorize)
            weights = algorithm.weights()
            algorithm.samplers.sample(weights, 32)
            started, steps = time.process_time(), 0
            while steps < 40_000:
                steps += algorithm.samplers.sample(weights, 32).steps
            seconds = time.process_time() - started
            show(what="sampling", system="mpi_runtime", seed=seed, envs=envs, steps_per_cpu_s=round(steps / seconds))
        peer(python, "sampling", str(seed))


def ppo(python: str, seeds: range) -> None:
    """PPO on CartPole with rl-zoo's hyper-parameters, 100 000 steps."""
    from mpi_runtime import rl
    from mpi_runtime.rl.presets import preset

    for seed in seeds:
        algorithm = rl.PPO("CartPole-v1", seed=seed, **preset("PPO", "CartPole-v1"))
        started, results = time.process_time(), Notes()
        algorithm.learn(100_000, callback=results.append)
        seconds = time.process_time() - started
        show(
            what="ppo",
            system="mpi_runtime",
            seed=seed,
            steps_per_cpu_s=round(algorithm.timesteps / seconds),
            sampling_share=round(algorithm.sample_seconds / algorithm.seconds, 2),
            mean_475_at=results.reached(475),
            evaluation=rl.evaluate(algorithm, episodes=20).mean,
        )
        peer(python, "ppo", str(seed))


def articles(python: str, seeds: range) -> None:
    """The run of the articles: 20 iterations of 4 000 steps, in this process and with two samplers."""
    from mpi_runtime import rl
    from mpi_runtime.rl.presets import RLLIB

    for seed in seeds:
        settings = {**RLLIB["PPO"], "num_samplers": 0, "num_envs": 2, "seed": seed}
        with rl.PPO("CartPole-v1", **settings) as algorithm:
            started, wall = time.process_time(), time.perf_counter()
            results = [algorithm.train() for _ in range(20)]
            means = [round(one["episode_reward_mean"], 2) for one in results]
            show(
                what="articles",
                seed=seed,
                cpu_s=round(time.process_time() - started, 1),
                wall_s=round(time.perf_counter() - wall, 1),
                means=means,
                evaluation=rl.evaluate(algorithm, episodes=20).mean,
            )


class Slow:
    """CartPole, which waits for a millisecond in each step, as a simulation that computes elsewhere."""

    def __init__(self) -> None:
        import gymnasium

        self.env = gymnasium.make("CartPole-v1")
        self.observation_space, self.action_space = self.env.observation_space, self.env.action_space
        self.reset = self.env.reset

    def step(self, action: Any) -> Any:
        """Wait, and step."""
        time.sleep(0.001)
        return self.env.step(action)


def samplers(python: str, seeds: range) -> None:
    """Two samplers against one, each step a millisecond."""
    import mpi_runtime
    from mpi_runtime.rl import PPO

    mpi_runtime.init(num_cpus=2)
    for _ in seeds:
        rates = {}
        for count in (1, 2):
            with PPO(Slow, num_samplers=count, n_steps=1000) as algorithm:
                algorithm.sample(100)
                started = time.perf_counter()
                algorithm.sample(1000)
                rates[count] = count * 1000 / (time.perf_counter() - started)
        show(what="samplers", one=round(rates[1]), two=round(rates[2]), ratio=round(rates[2] / rates[1], 2))


def weights(python: str, seeds: range) -> None:
    """100 MB of weights to 8 samplers on one host: the time until all have them, and how many copies there are."""
    import mpi_runtime

    mpi_runtime.init(num_cpus=8)

    @mpi_runtime.remote
    class Reader:
        def read(self, vector: Any) -> float:
            return float(vector[::100_000].sum())

    readers = [Reader.remote() for _ in range(8)]
    vector = np.ones(25_000_000, np.float32)
    mpi_runtime.get([reader.read.remote(mpi_runtime.put(vector)) for reader in readers])
    for _ in seeds:
        started = time.perf_counter()
        ref = mpi_runtime.put(vector)
        stored = time.perf_counter()
        mpi_runtime.get([reader.read.remote(ref) for reader in readers])
        ended = time.perf_counter()
        show(what="weights", put_ms=round(1e3 * (stored - started), 1), read_ms=round(1e3 * (ended - stored), 1))
        del ref


def es(python: str, seeds: range) -> None:
    """Steps of episodes a CPU second in ES, beside a bare loop of the same policy and environment."""
    import gymnasium

    from mpi_runtime.rl import ES

    for seed in seeds:
        algorithm = ES("CartPole-v1", noise_size=1_000_000, seed=seed)
        started = time.process_time()
        for _ in range(10):
            algorithm.train()
        ours = algorithm.timesteps / (time.process_time() - started)
        env, arrays = gymnasium.make("CartPole-v1"), algorithm.policy()
        started, steps = time.process_time(), 0
        while steps < algorithm.timesteps:
            seen, _ = env.reset()
            ended = False
            while not ended:
                action = int(arrays.best(algorithm.moments[0].normalise(seen[None]))[0])
                seen, _, terminated, truncated, _ = env.step(action)
                steps, ended = steps + 1, terminated or truncated
        bare = steps / (time.process_time() - started)
        show(what="es", seed=seed, steps_per_cpu_s=round(ours), bare_loop=round(bare), share=round(ours / bare, 2))


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts: dict[str, Callable[[str, range], None]] = {
        one.__name__: one for one in (sampling, ppo, articles, samplers, weights, es, curves)
    }
    parser.add_argument("name", choices=parts)
    parser.add_argument("--peer", default="", metavar="PYTHON", help="an interpreter that has stable-baselines3")
    parser.add_argument("--seeds", type=int, default=3, help="how many; default: 3")
    parser.add_argument("--first", type=int, default=0, help="the first seed; default: 0")
    chosen = parser.parse_args()
    parts[chosen.name](chosen.peer, range(chosen.first, chosen.first + chosen.seeds))


if __name__ == "__main__":
    main()
