"""Bulk data between ranks, in chunks: a few are in flight at a time, and they arrive in order.

Open MPI fails if a count is over 2**31. And if an MPI library copied a large message within one call, the rank could
not answer meanwhile. The sizes were measured by `benchmarks/transport.py`.
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
    """MPI's handle of a message in progress."""

    def Test(self, status: Any = None) -> bool:
        """Make progress, and return whether the message is complete."""


class Owner(Protocol):
    """The part of the transport that a transfer uses."""

    transfers_active: int
    flowed_at: float
    """The time at which a transfer last made progress (`time.monotonic`)."""

    @property
    def mpi_error(self) -> type[Exception]:
        """The class of MPI's exceptions."""

    def translate(self, error: Any, doing: str, peer: int | None) -> TransportError:
        """Return our error for an exception of MPI."""


class Bulk:
    """A `Transfer` in chunks, with a few requests in flight."""

    __slots__ = ("_active", "_at", "_buffer", "_owner", "_peer", "_requests", "_start", "_status", "received")

    def __init__(
        self,
        owner: Owner,
        peer: int,
        buffer: memoryview,
        start: Callable[[memoryview], Request],
        status: Any = None,
    ):
        """Move a buffer. `start` moves one chunk. With an MPI status, received bytes are counted."""
        self._status = status
        self.received = 0
        self._owner = owner
        self._peer = peer
        self._buffer = buffer
        self._start = start
        self._at = 0
        self._requests: deque[Request] = deque()
        self._active = True
        owner.transfers_active += 1
        # An empty buffer is sent as one empty message, so that the receiver knows that the sender has sent it.
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
        if not self._active:
            return True
        requests = self._requests
        try:
            while requests and requests[0].Test(self._status):
                self._owner.flowed_at = time.monotonic()
                if self._status is not None:
                    self.received += self._status.count
                requests.popleft()
                if self._at < len(self._buffer):
                    self._post()
        except self._owner.mpi_error as error:
            for request in requests:  # complete them, so that none writes into the buffer later
                with suppress(self._owner.mpi_error):
                    request.Test()
            raise self._failed(error) from error
        if requests:
            return False
        self._active = False
        self._owner.transfers_active -= 1
        return True
