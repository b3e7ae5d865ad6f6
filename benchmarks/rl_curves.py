"""Curves of learning, beside those of Stable-Baselines3 with the same hyper-parameters.

    python -m benchmarks.rl curves --seeds 20 --peer PYTHON     # runs what the record lacks, and continues it
    python -m benchmarks.rl_curves                              # the table and the pictures of docs/rl.md

Each run is a line of `records/rl_curves.jsonl`: the mean return of the last 100 episodes at 51 points of the training.
A3C, Ape-X and ES are not in Stable-Baselines3: they train alone, the first two with two samplers.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

PEER = "benchmarks/systems/with_stable_baselines3.py"
RECORD = Path(__file__).parent / "records" / "rl_curves.jsonl"
PICTURES = Path(__file__).parents[1] / "docs" / "images"
CURVES = [
    ("PPO", "CartPole-v1", 100_000, 20),
    ("DQN", "CartPole-v1", 50_000, 20),
    ("SAC", "Pendulum-v1", 20_000, 5),
    ("A2C", "CartPole-v1", 500_000, 20),
    ("PPO", "LunarLander-v3", 1_000_000, 5),
    ("A3C", "CartPole-v1", 200_000, 5),
    ("ApeX", "CartPole-v1", 50_000, 5),
    ("ES", "CartPole-v1", 250_000, 5),
]
"""Algorithm, environment, steps (those of rl-zoo where it has them) and seeds at most."""
ALONE: dict[str, dict[str, Any]] = {
    "A3C": {"num_envs": 4},
    "ApeX": {"num_envs": 4, "learning_rate": 1e-3, "target_update": 500, "buffer_size": 100_000},
    "ES": {"noise_size": 5_000_000},
}
"""Hyper-parameters of the algorithms that Stable-Baselines3 does not have, where they are not the defaults."""
SYSTEMS = ("mpi_runtime", "stable-baselines3")
POINTS = 51
BLOCK = 5
"""Seeds that one system runs before the other one's turn."""
COLUMNS = 3
"""Curves beside each other in the picture."""


def read() -> list[dict[str, Any]]:
    """Return the runs of the record."""
    return [json.loads(line) for line in RECORD.read_text().splitlines()] if RECORD.exists() else []


def write(run: dict[str, Any]) -> None:
    """Append a run to the record."""
    at, returns = np.array(run["at"]), np.array(run["returns"])
    seen = np.isfinite(returns)
    values = np.interp(np.linspace(0, run["steps"], POINTS), at[seen], returns[seen])
    kept = {key: value for key, value in run.items() if key not in ("at", "returns", "wall_s")}
    with RECORD.open("a") as file:
        file.write(json.dumps({**kept, "returns": [round(float(one), 1) for one in values]}) + "\n")
    print(json.dumps(kept), flush=True)


def ours(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Train here with each seed of a plan."""
    import mpi_runtime
    from mpi_runtime import rl
    from mpi_runtime.rl.config import algorithm_named

    if plan["algorithm"] in ALONE and plan["seeds"]:
        mpi_runtime.init(num_cpus=2, ignore_reinit_error=True)
    for seed in plan["seeds"]:
        with algorithm_named(plan["algorithm"])(plan["env"], seed=seed, **plan["settings"]) as found:
            started, wall, results = time.process_time(), time.perf_counter(), list[dict[str, Any]]()
            found.learn(plan["steps"], callback=results.append)
            yield {
                **{key: plan[key] for key in ("algorithm", "env", "steps")},
                "system": SYSTEMS[0],
                "seed": seed,
                "cpu_s": round(time.process_time() - started, 1),
                "wall_s": round(time.perf_counter() - wall, 1),
                "evaluation": round(rl.evaluate(found, episodes=20).mean, 1),
                "at": [one["timesteps_total"] for one in results],
                "returns": [one["episode_reward_mean"] for one in results],
            }


def theirs(python: str, plan: dict[str, Any], peer: str = PEER) -> Iterator[dict[str, Any]]:
    """Train with the library of a peer, whose process prints a line for each run of a plan."""
    words = [python, peer, "train", json.dumps(plan)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            if line.startswith("{"):
                yield json.loads(line)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, words)


def planned(algorithm: str, env: str, steps: int, seeds: Iterable[int]) -> dict[str, Any]:
    """Return what both systems train: with rl-zoo's hyper-parameters."""
    from mpi_runtime.rl.presets import preset

    settings = ALONE.get(algorithm) or preset(algorithm, env)
    return {"algorithm": algorithm, "env": env, "steps": steps, "settings": settings, "seeds": list(seeds)}


def curves(python: str, seeds: range, only: str = "") -> None:
    """Run every curve that the record lacks, both systems in turns of five seeds; only those of these algorithms."""
    blocks = [seeds[at : at + BLOCK] for at in range(0, len(seeds), BLOCK)]
    for block, (algorithm, env, steps, most) in itertools.product(blocks, CURVES):
        if only and algorithm not in only.split(","):
            continue
        done = {(one["algorithm"], one["env"], one["system"], one["seed"]) for one in read()}
        wanted = [seed for seed in block if seed < most]
        for system in SYSTEMS if python and algorithm not in ALONE else SYSTEMS[:1]:
            missing = [seed for seed in wanted if (algorithm, env, system, seed) not in done]
            plan = planned(algorithm, env, steps, missing)
            for run in ours(plan) if system == SYSTEMS[0] else theirs(python, plan) if missing else ():
                write(run)
    show()


def ratio(ours: Any, theirs: Any) -> tuple[float, float, float]:
    """Return the ratio of two interquartile means of (S,) and its bootstrap interval, 90 %."""
    from mpi_runtime.rl.curves import RESAMPLES, interquartile_mean

    rng, ratios = np.random.default_rng(0), []
    for _ in range(RESAMPLES):
        first, second = (interquartile_mean(one[rng.integers(0, len(one), len(one))]) for one in (ours, theirs))
        ratios.append(float(first / second))
    low, high = np.percentile(ratios, [5, 95])
    return float(interquartile_mean(ours) / interquartile_mean(theirs)), float(low), float(high)


def show() -> None:
    """Print the table of docs/rl.md."""
    print("| | seeds | area, here | area, Stable-Baselines3 | ratio, 90 % interval | evaluation | CPU s |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for algorithm, env, steps, groups in _shown():
        both = list(groups.values())
        areas = [np.array([np.mean(one["returns"]) for one in runs]) for runs in both]
        beside = ["-", "-"]
        if len(both) == 2:
            beside = [f"{areas[1].mean():.1f}", "{:.3f}, {:.3f} to {:.3f}".format(*ratio(areas[0], areas[1]))]
        evaluations, seconds = (
            " and ".join(f"{np.median([one[key] for one in runs]):.0f}" for runs in both)
            for key in ("evaluation", "cpu_s")
        )
        counts = " and ".join(str(len(runs)) for runs in both)
        what = f"{algorithm}, {env}, {steps:,} steps"
        print("|", " | ".join([what, counts, f"{areas[0].mean():.1f}", *beside, evaluations, seconds]), "|")


def draw() -> None:
    """Draw each curve into docs/images."""
    from matplotlib.figure import Figure

    from mpi_runtime.rl.curves import plot_learning_curve

    shown = list(_shown())
    rows = -(-len(shown) // COLUMNS)
    figure = Figure(figsize=(4.2 * min(COLUMNS, len(shown)), 3.2 * rows), layout="constrained")
    places = figure.subplots(rows, min(COLUMNS, len(shown)), squeeze=False).ravel()
    for axes in places[len(shown) :]:
        axes.set_visible(False)
    for axes, (algorithm, env, _, groups) in zip(places, shown, strict=False):
        plot_learning_curve({name: [_results(run) for run in runs] for name, runs in groups.items()}, axes=axes)
        axes.set_title(f"{algorithm}, {env}")
    figure.savefig(PICTURES / "rl_curves.png", dpi=80)


def _shown() -> Iterator[tuple[str, str, int, dict[str, list[dict[str, Any]]]]]:
    """Yield each curve with its runs by system: of both systems, or of an algorithm that trains alone."""
    for algorithm, env, steps, _ in CURVES:
        groups = {name: runs for name in SYSTEMS if (runs := _runs(algorithm, env, name))}
        if groups and (algorithm in ALONE or len(groups) == len(SYSTEMS)):
            yield algorithm, env, steps, groups


def _runs(algorithm: str, env: str, system: str) -> list[dict[str, Any]]:
    found = [one for one in read() if (one["algorithm"], one["env"], one["system"]) == (algorithm, env, system)]
    return sorted(found, key=lambda one: int(one["seed"]))


def _results(run: dict[str, Any]) -> list[dict[str, Any]]:
    grid = np.linspace(0, run["steps"], POINTS)
    return [
        {"timesteps_total": at, "episode_reward_mean": value} for at, value in zip(grid, run["returns"], strict=True)
    ]


if __name__ == "__main__":
    show()
    draw()
