"""The allocation of a job, read from the environment of one of its processes: Slurm, PBS, LSF, Grid Engine.

Only variables that describe the job are used. Under mpirun, Slurm's variables of a task (`SLURM_PROCID`,
`SLURM_NTASKS`) describe the launcher's own daemon; rank and size come from the launcher (host/launch.py).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mpi_runtime.slurm import nodelist

_STEPS_MAX = 1 << 31
"""Step numbers from here on are not of srun: Slurm uses them for batch scripts and shells."""


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


def from_environment(env: Mapping[str, str]) -> Allocation:
    """Return the allocation that the environment of a process describes."""
    for name, read in (("SLURM_JOB_ID", _slurm), ("PBS_JOBID", _pbs), ("LSB_JOBID", _lsf), ("PE_HOSTFILE", _sge)):
        if env.get(name):
            return read(env)
    return Allocation()


def first_part(env: Mapping[str, str]) -> Allocation:
    """Return the part of a heterogeneous job that launchers know; of any other job all."""
    return from_environment({name: value for name, value in env.items() if name != "SLURM_HET_SIZE"})


def is_in_step(env: Mapping[str, str]) -> bool:
    """Whether srun has started a process, or a process above it."""
    step = env.get("SLURM_STEP_ID", "")
    return step.isdecimal() and int(step) < _STEPS_MAX


def _slurm(env: Mapping[str, str]) -> Allocation:
    if "SLURM_HET_SIZE" in env:
        # A heterogeneous job: its components in their order, because launchers number ranks in this order.
        suffixes = [f"_HET_GROUP_{number}" for number in range(int(env["SLURM_HET_SIZE"]))]
    else:
        suffixes = [""]
    return Allocation(
        system="slurm",
        job=env["SLURM_JOB_ID"],
        nodes=tuple(name for end in suffixes for name in nodelist.expand(env.get("SLURM_JOB_NODELIST" + end, ""))),
        tasks=tuple(n for end in suffixes for n in nodelist.expand_counts(env.get("SLURM_TASKS_PER_NODE" + end, ""))),
        cpus=tuple(n for end in suffixes for n in nodelist.expand_counts(env.get("SLURM_JOB_CPUS_PER_NODE" + end, ""))),
        parts=len(suffixes),
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
    tasks = Counter(words[0] for words in _words(env.get("PBS_NODEFILE", "")))
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
    words = env.get("LSB_MCPU_HOSTS", "").split()
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
    hosts = [words for words in _words(env["PE_HOSTFILE"]) if len(words) > 1]
    slots = tuple(_number(words[1]) or 0 for words in hosts)
    return Allocation(
        system="sge",
        job=env.get("JOB_ID", ""),
        nodes=tuple(words[0] for words in hosts),
        tasks=slots,
        cpus=slots,
        array_task=_number(env.get("SGE_TASK_ID")),  # "undefined" if there is no array
    )


def _words(path: str) -> list[list[str]]:
    """Return the words of each line of a file; nothing if it cannot be read."""
    try:
        return [line.split() for line in Path(path).read_text().splitlines() if line.strip()]
    except OSError:
        return []


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None
