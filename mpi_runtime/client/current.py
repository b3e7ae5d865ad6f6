"""The client of this process, set by `init()` or by an executor: the only global state of the package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpi_runtime.errors import RuntimeNotInitializedError

if TYPE_CHECKING:
    from mpi_runtime.client.client import Client, Executor

_client: Client | None = None
_disowned = False


def client() -> Client:
    """Return the client of this process.

    Raises:
        RuntimeNotInitializedError: `init()` was not called, and this is not an executor.
    """
    if _client is None:
        raise RuntimeNotInitializedError
    return _client


def client_or_none() -> Client | None:
    """Return the client of this process, or None."""
    return _client


def executor() -> Executor:
    """Return the executor of this process. Only code that runs in an executor may call this."""
    found = client().executor
    assert found is not None
    return found


def set_client(client: Client | None) -> None:
    """Set the client of this process."""
    global _client, _disowned
    _client = client
    _disowned = False


def disown() -> None:
    """Forget the client, since this process is a forked child."""
    global _client, _disowned
    _disowned = _disowned or _client is not None
    _client = None


def is_disowned() -> bool:
    """Whether this is a forked child of a process with a client, and has no client of its own."""
    return _disowned
