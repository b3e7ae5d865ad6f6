"""Data frames and Arrow tables: their columns lie beside the pickle, and are read as views. Skipped without them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpi_runtime.core.objects import serialize

ROWS = 100_000


def sent(value: Any) -> tuple[Any, memoryview, int]:
    """The value as another process reads it, the bytes that it reads, and how many of them are in the pickle."""
    serialized = serialize.dumps(value)
    whole = bytearray(serialized.size())
    for position, part in serialized.parts():
        whole[position : position + memoryview(part).nbytes] = memoryview(part).cast("B")
    view = memoryview(whole)
    return serialize.loads(view), view, len(serialized.data)


def lies_in(array: Any, view: memoryview) -> bool:
    return bool(np.shares_memory(array, np.frombuffer(view, np.uint8)))


def test_a_data_frame() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": np.arange(ROWS), "b": np.arange(ROWS) / 3, "c": np.arange(ROWS, dtype=np.float32)})
    found, view, pickled = sent(frame)
    pandas.testing.assert_frame_equal(found, frame)
    assert pickled < 10_000
    assert all(lies_in(found[name].to_numpy(), view) for name in "abc")
    with pytest.raises(ValueError, match="read-only"):
        found["a"].to_numpy()[0] = 1


def test_a_series_with_a_name() -> None:
    pandas = pytest.importorskip("pandas")
    found, view, pickled = sent(pandas.Series(np.arange(ROWS), name="time"))
    assert (found.name, int(found.sum())) == ("time", ROWS * (ROWS - 1) // 2)
    assert pickled < 10_000
    assert lies_in(found.to_numpy(), view)


def test_an_arrow_table() -> None:
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"a": np.arange(ROWS), "text": [f"row {row}" for row in range(ROWS)]})
    found, view, pickled = sent(table)
    assert found.equals(table)
    assert pickled < 10_000
    assert lies_in(found["a"].chunk(0).to_numpy(), view)
    text = np.frombuffer(found["text"].chunk(0).buffers()[-1], np.uint8)
    assert lies_in(text, view)
