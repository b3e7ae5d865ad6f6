"""The allocation of a job, read from the environment of one of its processes."""

from collections.abc import Mapping

from mpi_runtime.slurm import systems
from mpi_runtime.slurm.systems.slurm_variables import is_in_step
from mpi_runtime.slurm.systems.system import Allocation, AllocationError

__all__ = ["Allocation", "AllocationError", "first_part", "from_environment", "is_in_step"]


def from_environment(env: Mapping[str, str]) -> Allocation:
    """Return the allocation that the environment of a process describes.

    Raises:
        AllocationError: a variable makes no sense.
    """
    system = systems.around(env)
    return Allocation() if system is None else system.allocation(env)


def first_part(env: Mapping[str, str]) -> Allocation:
    """Return the part of a heterogeneous job that launchers know; of any other job all."""
    return from_environment({name: value for name, value in env.items() if name != "SLURM_HET_SIZE"})
