"""The futures of this package. They are not in `object_ref.py`, because `concurrent.futures` is slow to load."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from mpi_runtime.core.client import current

T = TypeVar("T")


class BlockingFuture(Future[T]):
    """A future. A task that waits in `result` or `exception` lends its CPU meanwhile, as in `get`."""

    def result(self, timeout: float | None = None) -> T:
        """Wait for the result and return it, or raise its error; `TimeoutError` after `timeout` seconds."""
        with nullcontext() if self.done() else blocked():
            return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end and return the error, or None; `TimeoutError` after `timeout` seconds."""
        with nullcontext() if self.done() else blocked():
            return super().exception(timeout)


def blocked() -> AbstractContextManager[None]:
    """Return a context in which this thread waits for other processes. If it is a thread of a task, its CPU is lent."""
    client = current.client_or_none()
    return nullcontext() if client is None else client.line.blocked()
