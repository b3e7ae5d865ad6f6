"""What a client knows of a value: the message that brought it."""

from __future__ import annotations

from mpi_runtime.scheduler.effects import Ready, ReadyElsewhere, ReadyError, ReadyFailed, ReadyStored

Entry = Ready | ReadyStored | ReadyError | ReadyFailed | ReadyElsewhere


def is_error(entry: Entry | None) -> bool:
    """Whether `get` would raise it."""
    if isinstance(entry, ReadyStored):
        return entry.is_error
    return isinstance(entry, (ReadyError, ReadyFailed))
