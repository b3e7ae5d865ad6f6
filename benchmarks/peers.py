"""This project, Ray, mpi4py.futures, the process pool and Dask on the same work, in one go, on one machine.

    python -m benchmarks.peers                 # all, three rounds, writes docs/performance.md
    python -m benchmarks.peers --quick         # small counts, one round, writes nothing
    python -m benchmarks.peers --only mpi_runtime ray

Two workers each. The systems take turns, round by round, each restarted, so that what else the machine does
falls on all of them; the figures are medians over the rounds. A peer that is not installed is named and left out.
"""

import argparse
import datetime
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.launching import ROOT, json_lines, machine, mpirun
from benchmarks.leadership import TITLE

OURS = ("mpi_runtime", "mpi_runtime_mpi")


@dataclass
class System:
    """One column of the table."""

    title: str
    adapter: str
    ranks: int = 0
    """Under mpirun with so many ranks; 0: started plainly."""
    through: Sequence[str] = ()
    """Arguments of Python before those that name the adapter."""
    versions: str = ""
    problem: str = ""
    rounds: dict[str, list[float]] = field(default_factory=dict)
    """For each work the seconds of one operation, one figure a round."""

    def command(self, arguments: Sequence[str]) -> list[str] | None:
        """The command line, or None if there is no launcher."""
        launcher = mpirun(self.ranks) if self.ranks else []
        if launcher is None:
            return None
        return [*launcher, sys.executable, *self.through, "-m", f"benchmarks.systems.{self.adapter}", *arguments]

    def median(self, work: str) -> float | None:
        """Seconds for one operation, or None if there is no figure."""
        return statistics.median(self.rounds[work]) if self.rounds.get(work) else None


def systems() -> dict[str, System]:
    """All that can be compared, in the order of the table."""
    return {
        "mpi_runtime": System("mpi_runtime", "with_mpi_runtime"),
        "mpi_runtime_mpi": System("mpi_runtime, mpirun -n 3", "with_mpi_runtime", ranks=3),
        "ray": System("Ray", "with_ray"),
        "mpi4py_futures": System("mpi4py.futures", "with_mpi4py_futures", ranks=3, through=("-m", "mpi4py.futures")),
        "process_pool": System("process pool", "with_process_pool"),
        "dask": System("Dask", "with_dask"),
        "bare_pipeline": System("bare pipeline", "with_bare_pipeline"),
    }


def rate(seconds: float) -> str:
    """Operations a second."""
    return f"{1 / seconds:,.0f} /s"


def bandwidth(seconds: float) -> str:
    """Of 100 MB in so many seconds."""
    return f"{0.1 / seconds:.2f} GB/s"


def duration(seconds: float) -> str:
    """In the unit that fits."""
    if seconds < 1e-3:
        return f"{1e6 * seconds:.0f} µs"
    return f"{1e3 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


WORKS: dict[str, tuple[str, Callable[[float], str]]] = {
    "tasks": ("empty tasks, pipelined", rate),
    "task": ("one task, round trip", rate),
    "map": ("calls of a function that is mapped", rate),
    "actor_calls": ("actor calls, pipelined", rate),
    "actor_call": ("one actor call, round trip", rate),
    "put_small": ("put of 100 bytes", rate),
    "get_small": ("get of 100 bytes", rate),
    "put_large": ("put of 100 MB", bandwidth),
    "get_large": ("get of 100 MB, same host", duration),
    "memcpy": ("copy of 100 MB, warm", bandwidth),
    "fan_in": ("100 results into one call", duration),
    "chain": ("calls that each need the one before", rate),
    "tree": ("64 values added in pairs, 63 calls", duration),
    "wait_loop": ("wait() for one of 1 000 results after the other", rate),
    "nested": ("a call that makes 10 calls", duration),
    "mb_argument": ("1 MB to a call, by value", rate),
    "mb_result": ("1 MB from a call, into new memory", rate),
    "mb_result_warm": ("1 MB from a call, into memory in use before", rate),
    "parameter_server": ("parameter server, 1 MB, two workers", rate),
    "actors": ("new actors that use numpy, with one call each", rate),
    "start": ("init() to first result", duration),
}

RATIOS = [
    ("tasks", "ray", "tasks", 60.0),
    ("tasks", "mpi4py_futures", "tasks", 12.0),
    ("tasks", "process_pool", "tasks", 6.0),
    ("tasks", "bare_pipeline", "tasks", 0.35),
    ("task", "ray", "task", 8.0),
    ("task", "mpi4py_futures", "task", 4.0),
    ("task", "process_pool", "task", 0.7),
    ("map", "process_pool", "map", 0.7),
    ("actor_calls", "ray", "actor_calls", 20.0),
    ("actor_call", "ray", "actor_call", 3.0),
    ("put_small", "ray", "put_small", 20.0),
    ("get_small", "ray", "get_small", 10.0),
    ("put_large", "bare_pipeline", "memcpy", 0.8),
    ("mb_result", "ray", "mb_result", 8.0),
    ("mb_result_warm", "ray", "mb_result_warm", 10.0),
    ("parameter_server", "ray", "parameter_server", 8.0),
]
"""Our work, the peer, its work, and how many times as fast we mean to be."""

LIMITS = [
    ("mpi_runtime", "get_large", 200e-6),
    ("mpi_runtime_mpi", "get_large", 200e-6),
    ("mpi_runtime", "start", 0.7),
    ("mpi_runtime", "actors", 0.02),
]
"""Our column, the work, and how many seconds one may take."""


def play_round(chosen: Mapping[str, System], arguments: Sequence[str], timeout_s: float) -> None:
    """Let each system do all its work once; a system that failed before is left out."""
    for system in chosen.values():
        if system.problem:
            continue
        command = system.command(arguments)
        if command is None:
            system.problem = "no mpirun beside this Python or on PATH"
            continue
        print(f"  {system.title} ...", flush=True, file=sys.stderr)
        lines, system.problem = json_lines(command, timeout_s)
        for line in lines:
            if "missing" in line:
                system.problem = f"not installed: {line['missing']}"
            system.versions = line.get("versions", system.versions)
            if "work" in line:
                system.rounds.setdefault(line["work"], []).append(line["seconds"])


def figures(chosen: Mapping[str, System]) -> list[list[str]]:
    """The table of medians: one row a work, one column a system that has figures."""
    shown = [system for system in chosen.values() if system.rounds]
    rows = [["work", *(system.title for system in shown)]]
    for work, (title, unit) in WORKS.items():
        medians = [system.median(work) for system in shown]
        if any(median is not None for median in medians):
            rows.append([title, *("-" if median is None else unit(median) for median in medians)])
    return rows


def verdicts(chosen: Mapping[str, System]) -> list[list[str]]:
    """The goals: what was aimed at, what each of our ways to start reached, and whether that is enough."""
    rows = [["goal", "", *(chosen[name].title for name in OURS if name in chosen)]]
    for work, peer, peer_work, goal in RATIOS:
        theirs = chosen[peer].median(peer_work) if peer in chosen else None
        if theirs is None:
            continue
        row = [f"{WORKS[work][0]}, against {chosen[peer].title}", f"{goal:g} x"]
        for name in filter(chosen.__contains__, OURS):
            ours = chosen[name].median(work)
            verdict = "" if ours is None else "met" if theirs / ours >= goal else "MISSED"
            row.append("-" if ours is None else f"{theirs / ours:.2f} x, {verdict}")
        rows.append(row)
    for column, work, limit_s in LIMITS:
        ours = chosen[column].median(work) if column in chosen else None
        if ours is not None:
            verdict = f"{duration(ours)}, {'met' if ours < limit_s else 'MISSED'}"
            cells = [verdict if name == column else "" for name in OURS if name in chosen]
            rows.append([WORKS[work][0], f"under {duration(limit_s)}", *cells])
    return rows


def plain(rows: Sequence[Sequence[str]]) -> str:
    """A table for the terminal: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows)


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """The same table for a document."""
    rule = ["---", *("---:" for _ in rows[0][1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in [rows[0], rule, *rows[1:]])


def left_out(chosen: Mapping[str, System]) -> list[str]:
    """What has no figures, or not all, and why."""
    return [f"{system.title}: {system.problem}" for system in chosen.values() if system.problem]


def document(chosen: Mapping[str, System], rounds: int, tasks: int) -> str:
    """`docs/performance.md`."""
    versions = [f"- {system.title}: {system.versions}" for system in chosen.values() if system.versions]
    problems = [f"- {line}" for line in left_out(chosen)]
    today = datetime.datetime.now(datetime.timezone.utc).date()
    parts = [
        "# Performance",
        "Written by `python -m benchmarks.peers`; do not edit.",
        f"{today}, {machine()}. Medians of {rounds} rounds in which the systems took turns, each restarted; two "
        f"workers each; up to {tasks:,} empty tasks, fewer where that would take longer than five seconds.",
        markdown(figures(chosen)),
        "`put` and `get` are `scatter` and `result` with Dask. mpi4py.futures and the process pool can be made faster "
        "by `map` with a chunk size, which makes fewer and larger tasks; here each task is submitted on its own. "
        "Only calls of a function that is mapped come in chunks, which this project and `multiprocessing.Pool` choose.",
        "## Against the goals",
        markdown(verdicts(chosen)),
        "## Versions",
        "\n".join(versions),
        *(["## Left out", "\n".join(problems)] if problems else []),
    ]
    return "\n\n".join(parts) + "\n"


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each system is started (3)")
    parser.add_argument("--tasks", type=int, default=10_000, help="how many empty tasks (10000)")
    parser.add_argument("--minutes", type=float, default=14.0, help="begin no round that would end later (14)")
    parser.add_argument("--quick", action="store_true", help="one round of a tenth of the work; writes nothing")
    parser.add_argument("--only", nargs="+", choices=list(systems()), help="only these; writes nothing")
    parser.add_argument("--output", type=Path, help="where to write the document (docs/performance.md)")
    return parser.parse_args()


def main() -> None:
    """Play the rounds, print both tables, write the document."""
    options = parse()
    chosen = {name: system for name, system in systems().items() if not options.only or name in options.only}
    rounds, tasks, share = (1, options.tasks // 10, 0.1) if options.quick else (options.rounds, options.tasks, 1.0)
    started, played = time.monotonic(), 0
    while played < rounds:
        elapsed_s = time.monotonic() - started
        if played and elapsed_s * (played + 1) / played > 60 * options.minutes:
            print(f"stopped after {played} of {rounds} rounds, {elapsed_s:.0f} s", file=sys.stderr)
            break
        print(f"round {played + 1} of {rounds}", file=sys.stderr)
        play_round(chosen, [str(tasks), str(share)], timeout_s=120)
        played += 1
    print(f"{machine()}\n\n{plain(figures(chosen))}\n\n{plain(verdicts(chosen))}")
    for line in left_out(chosen):
        print(f"left out: {line}")
    output = options.output or (None if options.quick or options.only else ROOT / "docs" / "performance.md")
    if output:
        kept = output.read_text().partition(f"\n{TITLE}") if output.exists() else ("", "", "")
        output.write_text(document(chosen, played, tasks) + kept[1] + kept[2])
        print(f"\nwritten to {output}")


if __name__ == "__main__":
    main()
