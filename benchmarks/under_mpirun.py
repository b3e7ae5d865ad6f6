"""How fast is each work of `peers` under `mpirun -n 3`, against a job that was started plainly?

    python -m benchmarks.under_mpirun                     # all works, 20 turns each, a minute
    python -m benchmarks.under_mpirun --turns 9 --only task tasks chain

Both jobs run at the same time, and take turns with each work: what else the machine does falls on both. Each figure is
the median over the turns; the ratio is that of the speeds in two neighbouring turns, with its quartiles.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

from benchmarks.launching import ROOT, environment, machine, mpirun
from benchmarks.peers import WORKS
from benchmarks.systems import work

RANKS = 3
SHARE = 0.2
"""Of the counts of `peers`: short turns, so that two neighbouring ones meet the same machine."""
WARM_UPS = 2
END = "end"
END_LIMIT_S = 30.0


def serve() -> None:
    """In a job: do the works that standard input names, and print the seconds of one operation of each."""
    from benchmarks.systems import with_mpi_runtime

    with_mpi_runtime.first()
    works = with_mpi_runtime.works()
    print("ready", flush=True)
    while (line := sys.stdin.readline().strip()) != END:  # mpirun does not pass on the end of its input
        name, count = line.split()
        print(works[name](int(count)) / int(count), flush=True)


class Job:
    """One of the two jobs."""

    def __init__(self, launcher: list[str]) -> None:
        command = [*launcher, sys.executable, "-m", "benchmarks.under_mpirun", "--serve"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(), cwd=ROOT
        )
        self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a job has ended with exit code {self._process.wait()}")
        return line

    def seconds(self, name: str, count: int) -> float:
        """Do a work so many times. Return the seconds of one operation."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{name} {count}\n")
        self._process.stdin.flush()
        return float(self._answer())

    def end(self) -> None:
        """End it."""
        self._process.communicate(f"{END}\n", timeout=END_LIMIT_S)


def main() -> None:
    """Take turns, and print a line for each work."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [name for name in work.COUNTS if name != "memcpy"]
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve()
        return
    launcher = mpirun(RANKS)
    if launcher is None:
        raise SystemExit("no mpirun beside this Python or on PATH")
    jobs = plain, under = Job([]), Job(launcher)
    print(f"{machine()}\n{'':50} {'plainly':>10} {'mpirun -n 3':>12}   ratio (quartiles)")
    for name in given.only:
        count = max(1, round(work.COUNTS[name] * SHARE))
        turns: dict[Job, list[float]] = {plain: [], under: []}
        for turn in range(given.turns + WARM_UPS):
            for job in jobs if turn % 2 else jobs[::-1]:
                turns[job].append(job.seconds(name, count))
        ours = {job: seconds[WARM_UPS:] for job, seconds in turns.items()}
        low, middle, high = statistics.quantiles([a / b for a, b in zip(ours[plain], ours[under], strict=True)], n=4)
        title, unit = WORKS[name]
        shown = [unit(statistics.median(ours[job])) for job in jobs]
        print(f"{title:50} {shown[0]:>10} {shown[1]:>12}   {middle:.2f} ({low:.2f} to {high:.2f})", flush=True)
    for job in jobs:
        job.end()


if __name__ == "__main__":
    main()
