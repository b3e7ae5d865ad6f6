"""A week's work of 34 commands, an hour of it in a second, in jobs that live for a minute; not a part of CI.

    python -m tests.slurm.long_lives [--jobs 1 3 16]

One, three and sixteen jobs of one CPU have a batch each, at the same time. Slurm requeues them until it is finished.
Each command must begin once and end once, after those that it follows.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from pathlib import Path

from tests.helpers import MARK
from tests.slurm.cluster import ENDED, Cluster, cluster

COMMANDS = 34
WEEK = 168
"""Hours, each a second here."""
LIMIT_S = 1500.0
LINE = "echo {n} >> began; sleep {s}; echo {n} >> done #batch name=c{n} time_limit={limit}s grace=1s{after}\n"


def lines() -> str:
    """The list: chains of four, of which the last waits for the whole chain before it."""
    weights = [1 + number * 7 % 8 for number in range(COMMANDS)]
    hours = [round(one * WEEK / sum(weights), 1) for one in weights]
    found = []
    for n, seconds in enumerate(hours):
        after = f" after=c{n - 1}" if n % 4 else f" after=c{n - 5}" if n > 4 else ""
        found.append(LINE.format(n=n, s=seconds, limit=round(seconds + 8), after=after))
    return "".join(found)


def submitted(slurm: Cluster, jobs: int) -> tuple[Path, list[str]]:
    """A batch, and the jobs that are to run it."""
    folder = slurm.directory()
    (folder / "jobs.txt").write_text(lines())
    words = ["submit", "--batch", "jobs.txt", "--max-jobs", str(jobs), "-N", "1", "--cpus-per-node", "1", "--time=1"]
    return folder, slurm.run("mpi-runtime", *words, "--requeue", cwd=folder).stdout.split()


def judge(slurm: Cluster, folder: Path, jobs: list[str]) -> None:
    """State what is wrong, if anything is, and print what has happened."""
    lives = sum(int(slurm.facts(job).get("Restarts", 0)) + 1 for job in jobs)
    for name in ("began", "done"):
        found = Counter((folder / name).read_text().split())
        wrong = {n: count for n, count in found.items() if count != 1}
        assert not wrong, f"{name}, {len(jobs)} jobs: {wrong}\n" + "\n".join(map(slurm.output, jobs))
        assert len(found) == COMMANDS, f"{name}: {len(found)} of {COMMANDS}\n" + "\n".join(map(slurm.output, jobs))
    done = [*map(int, (folder / "done").read_text().split())]
    assert all(done.index(n - 1) < done.index(n) for n in done if n % 4), done
    print(f"{len(jobs)} jobs, {lives} lives: each of {COMMANDS} commands ran once, in order", flush=True)


def main() -> None:
    """Run all, side by side."""
    parser = argparse.ArgumentParser(prog="python -m tests.slurm.long_lives")
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 3, 16])
    chosen = parser.parse_args()
    os.environ.setdefault(MARK, f"lives-{os.getpid()}")
    with cluster() as slurm:
        begin_s = time.monotonic()
        left = {jobs: submitted(slurm, jobs) for jobs in chosen.jobs}
        while left:
            for jobs, (_, ids) in [*left.items()]:
                if all(slurm.facts(job)["JobState"] in ENDED for job in ids):
                    judge(slurm, *left.pop(jobs))
            if time.monotonic() - begin_s > LIMIT_S:
                for folder, ids in left.values():
                    print(f"--- {folder}: {Counter(slurm.facts(job)['JobState'] for job in ids)}")
                    print("\n".join(slurm.output(job)[-2000:] for job in ids))
                raise AssertionError(f"jobs are left after {LIMIT_S} s")
            time.sleep(2)
        print(f"{time.monotonic() - begin_s:.0f} s; load average {Path('/proc/loadavg').read_text().split()[0]}")


if __name__ == "__main__":
    main()
