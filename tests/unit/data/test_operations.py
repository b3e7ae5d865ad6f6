"""Operators of expressions."""

from __future__ import annotations

import pytest

pa = pytest.importorskip("pyarrow")

from mpi_runtime.data.operations import binary  # noqa: E402

NUMBERS = [0, 1, -1, 7, -7, 2**53 + 1, -(2**53) - 1, 2**62 + 3, -(2**62) - 5]


@pytest.mark.parametrize("by", [1, 2, 3, -3, 10, -(2**40) + 1])
def test_whole_numbers_are_divided_exactly(by: int) -> None:
    """As Python does it, also where a number with a point is not exact."""
    column = pa.array([*NUMBERS, None])
    for right in (pa.scalar(by), pa.array([by] * len(column))):
        assert binary("floordiv", column, right).to_pylist() == [*(one // by for one in NUMBERS), None]
        assert binary("mod", column, right).to_pylist() == [*(one % by for one in NUMBERS), None]


def test_unsigned_and_short_numbers() -> None:
    large = pa.array([2**64 - 1, 5], pa.uint64())
    assert binary("mod", large, pa.scalar(10, pa.uint64())).to_pylist() == [5, 5]
    assert binary("floordiv", pa.array([7, -7], pa.int8()), pa.scalar(2, pa.int64())).to_pylist() == [3, -4]
    assert binary("mod", pa.array([7.5, -7.5]), pa.scalar(2)).to_pylist() == [1.5, 0.5]
