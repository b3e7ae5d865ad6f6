"""Finds other jobs of this runtime in the same batch job: each believes that it has all CPUs of the host."""

from __future__ import annotations

import os

from mpi_runtime import config as configuration
from mpi_runtime.core.head import inspecting
from mpi_runtime.core.host import machine
from mpi_runtime.core.host.process_tree import descendants, has_variable
from mpi_runtime.errors import LaunchError
from mpi_runtime.scheduler.protocol.window_questions import Glance
from mpi_runtime.slurm.allocation import from_environment


def crowded() -> str:
    """Return a message about other programs with which this one shares CPUs, with cures; empty if there are none."""
    try:
        found = [pid for pid in inspecting.jobs() if pid == os.getpid() or _is_of_this_batch_job(pid)]
    except OSError:
        return ""  # this system does not list sockets
    if len(found) < 2:
        return ""
    inside = {one for pid in found for one in descendants(pid)}  # commands and calls: they share what their job has
    others = [pid for pid in found if pid not in inside and pid != os.getpid() and _shares_processors(pid)]
    if not others or os.getpid() in inside:
        return ""
    has = {pid: _cpus_here(pid) for pid in (os.getpid(), *others)}
    room = _cpus_of_this_batch_job()
    if sum(has.values()) <= room:
        return ""
    names = ", ".join(f"`{inspecting.command_of(pid)}` (pid {pid}, with {has[pid]:g} CPUs)" for pid in others)
    each = max(1, room // len(has))
    return (
        f"on {os.uname().nodename} this job shares processors with {names}: this one counts on {has[os.getpid()]:g} "
        f"CPUs, and the batch job has {room} there. Start them one after the other, start each with "
        f"{configuration.NUM_CPUS}={each}, or give each a part of the node: srun --exact -N 1 -n 1 -c {each} ..."
    )


def _is_of_this_batch_job(pid: int) -> bool:
    return any(has_variable(pid, name, value) for name, value in configuration.batch_job_variables())


def _shares_processors(pid: int) -> bool:
    try:
        return bool(os.sched_getaffinity(pid) & os.sched_getaffinity(0))
    except OSError:  # it has ended
        return False


def _cpus_here(pid: int) -> float:
    """Return the number of CPUs of this host that a job counts on; 0 if it has ended."""
    try:
        glance = inspecting.ask(pid, Glance())
    except (LaunchError, LookupError):
        glance = None
    nodes = glance.nodes if glance is not None else ()
    return float(sum(one.cpus for one in nodes if one.name == os.uname().nodename))


def _cpus_of_this_batch_job() -> int:
    """Return the number of CPUs that the batch job has on this host: a step of it may have fewer."""
    own = from_environment(configuration.environment())
    name = os.uname().nodename.partition(".")[0]
    stated = [cpus for node, cpus in zip(own.nodes, own.cpus, strict=False) if node.partition(".")[0] == name]
    return min([len(os.sched_getaffinity(0)), *stated]) if stated else machine.cpu_count()
