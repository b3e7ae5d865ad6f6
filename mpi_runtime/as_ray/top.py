"""Names of the module `ray` that have no meaning in this runtime, or other names of arguments."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import mpi_runtime
from mpi_runtime.as_ray.ray_logger import logger as logger
from mpi_runtime.config import RAY_LOGGING, RAY_VERSION, environment

if TYPE_CHECKING:
    from mpi_runtime.as_ray.job_config import JobConfig

__version__ = environment().get(RAY_VERSION, "2.60.0")
"""The version of Ray whose API is followed. Libraries compare it with the version that they need."""

__commit__ = ""
"""Ray has the commit of its sources here. This package contains none of them."""

ObjectID = mpi_runtime.ObjectRef


class Language(enum.Enum):
    """The programming language of a function."""

    PYTHON = 0
    JAVA = 1
    CPP = 2


_init: Callable[..., mpi_runtime.Context] = mpi_runtime.init


def init(
    *arguments: object, logging_config: object = None, job_config: JobConfig | None = None, **options: object
) -> mpi_runtime.Context:
    """As `mpi_runtime.init`; the variable RAY_LOGGING_CONFIG_ENCODING stands for a `LoggingConfig`."""
    encoding = environment().get(RAY_LOGGING)
    if logging_config is None and encoding:
        from mpi_runtime.as_ray.logging_config import LoggingConfig  # not at the top: few programs use it

        logging_config = LoggingConfig(encoding)  # type: ignore[arg-type]  # it checks it
    if job_config is not None:
        options = job_config.arguments(options)
    context = _init(*arguments, logging_config=logging_config, **options)
    context.ray_version, context.ray_commit = __version__, __commit__  # type: ignore[attr-defined]  # only Ray's has it
    return context


init.__wrapped__ = mpi_runtime.init  # type: ignore[attr-defined]  # for its signature


def nodes() -> list[dict[str, Any]]:
    """As `mpi_runtime.nodes`, also with the older key "alive"."""
    found = mpi_runtime.nodes()
    for node in found:
        node["alive"] = node["Alive"]
    return found


def get(object_refs: Any, **options: Any) -> Any:
    """As `mpi_runtime.get`."""
    return mpi_runtime.get(object_refs, **options)


def wait(ray_waitables: Any, **options: Any) -> Any:
    """As `mpi_runtime.wait`."""
    return mpi_runtime.wait(ray_waitables, **options)


def cancel(ray_waitable: Any, **options: Any) -> None:
    """As `mpi_runtime.cancel`."""
    mpi_runtime.cancel(ray_waitable, **options)


def shutdown(*, wait_for_processes: bool = True, _exiting_interpreter: bool = False) -> None:
    """As `mpi_runtime.shutdown`, which always waits for the processes."""
    mpi_runtime.shutdown()


SCRIPT_MODE, WORKER_MODE, LOCAL_MODE, SPILL_WORKER_MODE, RESTORE_WORKER_MODE = range(5)

__all__ = [
    *("LOCAL_MODE", "RESTORE_WORKER_MODE", "SCRIPT_MODE", "SPILL_WORKER_MODE", "WORKER_MODE"),
    *("Language", "ObjectID", "__commit__", "__version__"),
    *("cancel", "get", "init", "logger", "nodes", "shutdown", "wait"),
]
