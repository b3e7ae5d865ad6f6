"""The spill file: a file on a disk of the host into which one rank writes objects that its arena has no room for.

The file has no name, so it disappears with its process, however that ends. Freed parts are used
again, as in the arena. One thread reads and writes in the order of requests, so that objects that are written one after
the other are neighbours on the disk.

Large objects go past the page cache (`O_DIRECT`), where the file system can: they lie on whole pages in the arena and
in the file. So a full arena takes no more memory of the host, and no processor copies what the disk can fetch itself.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from mpi_runtime.core.objects.allocator import LARGE, PAGE, Allocator

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

CHUNK = 8 << 20
"""Bytes that are read or written at a time. In between the thread checks whether the file was closed."""
LIMIT = 1 << 46
"""The largest size of the file in bytes, which is the limit of some file systems."""
LEFT_PERCENT = 5
"""Percentage of the file system that is left to others."""
KEPT_PERCENT = 5
"""Percentage that new values leave besides: a value can return from the disk only if another one leaves memory."""


class Ended(NamedTuple):
    """The end of a write or a read."""

    id: bytes
    is_write: bool
    offset: int
    """Offset in the file; -1: none was given."""
    problem: str
    """Why it failed; empty: it has not."""


class _Order(NamedTuple):
    id: bytes
    is_write: bool
    offset: int
    data: memoryview
    leaves: int
    """Percentage of the file system."""


class SpillFile:
    """The spill file of one rank. Its owner calls `poll` after each `wake`."""

    def __init__(self, directory: str, wake: Callable[[], None]) -> None:
        """Use this directory; empty: writes fail. Another thread calls `wake` at each end."""
        self._directory = directory
        self._wake = wake
        self._descriptor = -1
        self._direct = -1
        """The same file, past the page cache; -1: the file system cannot."""
        self._allocator = Allocator(LIMIT)
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._ended: deque[Ended] = deque()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    @property
    def path(self) -> str:
        """The path by which other processes of this user and host can read the file, as long as this process lives."""
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"

    @property
    def used(self) -> int:
        """Bytes that objects occupy in the file."""
        return self._allocator.used

    def write(self, id: bytes, data: memoryview, for_copies: bool = False) -> None:
        """Begin to write an object. The data must remain valid until `poll` returns its end.

        `for_copies`: the room that is reserved for swapping values may be used.
        """
        if not self._directory:
            self._end(Ended(id, True, -1, "no directory on a disk is configured (object_spilling_directory)"))
            return
        offset = self._allocator.allocate(len(data))
        assert offset is not None
        self._order(_Order(id, True, offset, data, LEFT_PERCENT + (0 if for_copies else KEPT_PERCENT)))

    def read(self, id: bytes, offset: int, data: memoryview) -> None:
        """Begin to read an object from the file.

        Raises:
            ValueError: there is no such object at the offset.
        """
        if self._allocator.size(offset) < len(data):
            raise ValueError(f"{len(data)} bytes at offset {offset} of the file are not an object")
        self._order(_Order(id, False, offset, data, 0))

    def free(self, offsets: Iterable[int]) -> None:
        """Free objects.

        Raises:
            ValueError: some offsets have no object. The others are freed.
        """
        unknown = []
        for offset in offsets:
            try:
                self._allocator.free(offset)
            except ValueError:  # noqa: PERF203  (the others must be freed)
                unknown.append(offset)
        if not self._allocator.used and self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
        if unknown:
            raise ValueError(f"nothing is at {unknown[:10]} of the file")

    def poll(self) -> list[Ended]:
        """Return what has ended since the last call."""
        ended = [self._ended.popleft() for _ in range(len(self._ended))]
        self.free([one.offset for one in ended if one.is_write and one.problem and one.offset >= 0])
        return ended

    def close(self) -> None:
        """Stop reading and writing, and close the file, which removes it."""
        self._is_closed = True
        if self._thread is not None:
            self._orders.put(None)
            self._thread.join()
        for descriptor in (self._direct, self._descriptor):
            if descriptor >= 0:
                os.close(descriptor)
        self._direct = self._descriptor = -1

    def _order(self, order: _Order) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="mpi_runtime disk", daemon=True)
            self._thread.start()
        self._orders.put(order)

    def _end(self, ended: Ended) -> None:
        self._ended.append(ended)
        self._wake()

    def _work(self) -> None:
        while (order := self._orders.get()) is not None and not self._is_closed:
            problem = ""
            try:
                self._perform(order)
            except OSError as error:
                problem = f"{self._directory}: {error.strerror}"
            self._end(Ended(order.id, order.is_write, order.offset, problem))

    def _perform(self, order: _Order) -> None:
        if self._descriptor < 0:
            self._descriptor = create(self._directory)
            self._direct = reopened_direct(self._descriptor)
        if order.is_write:
            check_free(self._descriptor, len(order.data), order.leaves)
        done = 0
        while done < len(order.data) and not self._is_closed:
            piece = order.data[done : done + CHUNK]
            is_direct = self._direct >= 0 and len(order.data) >= LARGE and len(piece) % PAGE == 0 and done % PAGE == 0
            descriptor = self._direct if is_direct else self._descriptor
            try:
                if order.is_write:
                    count = os.pwrite(descriptor, piece, order.offset + done)
                else:
                    count = os.preadv(descriptor, [piece], order.offset + done)
            except OSError as error:
                if not is_direct or error.errno != errno.EINVAL:
                    raise
                os.close(self._direct)  # it can do so only with other alignments
                self._direct = -1
                continue
            if not count:
                raise OSError(errno.EIO, "the file is shorter than the data that was written to it")
            done += count


def mapped(path: str, offset: int, size: int) -> NDArray[numpy.uint8]:
    """Map an object in the spill file of another process, read-only.

    Raises:
        OSError: the process has ended, or the system does not let this one read its file.
    """
    import numpy  # not at the top: agents do not use it

    rest = offset % mmap.ALLOCATIONGRANULARITY
    with open(path, "rb") as file:
        mapping = mmap.mmap(file.fileno(), rest + size, offset=offset - rest, access=mmap.ACCESS_READ)
    return numpy.frombuffer(mapping, numpy.uint8, size, rest)


def create(directory: str) -> int:
    """Make a file without a name in a directory, and return its descriptor.

    Raises:
        OSError: it cannot be made.
    """
    import tempfile  # not at the top: it is large, and clients that read such a file do not need it

    with tempfile.TemporaryFile(buffering=0, prefix="mpi_runtime-", dir=directory) as file:
        return os.dup(file.fileno())


def reopened_direct(descriptor: int) -> int:
    """Return another descriptor of the file, for reads and writes past the page cache; -1: there can be none."""
    try:
        return os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC | os.O_DIRECT)
    except OSError:
        return -1


def check_free(descriptor: int, size: int, percent: int) -> None:
    """Check that a write leaves this percentage of the file system free.

    Raises:
        OSError: it would leave less.
    """
    system = os.fstatvfs(descriptor)
    if system.f_bavail * system.f_frsize - size < system.f_blocks * system.f_frsize * percent // 100:
        raise OSError(errno.ENOSPC, f"less than {percent} % of this file system would be left")
