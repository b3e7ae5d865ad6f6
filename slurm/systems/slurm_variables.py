"""The allocation of a job of Slurm, read from the variables of a process."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from mpi_runtime.slurm import nodelist
from mpi_runtime.slurm.systems import devices, variables
from mpi_runtime.slurm.systems.system import Allocation

_STEPS_MAX = 1 << 31
"""Step numbers from here on are not of srun: Slurm uses them for batch scripts and shells."""
_PARTS_MAX = 128
"""Slurm: MAX_HET_JOB_COMPS, the most parts of a heterogeneous job."""
T = TypeVar("T")


def allocation(env: Mapping[str, str]) -> Allocation:
    """Read the variables of a job.

    Under mpirun those of a task (`SLURM_PROCID`, `SLURM_NTASKS`) describe the launcher's own daemon, and are not used:
    rank and size are the launcher's (host/launch.py).
    """
    if "SLURM_HET_SIZE" in env:
        # A heterogeneous job: its components in their order, because launchers number ranks in this order.
        ends = [f"_HET_GROUP_{number}" for number in range(variables.read(env, ["SLURM_HET_SIZE"], _parts))]
    else:
        ends = [""]

    def read(name: str, reader: Callable[[str], list[T]]) -> tuple[T, ...]:
        return tuple(variables.read(env, [name + end for end in ends], reader))

    return Allocation(
        system="slurm",
        job=env["SLURM_JOB_ID"],
        nodes=read("SLURM_JOB_NODELIST", nodelist.expand),
        tasks=read("SLURM_TASKS_PER_NODE", nodelist.expand_counts),
        cpus=read("SLURM_JOB_CPUS_PER_NODE", nodelist.expand_counts),
        parts=len(ends),
        step_nodes=tuple(variables.read(env, ["SLURM_STEP_NODELIST"], nodelist.expand)) if is_in_step(env) else (),
        gpus=_gpus(env),
        restarts=variables.number(env.get("SLURM_RESTART_COUNT")) or 0,
        array_task=variables.number(env.get("SLURM_ARRAY_TASK_ID")),
        end_s=variables.number(env.get("SLURM_JOB_END_TIME")),
    )


def is_in_step(env: Mapping[str, str]) -> bool:
    """Whether srun has started a process, or a process above it."""
    step = variables.number(env.get("SLURM_STEP_ID"))
    return step is not None and step < _STEPS_MAX


def _gpus(env: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the GPUs of the process, else of its step. Those of the job are right only on the batch script's node."""
    for name in (*devices.OF_JOB, "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"):
        if name == "SLURM_JOB_GPUS" and env.get("SLURM_NODEID", "0") != "0":
            continue
        if name in env:
            return variables.ids(env[name])
    return None


def _parts(text: str) -> int:
    """Read the number of parts of a heterogeneous job."""
    found = variables.number(text) or 0
    if not 1 <= found <= _PARTS_MAX:
        raise ValueError(f"a job has 1 to {_PARTS_MAX} parts")
    return found
