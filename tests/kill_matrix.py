"""Every kind of process of a job gets every signal, at every time: `python -m tests.kill_matrix`.

After a strike the job has ended with a code that tells of it, or goes on and ends with 0, as docs/failures.md says; and
nothing of it is left. `tests/e2e/launch/test_kill_matrix.py` has a part of the cases; this command has all of them, or
those that are chosen (`--way ulfm --victim head`), and prints a table. `--resume FILE` keeps results, and skips those
in it.

The program of rank 0 waits at each time for a line, so that strikes come at known moments: before `init()`, in it while
one rank is kept from it (`HELD`), and after it while calls run.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path

import pytest

from mpi_runtime.core.host.process_tree import LAUNCHERS
from tests import helpers
from tests.helpers import Program, make_place, mpi_python, start_command, wait_until

LIMIT_S = 75.0
"""Until the job has ended. A program that ends before its head has started waits for the other ranks for 60 s."""
REST_S = 15.0
"""Until its last process has ended: a program whose launcher was killed has 5 s to save its work."""
START_S = 6.0
"""`start_timeout_s` of starts that cannot succeed any more."""
SIGNALS = {"KILL": signal.SIGKILL, "TERM": signal.SIGTERM, "INT": signal.SIGINT, "SEGV": signal.SIGSEGV}
STOP = "STOP"
"""Stopped for `STOPPED_S`, and resumed."""
STOPPED_S = 1.5
NAMES = {"mpi-rt-head": "head", "mpi-rt-executor": "executor", "mpi-rt-forksrv": "forkserver"}
RANK_VARIABLES = (b"PMIX_RANK=", b"PMI_RANK=")

PROGRAM = """
import os, sys, time
when, start_s = sys.argv[1], float(sys.argv[2])
is_driver = not os.environ.get("PMIX_RANK", os.environ.get("PMI_RANK", "0")).strip("0")
if when == "before" and is_driver:
    print("struck now", os.getpid(), flush=True)
    sys.stdin.readline()
import mpi_runtime as ray
if when == "during" and is_driver:
    print("struck now", os.getpid(), flush=True)
ray.init(num_cpus=4, start_timeout_s=start_s)

@ray.remote(max_retries=-1)
def work(seconds):
    time.sleep(seconds)
    return 1

if when == "after":
    assert sum(ray.get([work.remote(0.01) for _ in range(8)])) == 8
    running = [work.remote(1.5) for _ in range(4)]
    time.sleep(0.2)
    print("struck now", os.getpid(), flush=True)
    sys.stdin.readline()
    for one in running:
        try:
            ray.get(one)
        except ray.exceptions.TaskCancelledError:
            pass  # so a call ends whose executor gets SIGINT
assert sum(ray.get([work.remote(0.01) for _ in range(8)])) == 8
print("done", flush=True)
"""
HOLDS = """
import os, time
if os.environ.get("PMIX_RANK", os.environ.get("PMI_RANK")) == os.environ["HELD"]:
    while not os.path.exists(os.environ["RELEASED"]):
        time.sleep(0.02)
"""
"""`sitecustomize`: keeps a rank from the start, before its first module is loaded."""


@dataclass(frozen=True)
class Case:
    """One strike."""

    way: str
    """"plain", "openmpi", "mpich", or "ulfm": by `mpi-runtime run --fault-tolerant`."""
    ranks: int
    when: str
    """"before" `init()`, "during" it, "after" it."""
    victim: str
    number: str
    """The name of the signal."""

    def __str__(self) -> str:
        return "-".join(map(str, astuple(self)))

    @property
    def goes_on(self) -> bool:
        """Whether the job survives the strike."""
        if self.number == STOP:
            return True
        deadly = self.number in ("KILL", "SEGV")
        if self.victim in ("executor", "forkserver"):
            return True
        if self.victim == "head":
            return not deadly  # the driver decides what to do about others
        if self.victim != "worker" or self.when != "after":
            return False
        return self.number == "INT" or (self.way == "ulfm" and self.ranks > 2)  # rank 0 runs no calls

    @property
    def may_go_on(self) -> bool:
        """Whether it is a matter of chance: a rank heeds SIGINT until it waits for others."""
        return self.victim == "worker" and self.when != "after" and self.number == "INT"

    @property
    def codes(self) -> set[int]:
        """The exit codes that are right."""
        if self.goes_on:
            return {0}
        number = SIGNALS[self.number]
        if self.victim == "driver" and self.way == "plain":
            return {-number}
        if self.victim == "driver" and self.way == "ulfm" and self.number == "INT":
            return {130}
        if self.victim == "starter" and self.number in ("INT", "TERM"):
            return {128 + number}
        return {*range(0 if self.may_go_on else 1, 256), *(-one for one in SIGNALS.values())}


def cases() -> Iterator[Case]:
    """All strikes that make sense."""
    for way in ("plain", "openmpi", "mpich", "ulfm"):
        for ranks in (1,) if way == "plain" else (2, 3, 6):
            for when in ("before", "during", "after"):
                for victim in victims(way, ranks, when):
                    for number in (*SIGNALS, *([STOP] if victim == "worker" and when == "after" else ())):
                        yield Case(way, ranks, when, victim, number)


def victims(way: str, ranks: int, when: str) -> list[str]:
    """The kinds of processes that there are."""
    found = ["driver"]
    if way != "plain":
        found += ["worker"] if when != "during" or ranks > 2 else []
        found += ["launcher"] + ["held"] * (when == "during") + ["starter"] * (way == "ulfm")
    found += ["head"] * (when == "after" or (when == "during" and way != "plain"))
    return found + ["forkserver", "executor"] * (when == "after")


def run(case: Case) -> float:
    """Strike, and fail if what follows is not as it must be. Return how long it took, in seconds."""
    with started(case) as program:
        driver = int(program.wait_for_line("struck now").split()[-1])
        pid = wait_until(lambda: find(case, program, driver), 20, f"a {case.victim}")
        if case.when == "during" and case.way != "plain":
            time.sleep(0.5)  # the others are in MPI by now
        since = time.monotonic()
        os.kill(pid, signal.SIGSTOP if case.number == STOP else SIGNALS[case.number])
        if case.number == STOP:
            time.sleep(STOPPED_S)
            os.kill(pid, signal.SIGCONT)
        # A program may have to come further to notice. A rank that is kept from the start is killed by nobody but a
        # launcher; else it has to come further too.
        with suppress(BrokenPipeError):
            if case.goes_on or case.victim in ("worker", "held", "launcher", "starter"):
                (program.place / "released").touch()
                program.write("\n")
        wait_until(lambda: program.process.poll() is not None, LIMIT_S, f"the end: {case}")
        wait_until(lambda: not program.processes(), REST_S, f"the end of all processes: {case}")
        if case.when != "after":
            program.remove_segments()
        completed = program.finish()
        if completed.returncode not in case.codes:
            pytest.fail(f"{case}: ended with {completed.returncode}\n{completed.output()}")
        if not completed.returncode and "done" not in completed.stdout:
            pytest.fail(f"{case}: it did not go on\n{completed.output()}")
        return time.monotonic() - since


def started(case: Case) -> Program:
    """The program, on its way to the strike."""
    place = make_place()
    (place / "app.py").write_text(PROGRAM)
    (place / "site").mkdir()
    (place / "site" / "sitecustomize.py").write_text(HOLDS)
    python = mpi_python("mpich" if case.way == "mpich" else "openmpi")
    command: list[str | Path] = [python]
    if case.way == "ulfm":
        command = [python.with_name("mpi-runtime"), "run", "-n", str(case.ranks), "--fault-tolerant"]
    elif case.way != "plain":
        command = [python.with_name("mpirun"), "-n", str(case.ranks), python]
    paths = [str(place / "site"), str(helpers.ROOT), os.environ.get("PYTHONPATH", "")]
    env = {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)), "MPI_RUNTIME_QUIET": "1",
        "HELD": str(case.ranks - 1) if case.when == "during" else "", "RELEASED": str(place / "released"),
    }  # fmt: skip
    start_s = 60 if case.goes_on or case.when == "after" else START_S
    return start_command([*command, place / "app.py", case.when, str(start_s)], env=env, place=place, cwd=place)


def find(case: Case, program: Program, driver: int) -> int:
    """The process to strike; 0: it is not there yet."""
    if case.victim == "driver":
        return driver
    if case.victim == "starter":
        return program.pid
    found: dict[str, list[int]] = {}
    for pid in program.processes():
        with suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            parent = Path(f"/proc/{Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[1]}/comm")
            kind = NAMES.get(name, "launcher" if name in LAUNCHERS else "")
            if not kind and parent.read_text().strip() in LAUNCHERS:
                rank = rank_of(pid)
                kind = "held" if case.when == "during" and rank == case.ranks - 1 else "worker" if rank > 0 else ""
            found.setdefault(kind, []).append(pid)
    return min(found.get(case.victim, [0]))


def rank_of(pid: int) -> int:
    """The rank of a process that a launcher has started; -1: none."""
    for one in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
        if one.startswith(RANK_VARIABLES):
            return int(one.partition(b"=")[2])
    return -1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kill_matrix", description=__doc__)
    for name in ("way", "ranks", "when", "victim", "number"):
        parser.add_argument(f"--{name}", action="append", default=[])
    parser.add_argument("--at-once", type=int, default=1, help="how many programs run beside each other")
    parser.add_argument("--resume", type=Path, help="a file with results: those in it are not run again")
    options = vars(parser.parse_args())
    os.environ.setdefault(helpers.MARK, f"matrix{os.getpid()}")
    chosen = [
        case
        for case in cases()
        if all(not options[name] or str(getattr(case, name)) in options[name] for name in Case.__annotations__)
    ]
    results: dict[str, str] = {}
    if options["resume"] and options["resume"].exists():
        results = dict(json.loads(line) for line in options["resume"].read_text().splitlines())

    def strike(case: Case) -> tuple[Case, str]:
        try:
            return case, f"{run(case):.1f}"
        except BaseException as failure:  # those of pytest are no others
            return case, f"{type(failure).__name__}: {failure}"

    with ThreadPoolExecutor(options["at_once"]) as pool:
        for case, result in pool.map(strike, [case for case in chosen if str(case) not in results]):
            results[str(case)] = result
            print(case, result, flush=True)
            if options["resume"]:
                with options["resume"].open("a") as file:
                    file.write(json.dumps([str(case), result]) + "\n")
    return table(chosen, results)


def table(chosen: list[Case], results: dict[str, str]) -> int:
    """Print how many cases of each kind were right; whether any was not."""
    right: Counter[tuple[str, str, str]] = Counter()
    total: Counter[tuple[str, str, str]] = Counter()
    slowest: dict[tuple[str, str, str], float] = {}
    for case in chosen:
        row = (case.way, case.when, case.victim)
        total[row] += 1
        with suppress(ValueError):
            slowest[row] = max(slowest.get(row, 0.0), float(results[str(case)]))
            right[row] += 1
    print("| way | when | victim | right | of | slowest end, s |\n| --- | --- | --- | --- | --- | --- |")
    for row, count in total.items():
        print(f"| {' | '.join(row)} | {right[row]} | {count} | {slowest.get(row, 0.0):.1f} |")
    print(f"{right.total()} of {total.total()} are right")
    return int(right.total() < total.total())


if __name__ == "__main__":
    sys.exit(main())
