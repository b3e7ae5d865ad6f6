"""The transport of a program of one rank. It needs no doorbell and no MPI library."""

import socket
from collections import deque
from collections.abc import Sequence
from typing import NoReturn

from mpi_runtime.core.transport.base import Buffer, Transport, TransportError


class Alone(Transport):
    """`Transport` of the only rank. Frames to itself arrive; it has no peers for bulk data."""

    def __init__(self) -> None:
        self.rank, self.size, self.hosts = 0, 1, (0,)
        self.hostnames: Sequence[str] = (socket.gethostname(),)
        self._frames: deque[tuple[int, Buffer]] = deque()

    def send(self, rank: int, frame: Buffer) -> None:
        self._frames.append((rank, bytes(frame)))

    def receive(self) -> list[tuple[int, Buffer]]:
        return [self._frames.popleft() for _ in range(len(self._frames))]

    def send_bulk(self, rank: int, tag: int, buffer: Buffer) -> NoReturn:
        raise TransportError("this job has one rank")

    def receive_bulk(self, rank: int, tag: int, buffer: memoryview) -> NoReturn:
        raise TransportError("this job has one rank")

    def prepare_sleep(self, idle_s: float) -> float | None:
        return 0.0 if self._frames else None
