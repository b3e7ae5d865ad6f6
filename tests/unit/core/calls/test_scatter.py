"""Marks of arguments that are cut for ranks: what is refused."""

import pickle

import pytest

from mpi_runtime import mpi


def test_items_are_needed() -> None:
    with pytest.raises(TypeError, match="takes one item for each rank, such as a list, not 5"):
        mpi.scatter(5)  # type: ignore[arg-type]


def test_a_mark_elsewhere_is_refused() -> None:
    with pytest.raises(TypeError, match=r"must be an argument of a function with num_ranks.* Methods"):
        pickle.dumps([mpi.scatter([1, 2])])
