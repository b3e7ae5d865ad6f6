"""Chunks of `f.map` at the end of the job's time: how long the scheduler thinks that they take."""

import pytest

from mpi_runtime.core.calls import chunks
from mpi_runtime.core.calls.remote_function import RemoteFunction


def fit(number: int) -> int:
    return number


def chunked(**options: float) -> chunks.Chunked:
    one = RemoteFunction(fit, options)
    return chunks.Chunked(one, fit, "fit", options, one._code)


@pytest.mark.parametrize("name", ["time_limit", "expect"])
def test_a_chunk_that_hands_on_the_rest_takes_a_slice_and_a_call(name: str) -> None:
    assert chunked(**{name: 100}).of(0)._options[name] == 100 + chunks.SLICE_S


@pytest.mark.parametrize("name", ["time_limit", "expect"])
def test_one_that_makes_all_its_calls_takes_as_long_as_these(name: str) -> None:
    assert chunked(**{name: 100}).of(8)._options[name] == 800


def test_without_a_limit_there_is_none() -> None:
    function = chunked()
    assert [function.of(calls)._options["time_limit"] for calls in (0, 8)] == [None, None]


def test_what_chunks_of_different_sizes_take_is_measured_apart() -> None:
    function = chunked()
    codes = [function.of(calls)._code.pickled() for calls in (0, 8, 4)]
    assert len(set(codes)) == 3
    assert function.of(8)._code.pickled() == codes[1]


@pytest.mark.parametrize(
    ("calls", "most", "counts_as"), [(8, 8, 8), (7, 7, 7), (7, 100, 8), (5, 7, 7), (4, 7, 4), (2, 7, 2)]
)
def test_few_sizes_are_told_apart(calls: int, most: int, counts_as: int) -> None:
    """Each has code of its own in the head and in every process that runs it."""
    assert chunks._rounded(calls, most) == counts_as
