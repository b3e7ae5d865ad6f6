"""Ten thousand commands by jobs of a minute, three at a time, while jobs, nodes and the allocator die; not part of CI.

    python -m tests.slurm.long_allocate [--commands 10000] [--seed 1]

`batch --allocate` submits the jobs. Each command must be done, and none may begin again after its end was recorded.
There are never more than three jobs, and none is left at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections import Counter
from pathlib import Path

from tests.e2e.batch.test_elastic import Watcher, lines
from tests.helpers import MARK
from tests.slurm.cluster import Cluster, cluster
from tests.slurm.long_elastic import measured
from tests.slurm.test_allocate import Allocating, jobs_of

JOBS = 3
LIMIT_S = 3000.0
LINE = "echo {n} >> began; sleep 0.3; echo {n} >> done\n"
SPEC = f"max={JOBS},cpus={{}},time=1,idle=20s,partition=main,fragile"
KINDS = ("job", "allocator", "drain", "crash")


class Trial:
    """One batch, its allocator and its jobs of some CPUs, with seconds between strikes."""

    def __init__(self, slurm: Cluster, commands: int, seed: int, cpus: int, between_s: float) -> None:
        self.slurm, self.folder, self.rng = slurm, slurm.directory(), random.Random(seed)
        self.spec, self.between_s = SPEC.format(cpus), between_s
        (self.folder / "jobs.txt").write_text("".join(LINE.replace("{n}", str(n)) for n in range(commands)))
        self.strikes: Counter[str] = Counter()
        self.most = 0
        """How many jobs there were at a time."""
        self.drained: list[str] = []
        self.watcher = Watcher(self.folder)
        self.allocator = Allocating(slurm, self.folder, self.spec)

    def nodes(self) -> dict[str, str]:
        """The node of each job that runs."""
        rows = [line.split() for line in self.slurm.run("squeue", "-h", "-t", "R", "-o", "%i %N").stdout.splitlines()]
        return {words[0]: words[1] for words in rows if words[1:]}

    def resume(self) -> None:
        """Give drained nodes back."""
        for name in self.drained:
            self.slurm.run("scontrol", "update", f"nodename={name}", "state=resume", code=None)
        self.drained.clear()

    def strike(self, kind: str) -> None:
        """Kill a job or the allocator, drain or crash a node."""
        self.resume()
        running = self.nodes()
        if kind != "allocator" and not running:
            return
        self.strikes[kind] += 1
        if kind == "allocator":
            self.allocator.process.kill()
            self.allocator.process.wait()
            self.allocator = Allocating(self.slurm, self.folder, self.spec)
            return
        job = self.rng.choice(sorted(running))
        if kind == "job":
            self.slurm.run("scancel", "--full", "--signal=KILL", job, code=None)
        elif kind == "drain":
            self.drained.append(running[job])
            self.slurm.run("scontrol", "update", f"nodename={running[job]}", "state=drain", "reason=trial")
        elif running[job] not in ("n1", "n2"):
            self.slurm.crash(running[job], silently=self.rng.random() < 0.5)
            time.sleep(3)
            self.slurm.start_node(running[job])

    def run(self, commands: int) -> None:
        """Strike until the batch has ended."""
        struck_s, end_s = time.monotonic(), time.monotonic() + LIMIT_S
        while self.allocator.is_running():
            assert time.monotonic() < end_s, f"not done after {LIMIT_S} s: {self.allocator.said[-3000:]}"
            living = jobs_of(self.slurm, self.folder, "PENDING", "RUNNING")
            assert len(living) <= JOBS, living
            self.most = max(self.most, len(living))
            if 30 < self.watcher.look() < commands and time.monotonic() - struck_s > self.between_s:
                self.strike(KINDS[self.strikes.total() % len(KINDS)])
                struck_s = time.monotonic()
            time.sleep(0.5)
        self.allocator.finish(0)

    def judge(self, commands: int) -> None:
        """Judge the run, and print what has happened."""
        twice = sum(count - 1 for count in lines(self.folder, "began").values())
        recorded = json.loads((self.folder / "batch-jobs/journal/allocator/record").read_text())
        jobs = jobs_of(self.slurm, self.folder)
        assert {one["job"] for one in recorded["jobs"]} == {*jobs}, "each is known, whoever has submitted it"
        assert sum(one["commands"] for one in recorded["jobs"]) >= commands
        counts = f"{commands} commands, {len(jobs)} jobs, {self.most} at a time, {twice} begun twice"
        print(f"{counts}; strikes: {dict(self.strikes)}", flush=True)
        self.watcher.judge(commands)
        print("each is done, none begins again after its end was recorded")
        deadline_s = time.monotonic() + 60
        while left := jobs_of(self.slurm, self.folder, "PENDING", "RUNNING"):
            assert time.monotonic() < deadline_s, f"jobs are left: {left}"
            time.sleep(1)
        assert recorded["is_over"]
        assert "nothing to do" in Allocating(self.slurm, self.folder, self.spec).finish()
        assert {*jobs_of(self.slurm, self.folder)} == {*jobs}, "the same line, when all is done, submits nothing"


def trial(slurm: Cluster, commands: int, seed: int, cpus: int = 8, between_s: float = 8.0) -> Trial:
    """Run one and judge it; return it."""
    made = Trial(slurm, commands, seed, cpus, between_s)
    try:
        made.run(commands)
        made.judge(commands)
    except BaseException:
        for log in sorted(made.folder.glob("said-*")):
            print(f"--- {log.name}\n{log.read_text()[-4000:]}")
        raise
    finally:
        made.resume()
        made.allocator.process.kill()
        made.allocator.process.wait()
    return made


def main() -> None:
    """Run it, and print figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.slurm.long_allocate")
    parser.add_argument("--commands", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    os.environ.setdefault(MARK, f"long-{os.getpid()}")
    with cluster() as slurm, measured() as took:
        trial(slurm, chosen.commands, chosen.seed)
    print(f"{took[0]:.0f} s; load average {Path('/proc/loadavg').read_text().split()[0]}")


if __name__ == "__main__":
    main()
