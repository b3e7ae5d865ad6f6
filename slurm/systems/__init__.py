"""Batch systems, a module each.

- `system.py`: what this package knows of each: `System`, and `Queue` where jobs can be submitted; `Allocation`
- `variables.py`: reads the variables and files that they give to jobs
- `devices.py`: the variables with the GPUs of a job
- `slurm.py`: Slurm
- `slurm_variables.py`: the allocation of a job of Slurm
- `pbs.py`: OpenPBS, PBS Pro and Torque
- `lsf.py`: LSF
- `flux.py`: Flux
- `sge.py`: Grid Engine
- `sge_jobs.py`: jobs of Grid Engine: qsub, qstat, qacct, qdel
- `oar.py`: OAR
- `lives.py`: what PBS, LSF, Flux and OAR have in common: the output, a clock, a job that continues as another one
"""

import shutil
from collections.abc import Mapping

from mpi_runtime.slurm.systems import flux, lsf, oar, pbs, sge, slurm
from mpi_runtime.slurm.systems.system import Queue, System

_ALL: tuple[Queue, ...] = (flux, slurm, pbs, lsf, sge, oar)
"""In the order in which they are looked for in a job: a Flux may run in a job of another system."""
_HERE: tuple[Queue, ...] = (slurm, sge, pbs, lsf, flux, oar)
"""In the order in which they are looked for on a host."""
_QUEUES: Mapping[str, Queue] = {one.NAME: one for one in _HERE}


def around(env: Mapping[str, str]) -> System | None:
    """Return the batch system whose job has this environment; None: this is not a job."""
    return next((system for system in _ALL if system.is_around(env)), None)


def for_launcher(env: Mapping[str, str]) -> Mapping[str, str]:
    """Return variables that MPI's launchers need in the job with this environment to reach its other nodes."""
    system = around(env)
    return {} if system is None else system.LAUNCHER


def named(name: str) -> System | None:
    """Return the batch system of this name, or None if no system has it."""
    return next((system for system in _ALL if name == system.NAME), None)


def queue(name: str) -> Queue:
    """Return the batch system of this name, to which jobs can be submitted.

    Raises:
        ValueError: there is no such system.
    """
    if name not in _QUEUES:
        raise ValueError(f"system must be one of {', '.join(_QUEUES)}, not {name!r}")
    return _QUEUES[name]


def present(env: Mapping[str, str]) -> str:
    """Return the name of the batch system for jobs: that of this job, else the one installed here, else Slurm."""
    system = around(env)
    if system is not None and system.NAME in _QUEUES:
        return system.NAME
    found = (name for name, one in _QUEUES.items() if shutil.which(one.COMMAND, path=env.get("PATH")))
    return next(found, slurm.NAME)


def can_requeue(name: str) -> bool:
    """Whether a job of the batch system of this name can queue itself again."""
    return name in _QUEUES


def can_wait(message: str) -> bool:
    """Whether an error message means that the same request may succeed later: out of reach, or too many jobs."""
    if is_passing(message) or "has not answered" in message:
        return True
    return any(words in message.lower() for one in _QUEUES.values() for words in one.FULL)


def is_passing(message: str) -> bool:
    """Whether an error message means that a batch system is out of reach for a while."""
    return any(words in message.lower() for one in _QUEUES.values() for words in one.PASSING)
