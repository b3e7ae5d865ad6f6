"""A helper process of a node: it finds the MPI library of programs here, and is the PMIx server of their gangs.

A rank process cannot be a PMIx server: its MPI library is a PMIx client of the launcher, and the two in one process
end with a segmentation fault. If the library crashes, only gangs of this node are lost.

1. The helper looks for the library and reports it.
2. With the first gang it starts the server. Each further gang is a namespace of that server.
3. It ends when its agent closes the connection, or dies. It also ends if a call of the library takes too long: seen
   in Open MPI 5.0.11 when members were killed while they connected, twice in some 300 times. Its agent starts
   another helper.

What it writes to standard error goes to a file, and its last lines into the message if it dies: the library writes
there for each member that was killed.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

import msgspec

from mpi_runtime import config as configuration
from mpi_runtime.core.gangs.environment import texts_of_wheel
from mpi_runtime.core.gangs.pmix_messages import (
    Collected,
    Forget,
    Found,
    Grouped,
    Order,
    Register,
    Registered,
    Report,
    orders,
)
from mpi_runtime.core.transport.channel import READ_BYTES, Splitter, packed

if TYPE_CHECKING:
    from mpi_runtime.core.gangs.pmix_library import Server

CALL_LIMIT_S = 10.0
"""Seconds for a call of the library. The first starts the server, which looks at the topology of the host."""
ERRORS = "stderr"
"""The name of the file with standard error, in the directory of the helper."""
STATUS = "status"
"""The name of the file into which the forkserver writes the wait status of the helper, there too."""


def main(descriptor: int, directory: str, library: str) -> None:
    """Be the helper, in a copy of the forkserver.

    Args:
        descriptor: of the connection to the agent.
        directory: for files of the server.
        library: the path of the PMIx library; empty: look for it first.
    """
    from mpi_runtime.core.gangs.library import find
    from mpi_runtime.core.host.spawn import name_process

    name_process("mpi_runtime pmix")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a batch system sends it to all; the agent's end decides
    errors = os.open(os.path.join(directory, ERRORS), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.dup2(errors, 2)
    os.close(errors)
    os.environ.update({"PMIX_MCA_gds": "hash"})  # else the data of gangs would be files in /tmp
    end, lock = socket.socket(fileno=descriptor), Lock()

    def report(message: Report) -> None:
        with lock:  # the library's thread calls it, and this one; it waits while the agent reads
            end.sendall(packed(msgspec.msgpack.encode(message), 0))

    if not library:
        found = find()
        library = found.pmix
        report(Found(found))
    splitter = Splitter()
    desk = _Desk(report, directory, library)
    while data := end.recv(READ_BYTES):
        for _, frame in splitter.feed(data):
            signal.setitimer(signal.ITIMER_REAL, CALL_LIMIT_S)  # SIGALRM ends this process: it has no handler
            desk.obey(orders.decode(frame))
            signal.setitimer(signal.ITIMER_REAL, 0)
    os._exit(0)  # the library's threads have nothing to save


class _Desk:
    """Obeys orders of the agent."""

    def __init__(self, report: Callable[[Report], None], directory: str, library: str) -> None:
        self._report, self._directory, self._path = report, directory, library
        self._server: Server | None = None

    def obey(self, order: Order) -> None:
        server = self._server
        if isinstance(order, Register):
            self._register(order)
        elif server is None:
            return
        elif isinstance(order, Forget):
            server.forget(order.name)
        elif isinstance(order, Collected):
            server.collected(order)
        elif isinstance(order, Grouped):
            server.grouped(order)
        else:
            server.look_up(order)

    def _register(self, order: Register) -> None:
        from mpi_runtime.core.gangs.pmix_library import Server  # not at the top: agents load this module
        from mpi_runtime.core.gangs.pmix_types import PmixError

        try:
            if self._server is None:
                if not self._path:
                    raise PmixError("the MPI library of programs on this host has no PMIx library")
                self._server = Server(self._path, self._directory, order.names[order.own], self._report)
            variables = self._server.register(order)
        except (PmixError, OSError) as error:
            self._report(Registered(order.name, problem=str(error)))
            return
        texts = texts_of_wheel(self._path, configuration.environment())
        self._report(Registered(order.name, {rank: {**own, **texts} for rank, own in variables.items()}))
