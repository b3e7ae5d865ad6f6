"""What a task does with its blocks."""

from __future__ import annotations

import weakref

import pytest

pyarrow = pytest.importorskip("pyarrow")
from mpi_runtime.data.steps import TABLES, Chain, Header, Meta, Step, run  # noqa: E402


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
