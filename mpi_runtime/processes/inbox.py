"""The reading end of a client: what has arrived, as frames. Only one thread at a time may use it."""

from __future__ import annotations

import select
import socket
from collections import deque

from mpi_runtime.processes.patience import Patience
from mpi_runtime.transport.channel import READ_BYTES, Frame, Splitter


class Inbox:
    """Reads a connected, blocking socket."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._arrived: deque[bytes] = deque()
        """What was read and has not been looked at."""
        self._splitter = Splitter()
        self.patience = Patience()
        self.is_closed = False
        """Whether the other end is gone."""

    def read(self, timeout_s: float | None) -> None:
        """Read once, waiting up to the time given."""
        patience = self.patience
        try:
            if patience.begin(timeout_s):
                while not self._read_now(socket.MSG_DONTWAIT) and patience.look_again():
                    pass
            if not self._arrived and (timeout_s is None or select.select([self._socket], [], [], timeout_s)[0]):
                self._read_now(0)
        except OSError:
            self._arrived.append(b"")
        patience.end()

    def _read_now(self, flags: int) -> bool:
        try:
            # Reading and noting are one call: Ctrl-C may come before it or after it, not between.
            self._arrived.extend(map(self._socket.recv, (READ_BYTES,), (flags,)))
        except BlockingIOError:
            return False
        return True

    def frames(self) -> list[Frame] | None:
        """The whole frames in what was read; None if nothing was."""
        if not self._arrived:
            return None
        data = self._arrived.popleft()
        if not data:
            self.is_closed = True
        return self._splitter.feed(data)
