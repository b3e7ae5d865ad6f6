"""The processes of the running job, seen from its driver: which is what, and how much CPU time each has used."""

import contextlib
from collections import defaultdict

import psutil

from benchmarks.launching import cpu_seconds


def roles(under_mpi: bool) -> dict[str, list[int]]:
    """The process ids of this job by role: driver, head, worker, forkserver, executor, launcher, other.

    Ranks are children of the launcher, the head is a child of the driver, executors are children of a forkserver.
    """
    driver = psutil.Process()
    top = driver.parent() if under_mpi else driver
    assert top is not None
    found: dict[str, list[int]] = defaultdict(list)
    for process in [top, *top.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            found[_role(process, driver, top)].append(process.pid)
    return found


def _role(process: psutil.Process, driver: psutil.Process, top: psutil.Process) -> str:
    if process == driver:
        return "driver"
    if process == top:
        return "launcher"
    command = " ".join(process.cmdline())
    if "mpi_runtime.processes.head" in command:
        return "head"
    if "mpi_runtime.processes.forkserver" in command:
        parent = process.parent()
        forked = parent is not None and "mpi_runtime.processes.forkserver" in " ".join(parent.cmdline())
        return "executor" if forked else "forkserver"
    return "worker" if process.ppid() == top.pid else "other"


def cpu_seconds_of(job: dict[str, list[int]]) -> dict[str, float]:
    """CPU seconds that the processes of each role, as `roles` found them, have used so far, together."""
    used: dict[str, float] = defaultdict(float)
    for role, pids in job.items():
        for pid in pids:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                used[role] += cpu_seconds(pid)
    return used
