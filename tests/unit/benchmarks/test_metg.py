"""The graphs of `benchmarks.metg` are those of Task Bench, and the crossing is where the efficiency is a half."""

import pytest

from benchmarks.metg import crossing_us
from benchmarks.systems.graphs import Graph, task


def reads(pattern: str, step: int, width: int = 8) -> list[list[int]]:
    graph = Graph(pattern, width, 10, 0)
    return [graph.reads(step, point) for point in graph.points(step)]


def test_a_stencil_reads_its_neighbours() -> None:
    assert reads("stencil_1d", 3, width=4) == [[0, 1], [0, 1, 2], [1, 2, 3], [2, 3]]
    assert reads("stencil_1d", 0, width=4) == [[], [], [], []]


def test_the_distance_of_an_fft_doubles_with_each_row_and_begins_anew() -> None:
    assert reads("fft", 1, width=4) == reads("fft", 3, width=4) == [[0, 1], [0, 1, 2], [1, 2, 3], [2, 3]]
    assert reads("fft", 2, width=4) == [[0, 2], [1, 3], [0, 2], [1, 3]]


def test_a_tree_doubles_until_it_is_as_wide_as_the_graph() -> None:
    assert [reads("tree", step, width=4) for step in range(4)] == [
        [[]],
        [[0], [0]],
        [[0], [0], [1], [1]],
        [[0], [0], [1], [1]],
    ]
    assert Graph("tree", 4, 3, 0).tasks == 1 + 2 + 4
    assert Graph("tree", 4, 4, 0).unread() == [(2, 2), (2, 3), (3, 0), (3, 1), (3, 2), (3, 3)]


def test_random_neighbours_are_the_same_in_each_run_and_contain_the_own_column() -> None:
    drawn = [reads("random_nearest", step) for step in range(1, 10)]
    assert drawn == [reads("random_nearest", step) for step in range(1, 10)]
    assert all(
        point in row[point] and set(row[point]) <= {point - 1, point, point + 1} for row in drawn for point in range(8)
    )
    assert len({tuple(map(tuple, row)) for row in drawn}) > 1


def test_a_task_rejects_what_is_not_of_the_row_before() -> None:
    assert task(3, 1, 0, (2, 0), (2, 1)) == (3, 1)
    with pytest.raises(AssertionError):
        task(3, 1, 0, (1, 0))


def test_the_crossing_is_interpolated_in_the_logarithm() -> None:
    assert crossing_us([400, 200, 100], [0.9, 0.6, 0.4]) == pytest.approx(200 / 2**0.5)
    assert crossing_us([400, 200], [0.9, 0.6]) is None
    assert crossing_us([400, 200], [0.4, 0.3]) is None
