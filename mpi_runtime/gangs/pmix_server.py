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
from threading import Lock

import msgspec

from mpi_runtime import config as configuration
from mpi_runtime.gangs.environment import texts_of_wheel
from mpi_runtime.gangs.library import Library
from mpi_runtime.transport.channel import READ_BYTES, Splitter, packed

CALL_LIMIT_S = 10.0
"""Seconds for a call of the library. The first starts the server, which looks at the topology of the host."""
ERRORS = "stderr"
"""The name of the file with standard error, in the directory of the helper."""
STATUS = "status"
"""The name of the file into which the forkserver writes the wait status of the helper, there too."""


class Register(msgspec.Struct, array_like=True, tag="r"):
    """A gang begins. The helper answers `Registered` or `Refused`."""

    name: str
    hosts: list[int]
    """The number of the node of each rank."""
    names: list[str]
    own: int
    """The number of this node."""


class Forget(msgspec.Struct, array_like=True, tag="x"):
    """The members of a gang have ended."""

    name: str


class Collected(msgspec.Struct, array_like=True, tag="c"):
    """The answer to `Fence` or `Wanted`."""

    number: int
    status: int
    data: bytes


class Grouped(msgspec.Struct, array_like=True, tag="g"):
    """The answer to `Group`."""

    number: int
    context: int
    parts: list[bytes]


class LookUp(msgspec.Struct, array_like=True, tag="l"):
    """Another node wants the data of a member of this one. The helper answers `LookedUp`."""

    number: int
    name: str
    rank: int


Order = Register | Forget | Collected | Grouped | LookUp


class Found(msgspec.Struct, array_like=True, tag="F"):
    """The MPI library of programs here."""

    library: Library


class Registered(msgspec.Struct, array_like=True, tag="R"):
    """A gang is known; the variables of its members on this node."""

    name: str
    variables: dict[int, dict[str, str]]


class Refused(msgspec.Struct, array_like=True, tag="X"):
    """A gang cannot be started."""

    name: str
    problem: str


class Member(msgspec.Struct, array_like=True, tag="M"):
    """A member has called MPI_Init or MPI_Finalize."""

    name: str
    rank: int
    is_final: bool


class Aborted(msgspec.Struct, array_like=True, tag="A"):
    """A member has called MPI_Abort."""

    name: str
    rank: int
    code: int
    text: str


class Logged(msgspec.Struct, array_like=True, tag="S"):
    """The MPI library of a member has a text for the user."""

    name: str
    rank: int
    text: bytes


class Fence(msgspec.Struct, array_like=True, tag="C"):
    """The members of this node are in a fence with other nodes."""

    name: str
    number: int
    ranks: list[int]
    """All that take part; empty: the whole gang."""
    data: bytes


class Wanted(msgspec.Struct, array_like=True, tag="W"):
    """A member wants the data of a rank on another node."""

    name: str
    number: int
    rank: int


class Group(msgspec.Struct, array_like=True, tag="G"):
    """The members of this node make a group of processes."""

    name: str
    number: int
    group: str
    ranks: list[int]
    data: bytes


class LookedUp(msgspec.Struct, array_like=True, tag="L"):
    """The answer to `LookUp`."""

    number: int
    status: int
    data: bytes


Report = Found | Registered | Refused | Member | Aborted | Logged | Fence | Wanted | Group | LookedUp

orders = msgspec.msgpack.Decoder(Order)
reports = msgspec.msgpack.Decoder(Report)


class _Reports:
    """Sends reports, and waits while the agent reads: the library's thread calls it, and the main thread."""

    def __init__(self, end: socket.socket) -> None:
        self._end, self._lock = end, Lock()

    def send(self, report: Report) -> None:
        with self._lock:
            self._end.sendall(packed(msgspec.msgpack.encode(report), 0))


def main(descriptor: int, directory: str, library: str) -> None:
    """Be the helper, in a copy of the forkserver.

    Args:
        descriptor: of the connection to the agent.
        directory: for files of the server.
        library: the path of the PMIx library; empty: look for it first.
    """
    from mpi_runtime.gangs.library import find
    from mpi_runtime.host.spawn import name_process

    name_process("mpi_runtime pmix")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a batch system sends it to all; the agent's end decides
    errors = os.open(os.path.join(directory, ERRORS), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.dup2(errors, 2)
    os.close(errors)
    os.environ.update({"PMIX_MCA_gds": "hash"})  # else the data of gangs would be files in /tmp
    end = socket.socket(fileno=descriptor)
    reports = _Reports(end)
    if not library:
        found = find()
        library = found.pmix
        reports.send(Found(found))
    splitter = Splitter()
    desk = _Desk(reports, directory, library)
    while data := end.recv(READ_BYTES):
        for _, frame in splitter.feed(data):
            signal.setitimer(signal.ITIMER_REAL, CALL_LIMIT_S)  # SIGALRM ends this process: it has no handler
            desk.obey(orders.decode(frame))
            signal.setitimer(signal.ITIMER_REAL, 0)
    os._exit(0)  # the library's threads have nothing to save


class _Desk:
    """Obeys orders of the agent."""

    def __init__(self, reports: _Reports, directory: str, library: str) -> None:
        from mpi_runtime.gangs.pmix_library import Server

        self._reports, self._directory, self._path = reports, directory, library
        self._server: Server | None = None
        self._names: dict[int, str] = {}

    def obey(self, order: Order) -> None:
        if isinstance(order, Register):
            self._register(order)
            return
        server = self._server
        if server is None:
            return
        if isinstance(order, Forget):
            server.forget(order.name)
        elif isinstance(order, Collected):
            server.collected(order.number, order.status, order.data)
        elif isinstance(order, Grouped):
            server.grouped(order.number, order.context, order.parts)
        else:
            server.look_up(order.number, order.name, order.rank)

    def _register(self, order: Register) -> None:
        from mpi_runtime.gangs.pmix_library import Server
        from mpi_runtime.gangs.pmix_types import PmixError

        try:
            if self._server is None:
                if not self._path:
                    raise PmixError("the MPI library of programs on this host has no PMIx library")
                self._server = Server(self._path, self._directory, order.names[order.own], _Listener(self._reports))
            variables = self._server.register(order.name, order.hosts, order.names, order.own)
        except (PmixError, OSError) as error:
            self._reports.send(Refused(order.name, str(error)))
            return
        texts = texts_of_wheel(self._path, configuration.environment())
        self._reports.send(Registered(order.name, {rank: {**own, **texts} for rank, own in variables.items()}))


class _Listener:
    """Reports what the library calls for."""

    def __init__(self, reports: _Reports) -> None:
        self._send = reports.send

    def connected(self, namespace: str, rank: int) -> None:
        self._send(Member(namespace, rank, False))

    def finalized(self, namespace: str, rank: int) -> None:
        self._send(Member(namespace, rank, True))

    def aborted(self, namespace: str, rank: int, code: int, text: str) -> None:
        self._send(Aborted(namespace, rank, code, text))

    def logged(self, namespace: str, rank: int, text: bytes) -> None:
        self._send(Logged(namespace, rank, text))

    def fence(self, number: int, namespace: str, ranks: list[int], data: bytes) -> None:
        self._send(Fence(namespace, number, ranks, data))

    def wanted(self, number: int, namespace: str, rank: int) -> None:
        self._send(Wanted(namespace, number, rank))

    def group(self, number: int, namespace: str, name: str, ranks: list[int], data: bytes) -> None:
        self._send(Group(namespace, number, name, ranks, data))

    def looked_up(self, number: int, status: int, data: bytes) -> None:
        self._send(LookedUp(number, status, data))
