"""Importing this module makes `import ray` give this runtime, here and in children by multiprocessing."""

import sys
from importlib import import_module
from multiprocessing import spawn

from mpi_runtime import errors
from mpi_runtime.as_ray import ray_logger
from mpi_runtime.as_ray.import_system import Finder


class _Import:
    """Imports this module in the process that unpickles it."""

    def __reduce__(self) -> tuple[object, ...]:
        return import_module, (__name__,)


_plain_data = spawn.get_preparation_data


def _preparation_data(name: str) -> dict[str, object]:
    """What a child ("spawn", "forkserver") unpickles before it imports the program."""
    return {**_plain_data(name), "mpi_runtime": _Import()}


spawn.get_preparation_data = _preparation_data
sys.meta_path.insert(0, Finder())
for _name in ("RayActorError", "RayError", "RaySystemError", "RayTaskError"):  # programs and logs show names of errors
    getattr(errors, _name).__name__ = _name
ray_logger.show()
