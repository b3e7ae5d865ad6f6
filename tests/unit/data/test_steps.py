"""What a task does with its blocks."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import numpy
import pytest

pyarrow = pytest.importorskip("pyarrow")
from mpi_runtime.data.steps import BATCHES, ROWS, TABLES, BlockError, Chain, Header, Meta, Step, run  # noqa: E402


def test_a_task_that_rests_keeps_no_block() -> None:
    """It may rest for as long as the consumer does, and nobody counts what it keeps."""
    made: list[weakref.ref[object]] = []

    def double(table: object) -> object:
        block = pyarrow.table({"x": list(range(1000))})
        made.append(weakref.ref(block))
        return block

    inputs = [pyarrow.table({"x": [1]}), pyarrow.table({"x": [2]})]
    task = run(Chain((Step(TABLES, "double", double, is_exact=True),), 1 << 20), Header(("", ""), (0,)), inputs)
    for number in range(2):
        block = weakref.ref(next(task))
        meta = next(task)
        assert isinstance(meta, Meta)
        assert meta.rows == 1000
        assert block() is None, number
        assert made[number]() is None, number


@pytest.mark.parametrize("is_generator", [False, True])
def test_a_task_that_rests_keeps_no_batch(is_generator: bool) -> None:
    """Else each task has one beside the block that it makes."""
    read: list[weakref.ref[object]] = []

    def double(batch: dict[str, numpy.ndarray]) -> object:
        read.append(weakref.ref(batch["x"]))
        made = {"x": batch["x"] * 2}
        return iter([made]) if is_generator else made

    inputs = [pyarrow.table({"x": list(range(1000))}) for _ in range(4)]
    task = run(Chain((Step(BATCHES, "double", double, batch_size=500),), 4000), Header(("",) * 4, (0,)), inputs)
    rows = 0
    for item in task:
        if isinstance(item, Meta):
            rows += item.rows
            assert all(batch() is None for batch in read)
    assert rows == 4000


def test_the_last_block_is_forgotten_too() -> None:
    """Its task has ended for the stream, but not for its process."""
    made: list[weakref.ref[object]] = []

    def double(table: object) -> object:
        block = pyarrow.table({"x": list(range(1000))})
        made.append(weakref.ref(block))
        return block

    inputs = [pyarrow.table({"x": [1]})]
    task = run(Chain((Step(TABLES, "double", double),), 1 << 20), Header(("",), (0,)), inputs)
    next(task)
    meta = next(task)
    assert isinstance(meta, Meta)
    assert meta.is_last
    assert made[0]() is None


def test_a_failure_between_two_batches_names_its_step() -> None:
    """Another step has worked with what was made before."""

    def late(row: dict[str, int]) -> object:
        return {"x": 1 // (1500 - row["x"])}

    def halves(batch: dict[str, numpy.ndarray]) -> Iterator[object]:
        yield batch
        raise KeyError("half")

    def same(row: object) -> object:
        return row

    after = Step(ROWS, "same", same)
    inputs = [pyarrow.table({"x": list(range(3000))})]
    for step, message in (
        (Step(ROWS, "late", late), "late has failed at row 1500 of here: ZeroDivisionError"),
        (Step(BATCHES, "halves", halves), "halves has failed at rows 0 to 2999 of here: KeyError"),
    ):
        with pytest.raises(BlockError, match=message):
            list(run(Chain((step, after), 1 << 20), Header(("here",), (0,)), inputs))
