"""The allocation of a job, read from the environment of one of its processes: Slurm, PBS, LSF, Grid Engine.

Only variables that describe the job are used. Under mpirun, Slurm's variables of a task (`SLURM_PROCID`,
`SLURM_NTASKS`) describe the launcher's own daemon; rank and size come from the launcher (host/launch.py).
"""

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mpi_runtime.slurm import nodelist

_STEPS_MAX = 1 << 31
"""Step numbers from here on are not of srun: Slurm uses them for batch scripts and shells."""
_PARTS_MAX = 128
"""Slurm: MAX_HET_JOB_COMPS, the most parts of a heterogeneous job."""
_FILE_BYTES_MAX = 32 << 20
"""The largest file of hosts that is read: a million tasks on hosts with names of 30 letters."""
_DIGITS_MAX = 19
"""Longer numbers do not fit into 64 bits."""
T = TypeVar("T")


class AllocationError(ValueError):
    """The variables of a batch system make no sense. The message names the variable."""


@dataclass(frozen=True)
class Allocation:
    """The resources that a batch system has granted to a job. Fields that it does not state are empty or None."""

    system: str = ""
    """The batch system: "slurm", "pbs", "lsf" or "sge"; empty outside of a job."""
    job: str = ""
    """The id of the job in the batch system."""
    nodes: tuple[str, ...] = ()
    """Names of the nodes; the node of the batch script comes first."""
    tasks: tuple[int, ...] = ()
    """The number of tasks (ranks) requested, for each node."""
    cpus: tuple[int, ...] = ()
    """The number of CPUs of the job, for each node."""
    gpus: tuple[str, ...] | None = None
    """The GPUs that this process may use, by number or id; None: not stated."""
    restarts: int = 0
    """How often the job was requeued and has started again."""
    array_task: int | None = None
    """The index of this task in a job array; None: there is no array."""
    end_s: float | None = None
    """The end of the job's time, in seconds since 1970. Slurm states it since 23.02; see `end_time`."""
    parts: int = 1
    """The number of parts of a heterogeneous job of Slurm; any other job has one."""
    step_nodes: tuple[str, ...] = ()
    """Names of the nodes of the step of Slurm that srun has started this process in; empty: it is in none."""


def from_environment(env: Mapping[str, str]) -> Allocation:
    """Return the allocation that the environment of a process describes.

    Raises:
        AllocationError: a variable makes no sense.
    """
    for name, read in (("SLURM_JOB_ID", _slurm), ("PBS_JOBID", _pbs), ("LSB_JOBID", _lsf), ("PE_HOSTFILE", _sge)):
        if env.get(name):
            return read(env)
    return Allocation()


def first_part(env: Mapping[str, str]) -> Allocation:
    """Return the part of a heterogeneous job that launchers know; of any other job all."""
    return from_environment({name: value for name, value in env.items() if name != "SLURM_HET_SIZE"})


def is_in_step(env: Mapping[str, str]) -> bool:
    """Whether srun has started a process, or a process above it."""
    step = _number(env.get("SLURM_STEP_ID"))
    return step is not None and step < _STEPS_MAX


def _slurm(env: Mapping[str, str]) -> Allocation:
    if "SLURM_HET_SIZE" in env:
        # A heterogeneous job: its components in their order, because launchers number ranks in this order.
        ends = [f"_HET_GROUP_{number}" for number in range(_of(env, ["SLURM_HET_SIZE"], _parts))]
    else:
        ends = [""]

    def read(name: str, reader: Callable[[str], list[T]]) -> tuple[T, ...]:
        return tuple(_of(env, [name + end for end in ends], reader))

    return Allocation(
        system="slurm",
        job=env["SLURM_JOB_ID"],
        nodes=read("SLURM_JOB_NODELIST", nodelist.expand),
        tasks=read("SLURM_TASKS_PER_NODE", nodelist.expand_counts),
        cpus=read("SLURM_JOB_CPUS_PER_NODE", nodelist.expand_counts),
        parts=len(ends),
        step_nodes=tuple(_of(env, ["SLURM_STEP_NODELIST"], nodelist.expand)) if is_in_step(env) else (),
        gpus=_gpus(env),
        restarts=_number(env.get("SLURM_RESTART_COUNT")) or 0,
        array_task=_number(env.get("SLURM_ARRAY_TASK_ID")),
        end_s=_number(env.get("SLURM_JOB_END_TIME")),
    )


def _gpus(env: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the GPUs of the process, else of its step. Those of the job are right only on the batch script's node."""
    for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"):
        if name == "SLURM_JOB_GPUS" and env.get("SLURM_NODEID", "0") != "0":
            continue
        if name in env:
            return _ids(env[name])
    return None


def _ids(text: str) -> tuple[str, ...]:
    """Split `0,1`. CUDA ends the list at the first entry that is not a device, such as -1."""
    ids = [part.strip() for part in text.split(",")]
    return tuple(ids[: ids.index("-1")] if "-1" in ids else filter(None, ids))


def _pbs(env: Mapping[str, str]) -> Allocation:
    """Read OpenPBS, PBS Pro and Torque: the node file has a line for each task."""
    tasks = _of(env, ["PBS_NODEFILE"], _names_in)
    cpus = _number(env.get("PBS_NUM_PPN")) or _number(env.get("NCPUS"))
    return Allocation(
        system="pbs",
        job=env["PBS_JOBID"],
        nodes=tuple(tasks),
        tasks=tuple(tasks.values()),
        cpus=(cpus,) * len(tasks) if cpus else (),
        gpus=_ids(env["CUDA_VISIBLE_DEVICES"]) if "CUDA_VISIBLE_DEVICES" in env else None,
        array_task=_number(env.get("PBS_ARRAY_INDEX") or env.get("PBS_ARRAYID")),
    )


def _lsf(env: Mapping[str, str]) -> Allocation:
    """Read LSF: a list of names and slots, `node1 16 node2 16`."""
    words = _of(env, ["LSB_MCPU_HOSTS"], _names_and_slots)
    slots = tuple(_number(word) or 0 for word in words[1::2])
    index = _number(env.get("LSB_JOBINDEX"))
    return Allocation(
        system="lsf",
        job=env["LSB_JOBID"],
        nodes=tuple(words[::2]),
        tasks=slots,
        cpus=slots,
        gpus=_ids(env["CUDA_VISIBLE_DEVICES"]) if "CUDA_VISIBLE_DEVICES" in env else None,
        array_task=index or None,  # 0: no array
    )


def _sge(env: Mapping[str, str]) -> Allocation:
    """Read Grid Engine: a line of the file of hosts has name, slots, queue and processors."""
    hosts = _of(env, ["PE_HOSTFILE"], _hosts_in)
    slots = tuple(_number(words[1]) or 0 for words in hosts)
    return Allocation(
        system="sge",
        job=env.get("JOB_ID", ""),
        nodes=tuple(words[0] for words in hosts),
        tasks=slots,
        cpus=slots,
        array_task=_number(env.get("SGE_TASK_ID")),  # "undefined" if there is no array
    )


def _of(env: Mapping[str, str], names: Sequence[str], read: Callable[[str], T]) -> T:
    """Return what a reader makes of these variables, as one list; it reads an empty text if there are none."""
    text = ",".join(filter(None, (env.get(name) for name in names)))
    try:
        return read(text)
    except ValueError as error:
        what = f"the variable {names[0]} is" if len(names) == 1 else f"the variables {names[0]} to {names[-1]} are"
        raise AllocationError(
            f"{what} {nodelist.shown(text)}, which makes no sense: {error}. Outside of a job unset the variables "
            "of the batch system"
        ) from None


def _parts(text: str) -> int:
    """Read the number of parts of a heterogeneous job."""
    found = _number(text) or 0
    if not 1 <= found <= _PARTS_MAX:
        raise ValueError(f"a job has 1 to {_PARTS_MAX} parts")
    return found


def _names_in(path: str) -> Counter[str]:
    """Read a file with the name of a host in each line: how many lines each has."""
    found: Counter[str] = Counter()
    for words in _lines(path):
        found[words[0]] += 1
        nodelist.check_number(len(found))
    return found


def _hosts_in(path: str) -> list[list[str]]:
    """Read a file with a host in each line: its words."""
    found: list[list[str]] = []
    for words in _lines(path):
        if len(words) > 1:
            found.append(words)
            nodelist.check_number(len(found))
    return found


def _names_and_slots(text: str) -> list[str]:
    words = text.split()
    nodelist.check_number(len(words) // 2)
    return words


def _lines(path: str) -> Iterator[list[str]]:
    """Yield the first two words, and the rest, of each line of a file; nothing if it cannot be read."""
    try:
        file = open(path, errors="surrogateescape", opener=_open_at_once)  # noqa: SIM115  (closed below)
    except (OSError, ValueError):
        return
    with file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > _FILE_BYTES_MAX:
            raise ValueError(f"it must be a file of at most {_FILE_BYTES_MAX >> 20} MiB")
        yield from filter(None, (line.split(None, 2) for line in file))


def _open_at_once(path: str, flags: int) -> int:
    """Open a file. A pipe that nobody writes to would wait."""
    return os.open(path, flags | os.O_NONBLOCK)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) < _DIGITS_MAX else None
