"""The allocator against a model of bytes and pages, by random walks and by examples."""

import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mpi_runtime.core.objects.allocator import GRANULE, LARGE, PAGE, Allocator, round_up

CAPACITY = 4 * LARGE
SIZES = st.one_of(
    st.integers(0, 4 * GRANULE), st.integers(1, 8 * PAGE), st.integers(LARGE - PAGE, 2 * LARGE), st.just(CAPACITY)
)


class Walk(RuleBasedStateMachine):
    """Allocates, frees and trims; the model is a dictionary of extents and a set of warm pages."""

    def __init__(self) -> None:
        super().__init__()
        self.allocator = Allocator(CAPACITY)
        self.extents: dict[int, int] = {}
        self.warm: set[int] = set()

    def gaps(self) -> list[tuple[int, int]]:
        edges = [0, *(edge for offset in sorted(self.extents) for edge in (offset, offset + self.extents[offset]))]
        edges.append(CAPACITY)
        return [(low, high) for low, high in zip(edges[::2], edges[1::2], strict=True) if low < high]

    @staticmethod
    def pages(low: int, high: int) -> set[int]:
        return set(range(low // PAGE, -(-high // PAGE)))

    @staticmethod
    def inner_pages(low: int, high: int) -> set[int]:
        return set(range(round_up(low, PAGE) // PAGE, high // PAGE))

    @rule(size=SIZES)
    def allocate(self, size: int) -> None:
        taken = Allocator.rounded(size)
        gaps = self.gaps()
        warm_gap = any(high - low >= taken + PAGE and self.pages(low, high) <= self.warm for low, high in gaps)
        offset = self.allocator.allocate(size)
        if offset is None:
            assert max((high - low for low, high in gaps), default=0) < taken + PAGE
            return
        assert offset % (PAGE if size >= LARGE else GRANULE) == 0
        assert any(low <= offset and offset + taken <= high for low, high in gaps)
        touched = self.pages(offset, offset + taken)
        assert not warm_gap or touched <= self.warm
        self.extents[offset] = taken
        self.warm |= touched

    @precondition(lambda self: self.extents)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.extents)))
        assert self.allocator.size(offset) == self.extents[offset]
        assert self.allocator.free(offset) == self.extents.pop(offset)
        assert self.allocator.size(offset) == 0
        with pytest.raises(ValueError, match=f"offset {offset}"):
            self.allocator.free(offset)

    @rule(size=st.integers(1, CAPACITY), works=st.booleans())
    def trim(self, size: int, works: bool) -> None:
        given: list[tuple[int, int]] = []

        def give_back(offset: int, length: int) -> bool:
            given.append((offset, length))
            return works

        trimmed = self.allocator.trim(size, give_back)
        if not works:
            assert trimmed == 0
            assert len(given) <= 1
            return
        assert trimmed == sum(length for _, length in given)
        gaps, warm_before = self.gaps(), set(self.warm)
        for offset, length in given:
            pages = self.pages(offset, offset + length)
            assert offset % PAGE == length % PAGE == 0 < length
            assert any(low <= offset and offset + length <= high for low, high in gaps)
            assert pages <= self.warm
            self.warm -= pages
        trimmable = warm_before & set().union(*(self.inner_pages(low, high) for low, high in gaps))
        assert trimmed == min(round_up(size, PAGE), len(trimmable) * PAGE)

    @invariant()
    def books_are_exact(self) -> None:
        ordered = sorted(self.extents.items())
        assert all(offset + size <= following for (offset, size), (following, _) in pairwise(ordered))
        gaps = self.gaps()
        allocator = self.allocator
        assert allocator.used == sum(self.extents.values())
        assert len(allocator._extents) == len(self.extents)
        # As many holes as gaps: neighbours were merged.
        assert len(allocator._holes) == len(gaps)
        assert allocator.largest == max((high - low for low, high in gaps), default=0)
        warm_free = sum(
            min(high, (page + 1) * PAGE) - max(low, page * PAGE)
            for low, high in gaps
            for page in self.pages(low, high) & self.warm
        )
        assert allocator.spare == warm_free

    def teardown(self) -> None:
        for offset in list(self.extents):
            self.allocator.free(offset)
        allocator = self.allocator
        assert (allocator.used, len(allocator._holes), allocator.largest) == (0, 1, CAPACITY)


TestWalk = Walk.TestCase
TestWalk.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)


def test_a_freed_extent_is_the_next_one_of_its_size() -> None:
    allocator = Allocator(CAPACITY)
    offsets = [allocator.allocate(size) for size in (LARGE, 5 * PAGE, LARGE, PAGE)]
    assert None not in offsets
    allocator.free(offsets[1] or 0)
    assert allocator.allocate(5 * PAGE) == offsets[1]


def test_a_trimmed_hole_is_used_only_when_no_warm_one_fits() -> None:
    allocator = Allocator(CAPACITY)
    first, wall, second, _ = (allocator.allocate(LARGE) for _ in range(4))
    assert first is not None
    assert second is not None
    allocator.free(first)
    assert allocator.trim(LARGE, lambda offset, size: (offset, size) == (first, LARGE)) == LARGE
    allocator.free(second)
    assert allocator.allocate(LARGE) == second
    assert allocator.allocate(LARGE) == first
    assert wall is not None


def noted(given: list[int]) -> Callable[[int, int], bool]:
    """Gives memory back; where it begins is noted."""

    def give_back(offset: int, size: int) -> bool:
        given.append(offset)
        return True

    return give_back


def test_the_largest_hole_is_trimmed_first() -> None:
    allocator = Allocator(8 * LARGE)
    blocks = [allocator.allocate(size) or 0 for size in (LARGE, LARGE, 2 * LARGE, LARGE, 3 * LARGE)]
    for number in (0, 2):
        allocator.free(blocks[number])
    given: list[int] = []
    for _ in range(2):
        allocator.trim(LARGE, noted(given))
    assert given == [blocks[2] + LARGE, blocks[2]], "though a smaller one is all warm"


def test_what_is_warm_on_both_sides_of_cold_memory_is_trimmed() -> None:
    allocator = Allocator(4 * LARGE)
    blocks = [allocator.allocate(LARGE) or 0 for _ in range(4)]
    given: list[int] = []
    for number in (1, 0, 2):
        allocator.free(blocks[number])
        if number != 0:
            allocator.trim(4 * LARGE, noted(given))
    assert given == [blocks[1], blocks[2], blocks[0]]


def test_a_hole_that_is_cold_at_one_end_is_used_from_the_other() -> None:
    allocator = Allocator(4 * LARGE)
    blocks = [allocator.allocate(LARGE) or 0 for _ in range(4)]
    allocator.free(blocks[1])
    allocator.trim(LARGE, lambda offset, size: True)
    allocator.free(blocks[2])
    # The hole is now cold, then warm; and the only one.
    assert allocator.allocate(LARGE) == blocks[2]


def test_a_hole_that_is_cold_all_over_is_used_from_its_start() -> None:
    allocator = Allocator(4 * LARGE)
    assert [allocator.allocate(size) for size in (LARGE, PAGE, GRANULE)] == [0, LARGE, LARGE + PAGE]


def test_a_hole_that_is_warm_at_both_ends_is_used_from_its_start() -> None:
    allocator = Allocator(3 * LARGE)
    blocks = [allocator.allocate(LARGE) for _ in range(3)]
    allocator.free(blocks[1] or 0)
    allocator.trim(LARGE, lambda offset, size: True)
    allocator.free(blocks[0] or 0)
    allocator.free(blocks[2] or 0)
    assert allocator.allocate(LARGE) == 0


def test_a_hole_within_a_page_is_not_trimmed() -> None:
    allocator = Allocator(2 * PAGE)
    offsets = [allocator.allocate(GRANULE) or 0 for _ in range(3)]
    allocator.free(offsets[1])
    assert allocator.trim(PAGE, lambda offset, size: True) == 0
    assert allocator.spare == PAGE - 2 * GRANULE


def test_all_can_be_taken_to_the_last_byte() -> None:
    allocator = Allocator(16 * PAGE)
    offsets = [allocator.allocate(GRANULE) for _ in range(16 * PAGE // GRANULE)]
    assert sorted(offset for offset in offsets if offset is not None) == list(range(0, 16 * PAGE, GRANULE))
    assert allocator.allocate(1) is None
    assert allocator.largest == 0


def test_a_hundred_thousand_extents() -> None:
    rng = random.Random(1)
    allocator = Allocator(1 << 40)
    extents = {}
    for _ in range(100_000):
        size = rng.randrange(1 << 16, 1 << 21)
        offset = allocator.allocate(size)
        assert offset is not None
        extents[offset] = Allocator.rounded(size)
    assert len(extents) == len(allocator._extents) == 100_000
    for offset in rng.sample(list(extents), 20_000):
        assert allocator.free(offset) == extents.pop(offset)
    for _ in range(2_000):
        size = rng.randrange(1 << 16, 1 << 21)
        offset = allocator.allocate(size)
        assert offset is not None
        extents[offset] = Allocator.rounded(size)
    assert allocator.used == sum(extents.values())
    ordered = sorted(extents.items())
    assert all(offset + size <= following for (offset, size), (following, _) in pairwise(ordered))
