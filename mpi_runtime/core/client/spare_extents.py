"""Extents granted ahead of use, so that repeated writes of one size skip the request.

The agent grants them with the answer to a request, and takes them back when memory is short or unused
for a while. Any thread may take one; only one can, because `list.pop` is one step.
"""

from __future__ import annotations

from contextlib import suppress

from mpi_runtime.core.objects.allocator import Allocator

BYTES_MAX = 32 << 20
"""The most bytes that a client requests ahead, for values of up to half of them."""
COUNT_MAX = 32
"""The most extents that it requests ahead."""


class Spares:
    """The unused extents of one client, all of one size."""

    def __init__(self) -> None:
        self._size = 0
        """The size of each in bytes, rounded as the allocator rounds."""
        self._offsets: list[int] = []
        self._last = 0
        """The size of the last request, rounded too."""

    def wanted(self, size: int) -> int:
        """The number of extents to request ahead with one of this size; 0 for the first of a size."""
        size = Allocator.rounded(size)
        again, self._last = size == self._last, size
        if not again or (self._offsets and size != self._size):
            return 0
        return min(COUNT_MAX, BYTES_MAX // size) if 2 * size <= BYTES_MAX else 0

    def came(self, size: int, offsets: list[int]) -> list[int]:
        """Add extents for values of this size. Returns those that do not fit, because others have another size."""
        size = Allocator.rounded(size)
        if self._offsets and size != self._size:
            return offsets
        self._size = size
        self._offsets.extend(reversed(offsets))
        return []

    def take(self, size: int) -> int:
        """The offset of an extent for a value of this size, or -1."""
        if self._offsets and Allocator.rounded(size) == self._size:
            try:
                return self._offsets.pop()
            except IndexError:  # another thread was faster
                pass
        return -1

    def take_all(self) -> list[int]:
        """Remove and return all offsets."""
        taken: list[int] = []
        with suppress(IndexError):
            while True:
                taken.append(self._offsets.pop())
        return taken
