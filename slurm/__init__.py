"""Batch systems: allocations, jobs, and the end of a job's time.

Imports nothing else of mpi_runtime. Slurm, Grid Engine, PBS, LSF, Flux and OAR.

- `environment.py`: the only reader of the environment in this package
- `allocation.py`: the allocation of a job: nodes, CPUs, GPUs, memory
- `nodelist.py`: Slurm's short forms for names and counts
- `request.py`: the request for a job
- `status.py`: the status of a job
- `systems/`: the batch systems, a module each
- `script.py`: the text of a batch script for a request
- `bounds.py`: the most that a job has, by its request
- `profiles.py`: options that a user needs often, in a TOML file
- `jobs.py`: submits jobs and asks for their status
- `commands.py`: runs commands of the batch system, and explains failures
- `following.py`: follows a job to its end: output, progress, exit code
- `executor.py`: an executor whose calls are jobs
- `job.py`: its futures, and how they learn what has become of their jobs
- `calls.py`: the files with calls and results
- `call_program.py`: the program of such a job
- `exit_file.py`: the file in which a submitted program leaves its exit code
- `walltime.py`: callbacks before the job's time ends, and requeueing
- `end_of_time.py`: how to ask for the end of a job's time
- `diagnosis.py`: finds what is wrong with a launch, for `mpi-runtime doctor`
"""

if __name__ != "mpi_runtime.slurm":
    raise ImportError("import this package as mpi_runtime.slurm, not by its folder's name")

from typing import TYPE_CHECKING, Any

from mpi_runtime.slurm.allocation import Allocation
from mpi_runtime.slurm.commands import SlurmError
from mpi_runtime.slurm.following import follow
from mpi_runtime.slurm.jobs import status, statuses, submit
from mpi_runtime.slurm.request import Request
from mpi_runtime.slurm.status import Status
from mpi_runtime.slurm.walltime import allocation, before_walltime, end_time, requeue

if TYPE_CHECKING:
    from mpi_runtime.slurm.calls import DelayedSubmission, JobError
    from mpi_runtime.slurm.executor import Executor
    from mpi_runtime.slurm.job import Job
else:
    _HOMES = {"DelayedSubmission": "calls", "Executor": "executor", "Job": "job", "JobError": "calls"}

    def __getattr__(name: str) -> Any:
        """Load what only programs with an executor need. This package does not know the face of others."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


__all__ = [
    "Allocation",
    "DelayedSubmission",
    "Executor",
    "Job",
    "JobError",
    "Request",
    "SlurmError",
    "Status",
    "allocation",
    "before_walltime",
    "end_time",
    "follow",
    "requeue",
    "status",
    "statuses",
    "submit",
]
