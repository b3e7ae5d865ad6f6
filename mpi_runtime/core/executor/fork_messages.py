"""Messages between an agent and its forkserver, one in each packet, and the mark in the output of executors.

The forkserver sends `ExecutorStarted` too, which the agent passes on.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec
from msgspec import Struct

from mpi_runtime.core.transport.messages import Job
from mpi_runtime.gpu.device import Device
from mpi_runtime.scheduler.protocol.effects import StartExecutor

MESSAGE_BYTES_MAX = 1 << 15
"""A longer request is sent in a memory file: a socket holds about 200 KB, on some systems less."""
MARK = b"\x1emrt-writer "
"""In the output of an executor: before the name of the function or actor that writes the lines after this one."""
PLAIN = b"\x1f"
"""Before the name in a mark: the driver shows the lines as they are, without the name."""


class Setup(Struct, array_like=True, tag=1):
    """The agent's first message: what all executors have in common. Its descriptors: arena and drafts."""

    rank: int
    hostname: str
    regions: dict[int, int]
    job: Job
    scratch: str
    """The directory for files of the job on this host."""


class MpiStart(Struct, array_like=True):
    """What an executor needs to start MPI as a member of a gang."""

    environment: dict[str, str]
    unset: list[str]
    """Variables to remove first."""
    descriptors: list[str]
    """The variables with the numbers of its further descriptors, in their order."""


class Fork(StartExecutor, array_like=True, tag=2):
    """From the agent: fork an executor.

    Its five descriptors: socket, token counter, the pipe with ids of cancelled calls, standard output and error. Those
    of a member of a gang follow.
    """

    devices: Sequence[Device] = ()
    variables: Mapping[str, str] = {}
    """Variables that show its GPUs to CUDA. Unlike `environment` they are not inherited by calls that it submits."""
    draft: int = 0
    """Where it writes results that the agent sends if it dies: see `transport/unsent_frame.py`."""
    mpi: MpiStart | None = None
    """None: it is not a member of a gang."""


class Kill(Struct, array_like=True, tag=3):
    """From the agent: kill an executor."""

    executor: int


class Interrupt(Struct, array_like=True, tag=7):
    """From the agent: send an executor the signal on which it reads the ids of cancelled calls."""

    executor: int


class OpenMpi(Struct, array_like=True, tag=8):
    """From the agent: a gang begins, so open the MPI library that its members will load."""


class ForkHelper(Struct, array_like=True, tag=9):
    """From the agent: fork the helper of gangs. Its descriptor: the helper's connection to the agent."""

    directory: str
    """For files of the helper."""
    library: str
    """See `main` of `gangs/pmix_server.py`."""


class Exited(Struct, array_like=True, tag=5):
    """To the agent: an executor has ended and was reaped. `status`: the wait status, as of `waitpid`."""

    executor: int
    status: int
    problem: str = ""
    """Why it could not be forked; empty: it was."""


class Long(Struct, array_like=True, tag=6):
    """From the agent: a request too long for the socket. The last descriptor is a memory file with it."""


Request: TypeAlias = Setup | Fork | Kill | Interrupt | OpenMpi | ForkHelper
_requests = msgspec.msgpack.Decoder(Request | Long)


def ask(end: socket.socket, request: Request, descriptors: Sequence[int]) -> None:
    """Send a request of any length to the forkserver at the other end.

    Raises:
        OSError: it has ended.
    """
    data = msgspec.msgpack.encode(request)
    if len(data) <= MESSAGE_BYTES_MAX:
        socket.send_fds(end, [data], descriptors)
        return
    memory = os.memfd_create("mpi_runtime request", os.MFD_CLOEXEC)
    try:
        with open(memory, "wb", closefd=False) as file:
            file.write(data)
        socket.send_fds(end, [msgspec.msgpack.encode(Long())], [*descriptors, memory])
    finally:
        os.close(memory)


def read_request(data: bytes, descriptors: list[int]) -> Request:
    """Return the request that `ask` has sent. A descriptor that only carried it is removed from the list."""
    request: Request | Long = _requests.decode(data)
    if isinstance(request, Long):
        with open(descriptors.pop(), "rb") as file:  # which closes it
            file.seek(0)
            request = _requests.decode(file.read())
    assert not isinstance(request, Long)
    return request
