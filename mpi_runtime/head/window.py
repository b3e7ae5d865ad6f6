"""The window of a job: a local socket at which other programs of the same user see its state.

A program that connects gets one message at once, and the window reads nothing. The address is abstract: it is not in
the file system or on a network, and disappears with its process, however that ends. Any user of the host can connect,
so the window asks the kernel for the user of each connection (SO_PEERCRED), and answers only the job's user and root.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Callable

import msgspec

from mpi_runtime.agent.poller import Poller

BACKLOG = 8
_CREDENTIALS = struct.Struct("3i")


def prefix() -> str:
    """Return the prefix of the addresses of this user's jobs; the process id of the driver follows."""
    return f"mpi_runtime-job-{os.geteuid()}-"


def user_of(connection: socket.socket) -> int:
    """Return the user id of the other end."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(found)[1])


class Window:
    """A socket that answers as long as the job runs."""

    def __init__(self, poller: Poller, driver: int, answer: Callable[[], object]) -> None:
        """Open the socket. If the system refuses, the job runs without a window.

        Args:
            poller: of the head.
            driver: its process id.
            answer: returns the state of the job, in types of msgpack.
        """
        self._poller = poller
        self._answer = answer
        self._socket: socket.socket | None = None
        with contextlib.suppress(OSError):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            self._socket.bind(f"\0{prefix()}{driver}")
            self._socket.listen(BACKLOG)
            poller.add(self._socket, self._on_visitors)
            return
        self.close()

    def _on_visitors(self) -> None:
        assert self._socket is not None
        for _ in range(BACKLOG):
            try:
                visitor, _ = self._socket.accept()
            except OSError:
                return
            with visitor, contextlib.suppress(OSError):  # it may have closed the connection
                if user_of(visitor) in (0, os.geteuid()):
                    data = msgspec.msgpack.encode(self._answer())
                    visitor.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, len(data) + 4096)
                    visitor.setblocking(False)
                    visitor.sendall(data)  # it fits into the buffer of a new connection

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._poller.remove(self._socket)
            self._socket.close()
            self._socket = None
