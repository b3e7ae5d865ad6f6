"""The only module of this package that reads the environment."""

import os
from collections.abc import Mapping

from mpi_runtime.slurm.allocation import Allocation, from_environment


def environment() -> Mapping[str, str]:
    """Return a copy of the environment of this process as it is now."""
    return dict(os.environ)


def allocation() -> Allocation:
    """Return what the batch system has granted to the job that this process belongs to."""
    return from_environment(environment())
