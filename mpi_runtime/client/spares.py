"""Extents granted ahead of use, so that repeated writes of one size skip the request.

The agent gives them with the answer to a request, and asks for them back when memory is short or none was requested
for a while. Any thread may take one; each is taken by one only, since `list.pop` is one step.
"""

from __future__ import annotations

from contextlib import suppress

from mpi_runtime.objects.allocator import Allocator

BYTES_MAX = 4 << 20
"""How much a client asks for ahead, at most. Half of it is the largest value for which it does."""
COUNT_MAX = 8
"""How many extents ahead it asks for, at most."""


class Spares:
    """The unused extents of one client, all of one size."""

    def __init__(self) -> None:
        self._size = 0
        """What each of them occupies, in bytes."""
        self._offsets: list[int] = []
        self._last = 0
        """What the last value occupied that was asked for."""

    def wanted(self, size: int) -> int:
        """How many more to ask for, together with one for a value of this size: none when it is the first such."""
        size = Allocator.rounded(size)
        again, self._last = size == self._last, size
        if not again or (self._offsets and size != self._size):
            return 0
        return min(COUNT_MAX, BYTES_MAX // size) if 2 * size <= BYTES_MAX else 0

    def came(self, size: int, offsets: list[int]) -> list[int]:
        """Take these in, for values of this size. Returns those that are of no use: of another size than others."""
        size = Allocator.rounded(size)
        if self._offsets and size != self._size:
            return offsets
        self._size = size
        self._offsets.extend(reversed(offsets))
        return []

    def take(self, size: int) -> int:
        """The offset of an extent for a value of this size; -1: there is none."""
        if self._offsets and Allocator.rounded(size) == self._size:
            try:
                return self._offsets.pop()
            except IndexError:  # another thread was faster
                pass
        return -1

    def take_all(self) -> list[int]:
        """All of them, to be given back."""
        taken: list[int] = []
        with suppress(IndexError):
            while True:
                taken.append(self._offsets.pop())
        return taken
