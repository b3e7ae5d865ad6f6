"""`ray._private.worker`: the few of its names that libraries read. It is internal to Ray."""

from typing import NoReturn

from mpi_runtime import Context, is_initialized
from mpi_runtime.as_ray.top import SCRIPT_MODE, WORKER_MODE
from mpi_runtime.extend import job_or_none


class _Worker:
    """The state of this process, as far as libraries read it."""

    @property
    def connected(self) -> bool:
        return is_initialized()

    @property
    def mode(self) -> int | None:
        client = job_or_none()
        return None if client is None else SCRIPT_MODE if client.executor is None else WORKER_MODE

    def check_connected(self) -> None:
        if not self.connected:
            raise RuntimeError("the job has not been started: call init() first")

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"global_worker.{name} is internal to Ray, and not here: see get_runtime_context()", name=name
        )


def get_dashboard_url() -> str:
    """The address of the dashboard: empty, as in Ray without one. `mpi-runtime view` shows the job."""
    return ""


global_worker = _Worker()
BaseContext = RayContext = Context

__all__ = ["BaseContext", "RayContext", "get_dashboard_url", "global_worker"]
