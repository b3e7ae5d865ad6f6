"""Jobs on demand: how well are the jobs of a batch system used, here, by Parsl's blocks and by dask-jobqueue's `adapt`?

    python -m benchmarks.allocating --peers PYTHON   # its interpreter has parsl and dask-jobqueue; root, for the Slurm

The same list for each, one after the other on one Slurm, that of the tests: commands of two seconds, and at the end one
that takes much longer. Each may have three jobs of two CPUs, submits them by itself, and gives them back. Printed are
the seconds until the last command has ended; the jobs; the CPU time that the commands need as a part of what Slurm gave
to the jobs, from their start to their end; and how often Slurm's commands were called. `--max-jobs` submits all jobs at
once. HyperQueue is not among them: its wheel has no program `hq`, which its jobs would start.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.slurm.cluster import Cluster

JOBS, CPUS = 3, 2
SECONDS, LONG_S = 2, 40
IDLE_S = 10
"""How long a job with nothing to do stays, for each: less is not safe with Parsl's heartbeats."""
LIMIT_S = 900.0
LEAVE_LIMIT_S = 300.0
"""How long jobs may stay when all is done."""
PROGRAMS = ("sbatch", "squeue", "scontrol", "scancel", "sacct", "sinfo")
LOGIN = "10.77.0.254"

PARSL = """
import os, sys, parsl
from parsl.app.app import bash_app
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.launchers import SimpleLauncher
from parsl.providers import SlurmProvider

jobs, cpus, idle_s, address = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
os.environ["PATH"] = f"{sys.prefix}/bin:{os.environ['PATH']}"
provider = SlurmProvider(
    init_blocks=0, min_blocks=0, max_blocks=jobs, cores_per_node=cpus, walltime="00:10:00", exclusive=False,
    worker_init=f"export PATH={sys.prefix}/bin:$PATH", launcher=SimpleLauncher(),
)
executor = HighThroughputExecutor(address=address, max_workers_per_node=cpus, provider=provider)
config = Config([executor], strategy="htex_auto_scale", max_idletime=idle_s, strategy_period=1)

@bash_app
def run(text):
    return text

with parsl.load(config):
    for future in [run(line) for line in open("jobs.txt").read().splitlines()]:
        future.result()
"""
DASK = """
import subprocess, sys
from dask.distributed import Client
from dask_jobqueue import SLURMCluster

jobs, cpus, idle_s, address = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
cluster = SLURMCluster(
    cores=cpus, processes=1, memory="900MB", walltime="00:10:00", scheduler_options={"host": address},
    python=sys.executable, local_directory="/tmp",
)
cluster.adapt(minimum_jobs=0, maximum_jobs=jobs, interval="1s", wait_count=int(idle_s))

def run(text):
    subprocess.run(text, shell=True, check=True)

client = Client(cluster)
client.gather(client.map(run, open("jobs.txt").read().splitlines(), pure=False))
client.close()
cluster.close()
"""


def lines(commands: int) -> list[str]:
    """The list."""
    return [f"sleep {took_s}; date +%s.%N >> {{folder}}/ends" for took_s in [*[SECONDS] * commands, LONG_S]]


def ways(peers: str | None) -> dict[str, list[list[str]]]:
    """The command lines of each way."""
    python = ["mpi-runtime"]
    spec = f"max={JOBS},cpus={CPUS},time=10,idle={IDLE_S}s"
    size = ["--max-jobs", str(JOBS), "-N", "1", "--cpus-per-node", str(CPUS), "--time=10"]
    found = {
        "batch --allocate": [[*python, "batch", "jobs.txt", "--allocate", spec]],
        "submit --batch --max-jobs": [
            [*python, "submit", "--batch", "jobs.txt", *size, "--", "--idle-timeout", str(IDLE_S)],
            [*python, "batch", "wait", "jobs"],
        ],
    }
    if peers is not None:
        words = [str(JOBS), str(CPUS), str(IDLE_S), LOGIN]
        found["Parsl, blocks"] = [[peers, "-c", PARSL, *words]]
        found["dask-jobqueue, adapt"] = [[peers, "-c", DASK, *words]]
    return found


def measure(slurm: Cluster, commands: int, words: list[list[str]]) -> dict[str, float]:
    """Run the list in one way."""
    folder = slurm.directory()
    (folder / "jobs.txt").write_text("\n".join(lines(commands)).replace("{folder}", str(folder)) + "\n")
    asked = slurm.place / "asked"
    asked.write_text("")
    begin_s = time.time()
    for one in words:
        with open(folder / "log", "wb") as log:  # the jobs that it leaves live on
            done = subprocess.run(
                slurm.on_login(one, folder), env=slurm.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                timeout=LIMIT_S,
            )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"{one[0]} failed: {(folder / 'log').read_text()[-2000:]}")
    end_s, calls = max(map(float, (folder / "ends").read_text().split())), len(asked.read_text().splitlines())
    ids = jobs_in(slurm, folder)
    limit_s = time.monotonic() + LEAVE_LIMIT_S
    while any(slurm.facts(job)["JobState"] in ("PENDING", "RUNNING", "COMPLETING") for job in ids):
        assert time.monotonic() < limit_s, f"jobs stay: {ids}"
        time.sleep(1)
    granted_s = sum(map(granted, map(slurm.facts, ids)))
    needed_s = commands * SECONDS + LONG_S
    return {"s": end_s - begin_s, "jobs": len(ids), "used": needed_s / granted_s, "calls": calls}


def jobs_in(slurm: Cluster, folder: Path) -> list[str]:
    """The jobs that were submitted in a folder."""
    rows = [line.split() for line in slurm.run("squeue", "-h", "-t", "all", "-o", "%i %Z").stdout.splitlines()]
    return [job for job, place in rows if place == str(folder)]


def granted(facts: Mapping[str, str]) -> float:
    """The CPU seconds that a job has had."""
    if facts["StartTime"] == "Unknown":
        return 0.0
    first, last = (datetime.fromisoformat(facts[name]) for name in ("StartTime", "EndTime"))
    return (last - first).total_seconds() * CPUS


def count_calls(slurm: Cluster) -> None:
    """Note each call of a command of Slurm."""
    for name in PROGRAMS:
        path = slurm.place / "bin" / name
        path.write_text(f'#!/bin/sh\necho {name} >> {slurm.place}/asked\nexec /usr/bin/{name} "$@"\n')
        path.chmod(0o755)


def main() -> None:
    """Measure what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.allocating")
    parser.add_argument("--peers", metavar="PYTHON", help="an interpreter that has parsl and dask-jobqueue")
    parser.add_argument("--commands", type=int, default=60)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    from tests.helpers import MARK  # not at the top: only here the tests are needed
    from tests.slurm.cluster import cluster

    os.environ.setdefault(MARK, f"bench-{os.getpid()}")
    chosen = ways(options.peers)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in chosen}
    with cluster() as slurm:
        count_calls(slurm)
        for _ in range(options.turns):
            for name, words in chosen.items():
                found[name].append(measure(slurm, options.commands, words))
                print(f"{name:28} {shown(found[name][-1])}", flush=True)
    print("medians:")
    for name, rows in found.items():
        middle = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        print(f"{name:28} {shown(middle)}")
    print(f"load average {Path('/proc/loadavg').read_text().split()[0]}")


def shown(figures: Mapping[str, float]) -> str:
    """A row of the table."""
    return (
        f"{figures['s']:6.1f} s, {figures['jobs']:3.0f} jobs, {100 * figures['used']:3.0f} % of the CPU time, "
        f"{figures['calls']:4.0f} calls of Slurm's commands"
    )


if __name__ == "__main__":
    main()
