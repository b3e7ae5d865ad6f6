"""Which extents of a region are in use: pure bookkeeping, which touches no memory.

Memory that was written before is *warm*; memory that was not, or was given back to the system, is *cold*. The first
touch of cold memory costs 5 to 40 times as much as a copy into warm memory, so warm holes are preferred to cold ones.
"""

import mmap
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from itertools import chain

PAGE = mmap.PAGESIZE
GRANULE = 64
"""Offsets and sizes of extents are multiples of this, a cache line."""
LARGE = 1 << 20
"""Offsets and sizes of extents from this size on are multiples of a page."""


def round_down(number: int, multiple: int) -> int:
    """Return the largest multiple that is not larger than the number."""
    return number - number % multiple


def round_up(number: int, multiple: int) -> int:
    """Return the smallest multiple that is not smaller than the number."""
    return -(-number // multiple) * multiple


class _Holes:
    """Free extents by size: a sorted list of the sizes that exist, and for each the offsets, the last freed first."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._offsets: dict[int, dict[int, None]] = {}

    def add(self, offset: int, size: int) -> None:
        offsets = self._offsets.get(size)
        if offsets is None:
            offsets = self._offsets[size] = {}
            self.sizes.insert(bisect_left(self.sizes, size), size)
        offsets[offset] = None

    def remove(self, offset: int, size: int) -> None:
        offsets = self._offsets[size]
        del offsets[offset]
        if not offsets:
            del self._offsets[size]
            del self.sizes[bisect_left(self.sizes, size)]

    def best(self, size: int, alignment: int) -> int | None:
        """Return the offset of the smallest hole with room for the size at this alignment, or None."""
        # Above size + alignment the first one fits; below there are at most alignment / GRANULE different sizes.
        for index in range(bisect_left(self.sizes, size), len(self.sizes)):
            hole = self.sizes[index]
            offset = next(reversed(self._offsets[hole]))
            if round_up(offset, alignment) + size <= offset + hole:
                return offset
        return None


class Allocator:
    """Which extents of one region are in use: best fit, warm before cold, free neighbours merged.

    Every call takes logarithmic time (a few microseconds with 100 000 extents), `trim` excepted.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        """Allocated bytes, rounded as `rounded` says."""
        self._extents: dict[int, int] = {}
        self._holes: dict[int, tuple[int, int]] = {}
        """By start: size, and how much of it is cold."""
        self._hole_ends: dict[int, int] = {}
        self._warm = _Holes()
        """Holes without any cold page; `_mixed` has the others."""
        self._mixed = _Holes()
        self._cold = [0, capacity]
        """Ascending edges of the cold parts: start, end, start, end ... Every cold page lies within one hole."""
        self._cold_bytes = capacity
        self._add_hole(0, capacity, capacity)

    @property
    def spare(self) -> int:
        """Free bytes that are warm."""
        return self.capacity - self.used - self._cold_bytes

    @staticmethod
    def rounded(size: int) -> int:
        """Return how many bytes an extent for `size` bytes occupies."""
        return round_up(max(size, 1), PAGE if size >= LARGE else GRANULE)

    def allocate(self, size: int) -> int | None:
        """Return the offset of a new extent; None: no hole is large enough."""
        alignment = PAGE if size >= LARGE else GRANULE
        size = self.rounded(size)
        start = self._warm.best(size, alignment)
        if start is None:
            start = self._mixed.best(size, alignment)
        if start is None:
            return None
        hole, cold = self._remove_hole(start)
        end, offset = start + hole, round_up(start, alignment)
        if cold and (touched := self._cold_within(offset, offset + size)):
            last = round_down(end - size, alignment)
            if self._cold_within(last, last + size) < touched:
                offset = last
            self._paint(round_down(offset, PAGE), min(round_up(offset + size, PAGE), self.capacity), cold=False)
        for low, high in ((start, offset), (offset + size, end)):
            if low < high:
                self._add_hole(low, high - low, self._cold_within(low, high) if cold else 0)
        self._extents[offset] = size
        self.used += size
        return offset

    def free(self, offset: int) -> int:
        """Free an extent, and return how many bytes it occupied.

        Raises:
            ValueError: no extent starts there, or it was freed before.
        """
        size = self._extents.pop(offset, None)
        if size is None:
            raise ValueError(f"no extent is allocated at offset {offset}: it was freed before or never existed")
        self.used -= size
        start, end, cold = offset, offset + size, 0
        before = self._hole_ends.get(start)
        for hole in (before, end if end in self._holes else None):
            if hole is not None:
                hole_size, hole_cold = self._remove_hole(hole)
                start, end, cold = min(start, hole), max(end, hole + hole_size), cold + hole_cold
        self._add_hole(start, end - start, cold)
        return size

    def size(self, offset: int) -> int:
        """Return how many bytes the extent at an offset occupies; 0: no extent starts there."""
        return self._extents.get(offset, 0)

    def trim(
        self,
        size: int,
        give_back: Callable[[int, int], bool],
        parts: Callable[[int, int], Iterable[tuple[int, int]]] = lambda low, high: [(low, high)],
    ) -> int:
        """Make up to `size` bytes of warm free pages cold, in the largest holes first.

        Args:
            size: in bytes.
            give_back: does it, given an offset and a size; returns whether it could.
            parts: starts and ends of the parts of a range that may be given back, the last first.

        Returns:
            The number of bytes given back: about `size`, or less if less is warm and free.
        """
        trimmed = 0
        for start, (hole, _) in sorted(self._holes.items(), key=lambda item: -item[1][0]):
            warm = reversed(self._warm_within(round_up(start, PAGE), round_down(start + hole, PAGE)))
            for low, high in chain.from_iterable(parts(*one) for one in warm):
                low = max(low, high - round_up(size - trimmed, PAGE))
                if low >= high or not give_back(low, high - low):
                    return trimmed
                _, cold = self._remove_hole(start)
                self._paint(low, high, cold=True)
                self._add_hole(start, hole, cold + high - low)
                trimmed += high - low
        return trimmed

    @property
    def largest(self) -> int:
        """Bytes of the largest free extent."""
        return max((holes.sizes[-1] for holes in (self._warm, self._mixed) if holes.sizes), default=0)

    def _add_hole(self, start: int, size: int, cold: int) -> None:
        self._holes[start] = size, cold
        self._hole_ends[start + size] = start
        (self._mixed if cold else self._warm).add(start, size)

    def _remove_hole(self, start: int) -> tuple[int, int]:
        size, cold = self._holes.pop(start)
        del self._hole_ends[start + size]
        (self._mixed if cold else self._warm).remove(start, size)
        return size, cold

    def _warm_within(self, low: int, high: int) -> list[tuple[int, int]]:
        """Return the warm parts of a range in ascending order; none if the range is empty."""
        if low >= high:
            return []
        first, last = bisect_right(self._cold, low), bisect_left(self._cold, high)
        edges = self._cold[first:last]
        # An odd position in the list of edges is inside a cold part.
        if first % 2 == 0:
            edges.insert(0, low)
        if last % 2 == 0:
            edges.append(high)
        return [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end]

    def _cold_within(self, low: int, high: int) -> int:
        first, last = bisect_right(self._cold, low), bisect_left(self._cold, high)
        if first == last:  # no edge between them
            return high - low if first % 2 else 0
        return high - low - sum(end - start for start, end in self._warm_within(low, high))

    def _paint(self, low: int, high: int, cold: bool) -> None:
        before = self._cold_within(low, high)
        first, last = bisect_left(self._cold, low), bisect_right(self._cold, high)
        edges = [edge for edge, position in ((low, first), (high, last)) if (position % 2 == 0) == cold]
        self._cold[first:last] = edges
        self._cold_bytes += (high - low if cold else 0) - before
