"""Bulk data between ranks: in chunks, a few of them in flight, in order.

A count over 2**31 fails on Open MPI, and an MPI library that copies a whole message within one call would keep the rank
from answering. The figures were measured by `benchmarks/transport.py`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from mpi_runtime.transport.base import TransportError

CHUNK_BYTES = 16 << 20
WINDOW = 2
"""Chunks in flight for each transfer."""


class Request(Protocol):
    """What MPI gives for a message under way."""

    def Test(self) -> bool:
        """Whether it is done; moves it on."""


class Owner(Protocol):
    """What a transfer needs of its transport."""

    transfers_active: int
    flowed_at: float
    """When a transfer has moved last."""

    @property
    def mpi_error(self) -> type[Exception]:
        """What MPI raises."""

    def translate(self, error: Any, doing: str, peer: int | None) -> TransportError:
        """What that means to our callers."""


class Bulk:
    """A transfer in chunks: a few requests in flight, in order."""

    __slots__ = ("_active", "_at", "_buffer", "_owner", "_peer", "_requests", "_start")

    def __init__(self, owner: Owner, peer: int, buffer: memoryview, start: Callable[[memoryview], Request]):
        self._owner = owner
        self._peer = peer
        self._buffer = buffer
        self._start = start
        self._at = 0
        self._requests: deque[Request] = deque()
        self._active = True
        owner.transfers_active += 1
        # An empty buffer travels as one empty message: to have received means that the other side has sent.
        self._post()
        while len(self._requests) < WINDOW and self._at < len(buffer):
            self._post()

    def _post(self) -> None:
        chunk = self._buffer[self._at : self._at + CHUNK_BYTES]
        self._at += len(chunk)
        try:
            self._requests.append(self._start(chunk))
        except self._owner.mpi_error as error:
            raise self._failed(error) from error

    def _failed(self, error: Any) -> TransportError:
        self._active = False
        self._owner.transfers_active -= 1
        return self._owner.translate(error, "move bulk data", self._peer)

    def done(self) -> bool:
        """See `Transfer.done`."""
        if not self._active:
            return True
        requests = self._requests
        try:
            while requests and requests[0].Test():
                self._owner.flowed_at = time.monotonic()
                requests.popleft()
                if self._at < len(self._buffer):
                    self._post()
        except self._owner.mpi_error as error:
            for request in requests:  # none may write into the buffer any more
                with suppress(self._owner.mpi_error):
                    request.Test()
            raise self._failed(error) from error
        if requests:
            return False
        self._active = False
        self._owner.transfers_active -= 1
        return True
