"""Copies between device memory and host memory. Large ones go through two pinned buffers.

The driver copies pageable memory through a buffer of its own, and the caller waits. A pinned buffer can be read and
written by the device itself. With two of them, the device transfers one chunk while the CPU copies the other. If the
array's own place in host memory is pinned, there is only one copy: by the device, straight from or to there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Bytes = NDArray[numpy.uint8]

CHUNK = 4 << 20
"""Bytes in one buffer."""
PINNED_BYTES_MIN = 64 << 10
"""Arrays of at least this size go through pinned memory. It is allocated once per process: the only cost is one more
copy. Neither this value nor `CHUNK` has been confirmed on a card: see benchmarks/gpu_copies.py."""

WAITS = 3
"""How often to wait for a copy that must have ended. An interrupt breaks off one wait; an error of CUDA repeats."""


class Pair(NamedTuple):
    """Two buffers, used in turn; or one, if there is only one chunk."""

    buffers: list[Bytes]
    is_pinned: bool


_pairs: list[Pair] = []
"""The two pinned buffers of this process while they are free."""
_lent_out: dict[int, Pair] = {}
"""Buffers in use. Those of copies that were interrupted stay here: the device may still write to them."""


class Way(Protocol):
    """Copies between the bytes of one array on a device and the host. There is one class for each array library."""

    nbytes: int

    def settle(self) -> None:
        """Wait for all work that was submitted to the device, so that the array has its final bytes."""

    def down(self, buffer: Bytes, at: int) -> None:
        """Start to fill a buffer with the bytes of the array from offset `at`."""

    def up(self, buffer: Bytes, at: int) -> None:
        """Start to copy a buffer into the array from offset `at`."""

    def wait(self) -> None:
        """Wait until the copies that were started have ended."""

    def pinned(self, size: int) -> Bytes:
        """Return a pinned buffer of this many bytes. Raises the library's error if it is refused."""


def to_host(way: Way) -> Iterator[memoryview]:
    """Yield the bytes of the array in pieces. A piece is valid until the next is asked for.

    The next piece is copied from the device while the caller uses this one.
    """
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
    """Copy the bytes of the array into host memory. The copy is complete on return."""
    import numpy

    if way.nbytes < PINNED_BYTES_MIN:  # fits into the driver's own buffer: ours would be one copy more
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
    """Fill the array with these bytes. The copy is complete on return."""
    import numpy

    source = numpy.asarray(data)
    if way.nbytes < PINNED_BYTES_MIN:
        if way.nbytes:
            way.up(source, 0)
            way.wait()
        return
    with _lent(way) as buffers:
        for buffer, at in _pieces(way, buffers):
            buffer[:] = source[at : at + len(buffer)]  # while the device copies the piece before
            way.wait()
            way.up(buffer, at)


def fill_pinned(way: Way, target: Bytes) -> bool:
    """Have the device write the bytes of the array into pinned memory itself; returns whether it could.

    On return, also by an error, no copy is under way.
    """
    way.settle()
    return _at_once(way, way.down, target)


def from_pinned(way: Way, source: Bytes) -> bool:
    """Have the device fill the array from pinned memory itself; otherwise the same."""
    return _at_once(way, way.up, source)


def _at_once(way: Way, start: Callable[[Bytes, int], None], buffer: Bytes) -> bool:
    is_started = False
    try:
        try:
            with suppress(Exception):  # refused; `_landed` raises errors of the device itself again
                start(buffer, 0)
                is_started = True
        finally:
            _landed(way)
    finally:
        _landed(way)  # an interrupt may come anywhere, also before the first has begun
    return is_started


def _landed(way: Way) -> None:
    """Wait until the copy has ended. Errors that signal handlers raise meanwhile are raised at the end.

    The memory gets another owner soon: a copy under way would overwrite that owner's bytes.
    """
    raised = None
    for _ in range(WAITS):
        error = _waited(way)
        raised = error or raised
        if error is None:
            break
    if raised is not None:
        raise raised


def _waited(way: Way) -> BaseException | None:
    try:
        way.wait()
    except BaseException as error:
        return error
    return None


def _pieces(way: Way, buffers: list[Bytes]) -> Iterator[tuple[Bytes, int]]:
    """Yield for each chunk a buffer, of two in turn, and the offset of the chunk in the array."""
    size = len(buffers[0])
    for at in range(0, way.nbytes, size):
        yield buffers[at // size % 2][: way.nbytes - at], at


@contextmanager
def _lent(way: Way) -> Iterator[list[Bytes]]:
    """Lend two buffers, and wait at the end for the copies that were started.

    They are the pinned buffers of this process, or new ones while another thread has those.
    """
    pair = _take(way)
    _lent_out[id(pair)] = pair
    try:
        yield pair.buffers
    finally:
        way.wait()
        del _lent_out[id(pair)]
        if pair.is_pinned and not _pairs:
            _pairs.append(pair)


def _take(way: Way) -> Pair:
    import numpy

    if way.nbytes >= PINNED_BYTES_MIN:
        with suppress(IndexError):
            return _pairs.pop()
        with suppress(Exception):  # refused by a limit, or none is left: pageable memory works too
            return Pair([way.pinned(CHUNK), way.pinned(CHUNK)], is_pinned=True)
    size = max(1, min(way.nbytes, CHUNK))
    return Pair([numpy.empty(size, numpy.uint8) for _ in range(2 if way.nbytes > size else 1)], is_pinned=False)
