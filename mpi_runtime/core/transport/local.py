"""Connections to local addresses, the abstract ones of Unix sockets, and the users at their other ends.

`session pipe` starts with each line, so this module loads little.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time

from mpi_runtime.errors import LaunchError

LIMIT_S = 10.0
"""How long the other end may take to accept or to answer: it may be busy."""
_CREDENTIALS = struct.Struct("3i")


def user_of(connection: socket.socket) -> int:
    """Return the user id of the other end."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(found)[1])


def reached(address: str) -> socket.socket:
    """Connect to a local address within a time. If too many wait for a connection, the kernel answers EAGAIN.

    Raises:
        LaunchError: the address is used by another user.
        OSError: there is no such address.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(LIMIT_S)
        end_s = time.monotonic() + LIMIT_S
        while problem := connection.connect_ex(address):
            if problem != errno.EAGAIN:
                raise OSError(problem, os.strerror(problem))
            if time.monotonic() > end_s:
                raise TimeoutError
            time.sleep(0.05)
        if user_of(connection) != os.geteuid():
            raise LaunchError(f"the address {address[1:]} is used by a program of another user; it is not asked")
    except BaseException:
        connection.close()
        raise
    return connection
