"""Bytes between a device and memory of the host: large ones through two pinned buffers.

A copy to or from pageable memory goes through a buffer of the driver and holds up the caller. Through two buffers that
the device can reach by itself, one chunk is on its way while the processor copies the one before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Bytes = NDArray[numpy.uint8]

CHUNK = 4 << 20
"""Bytes in one buffer."""
PINNED_BYTES_MIN = 8 << 20
"""Arrays from this size on go through pinned memory. No card has confirmed it, nor `CHUNK`: see
benchmarks/gpu_copies.py."""


class Way(Protocol):
    """The way between the bytes of one array on a device and the host. Libraries of arrays provide it."""

    nbytes: int

    def settle(self) -> None:
        """Wait until the device has done all that it was told: the array's bytes are what they are to be."""

    def down(self, buffer: Bytes, at: int) -> None:
        """Begin to fill a buffer with the bytes of the array from `at` on."""

    def up(self, buffer: Bytes, at: int) -> None:
        """Begin to copy a buffer over the bytes of the array from `at` on."""

    def wait(self) -> None:
        """Wait until what was begun has been done."""

    def pinned(self, size: int) -> Bytes:
        """A buffer that the device can reach by itself. Raises what the library raises, if it is refused."""


def to_host(way: Way) -> Iterator[memoryview]:
    """The bytes of the array, in pieces. Each is good until the next is asked for, which is on its way meanwhile."""
    way.settle()
    arrived: Bytes | None = None
    try:
        for buffer, at in _pieces(way):
            way.wait()  # for the piece before
            way.down(buffer, at)
            if arrived is not None:
                yield arrived.data
            arrived = buffer
        way.wait()
        if arrived is not None:
            yield arrived.data
    finally:
        way.wait()  # if nobody wants the rest: the buffers must not go while something comes into them


def to_device(way: Way, data: memoryview) -> None:
    """Fill the array. All of it is there on return."""
    import numpy

    source = numpy.asarray(data)
    for buffer, at in _pieces(way):
        buffer[:] = source[at : at + len(buffer)]  # while the piece before is on its way
        way.wait()
        way.up(buffer, at)
    way.wait()


def _pieces(way: Way) -> Iterator[tuple[Bytes, int]]:
    """A buffer for each chunk, in turn one of two, and where the chunk lies in the array."""
    buffers = _buffers(way)
    for at in range(0, way.nbytes, CHUNK):
        yield buffers[at // CHUNK % 2][: way.nbytes - at], at


def _buffers(way: Way) -> list[Bytes]:
    import numpy

    size = min(way.nbytes, CHUNK)
    count = 2 if way.nbytes > size else 1
    if way.nbytes >= PINNED_BYTES_MIN:
        with suppress(Exception):  # refused: there is a limit, or no more of it; pageable memory does it too
            return [way.pinned(size) for _ in range(count)]
    return [numpy.empty(size, numpy.uint8) for _ in range(count)]
