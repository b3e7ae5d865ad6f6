"""How fast do samplers and learners work, and do they learn as Stable-Baselines3 does? `python -m benchmarks.rl NAME`.

Names: `sampling`, `throughput`, `articles`, `samplers`, `weights`, `es`, and `curves` (in `rl_curves.py`). Each prints
its figures as JSON lines; where processes take turns CPU seconds count too, so that a busy machine disturbs little.
With `--peer PYTHON`, an interpreter that has stable-baselines3, `sampling`, `throughput` and `curves` take turns with
it; with `--rllib PYTHON`, one that has `ray[rllib]`, `throughput` runs that too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.rl_curves import PEER, curves, ours, planned, theirs

SYSTEMS = "benchmarks/systems/"


def show(**figures: Any) -> None:
    """Print figures as one line."""
    print(json.dumps(figures), flush=True)


def seeds_of(chosen: argparse.Namespace) -> range:
    """Return the seeds of the command line."""
    return range(chosen.first, chosen.first + chosen.seeds)


def sampling(chosen: argparse.Namespace) -> None:
    """Steps of CartPole a CPU second, with a policy of 2 x 64 and no learning."""
    from mpi_runtime.rl import PPO

    for seed in seeds_of(chosen):
        for envs, vectorize in ((8, False), (64, True)):
            algorithm = PPO("CartPole-v1", seed=seed, num_envs=envs, n_steps=32, vectorize=vectorize)
            weights = algorithm.weights()
            algorithm.samplers.sample(weights, 32)
            started, steps = time.process_time(), 0
            while steps < 40_000:
                steps += algorithm.samplers.sample(weights, 32).steps
            seconds = time.process_time() - started
            show(what="sampling", system="mpi_runtime", seed=seed, envs=envs, steps_per_cpu_s=round(steps / seconds))
        if chosen.peer:
            subprocess.run([chosen.peer, PEER, "sampling", str(seed)], check=True)


def throughput(chosen: argparse.Namespace) -> None:
    """PPO with rl-zoo's hyper-parameters, sampling and learning in one process of one thread, in turns.

    Here, Stable-Baselines3, PPO as one file, and RLlib, which makes a tenth of the steps.
    """
    for seed in seeds_of(chosen):
        plan = planned("PPO", chosen.env, chosen.steps, [seed])
        runs = [ours(plan)]
        if chosen.peer:
            runs.append(theirs(chosen.peer, plan))
        runs.append(theirs(sys.executable, plan, SYSTEMS + "with_one_file.py"))
        if chosen.rllib:
            runs.append(theirs(chosen.rllib, {**plan, "steps": plan["steps"] // 10}, SYSTEMS + "with_rllib.py"))
        for run in itertools.chain(*runs):
            reached = [steps for steps, mean in zip(run["at"], run["returns"], strict=True) if mean >= 475]
            show(
                what="throughput",
                **{key: run[key] for key in ("env", "system", "seed", "steps")},
                steps_per_s=round(run["steps"] / run["wall_s"]),
                steps_per_cpu_s=round(run["steps"] / run["cpu_s"]),
                evaluation=run.get("evaluation"),
                **({"mean_475_at": next(iter(reached), None)} if chosen.env == "CartPole-v1" else {}),
            )


def articles(chosen: argparse.Namespace) -> None:
    """The run of the articles: 20 iterations of 4 000 steps, sampled in this process."""
    from mpi_runtime import rl
    from mpi_runtime.rl.presets import RLLIB

    for seed in seeds_of(chosen):
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


def samplers(chosen: argparse.Namespace) -> None:
    """Two samplers against one, each step a millisecond."""
    import mpi_runtime
    from mpi_runtime.rl import PPO

    mpi_runtime.init(num_cpus=2)
    for _ in seeds_of(chosen):
        rates = {}
        for count in (1, 2):
            with PPO(Slow, num_samplers=count, n_steps=1000) as algorithm:
                algorithm.sample(100)
                started = time.perf_counter()
                algorithm.sample(1000)
                rates[count] = count * 1000 / (time.perf_counter() - started)
        show(what="samplers", one=round(rates[1]), two=round(rates[2]), ratio=round(rates[2] / rates[1], 2))


def weights(chosen: argparse.Namespace) -> None:
    """100 MB of weights to 8 samplers on one host: the time until all have them, and how many copies there are."""
    import mpi_runtime
    from mpi_runtime.util import memory_summary

    mpi_runtime.init(num_cpus=8)

    @mpi_runtime.remote
    class Reader:
        def read(self, vector: Any) -> float:
            self.vector = vector
            return float(vector[::100_000].sum())

    readers = [Reader.remote() for _ in range(8)]
    vector = np.ones(25_000_000, np.float32)
    mpi_runtime.get([reader.read.remote(mpi_runtime.put(vector)) for reader in readers])
    for _ in seeds_of(chosen):
        mpi_runtime.get([reader.read.remote(vector[:1].copy()) for reader in readers])
        started = time.perf_counter()
        ref = mpi_runtime.put(vector)
        stored = time.perf_counter()
        mpi_runtime.get([reader.read.remote(ref) for reader in readers])
        ended = time.perf_counter()
        show(
            what="weights",
            put_ms=round(1e3 * (stored - started), 1),
            read_ms=round(1e3 * (ended - stored), 1),
            copies=round(sum(one["used"] for one in memory_summary()) / vector.nbytes, 2),
        )
        del ref


def es(chosen: argparse.Namespace) -> None:
    """Steps of episodes in ES, beside a bare loop of the same policy and environment.

    One process a CPU second; and two samplers a second, beside twice the bare loop's, which needs two free cores.
    """
    import mpi_runtime
    from mpi_runtime.rl import ES

    mpi_runtime.init(num_cpus=2)
    for seed in seeds_of(chosen):
        alone = ES("CartPole-v1", noise_size=1_000_000, seed=seed)
        cpu, _ = _rates(alone)
        bare_cpu, bare_wall = _bare(alone)
        show(what="es", samplers=0, seed=seed, steps_per_cpu_s=cpu, bare_loop=bare_cpu, share=round(cpu / bare_cpu, 2))
        with ES("CartPole-v1", noise_size=1_000_000, seed=seed, num_samplers=2) as both:
            _, wall = _rates(both)
        bare = 2 * bare_wall
        show(what="es", samplers=2, seed=seed, steps_per_s=wall, two_bare_loops=bare, share=round(wall / bare, 2))


def _rates(algorithm: Any) -> tuple[int, int]:
    """Return the steps of ten iterations a CPU second of this process and a second. The first iteration is a start."""
    algorithm.train()
    begun, started, wall = algorithm.timesteps, time.process_time(), time.perf_counter()
    for _ in range(10):
        algorithm.train()
    steps = algorithm.timesteps - begun
    return round(steps / (time.process_time() - started)), round(steps / (time.perf_counter() - wall))


def _bare(algorithm: Any) -> tuple[int, int]:
    """Return the same of a loop of whole episodes with the policy of an algorithm, as many steps as it has made."""
    import gymnasium

    env, policy, steps = gymnasium.make("CartPole-v1"), algorithm.policy(), 0
    started, wall = time.process_time(), time.perf_counter()
    while steps < algorithm.timesteps:
        seen, _ = env.reset()
        ended = False
        while not ended:
            action = int(policy.best(algorithm.moments[0].normalise(seen[None]))[0])
            seen, _, terminated, truncated, _ = env.step(action)
            steps, ended = steps + 1, terminated or truncated
    return round(steps / (time.process_time() - started)), round(steps / (time.perf_counter() - wall))


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts: dict[str, Callable[[argparse.Namespace], None]] = {
        one.__name__: one for one in (sampling, throughput, articles, samplers, weights, es)
    }
    parser.add_argument("name", choices=[*parts, "curves"])
    parser.add_argument("--peer", default="", metavar="PYTHON", help="an interpreter that has stable-baselines3")
    parser.add_argument("--rllib", default="", metavar="PYTHON", help="one that has ray[rllib], for throughput")
    parser.add_argument("--env", default="CartPole-v1", help="of throughput; default: CartPole-v1")
    parser.add_argument("--steps", type=int, default=100_000, help="of throughput; default: 100000")
    parser.add_argument("--seeds", type=int, default=3, help="how many; default: 3")
    parser.add_argument("--first", type=int, default=0, help="the first seed; default: 0")
    parser.add_argument("--only", default="", metavar="NAMES", help="for curves: such as DQN or SAC,A2C; default: all")
    chosen = parser.parse_args()
    if chosen.name == "curves":
        curves(chosen.peer, seeds_of(chosen), chosen.only)
    else:
        parts[chosen.name](chosen)


if __name__ == "__main__":
    main()
