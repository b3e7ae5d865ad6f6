"""The transport of a program of one rank. It needs no doorbell and no MPI library."""

import socket
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NoReturn

from mpi_runtime.transport.base import Buffer, TransportError


class Alone:
    """`Transport` of the only rank. Frames to itself arrive; it has no peers for bulk data."""

    rank, size = 0, 1
    hosts: Sequence[int] = (0,)
    lost = ()
    busy = False
    neighbours: Mapping[int, int] = {}

    def __init__(self) -> None:
        self.hostnames: Sequence[str] = (socket.gethostname(),)
        self._frames: deque[tuple[int, Buffer]] = deque()

    def take_lost(self) -> list[int]:
        return []

    def leave(self) -> None:
        pass

    def has_left(self, rank: int) -> bool:
        return True

    def send(self, rank: int, frame: Buffer) -> None:
        self._frames.append((rank, bytes(frame)))

    def receive(self) -> list[tuple[int, Buffer]]:
        return [self._frames.popleft() for _ in range(len(self._frames))]

    def send_bulk(self, rank: int, tag: int, buffer: Buffer) -> NoReturn:
        raise TransportError("this job has one rank")

    def receive_bulk(self, rank: int, tag: int, buffer: memoryview) -> NoReturn:
        raise TransportError("this job has one rank")

    def fileno(self) -> int:
        return -1

    def prepare_sleep(self, idle_s: float) -> float | None:
        return 0.0 if self._frames else None

    def wake(self, rung: bool = False) -> None:
        pass

    def share_descriptor(self, descriptor: int | None, key: bytes) -> int | None:
        return descriptor

    def share_again(self, descriptor: int, key: bytes) -> None:
        pass

    def hand(self, rank: int, descriptors: Sequence[int], key: bytes) -> bool:
        return False

    def take(self, key: bytes) -> list[int]:
        return []

    def close(self, clean: bool) -> None:
        pass
