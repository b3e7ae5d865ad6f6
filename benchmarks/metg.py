"""How short may tasks be that depend on each other? Task Bench's METG(50 %), for five systems.

    python -m benchmarks.metg                          # width 4, three rounds, at most ten minutes
    python -m benchmarks.metg --write                  # puts the table into docs/performance.md, too
    python -m benchmarks.metg --widths 2 4 8 --rounds 5
    python -m benchmarks.metg --only mpi_runtime ray --patterns stencil_1d

METG(50 %) is the shortest task with which half of the machine's time is useful: graphs of ever shorter tasks are run,
and the length at which efficiency crosses 50 % is interpolated, in the logarithm of the length. Two workers everywhere.
Tasks are loops of a fixed number of turns, measured once on the idle machine. `mpi4py` is bulk-synchronous steps of
bare MPI: the limit. The systems take turns, each restarted; the figures are medians of the rounds. Measure quietly,
with a Python that has Ray, Dask and mpi4py: a system that is not installed is left out.
"""

import argparse
import datetime
import itertools
import math
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.launching import json_lines, machine, mpirun
from benchmarks.leadership import put
from benchmarks.peers import markdown
from benchmarks.systems.graphs import PATTERNS, loops_per_us

TITLE = "## Short tasks that depend on each other"
"""The section of the page."""

Row = tuple[str, str, int]
"""A system, a pattern and a width."""

SYSTEMS: dict[str, tuple[int, list[str]]] = {
    "mpi_runtime": (0, ["graphs_tasks", "mpi_runtime"]),
    "mpi_runtime, mpirun -n 3": (3, ["graphs_tasks", "mpi_runtime"]),
    "Ray": (0, ["graphs_tasks", "ray"]),
    "Dask": (0, ["graphs_tasks", "dask"]),
    "mpi4py": (2, ["graphs_mpi"]),
}
"""How many ranks each has (0: started plainly), and its adapter with arguments."""


def crossing_us(lengths_us: Sequence[float], efficiencies: Sequence[float], share: float = 0.5) -> float | None:
    """The length at which efficiency falls to a share, or None if it does not. Lengths from long to short."""
    pairs = list(zip(lengths_us, efficiencies, strict=True))
    for (longer, above), (shorter, below) in itertools.pairwise(pairs):
        if above >= share > below:
            part = (above - share) / (above - below)
            return math.exp(math.log(longer) + part * (math.log(shorter) - math.log(longer)))
    return None


def play(system: str, arguments: list[str], timeout_s: float) -> dict[Row, float]:
    """One round of a system: METG(50 %) in microseconds, by pattern and width."""
    ranks, (adapter, *first) = SYSTEMS[system]
    launcher = mpirun(ranks) if ranks else []
    if launcher is None:
        print("    no mpirun beside this Python or on PATH", file=sys.stderr)
        return {}
    command = [*launcher, sys.executable, "-m", f"benchmarks.systems.{adapter}", *first, *arguments]
    lines, problem = json_lines(command, timeout_s)
    if problem or any("missing" in line for line in lines):
        print(f"    {problem or lines}", file=sys.stderr)
    curves: dict[Row, list[dict[str, Any]]] = {}
    for line in lines:
        if "pattern" in line:
            curves.setdefault((system, line["pattern"], line["width"]), []).append(line)
    found = {}
    for row, points in curves.items():
        metg = crossing_us([one["length_us"] for one in points], [one["efficiency"] for one in points])
        if metg is not None:
            found[row] = metg
    return found


def table(rounds: dict[Row, list[float]], systems: Sequence[str]) -> list[list[str]]:
    """Medians: a row for each pattern and width, a column for each system."""
    rows = [["METG(50 %), us", *systems]]
    for pattern, width in sorted({(pattern, width) for _, pattern, width in rounds}, key=_order):
        medians = [rounds.get((system, pattern, width)) for system in systems]
        cells = ["-" if one is None else f"{statistics.median(one):,.0f}" for one in medians]
        rows.append([f"{pattern}, width {width}", *cells])
    return rows


def _order(one: tuple[str, int]) -> tuple[int, int]:
    return list(PATTERNS).index(one[0]), one[1]


def measure(chosen: argparse.Namespace, speed: float) -> tuple[dict[Row, list[float]], int]:
    """Play rounds. Return what they found, and how many there were."""
    arguments = [
        *("--patterns", *chosen.patterns),
        *("--widths", *map(str, chosen.widths)),
        *("--speed", str(speed)),
    ]
    rounds: dict[Row, list[float]] = {}
    started_s, played = time.monotonic(), 0
    while played < chosen.rounds:
        elapsed_s = time.monotonic() - started_s
        if played and elapsed_s * (played + 1) / played > 60 * chosen.minutes:
            print(f"stopped after {played} of {chosen.rounds} rounds, {elapsed_s:.0f} s", file=sys.stderr)
            break
        print(f"round {played + 1} of {chosen.rounds}", file=sys.stderr)
        for system in chosen.only:
            print(f"  {system} ...", flush=True, file=sys.stderr)
            for row, metg_us in play(system, arguments, chosen.timeout_s).items():
                rounds.setdefault(row, []).append(metg_us)
        played += 1
    return rounds, played


def main() -> None:
    """Measure all, in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each system is started (3)")
    parser.add_argument("--minutes", type=float, default=10.0, help="begin no round that would end later (10)")
    parser.add_argument("--widths", nargs="+", type=int, default=[4], help="points of a row (4)")
    parser.add_argument("--patterns", nargs="+", choices=list(PATTERNS), default=list(PATTERNS))
    parser.add_argument("--only", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--timeout-s", type=float, default=600.0, help="of one system in one round (600)")
    parser.add_argument("--speed", type=float, help="turns of the loop in a microsecond (measured); less: a quick try")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    chosen = parser.parse_args()
    speed = chosen.speed or loops_per_us()
    rounds, played = measure(chosen, speed)
    figures = markdown(table(rounds, chosen.only))
    today = datetime.datetime.now(datetime.timezone.utc).date()
    text = (
        f"{today}, {machine()}. Medians of {played} round(s) in which the systems took turns, each restarted; two "
        f"workers each; {speed:.0f} turns of the loop in a microsecond."
    )
    print(f"{text}\n\n{figures}")
    if chosen.write:
        says = (
            "Task Bench's METG(50 %): the shortest task with which half of the machine's time is useful, in "
            "microseconds. Less is better. `mpi4py` is the limit: bulk-synchronous steps, without a scheduler. A "
            "system without a figure was not installed, or does not reach one half with tasks of 16 ms."
        )
        by = "Written by `python -m benchmarks.metg --write`; do not edit."
        put("\n\n".join([TITLE, by, text, says, figures]))


if __name__ == "__main__":
    main()
