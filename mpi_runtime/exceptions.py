"""The exceptions, in the module from which programs written for Ray import them."""

from mpi_runtime import errors, ray_errors
from mpi_runtime.errors import *  # noqa: F403
from mpi_runtime.ray_errors import *  # noqa: F403

__all__: list[str] = []
__all__ += errors.__all__
__all__ += ray_errors.__all__
