"""While a task rests after a block, it keeps nothing in the store that others need to go on."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy
import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

import mpi_runtime
from mpi_runtime.data.steps import Chain, Header, Meta, run
from mpi_runtime.data.whole.exchange import Gathered

ROWS = 1000


class Store:
    """Stands for the store: which of its values somebody looks at."""

    def __init__(self) -> None:
        self.looked_at: list[weakref.ref[numpy.ndarray]] = []

    def table(self) -> pa.Table:
        memory = numpy.zeros(ROWS * 8, numpy.uint8)
        self.looked_at.append(weakref.ref(memory))
        return pa.table({"id": pa.Array.from_buffers(pa.int64(), ROWS, [None, pa.py_buffer(memory)])})

    def in_use(self) -> int:
        gc.collect()
        return sum(one() is not None for one in self.looked_at)


def test_a_task_that_rests_amid_rows_keeps_none_of_the_values_that_it_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    monkeypatch.setattr(mpi_runtime, "get", lambda refs: [(store.table(), [0, ROWS // 2, ROWS]) for _ in refs])

    def finish(table: pa.Table, number: int) -> pa.Table:
        return table.take(numpy.arange(table.num_rows))

    refs: list[Any] = [None] * 5
    piece = Gathered(refs, 0, 1, pa.table({"id": pa.array([], pa.int64())}), "shuffled", finish)
    made = run(Chain((), ROWS * 8), Header((), (0,)), [piece])
    assert next(made).num_rows < len(refs) * ROWS // 2
    meta = next(made)  # it rests here until the stream asks for more
    assert isinstance(meta, Meta)
    assert not meta.is_last
    assert len(store.looked_at) == len(refs)
    assert store.in_use() == 0
