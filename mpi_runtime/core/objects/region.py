"""A region of the arena as a process sees it: its mapping, and how bytes are written to it.

Two things make a copy slow: pages that this process has not mapped yet, and small pages that lie scattered. So a client
maps what it is about to write in pieces, and asks for large pages where it writes much (`LargePages`).
"""

import errno
import mmap
import resource
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from mpi_runtime.core.host.libc import map_file
from mpi_runtime.core.objects.allocator import PAGE, round_down, round_up

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

COPY_STEP = 2 << 20
"""Bytes that a client copies while its other threads cannot run."""
TOUCH_GRAIN = 64 << 10
MADV_POPULATE_READ = 22
MADV_COLLAPSE = 25
HUGE = 2 << 20
"""A large page. A copy into warm memory of small pages, scattered as they are after a while, takes 1.3 times as long as
one into large pages."""
COLLAPSE_FAILURES_MAX = 4
"""After this many more failures than successes no more large pages are requested."""
COLLAPSE_S_MAX = 0.001
"""A large page that takes more CPU time counts as a failure. A free one takes 0.1 ms; where memory is fragmented, the
system moves others' pages for 5 ms to make one. Entering as many small pages takes 1.2 ms."""


def map_part(descriptor: int, start: int, size: int, access: int) -> mmap.mmap:
    """Map a part of the arena. It is left out of core dumps."""
    mapping = mmap.mmap(descriptor, size, access=access, offset=start)
    with suppress(OSError):  # or a core dump would contain the arena
        mapping.madvise(mmap.MADV_DONTDUMP)
    return mapping


def _map_aligned(descriptor: int, start: int, size: int, access: int) -> tuple[mmap.mmap, int]:
    """Map a part of the file such that large pages of the file can be large pages of the mapping.

    The kernel chooses any address. So this maps more than the part, and then the part over it, at an aligned address.
    Returns the mapping, and the offset of the part in it.
    """
    whole = map_part(descriptor, start - HUGE, size + HUGE, access)
    is_written = access == mmap.ACCESS_WRITE
    if is_written:
        import ctypes  # not at the top: only processes with large values need it

        address = ctypes.addressof(ctypes.c_char.from_buffer(whole))
    else:
        import numpy  # ctypes takes no read-only memory; a process that reads needs numpy anyway

        address = numpy.frombuffer(whole, numpy.uint8).__array_interface__["data"][0]
    wanted = round_up(address, HUGE)
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if is_written else 0)
    try:
        map_file(descriptor, start, size, protection, wanted)
    except OSError:
        return map_part(descriptor, start, size, access), 0  # the first mapping may have a hole now
    with suppress(OSError):
        whole.madvise(mmap.MADV_DONTDUMP)
    return whole, wanted - address


class LargePages:
    """Turns memory that is about to be written into large pages, as far as the system allows (Linux 6.1).

    This works for memory files unless `transparent_hugepage/shmem_enabled` is "deny". An empty part becomes a page of
    zeros, in a fifth of the time of 512 faults. Small pages of any other part are copied.
    """

    def __init__(self, shift: int, size: int) -> None:
        """Serve a mapping that is aligned from `shift` on, for `size` bytes."""
        self._shift = shift
        self._asked = bytearray(size // HUGE)
        """A flag for each large page that was requested."""
        self._failures = 0

    def make(self, mapping: mmap.mmap, low: int, high: int, end: int, touched: bytearray) -> None:
        """Make large pages that begin from `low` to `high` and end before `end`; all are about to be written."""
        at = low + (self._shift - low) % HUGE
        while at < high and at + HUGE <= end and self._failures < COLLAPSE_FAILURES_MAX:
            number = (at - self._shift) // HUGE
            if not self._asked[number]:
                self._asked[number] = 1
                self._make(mapping, at)
                first, last = -(-at // TOUCH_GRAIN), (at + HUGE) // TOUCH_GRAIN
                touched[first:last] = b"\1" * (last - first)
            at += HUGE

    def _make(self, mapping: mmap.mmap, at: int) -> None:
        started = time.thread_time()
        try:
            mapping[at] = 0  # the system makes no large page of memory that was never written
            mapping.madvise(MADV_COLLAPSE, at, HUGE)
        except OSError as error:
            self._failures += 1 if error.errno != errno.EINVAL else COLLAPSE_FAILURES_MAX
        else:
            is_slow = time.thread_time() - started > COLLAPSE_S_MAX
            self._failures = self._failures + 1 if is_slow else max(0, self._failures - 1)


class Window:
    """The mapping of a region in one process: as a whole, or extent by extent if the address space is limited.

    A whole mapping is faster, because pages stay in the page table once they were touched.
    """

    def __init__(self, descriptor: int, start: int, size: int, access: int, is_plain: bool = False) -> None:
        """`is_plain`: without large pages, and without ctypes, which rank processes do not load."""
        self._descriptor = descriptor
        self._start = start
        self._size = size
        self._access = access
        self._whole: mmap.mmap | None = None
        self._shift = 0
        """Offset of the region in that mapping."""
        if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
            with suppress(OSError):
                if is_plain:
                    self._whole = map_part(descriptor, self._start, self._size, access)
                else:
                    self._whole, self._shift = _map_aligned(descriptor, self._start, self._size, access)
        notes = self._whole is not None and access == mmap.ACCESS_WRITE
        self.touched = bytearray(-(-(self._shift + self._size) // TOUCH_GRAIN) if notes else 0)
        """For `copy`: a flag for each part of the mapping that this process has written; empty: not recorded."""
        self.large = LargePages(self._shift, self._size) if notes and not is_plain else None

    def whole(self) -> "NDArray[numpy.uint8] | None":
        """All bytes of the region; None if it is not mapped as a whole."""
        import numpy

        if self._whole is None:
            return None
        return numpy.frombuffer(self._whole, numpy.uint8)[self._shift : self._shift + self._size]

    def locate(self, offset: int, size: int) -> tuple[mmap.mmap, int]:
        """Return a mapping that contains an extent, and the offset of the extent in it."""
        if size < 1 or not 0 <= offset <= self._size - size:
            raise ValueError(f"{size} bytes at offset {offset} are not an extent of a region of {self._size} bytes")
        if self._whole is not None:
            return self._whole, self._shift + offset
        first = round_down(offset, PAGE)
        return map_part(self._descriptor, self._start + first, offset + size - first, self._access), offset - first

    def view(self, offset: int, size: int) -> memoryview:
        """Return the bytes of an extent."""
        mapping, at = self.locate(offset, size)
        return memoryview(mapping)[at : at + size]


def copy(
    mapping: mmap.mmap, start: int, source: memoryview, touched: bytearray, large: LargePages | None = None
) -> None:
    """Copy in steps, so that other threads can run in between.

    Where the source covers whole large pages, those are requested first, once. Other warm pages that this process has
    not touched are entered into its page table for reading, many at once. For 100 MB that takes 76 ms; one page fault
    after the other takes 190 ms, and the copy itself 13 ms.
    """
    end = start + len(source)
    for position in range(0, len(source), COPY_STEP):
        piece = source[position : position + COPY_STEP]
        low, high = start + position, start + position + len(piece)
        first, last = low // TOUCH_GRAIN, -(-high // TOUCH_GRAIN)
        if large is not None and end - low >= HUGE:
            large.make(mapping, low, high, end, touched)
        if not touched or touched.find(0, first, last) >= 0:
            touched[first:last] = b"\1" * len(touched[first:last])
            with suppress(OSError):  # Linux before 5.14
                mapping.madvise(MADV_POPULATE_READ, round_down(low, PAGE), high - round_down(low, PAGE))
        mapping[low:high] = piece
