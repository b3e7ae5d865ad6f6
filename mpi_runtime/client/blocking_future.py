"""The futures that this package makes. Apart from `refs.py`, because `concurrent.futures` is slow to load."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from mpi_runtime.client import current

T = TypeVar("T")


class BlockingFuture(Future[T]):
    """One whose `result` and `exception` give up the CPU of a task that waits in them, as `get` does."""

    def result(self, timeout: float | None = None) -> T:
        """The result; `TimeoutError` if it is not there within `timeout` seconds."""
        with nullcontext() if self.done() else blocked():
            return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What was raised, or None; `TimeoutError` if that is not known within `timeout` seconds."""
        with nullcontext() if self.done() else blocked():
            return super().exception(timeout)


def blocked() -> AbstractContextManager[None]:
    """While entered this thread waits for what other processes do: if it is a task's, its CPU is given up."""
    client = current.client_or_none()
    return nullcontext() if client is None else client.line.blocked()
