"""What calls on a gang cost, beside bare `mpirun`: start, empty calls, messages, a killed member, commands with ranks.

    python -m benchmarks.gangs                # on all processors of this host, a minute
    python -m benchmarks.gangs --ranks 2      # fewer ranks than processors: messages do not share them
    python -m benchmarks.gangs --commands 50
    python -m benchmarks.gangs --slurm --commands 200   # beside steps of `srun`, on the Slurm of the tests; root

Both sides take turns, and the median of the turns is printed. The messages are those of one function, which runs in a
gang and under `mpirun`.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import mpi_runtime
from benchmarks.launching import cpu_seconds, emit, environment, json_lines, machine, mpirun

TURNS = 3
STARTS = 9
"""Gangs that are started after the first one of the job, which looks for the MPI library."""
CALLS = 300
IDLE_S = 5.0


def messages(comm: Any) -> dict[str, float]:
    """Latency of 8 bytes and of an allreduce in microseconds, and GB/s of 4 MB, between the ranks of a communicator."""
    import numpy as np

    def each(times: int, one: Callable[[], None]) -> float:
        for _ in range(times // 10 + 1):
            one()
        comm.Barrier()
        begun = time.perf_counter()
        for _ in range(times):
            one()
        return (time.perf_counter() - begun) / times

    def there_and_back(buffer: Any) -> None:
        if comm.rank == 0:
            comm.Send(buffer, 1)
            comm.Recv(buffer, 1)
        elif comm.rank == 1:
            comm.Recv(buffer, 0)
            comm.Send(buffer, 0)

    small, large, total = np.zeros(1), np.zeros(500_000), np.zeros(1)
    return {
        "latency_us": each(2000, lambda: there_and_back(small)) / 2 * 1e6,
        "allreduce_us": each(2000, lambda: comm.Allreduce(small, total)) * 1e6,
        "gb_s": large.nbytes / (each(100, lambda: there_and_back(large)) / 2) / 1e9,
    }


def empty(comm: Any) -> int:
    """The process of rank 0."""
    return os.getpid()


def pids(comm: Any) -> list[int]:
    """The processes of a gang."""
    return list(comm.allgather(os.getpid()))


def waits(comm: Any, path: str) -> None:
    """Ranks that wait for one that does not come; it writes down who it is."""
    if comm.rank == comm.size - 1:
        Path(path).write_text(str(os.getpid()))
        time.sleep(60)
    comm.Barrier()


def on_gang(ranks: int, function: Callable[..., Any]) -> Any:
    """A remote function on a gang, which gives it a communicator."""
    return mpi_runtime.remote(num_ranks=ranks, num_cpus=1, max_retries=0)(function)


def timed(one: Callable[[], object]) -> float:
    """Seconds of one call."""
    begun = time.perf_counter()
    one()
    return time.perf_counter() - begun


def of_gangs(ranks: int) -> dict[str, float]:
    """A job with gangs: one turn."""
    mpi_runtime.init(num_cpus=ranks, quiet=True)
    mpi_runtime.get(mpi_runtime.remote(num_cpus=1)(os.getpid).remote())
    call = on_gang(ranks, empty)
    found = {"first_ms": timed(lambda: mpi_runtime.get(call.remote())) * 1e3}
    alone = call.options(reuse=False)
    found["start_ms"] = median(timed(lambda: mpi_runtime.get(alone.remote())) for _ in range(STARTS)) * 1e3
    for _ in range(20):
        mpi_runtime.get(call.remote())
    found["warm_ms"] = median(timed(lambda: mpi_runtime.get(call.remote())) for _ in range(CALLS)) * 1e3
    found |= mpi_runtime.get(on_gang(ranks, messages).remote())
    members = mpi_runtime.get(on_gang(ranks, pids).remote())
    before = sum(map(cpu_seconds, members))
    time.sleep(IDLE_S)
    found["idle_percent"] = (sum(map(cpu_seconds, members)) - before) / IDLE_S / ranks * 100
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/pid"
        ref = on_gang(ranks, waits).remote(path)
        while not (os.path.exists(path) and Path(path).read_text()):
            time.sleep(0.01)
        os.kill(int(Path(path).read_text()), signal.SIGKILL)
        found["killed_ms"] = timed(lambda: mpi_runtime.wait([ref])) * 1e3
    mpi_runtime.shutdown()
    return found


def bare() -> dict[str, float] | None:
    """The messages under `mpirun`: on rank 0."""
    from mpi4py import MPI

    found = messages(MPI.COMM_WORLD)
    return found if MPI.COMM_WORLD.rank == 0 else None


def commands(count: int) -> dict[str, float]:
    """Commands of two ranks a second: those of a batch, and those of a loop over `mpirun`; one at a time."""
    program = f"{shlex.quote(sys.executable)} -c 'from mpi4py import MPI'"
    start = " ".join(mpirun(2) or [])
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "jobs.txt").write_text("#batch ranks=2\n" + f"{program}\n" * count)
        for name, line in (
            ("batch", f"{shlex.quote(sys.executable)} -m mpi_runtime batch jobs.txt"),
            ("mpirun", f"for i in $(seq {count}); do {start} {program} || exit 1; done"),
        ):
            begun = time.perf_counter()
            done = subprocess.run(line, shell=True, cwd=folder, env=environment(), capture_output=True, check=False)
            if done.returncode:
                raise SystemExit(f"{name} failed: {done.stderr.decode()[-500:]}")
            found[f"{name}_per_s"] = count / (time.perf_counter() - begun)
    return found


def on_slurm(count: int) -> dict[str, float]:
    """Commands of two ranks a second in a job on two nodes with two CPUs each, from its submission to its end.

    Both sides run two commands at a time: as many as fit.
    """
    from tests.helpers import MARK

    os.environ.setdefault(MARK, "benchmark")
    from tests.slurm.cluster import cluster

    program = f"{shlex.quote(sys.executable)} -c 'from mpi4py import MPI'"
    steps = f"#!/bin/sh\nseq {count} | xargs -P 2 -I{{}} srun --exact -n 2 -c 1 --mpi=pmix {program}\n"
    sides = {
        "batch": "mpi-runtime submit --wait --batch jobs.txt -N 2 --cpus-per-node=2 --time=30",
        "srun": "sbatch --wait -N 2 --ntasks-per-node=2 --time=30 steps.sh",
    }
    found = {}
    with cluster() as slurm:
        folder = slurm.directory()
        (folder / "jobs.txt").write_text("#batch ranks=2\n" + f"{program}\n" * count)
        (folder / "steps.sh").write_text(steps)
        for name, words in sides.items():
            begun = time.perf_counter()
            with slurm.start(*words.split(), cwd=folder) as started:
                done = started.finish(timeout=1800)
            if done.returncode:
                raise SystemExit(f"{name} failed: {done.output()[-500:]}")
            found[f"{name}_per_s"] = count / (time.perf_counter() - begun)
    return found


def main() -> None:
    """Take turns, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--commands", type=int, default=100)
    parser.add_argument("--slurm", action="store_true", help="only commands of two ranks, beside steps of srun")
    parser.add_argument("--part", choices=("gangs", "bare"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        found = of_gangs(given.ranks) if given.part == "gangs" else bare()
        if found is not None:
            emit(**found)
        return
    print(machine())
    if given.slurm:
        for name, rate in on_slurm(given.commands).items():
            print(f"{name:14} {rate:9.2f}")
        return
    again = [sys.executable, "-m", "benchmarks.gangs", "--ranks", str(given.ranks), "--part"]
    turns: dict[str, list[dict[str, Any]]] = {"gangs": [], "bare": []}
    for _ in range(TURNS):
        for part, rows in turns.items():
            begun = time.perf_counter()
            lines, problem = json_lines([*(mpirun(given.ranks) or [] if part == "bare" else []), *again, part], 120)
            if problem:
                raise SystemExit(f"{part}: {problem}")
            rows.append({**lines[0], "whole_s": time.perf_counter() - begun})
    for name in turns["gangs"][0]:
        cells = [f"{part} {median(row[name] for row in rows):9.2f}" for part, rows in turns.items() if name in rows[0]]
        print(f"{name:14}", *cells)
    for name, rate in commands(given.commands).items():
        print(f"{name:14} {rate:9.2f}")


if __name__ == "__main__":
    main()
