"""What an agent and its forkserver say to each other: one message in each packet."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from mpi_runtime.gpu.device import Device

MESSAGE_BYTES_MAX = 1 << 15
"""What is longer goes through memory of its own: a socket holds some 200 KB at most, on some systems less."""


class Setup(Struct, array_like=True, tag=1):
    """From the agent, first: what all executors have in common. With it come descriptors: arena and drafts."""

    rank: int
    hostname: str
    regions: dict[int, int]
    inline_bytes_max: int
    directory: bytes
    """This, the path and the arguments as of `Job`."""
    path: list[bytes]
    argv: list[bytes]
    descriptors: int
    preload: list[str]
    namespace: str
    scratch: str
    """Where the job may have files on this host."""
    journal: str = ""
    """The directory of the job's journal; empty: it has none."""


class Fork(Struct, array_like=True, tag=2):
    """From the agent: fork an executor.

    With it come five descriptors: its socket, its token counter, the pipe with ids of calls to cancel, its standard
    output and error.
    """

    executor: int
    environment: dict[str, str]
    gpus: list[int]
    threads: int
    cpus: list[int]
    devices: list[Device] = []
    """What is known of the GPUs."""
    variables: Mapping[str, str] = {}
    """What shows them to CUDA: for this process alone, where `environment` is for the calls that it makes too."""
    imports: list[str] = []
    """Modules that its first function uses."""
    draft: int = 0
    """Which of the drafts is its own."""


class Kill(Struct, array_like=True, tag=3):
    """From the agent: kill an executor, or interrupt it."""

    executor: int
    interrupt: bool = False


class Forked(Struct, array_like=True, tag=4):
    """To the agent."""

    executor: int
    pid: int


class Exited(Struct, array_like=True, tag=5):
    """To the agent: an executor is gone and reaped; `status` as of `waitpid`."""

    executor: int
    status: int
    problem: str = ""
    """Why it was not forked at all."""


class Long(Struct, array_like=True, tag=6):
    """From the agent: a request too long for the socket, in memory whose descriptor is the last that comes with it."""


_requests = msgspec.msgpack.Decoder(Setup | Fork | Kill | Long)


def ask(end: socket.socket, request: Setup | Fork | Kill, descriptors: Sequence[int]) -> None:
    """Send a request to the forkserver at the other end, however long its arguments and variables are.

    Raises:
        OSError: it is gone.
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


def read_request(data: bytes, descriptors: list[int]) -> Setup | Fork | Kill:
    """What `ask` has sent; of the descriptors those that belong to it are left."""
    request: Setup | Fork | Kill | Long = _requests.decode(data)
    if isinstance(request, Long):
        with open(descriptors.pop(), "rb") as file:  # which closes it
            file.seek(0)
            request = _requests.decode(file.read())
    assert not isinstance(request, Long)
    return request
