"""Values as messages bring them to a client."""

from __future__ import annotations

from mpi_runtime.scheduler.effects import Entry, ReadyError, ReadyFailed, ReadyStored


def is_error(entry: Entry | None) -> bool:
    """Whether `get` would raise an error."""
    if isinstance(entry, ReadyStored):
        return entry.is_error
    return isinstance(entry, (ReadyError, ReadyFailed))
