"""Batch systems: the allocation of a job, Slurm jobs, and the end of a job's time.

Imports nothing else of mpi_runtime. Allocations of PBS, LSF and Grid Engine are read too. Jobs can be submitted only to
Slurm.
"""

if __name__ != "mpi_runtime.slurm":
    raise ImportError("import this package as mpi_runtime.slurm, not by its folder's name")

from mpi_runtime.slurm.allocation import Allocation
from mpi_runtime.slurm.commands import SlurmError
from mpi_runtime.slurm.environment import allocation
from mpi_runtime.slurm.following import follow
from mpi_runtime.slurm.jobs import Status, status, statuses, submit
from mpi_runtime.slurm.script import Request
from mpi_runtime.slurm.walltime import before_walltime, end_time, requeue

__all__ = [
    "Allocation",
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
