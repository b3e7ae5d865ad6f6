"""The client of this process, set by `init()` or by an executor: the only global state of the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mpi_runtime.errors import RuntimeNotInitializedError

if TYPE_CHECKING:
    from mpi_runtime.core.client.client import Client, Executor

OUTSIDE = (
    "This process runs calls with own_scheduler=True, and no such call is running: it has ended, or its arguments are "
    "being read. References, handles and threads work inside the call that made them, and are not passed in or out."
)
report_values: Callable[[Client], None] | None = None
"""Sends what this process has recorded in metrics, before a result and before the process ends; None: it has none."""
_client: Client | None = None
_disowned = False
_aside: Client | None = None
"""The client of an executor whose calls have schedulers of their own, which user code must not use."""


def client() -> Client:
    """Return the client of this process.

    Raises:
        RuntimeNotInitializedError: `init()` was not called, and this is not an executor.
    """
    if _client is None:
        raise RuntimeNotInitializedError(OUTSIDE) if _aside is not None else RuntimeNotInitializedError
    return _client


def client_or_none() -> Client | None:
    """Return the client of this process; None: no job runs, or each call of this executor has one of its own."""
    return _client


def executor() -> Executor:
    """Return the executor of this process. Only code that runs in an executor may call this."""
    found = client().executor
    assert found is not None
    return found


def set_client(client: Client | None) -> None:
    """Begin a job in this process, or with None end it."""
    global _client, _disowned
    _client = client
    _disowned = False


def set_aside(client: Client) -> None:
    """Keep the client of this process from user code: each call of this executor brings a scheduler of its own."""
    global _aside
    _aside = client


def aside() -> Client | None:
    """Return the client that was set aside; None: this process has none."""
    return _aside


def disown() -> None:
    """Forget the client, since this process is a forked child."""
    global _client, _disowned, _aside
    _disowned = _disowned or _client is not None
    _client = _aside = None


def is_disowned() -> bool:
    """Whether this is a forked child of a process with a client, and has no client of its own."""
    return _disowned
