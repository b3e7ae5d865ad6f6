"""Columns of lists as arrays."""

from __future__ import annotations

import time

import numpy
import pytest

pytest.importorskip("pyarrow")
import pyarrow

from mpi_runtime.data import blocks


def batch_of(*chunks: pyarrow.Array) -> numpy.ndarray:
    """The array of a column."""
    batch = blocks.to_batch(pyarrow.table({"x": pyarrow.chunked_array(list(chunks))}), "numpy")
    assert isinstance(batch, dict)
    array: numpy.ndarray = batch["x"]
    return array


@pytest.mark.parametrize("kind", [pyarrow.list_, pyarrow.large_list, lambda of: pyarrow.list_(of, 2)])
@pytest.mark.parametrize("of", [pyarrow.int8(), pyarrow.float32(), pyarrow.float64(), pyarrow.uint64()])
def test_lists_of_one_length_are_an_array_of_their_type(kind: object, of: pyarrow.DataType) -> None:
    """Also those of a part of a column, in several chunks."""
    whole = pyarrow.array([[1, 2], [3, 4], [5, 6]], kind(of))  # type: ignore[operator]
    array = batch_of(whole.slice(1), whole.slice(0, 1))
    assert array.dtype == of.to_pandas_dtype()
    assert array.tolist() == [[3, 4], [5, 6], [1, 2]]
    array[0, 0] = 7  # a function may change its batch
    assert whole.to_pylist() == [[1, 2], [3, 4], [5, 6]]


def test_lists_of_other_lengths_are_arrays() -> None:
    """Each of the type of the list, and empty ones too."""
    array = batch_of(pyarrow.array([[1, 2], [], [3]], pyarrow.list_(pyarrow.int16())))
    assert [part.tolist() for part in array] == [[1, 2], [], [3]]
    assert {part.dtype for part in array} == {numpy.dtype("int16")}
    array[0][0] = 7
    assert batch_of(pyarrow.array([[], []], pyarrow.list_(pyarrow.int16()))).shape == (2, 0)


def test_lists_with_missing_values_stay_lists() -> None:
    """Missing lists, and missing numbers in them."""
    assert batch_of(pyarrow.array([[1], None])).tolist() == [[1], None]
    assert [part.tolist() for part in batch_of(pyarrow.array([[1, None], [2]]))] == [[1, None], [2]]
    assert batch_of(pyarrow.array([["a"], ["b"]])).tolist() == [["a"], ["b"]]


def test_strings_of_pandas_have_the_type_of_others() -> None:
    """Also beside a column of objects. pandas 3 has `large_string`."""
    pandas = pytest.importorskip("pandas")
    for others in ({}, {"o": [{"a": 1}, None]}):
        frame = pandas.DataFrame({"s": pandas.Series(["a", None], dtype="str"), **others})
        table = blocks.of_pandas(frame)
        assert table.schema.field("s").type == pyarrow.string()
        assert table.column("s").to_pylist() == ["a", None]


def test_blocks_with_many_columns_of_which_one_differs_are_joined_in_no_time() -> None:
    """The time was that of the square of their number: more than a minute."""
    names = [f"c{i}" for i in range(5000)]
    first = pyarrow.table({name: [1] for name in names})
    began = time.perf_counter()
    joined = blocks.joined([first, first.drop_columns(["c7"])])
    assert joined.column("c7").to_pylist() == [1, None]
    assert time.perf_counter() - began < 15
