"""Four Slurm jobs of one node work off one batch while members, the coordinator and nodes die; not a part of CI.

    python -m tests.slurm.long_elastic [--commands 5000] [--seed 1]

Each command must be done, and none may begin again after its end was recorded.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mpi_runtime.batch.history.batch_history import used_by
from tests.e2e.batch.test_elastic import Watcher, lines
from tests.helpers import MARK
from tests.slurm.cluster import ENDED, Cluster, cluster

JOBS = 4
BETWEEN_S = 12.0
"""Seconds between deaths."""
LIMIT_S = 1800.0
LINE = "echo {n} >> began; sleep 0.5; echo {n} >> done\n"
SUBMIT = ("submit", "--batch", "jobs.txt", "-p", "main,fragile", "-N", "1", "--time=40", "--requeue")


class Trial:
    """One batch and its jobs."""

    def __init__(self, slurm: Cluster, commands: int, seed: int) -> None:
        self.slurm, self.folder, self.rng = slurm, slurm.directory(), random.Random(seed)
        (self.folder / "jobs.txt").write_text("".join(LINE.replace("{n}", str(n)) for n in range(commands)))
        self.jobs: list[str] = []
        self.deaths: Counter[str] = Counter()
        self.watcher = Watcher(self.folder)

    def submit(self, count: int) -> None:
        """Submit jobs."""
        words = ("mpi-runtime", *SUBMIT, "--max-jobs", str(count))
        self.jobs += self.slurm.run(*words, cwd=self.folder).stdout.split()

    def running(self) -> dict[str, str]:
        """The jobs that run, with their nodes."""
        facts = {job: self.slurm.facts(job) for job in self.jobs}
        return {job: one["NodeList"] for job, one in facts.items() if one["JobState"] == "RUNNING"}

    def strike(self, kind: str) -> None:
        """Kill a job or crash a node, if there are others."""
        running = self.running()
        leading = re.match(r"(n\d)", used_by(str(self.folder / "batch-jobs")))
        is_leading = {job: bool(leading) and node == leading[1] for job, node in running.items() if leading}
        chosen = [job for job in running if is_leading.get(job, False) == (kind == "coordinator")]
        if kind == "node":
            chosen = [job for job, node in running.items() if node not in ("n1", "n2")]
        if len(running) < 2 or not chosen:
            return
        job = self.rng.choice(chosen)
        self.deaths[kind] += 1
        print(f"{kind}: job {job} on {running[job]}", flush=True)
        if kind == "node":
            self.slurm.crash(running[job], silently=self.rng.random() < 0.5)
            time.sleep(3)
            self.slurm.start_node(running[job])
        else:
            self.slurm.run("scancel", "--full", "--signal=KILL", job, code=None)
            self.submit(1)

    def has_ended(self) -> bool:
        """Whether no job is left."""
        return all(self.slurm.facts(job)["JobState"] in ENDED for job in self.jobs)


@contextmanager
def measured() -> Iterator[list[float]]:
    """The seconds of a block, when it is left."""
    found: list[float] = []
    begin_s = time.monotonic()
    yield found
    found.append(time.monotonic() - begin_s)


def main() -> None:
    """Run it, and print figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.slurm.long_elastic")
    parser.add_argument("--commands", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    os.environ.setdefault(MARK, f"long-{os.getpid()}")
    with cluster() as slurm, measured() as took:
        trial = Trial(slurm, chosen.commands, chosen.seed)
        trial.submit(JOBS)
        kinds = ["member", "coordinator", "node"]
        struck_s = time.monotonic()
        end_s = struck_s + LIMIT_S
        while not trial.has_ended():
            assert time.monotonic() < end_s, f"jobs are left after {LIMIT_S} s: {trial.running()}"
            if trial.watcher.look() < 30:
                struck_s = time.monotonic()
            elif time.monotonic() - struck_s > BETWEEN_S and trial.watcher.look() < chosen.commands * 0.95:
                trial.strike(kinds[trial.deaths.total() % len(kinds)])
                struck_s = time.monotonic()
            time.sleep(0.5)
        report(trial, chosen.commands)
    print(f"{took[0]:.0f} s; load average {Path('/proc/loadavg').read_text().split()[0]}")


def report(trial: Trial, commands: int) -> None:
    """Judge the run, and print what has happened."""
    began = lines(trial.folder, "began")
    twice = sum(count - 1 for count in began.values())
    print(f"{commands} commands, {len(trial.jobs)} jobs, deaths: {dict(trial.deaths)}; {twice} begun twice", flush=True)
    try:
        trial.watcher.judge(commands)
        print("each is done, none begins again after its end was recorded")
    except AssertionError:
        for job in trial.jobs:
            print(f"--- job {job}: {trial.slurm.facts(job)['JobState']}\n{trial.slurm.output(job)[-3000:]}")
        raise


if __name__ == "__main__":
    main()
