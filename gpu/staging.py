"""Bytes between a device and memory of the host: large ones through two pinned buffers.

A copy to or from pageable memory goes through a buffer of the driver and holds up the caller. Through two buffers that
the device can reach by itself, one chunk is on its way while the processor copies the one before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Bytes = NDArray[numpy.uint8]

CHUNK = 4 << 20
"""Bytes in one buffer."""
PINNED_BYTES_MIN = 64 << 10
"""Arrays from this size on go through pinned memory: it is there once a process, so it costs nothing but a copy. No
card has confirmed it, nor `CHUNK`: see benchmarks/gpu_copies.py."""


class Pair(NamedTuple):
    """What two chunks go through in turn; one buffer where there is one chunk."""

    buffers: list[Bytes]
    is_pinned: bool


_pairs: list[Pair] = []
"""The two pinned buffers of this process, while nobody uses them."""
_lost: list[Pair] = []
"""Buffers of copies that were interrupted. Something may be on its way into them still: they are kept, and not used."""


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
    with _lent(way) as buffers:
        for buffer, at in _pieces(way, buffers):
            way.wait()  # for the piece before
            way.down(buffer, at)
            if arrived is not None:
                yield arrived.data
            arrived = buffer
        way.wait()
        if arrived is not None:
            yield arrived.data


def fill(way: Way, target: memoryview) -> None:
    """Copy the bytes of the array into memory of the host. All of them are there on return."""
    import numpy

    if way.nbytes < PINNED_BYTES_MIN:  # the driver's own buffer takes as much at once: a second one would be in the way
        way.settle()
        if way.nbytes:
            way.down(numpy.asarray(target), 0)
            way.wait()
        return
    at = 0
    for piece in to_host(way):
        target[at : at + len(piece)] = piece
        at += len(piece)


def to_device(way: Way, data: memoryview) -> None:
    """Fill the array. All of it is there on return."""
    import numpy

    source = numpy.asarray(data)
    if way.nbytes < PINNED_BYTES_MIN:
        if way.nbytes:
            way.up(source, 0)
            way.wait()
        return
    with _lent(way) as buffers:
        for buffer, at in _pieces(way, buffers):
            buffer[:] = source[at : at + len(buffer)]  # while the piece before is on its way
            way.wait()
            way.up(buffer, at)


def _pieces(way: Way, buffers: list[Bytes]) -> Iterator[tuple[Bytes, int]]:
    """A buffer for each chunk, in turn one of two, and where the chunk lies in the array."""
    size = len(buffers[0])
    for at in range(0, way.nbytes, size):
        yield buffers[at // size % 2][: way.nbytes - at], at


@contextmanager
def _lent(way: Way) -> Iterator[list[Bytes]]:
    """Two buffers until all is done that was begun: those of this process, or others while another thread has them."""
    pair = _take(way)
    try:
        yield pair.buffers
    finally:
        try:
            way.wait()
        except BaseException:
            _lost.append(pair)
            raise
        if pair.is_pinned and not _pairs:
            _pairs.append(pair)


def _take(way: Way) -> Pair:
    import numpy

    if way.nbytes >= PINNED_BYTES_MIN:
        with suppress(IndexError):
            return _pairs.pop()
        with suppress(Exception):  # refused: there is a limit, or no more of it; pageable memory does it too
            return Pair([way.pinned(CHUNK), way.pinned(CHUNK)], is_pinned=True)
    size = max(1, min(way.nbytes, CHUNK))
    return Pair([numpy.empty(size, numpy.uint8) for _ in range(2 if way.nbytes > size else 1)], is_pinned=False)
