"""The client for public calls: that of the running job, or of a new job, which starts as by `init()`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpi_runtime.core.client import current
from mpi_runtime.errors import RuntimeNotInitializedError

if TYPE_CHECKING:
    from mpi_runtime.core.client.client import Client


def client() -> Client:
    """The client of this process. Starts a job with defaults if no job runs.

    Raises:
        RuntimeNotInitializedError: this is a forked child of a process of a job; or an executor of calls that bring
            their own scheduler, between two calls.
    """
    found = current.client_or_none()
    if found is None:
        if current.is_disowned():
            raise RuntimeNotInitializedError(
                "This process was forked from a process of a job, and cannot use its parent's connection. Let "
                "the parent make the calls, or start a separate job here with init()."
            )
        if current.aside() is not None:
            raise RuntimeNotInitializedError(current.OUTSIDE)
        from mpi_runtime import config
        from mpi_runtime.core.driver import session

        with session.changing:
            found = current.client_or_none() or session.start(config.from_init()).client
    return found
