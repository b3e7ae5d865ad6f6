"""Arguments of transformations and readers."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")
from mpi_runtime import data
from mpi_runtime.data.options import needs


@pytest.mark.parametrize("given", [0, -1, (0, 2), (3, 2), (1, 3, 5), (1, 2, 3, 4), "two", (1.5, 2)])
def test_numbers_of_actors_that_are_refused(given: object) -> None:
    with pytest.raises(ValueError, match=r"as a number above 0, or for a class"):
        needs("map", True, concurrency=given)


def test_numbers_of_actors() -> None:
    assert needs("map", True, concurrency=(1, 4)).concurrency == (1, 4)
    assert needs("map", True, concurrency=(1, 4, 2)).concurrency == (1, 4)
    assert needs("map", False, concurrency=3, max_concurrency=2).concurrency == 3
    with pytest.raises(ValueError, match="for classes"):
        needs("map", False, concurrency=(1, 4))
    with pytest.raises(ValueError, match="max_tasks_in_flight_per_actor=0"):
        data.ActorPoolStrategy(max_tasks_in_flight_per_actor=0)


def test_sizes_of_images_that_are_refused() -> None:
    with pytest.raises(ValueError, match="height and a width"):
        data.read_images("images", size=(-32, 32))
