"""How blocks are cut and what of them lies together."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

from mpi_runtime.data.whole.exchange import BUNDLE_BLOCKS, VALUE_BYTES, grouping_of

MB = 1_000_000
INLINE = 65_536
"""Values up to this size are kept by the head and the program."""


@pytest.mark.parametrize("bytes_", [1000, 40_000, 100_000, MB, 10 * MB, 300 * MB])
@pytest.mark.parametrize("blocks", [1, 2, 7, 64, 320, 5000])
@pytest.mark.parametrize("count", [1, 2, 5, 64, 320, 5000])
def test_values_are_large_enough_for_the_store_if_there_are_many_bytes(bytes_: int, blocks: int, count: int) -> None:
    grouping = grouping_of([bytes_] * blocks, count, 10 * MB)
    assert [old for bundle in grouping.bundles for old in bundle] == list(range(blocks))
    assert 1 <= grouping.size <= count
    assert (grouping.values - 1) * grouping.size < count <= grouping.values * grouping.size
    values = len(grouping.bundles) * grouping.values
    assert bytes_ * blocks / values > INLINE or values == len(grouping.bundles)
    largest = max(map(len, grouping.bundles)) * bytes_
    assert largest <= max(bytes_, BUNDLE_BLOCKS * 10 * MB)


def test_blocks_of_which_all_pieces_are_large_are_cut_one_by_one() -> None:
    grouping = grouping_of([10 * MB] * 50, 50, 10 * MB)
    assert len(grouping.bundles) == grouping.values == 50


def test_bundles_and_shared_values_are_small_alike() -> None:
    """400 MB in blocks of 1.25: neither is more than a few blocks."""
    grouping = grouping_of([1_250_000] * 320, 320, 1_250_000)
    assert max(map(len, grouping.bundles)) == 5
    assert grouping.size == 7


@pytest.mark.parametrize("sizes", [[0], [0] * 10, [5, 0, 10 * MB, 1], [VALUE_BYTES] * 3])
def test_blocks_without_rows_and_of_different_sizes(sizes: list[int]) -> None:
    grouping = grouping_of(sizes, 4, MB)
    assert [old for bundle in grouping.bundles for old in bundle] == list(range(len(sizes)))
