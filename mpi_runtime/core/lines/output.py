"""What the calls of a driver on another host print, on its own standard output and error."""

from __future__ import annotations

import os
import select

OUTPUT_MAX = 4 << 20
"""Bytes that wait until somebody reads. More is dropped and counted."""


class Output:
    """The standard output or error of the driver. Nobody waits for one that is not read."""

    def __init__(self, stream: int) -> None:
        self.stream = stream
        self.waiting = bytearray()
        self._dropped = 0

    def print(self, data: bytes) -> None:
        """Write this, now or when somebody reads."""
        if len(self.waiting) + len(data) > OUTPUT_MAX:
            self._dropped += len(data)
            return
        if self._dropped and not self.waiting:
            text = f"mpi_runtime: {self._dropped} bytes of output of calls are lost: this program did not read it\n"
            self.waiting += text.encode()
            self._dropped = 0
        self.waiting += data
        self.flush()

    def close(self) -> None:
        """Write nothing more."""
        os.close(self.stream)

    def flush(self) -> None:
        """Write what is taken at once. The descriptor stays blocking, since the driver has it too."""
        waits = select.poll()
        waits.register(self.stream, select.POLLOUT)
        while self.waiting and waits.poll(0):
            try:
                written = os.write(self.stream, memoryview(self.waiting)[: select.PIPE_BUF])
            except BlockingIOError:
                return
            except OSError:  # nobody reads it any more
                written = len(self.waiting)
            del self.waiting[:written]
