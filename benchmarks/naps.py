"""How well are CPUs used, here and with Ray? Calls that sleep, in many shapes, on 8 CPUs.

    python -m benchmarks.naps                  # three rounds, two minutes
    python -m benchmarks.naps --only waves     # shapes with this word in their names

A nap needs no core, so even two cores show how calls are placed. The ideal is the sum of all naps by the CPUs, or the
longest chain of them. The systems take turns, each restarted; the figures are medians of the rounds.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from benchmarks.launching import emit, json_lines, machine, mpirun

CPUS = 8
SYSTEMS = {"mpi_runtime": 0, "mpi_runtime, mpirun -n 3": 3, "ray": 0}
"""The ranks of each; 0: started plainly."""
OPTIONS: dict[str, dict[str, Any]] = {
    "mpi_runtime": {"quiet": True},
    "ray": {"log_to_driver": False, "include_dashboard": False},
}
REPEATS = 3
TIMEOUT_S = 300.0


@dataclass
class Shape:
    """One program."""

    name: str
    ideal_s: float
    run: Callable[[], object]


def shapes(ray: Any) -> list[Shape]:
    """All programs, on a module with Ray's names."""
    naps = [ray.remote(_nap) for _ in range(2)]
    nap, other = naps

    @ray.remote  # type: ignore[untyped-decorator]
    def parent(count: int, nap_s: float) -> None:
        ray.get([nap.remote(nap_s) for _ in range(count)])

    @ray.remote(num_cpus=0)
    class Sleeper:
        def nap(self, nap_s: float) -> None:
            time.sleep(nap_s)

    actors = [Sleeper.remote() for _ in range(CPUS)]
    ray.get([actor.nap.remote(0) for actor in actors])
    for one in naps:
        ray.get([one.remote(0.01) for _ in range(CPUS)])

    def many(*durations_s: float, function: Any = nap) -> list[Any]:
        return [function.remote(nap_s) for nap_s in durations_s]

    def chains(count: int, length: int, nap_s: float) -> None:
        ends = many(*[nap_s] * count)
        for _ in range(length - 1):
            ends = [nap.remote(nap_s, end) for end in ends]
        ray.get(ends)

    def waves(count: int, size: int, nap_s: float) -> None:
        for _ in range(count):
            ray.get(many(*[nap_s] * size))

    def window(size: int, count: int, nap_s: float) -> None:
        running, left = many(*[nap_s] * size), count - size
        while running:
            _, running = ray.wait(running)
            if left:
                running += many(nap_s)
                left -= 1

    def rounds(count: int, nap_s: float) -> None:
        for _ in range(count):
            ray.get([actor.nap.remote(nap_s) for actor in actors])

    uneven = random.Random(1).choices((0.001, 0.05), weights=(3, 1), k=400)
    return [
        Shape("2 000 of 1 ms", 2.0 / CPUS, lambda: ray.get(many(*[0.001] * 2000))),
        Shape("800 of 3 ms", 2.4 / CPUS, lambda: ray.get(many(*[0.003] * 800))),
        Shape("400 of 10 ms", 4.0 / CPUS, lambda: ray.get(many(*[0.01] * 400))),
        Shape("80 of 50 ms", 4.0 / CPUS, lambda: ray.get(many(*[0.05] * 80))),
        Shape("400 of one function, 1 ms or (a quarter) 50 ms", sum(uneven) / CPUS, lambda: ray.get(many(*uneven))),
        Shape("the same, short ones first", sum(uneven) / CPUS, lambda: ray.get(many(*sorted(uneven)))),
        Shape(
            "200 of 2 ms, then 50 of another function, 40 ms", 2.4 / CPUS,
            lambda: ray.get(many(*[0.002] * 200) + many(*[0.04] * 50, function=other)),
        ),
        Shape("300 of 10 ms, behind one of 0.5 s", 0.5, lambda: ray.get(many(0.5, *[0.01] * 300))),
        Shape("20 waves of 8, 10 ms", 0.2, lambda: waves(20, 8, 0.01)),
        Shape("20 waves of 16, 3 ms", 0.12, lambda: waves(20, 16, 0.003)),
        Shape("8 chains of 20, 5 ms", 0.1, lambda: chains(8, 20, 0.005)),
        Shape("16 chains of 20, 5 ms", 0.2, lambda: chains(16, 20, 0.005)),
        Shape("200 of 5 ms, 8 at a time by wait()", 1.0 / CPUS, lambda: window(8, 200, 0.005)),
        Shape("200 of 5 ms, 16 at a time by wait()", 1.0 / CPUS, lambda: window(16, 200, 0.005)),
        Shape(
            "16 calls that submit 20 each, 10 ms", 3.2 / CPUS,
            lambda: ray.get([parent.remote(20, 0.01) for _ in range(16)]),
        ),
        Shape("20 calls of each of 8 actors, 5 ms", 0.1, lambda: rounds(20, 0.005)),
    ]  # fmt: skip


def _nap(nap_s: float, *_after: None) -> None:
    time.sleep(nap_s)


def play(module: str, only: str) -> None:
    """Run all programs on one system, and print a line of JSON for each."""
    ray = import_module(module)
    ray.init(num_cpus=CPUS, **OPTIONS[module])
    for shape in shapes(ray):
        if only not in shape.name:
            continue
        took_s = []
        for _ in range(REPEATS):
            began_s = time.perf_counter()
            shape.run()
            took_s.append(time.perf_counter() - began_s)
        emit(name=shape.name, ideal_s=shape.ideal_s, took_s=statistics.median(took_s))


def main() -> None:
    """Take turns, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", metavar="WORD")
    parser.add_argument("--play", choices=OPTIONS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.play:
        play(given.play, given.only)
        return
    took: dict[str, dict[str, list[float]]] = {}
    ideal_s: dict[str, float] = {}
    for _ in range(given.rounds):
        for title, ranks in SYSTEMS.items():
            program = [sys.executable, "-m", "benchmarks.naps", "--play", title.split(",")[0], "--only", given.only]
            lines, problem = json_lines([*(mpirun(ranks) or [] if ranks else []), *program], TIMEOUT_S)
            if problem:
                print(f"{title}: {problem}")
            for line in lines:
                ideal_s[line["name"]] = line["ideal_s"]
                took.setdefault(line["name"], {}).setdefault(title, []).append(line["took_s"])
    print(f"{machine()}. {CPUS} CPUs; the ideal time as a part of the time taken.\n")
    print("| naps | ideal | " + " | ".join(SYSTEMS) + " |\n| --- | ---: |" + " ---: |" * len(SYSTEMS))
    for name, by_system in took.items():
        parts = [ideal_s[name] / statistics.median(by_system[one]) if one in by_system else 0.0 for one in SYSTEMS]
        print(f"| {name} | {ideal_s[name] * 1e3:.0f} ms | " + " | ".join(f"{part:.2f}" for part in parts) + " |")


if __name__ == "__main__":
    main()
