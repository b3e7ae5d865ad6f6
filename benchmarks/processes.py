"""The processes of the running job, seen from its driver: which is what, and how much CPU time each has used."""

import contextlib
import os
from collections import defaultdict
from pathlib import Path

from benchmarks.launching import cpu_seconds

NAMES = {"mpi-rt-head": "head", "mpi-rt-forksrv": "forkserver", "mpi-rt-executor": "executor"}


def _parents() -> dict[int, int]:
    """For each process of this machine its parent."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    return found


def descendants(top: int) -> list[int]:
    """The children of a process, their children and so on: each after its parent."""
    parents, found = _parents(), [top]
    for one in found:
        found += sorted(pid for pid, parent in parents.items() if parent == one)
    return found[1:]


def _name(pid: int) -> str:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def roles(under_mpi: bool) -> dict[str, list[int]]:
    """The process ids of this job by role: driver, head, worker, forkserver, executor, launcher, other.

    Ranks are children of the launcher, the head is a child of the driver, executors are children of a forkserver.
    """
    parents = _parents()
    top = os.getppid() if under_mpi else os.getpid()
    found: dict[str, list[int]] = defaultdict(list)
    for pid in [top, *descendants(top)]:
        if pid in parents:
            found[_role(pid, parents[pid], top)].append(pid)
    return found


def _role(pid: int, parent: int, top: int) -> str:
    if pid == os.getpid():
        return "driver"
    if pid == top:
        return "launcher"
    if (found := NAMES.get(_name(pid))) is not None:
        return found
    return "worker" if parent == top else "other"


def cpu_seconds_of(job: dict[str, list[int]]) -> dict[str, float]:
    """CPU seconds that the processes of each role, as `roles` found them, have used so far, together."""
    used: dict[str, float] = defaultdict(float)
    for role, pids in job.items():
        for pid in pids:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                used[role] += cpu_seconds(pid)
    return used
