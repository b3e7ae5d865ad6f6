"""The client that public calls use: the running one, or a new job's as if `init()` had been called."""

from __future__ import annotations

from mpi_runtime import current
from mpi_runtime.processes.client import Client


def client() -> Client:
    """The client of this process; starts a job with defaults if there is none."""
    found = current.client_or_none()
    if found is None:
        from mpi_runtime import config, session

        found = session.start(config.from_init()).client
    return found
