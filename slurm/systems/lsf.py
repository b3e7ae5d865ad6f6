"""LSF: the allocation of a job and the end of its time. Jobs are not submitted to it yet."""

import re
from collections.abc import Mapping

from mpi_runtime.slurm import nodelist
from mpi_runtime.slurm.systems import devices, variables
from mpi_runtime.slurm.systems.system import Allocation, Question

NAME: str = "lsf"


def is_around(env: Mapping[str, str]) -> bool:
    """Whether this is the environment of a job of LSF."""
    return bool(env.get("LSB_JOBID"))


def allocation(env: Mapping[str, str]) -> Allocation:
    """Read the variables of a job, with a list of names and slots, `node1 16 node2 16`."""
    words = variables.read(env, ["LSB_MCPU_HOSTS"], _names_and_slots)
    slots = tuple(variables.number(word) or 0 for word in words[1::2])
    index = variables.number(env.get("LSB_JOBINDEX"))
    return Allocation(
        system=NAME,
        job=env["LSB_JOBID"],
        nodes=tuple(words[::2]),
        tasks=slots,
        cpus=slots,
        gpus=devices.listed(env),
        array_task=index or None,  # 0: no array
    )


def question(own: Allocation) -> Question:
    """Ask bjobs, since LSF 9.1, for the time that is left."""
    job = own.job if own.array_task is None else f"{own.job}[{own.array_task}]"
    return ["bjobs", "-noheader", "-o", "time_left", job], _end


def _end(text: str, now: float) -> float | None:
    """Read hours and minutes, `0:12 L`. Another letter marks an estimate, at which the job does not end."""
    found = re.fullmatch(r"(\d+):(\d+) L", text.strip())
    return now + int(found[1]) * 3600 + int(found[2]) * 60 if found else None


def _names_and_slots(text: str) -> list[str]:
    words = text.split()
    nodelist.check_number(len(words) // 2)
    return words
