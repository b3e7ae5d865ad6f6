"""Extents that a client was given ahead of use: when it asks for them, takes them, and gives them back."""

import threading

import pytest

from mpi_runtime.core.client.spare_extents import BYTES_MAX, COUNT_MAX, Spares

MB = 1_000_000


def test_only_who_writes_the_same_size_again_asks_for_more() -> None:
    spares = Spares()
    assert [spares.wanted(MB) for _ in range(3)] == [0, COUNT_MAX, COUNT_MAX]
    assert [spares.wanted(2 * MB), spares.wanted(MB)] == [0, 0], "the sizes alternate"


@pytest.mark.parametrize(
    ("size", "count"),
    [(70_000, COUNT_MAX), (4 * MB, BYTES_MAX // (4 * MB)), (BYTES_MAX // 2, 2), (BYTES_MAX // 2 + 1, 0), (100 * MB, 0)],
)
def test_how_many_depends_on_the_size(size: int, count: int) -> None:
    spares = Spares()
    spares.wanted(size)
    assert spares.wanted(size) == count


def test_they_are_for_values_that_occupy_as_much_and_each_is_taken_once() -> None:
    spares = Spares()
    assert spares.came(MB, [0, MB]) == []
    assert spares.take(2 * MB) == spares.take(MB // 2) == -1
    assert [spares.take(MB), spares.take(MB - 1), spares.take(MB)] == [0, MB, -1]


def test_others_than_those_that_are_here_are_of_no_use_until_these_are_used_up() -> None:
    spares = Spares()
    spares.came(MB, [0])
    spares.wanted(2 * MB)
    assert spares.wanted(2 * MB) == 0, "these are here still"
    assert spares.came(2 * MB, [64]) == [64]
    assert spares.take(MB) == 0
    assert spares.came(2 * MB, [64]) == []
    assert spares.take_all() == [64]
    assert spares.take_all() == []


def test_threads_that_take_at_a_time_take_different_ones() -> None:
    spares, taken = Spares(), list[int]()
    spares.came(MB, list(range(1000)))

    def take() -> None:
        while (offset := spares.take(MB)) >= 0:
            taken.append(offset)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    given_back = spares.take_all()
    for thread in threads:
        thread.join()
    assert sorted(taken + given_back) == list(range(1000))
