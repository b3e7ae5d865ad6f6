"""The one global of the package: the client of this process, set by `init()` or by an executor in itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpi_runtime.errors import RuntimeNotInitializedError

if TYPE_CHECKING:
    from mpi_runtime.processes.client import Client

_client: Client | None = None


def client() -> Client:
    """The client of this process.

    Raises:
        RuntimeNotInitializedError: neither `init()` was called nor is this an executor.
    """
    if _client is None:
        raise RuntimeNotInitializedError
    return _client


def client_or_none() -> Client | None:
    """The client of this process, if there is one."""
    return _client


def set_client(client: Client | None) -> None:
    """Make this the client of the process."""
    global _client
    _client = client
