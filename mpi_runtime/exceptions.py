"""The exceptions, where programs written for Ray import them."""

from mpi_runtime import errors
from mpi_runtime.errors import *  # noqa: F403
from mpi_runtime.errors import ray as ray_errors
from mpi_runtime.errors.ray import *  # noqa: F403

__all__: list[str] = []
__all__ += errors.__all__
__all__ += ray_errors.__all__
