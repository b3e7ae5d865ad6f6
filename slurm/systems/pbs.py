"""OpenPBS, PBS Pro and Torque: the allocation of a job and the end of its time. Jobs are not submitted to them yet."""

import re
from collections.abc import Mapping

from mpi_runtime.slurm.systems import devices, variables
from mpi_runtime.slurm.systems.system import Allocation, Question

NAME: str = "pbs"


def is_around(env: Mapping[str, str]) -> bool:
    """Whether this is the environment of a job of PBS."""
    return bool(env.get("PBS_JOBID"))


def allocation(env: Mapping[str, str]) -> Allocation:
    """Read the variables of a job. Its node file has a line for each task."""
    tasks = variables.read(env, ["PBS_NODEFILE"], variables.names_in)
    cpus = variables.number(env.get("PBS_NUM_PPN")) or variables.number(env.get("NCPUS"))
    return Allocation(
        system=NAME,
        job=env["PBS_JOBID"],
        nodes=tuple(tasks),
        tasks=tuple(tasks.values()),
        cpus=(cpus,) * len(tasks) if cpus else (),
        gpus=devices.listed(env),
        array_task=variables.number(env.get("PBS_ARRAY_INDEX") or env.get("PBS_ARRAYID")),
    )


def question(own: Allocation) -> Question:
    """Ask qstat for the time that was requested, and the start."""
    return ["qstat", "-f", own.job], _end


def _end(text: str, now: float) -> float | None:
    """Add the requested time to the job's start; if the start is not stated, subtract the used time."""
    facts = dict(re.findall(r"^\s+(\S+) = (.+?)\s*$", text, re.MULTILINE))
    limit = variables.seconds(facts.get("Resource_List.walltime", ""))
    used = variables.seconds(facts.get("resources_used.walltime", ""))
    began = variables.time(facts.get("stime") or facts.get("start_time", ""), "%a %b %d %H:%M:%S %Y")
    if limit is None:
        return None
    if began is not None:
        return began + limit
    return None if used is None else now + limit - used
