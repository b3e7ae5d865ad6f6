"""A program that uses workers which run already: with this project, dask-jobqueue, executorlib and Ray, in one go.

    python -m benchmarks.sessions --peers PYTHON --ray PYTHON        # at most five minutes; needs root and a Slurm
    python -m benchmarks.sessions --quick ...                        # one round

`--peers` has distributed, dask-jobqueue and executorlib, `--ray` has Ray; either may be left out. Prints a table for
docs/performance.md. Two workers everywhere, on this machine:

- this project: `session start -n 1`, and a driver on its host;
- the same, and a driver on another host: the session is a job of the Slurm of the tests (namespaces of this machine),
  the driver is on its login host, and srun joins them;
- dask-jobqueue on this Slurm, `SLURMCluster`, whose scheduler runs on the login host, and a second program there,
  which connects to the scheduler;
- executorlib on this Slurm, `SlurmJobExecutor` in an allocation: its workers start with its program;
- Ray on this machine: `ray start --head`, and a program with `address="auto"`.

Each is started once. Then their programs take turns, round by round; the figures are medians.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.launching import ROOT, environment, json_lines, machine
from benchmarks.peers import duration, markdown, rate
from tests.helpers import MARK
from tests.slurm.cluster import Cluster, cluster

PROGRAM = str(ROOT / "benchmarks" / "systems" / "of_session.py")
PROGRAM_S = 75.0
"""The most seconds of one program."""
WORKS: dict[str, tuple[str, Callable[[float], str]]] = {
    "connect": ("to connect", duration),
    "first": ("to connect, and the first result", duration),
    "round trip": ("one task, round trip", duration),
    "tasks": ("empty tasks, pipelined", rate),
    "1 MB": ("1 MB there and back", duration),
    "100 MB": ("100 MB there and back", duration),
}
SCHEDULER = """
import sys, time
from dask_jobqueue import SLURMCluster

cluster = SLURMCluster(
    cores=2, processes=2, memory="2GB", walltime="00:10:00", python=sys.executable, shebang="#!/bin/bash",
    scheduler_options={"interface": "br0", "dashboard_address": None}, log_directory=".",
)
cluster.scale(jobs=1)
cluster.wait_for_workers(2, timeout=60)
print(cluster.scheduler_address, flush=True)
time.sleep(1000)
"""


class System(NamedTuple):
    """A column of the table."""

    title: str
    command: list[str]
    """That of its program."""
    rounds: dict[str, list[float]]
    problems: list[str]


@contextlib.contextmanager
def near(_: argparse.Namespace) -> Iterator[list[str]]:
    """A session of this machine."""
    with tempfile.TemporaryDirectory() as state:
        env = {**environment(), "XDG_STATE_HOME": state}
        verb = [sys.executable, "-m", "mpi_runtime", "session"]
        subprocess.run([*verb, "start", "--name=near", "--num-cpus=2"], env=env, check=True, stdout=subprocess.DEVNULL)
        try:
            yield ["env", f"XDG_STATE_HOME={state}", sys.executable, PROGRAM, "mpi_runtime", "session:near"]
        finally:
            subprocess.run([*verb, "stop", "near"], env=env, check=True, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def with_ray(given: argparse.Namespace) -> Iterator[list[str]]:
    """Ray of this machine. Not `ray stop`: it would end other Rays of this user too."""
    with tempfile.TemporaryDirectory(prefix="ray") as place, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        free.close()
        start = [str(Path(given.ray).with_name("ray")), "start", "--head", "--block", "--num-cpus=2"]
        start += [f"--port={address.split(':')[1]}", f"--temp-dir={place}"]
        start += ["--include-dashboard=false", "--disable-usage-stats"]
        with open(Path(place) / "output", "wb+") as output:
            env = {**os.environ, "PYTHONUNBUFFERED": "1", "RAY_AUTH_MODE": "disabled"}
            ray = subprocess.Popen(start, stdout=output, stderr=output, env=env)
            try:
                while b"--block" not in Path(output.name).read_bytes():
                    if ray.poll() is not None:
                        raise OSError(Path(output.name).read_text()[-500:])
                    time.sleep(0.1)
                yield ["env", f"RAY_ADDRESS={address}", "RAY_AUTH_MODE=disabled", given.ray, PROGRAM, "ray", "auto"]
            finally:
                ray.terminate()
                ray.wait()


def on_login(slurm: Cluster, command: list[str]) -> list[str]:
    """The command line that runs a command on the login host."""
    words = [f"{name}={value}" for name, value in slurm.environment().items()]
    return ["env", "-i", *words, *slurm.on_login(command, None)]


@contextlib.contextmanager
def far(slurm: Cluster) -> Iterator[list[str]]:
    """A session in a job of Slurm."""
    verb = ["mpi-runtime", "session"]
    slurm.run(*verb, "start", "--name=far", "-N1", "--cpus-per-node=2", "--num-cpus=2", "--time=10")
    yield on_login(slurm, ["python", PROGRAM, "mpi_runtime", "session:far"])
    slurm.run(*verb, "stop", "far")


@contextlib.contextmanager
def with_dask(slurm: Cluster, python: str) -> Iterator[list[str]]:
    """Dask in a job of Slurm."""
    with slurm.start(python, "-c", SCHEDULER, cwd=slurm.directory()) as scheduler:
        address = scheduler.wait_for_line("tcp://", 90).strip()
        yield on_login(slurm, [python, PROGRAM, "dask", address])
        scheduler.kill()


@contextlib.contextmanager
def with_executorlib(slurm: Cluster, python: str) -> Iterator[list[str]]:
    """Executorlib in an allocation of Slurm."""
    yield on_login(slurm, ["salloc", "-N1", "-n2", "--time=5", python, PROGRAM, "executorlib", "-"])


def opened(given: argparse.Namespace, stack: contextlib.ExitStack) -> list[System]:
    """Start all systems."""
    makes: list[tuple[str, Callable[[], contextlib.AbstractContextManager[list[str]]]]] = []
    makes.append(("mpi_runtime, same host", lambda: near(given)))
    try:
        slurm = stack.enter_context(cluster())
    except pytest.skip.Exception as why:
        print(f"without a Slurm: {why}", file=sys.stderr)
    else:
        makes.append(("mpi_runtime, other host", lambda: far(slurm)))
        if given.peers:
            makes.append(("dask-jobqueue", lambda: with_dask(slurm, given.peers)))
            makes.append(("executorlib", lambda: with_executorlib(slurm, given.peers)))
    if given.ray:
        makes.append(("Ray, same host", lambda: with_ray(given)))
    found = []
    for title, make in makes:
        begin = time.monotonic()
        try:
            found.append(System(title, stack.enter_context(make()), {}, []))
        except Exception as error:  # the others are measured
            print(f"left out: {title}: {error}", file=sys.stderr)
        print(f"  {title}: started in {time.monotonic() - begin:.1f} s", file=sys.stderr)
    return found


def play_round(systems: list[System]) -> None:
    """Run a program of each system."""
    for system in systems:
        if system.problems:
            continue
        print(f"  {system.title} ...", flush=True, file=sys.stderr)
        lines, problem = json_lines(system.command, PROGRAM_S)
        system.problems.extend([problem] if problem else [])
        for line in lines:
            system.rounds.setdefault(line["work"], []).append(line["seconds"])


def document(systems: list[System], rounds: int) -> str:
    """The section of docs/performance.md."""
    rows = [["work", *(system.title for system in systems)]]
    for work, (title, unit) in WORKS.items():
        found = [system.rounds.get(work) for system in systems]
        rows.append([title, *(unit(statistics.median(one)) if one else "-" for one in found)])
    today = datetime.datetime.now(datetime.timezone.utc).date()
    problems = [f"{system.title}: {problem}" for system in systems for problem in system.problems]
    return "\n\n".join([
        "## Programs that connect to workers which run",
        f"By `python -m benchmarks.sessions`, {today}, {machine()}. Medians of {rounds} rounds; two workers each. "
        "The other host is a node of a Slurm in namespaces of this machine, reached by `srun`. dask-jobqueue and "
        "executorlib run on the same Slurm; workers of executorlib start with its program.",
        markdown(rows),
        *problems,
    ])  # fmt: skip


def main() -> None:
    """Start all, take turns, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", metavar="PYTHON", help="an interpreter with dask-jobqueue and executorlib")
    parser.add_argument("--ray", metavar="PYTHON", help="an interpreter with Ray")
    parser.add_argument("--rounds", type=int, default=3, help="how often each program runs (3)")
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--minutes", type=float, default=3.5, help="begin no round that would end later (3.5)")
    given = parser.parse_args()
    os.environ.setdefault(MARK, "benchmark")
    began, played = time.monotonic(), 0
    with contextlib.ExitStack() as stack:
        systems = opened(given, stack)
        first_s = time.monotonic()
        while played < (1 if given.quick else given.rounds):
            now_s = time.monotonic()
            if played and now_s + (now_s - first_s) / played > began + 60 * given.minutes:
                break
            print(f"round {played + 1}", file=sys.stderr)
            play_round(systems)
            played += 1
    print(document(systems, played))


if __name__ == "__main__":
    main()
