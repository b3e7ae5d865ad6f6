"""The reading end of a client: frames that have arrived. One thread at a time may use it."""

from __future__ import annotations

import select
import socket
from collections import deque

from mpi_runtime.core.client.interrupts import is_of_handler
from mpi_runtime.core.transport.channel import READ_BYTES, Frame, Splitter
from mpi_runtime.core.transport.patience import Patience


class Inbox:
    """Reads a connected, blocking socket."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._arrived: deque[bytes] = deque()
        """Bytes that were read and not handled."""
        self._splitter = Splitter()
        self.patience = Patience()
        self.is_closed = False
        """Whether the other end has closed."""

    def read(self, timeout_s: float | None, also: int = -1) -> None:
        """Read once, waiting up to the time given, or until there is something to read from another descriptor.

        Python checks for signals before it waits, and a signal between the two does not end the wait. If a signal must
        not be missed, its sender writes to a pipe first.
        """
        patience = self.patience
        try:
            if patience.begin(timeout_s):
                while not self._read_now(socket.MSG_DONTWAIT) and patience.look_again():
                    pass
            if not self._arrived:
                watched = [self._socket.fileno(), *[also] * (also >= 0)]
                at_once = timeout_s is None and also < 0  # then the read itself waits
                if at_once or watched[0] in select.select(watched, [], [], timeout_s)[0]:
                    self._read_now(0)
        except OSError as error:
            if is_of_handler(error):
                raise
            self._arrived.append(b"")
        patience.end()

    def _read_now(self, flags: int) -> bool:
        try:
            # Reading and noting are one call, so that Ctrl-C cannot separate them.
            self._arrived.extend(map(self._socket.recv, (READ_BYTES,), (flags,)))
        except BlockingIOError:
            return False
        return True

    def frames(self) -> list[Frame] | None:
        """The complete frames in what was read; None if nothing was read."""
        if not self._arrived:
            return None
        data = self._arrived.popleft()
        frames = self._splitter.feed(data)
        if not data or self._splitter.problem:  # another reader has taken bytes from our socket: the rest is lost
            self.is_closed = True
        return frames
