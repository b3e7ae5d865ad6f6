"""Data sets of numbers, lists, arrays, data frames and tables."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy

import mpi_runtime
from mpi_runtime.core import published
from mpi_runtime.data import blocks, references
from mpi_runtime.data.arrow import pa
from mpi_runtime.data.dataset import Dataset, MaterializedDataset
from mpi_runtime.data.iterating import whole
from mpi_runtime.data.plan import PLAIN, Needs, Source
from mpi_runtime.data.steps import Piece, Where
from mpi_runtime.data.streams.records import SOURCE, Block
from mpi_runtime.data.streams.storing import of_blocks

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from mpi_runtime import ObjectRef

ID = "id"
"""The column of `range`."""
LEAST_BYTES = 1 << 20
"""Sources have smaller parts only if there would be fewer than two for each CPU."""
LEAST_ROWS = 1024
PART_ROWS = 1 << 16
"""A range yields this number of rows at a time."""


class Numbers(Piece):
    """A part of a range."""

    def __init__(self, start: int, stop: int, shape: tuple[int, ...]) -> None:
        self.start, self.stop, self.shape = start, stop, shape

    def read(self, where: Where) -> Iterator[pyarrow.Table]:
        """Yield it."""
        where.origin = f"range, rows {self.start} to {self.stop - 1}"
        for start in builtins.range(self.start, max(self.stop, self.start + 1), PART_ROWS):  # without rows: the column
            ids = numpy.arange(start, min(start + PART_ROWS, self.stop), dtype=numpy.int64)
            if self.shape:
                ids = numpy.broadcast_to(ids.reshape(-1, *[1] * len(self.shape)), (len(ids), *self.shape))
                yield blocks.of_batch({blocks.DATA: ids}, "range_tensor")
            else:
                yield pa.table({ID: ids})


@published("mpi_runtime.data")
def range(
    n: int, *, parallelism: int = -1, concurrency: int | None = None, override_num_blocks: int | None = None
) -> Dataset:
    """Make a data set of the numbers below `n`, in the column "id".

        ds = data.range(1000).map(lambda row: {"square": row["id"] ** 2})

    Args:
        n: the number of rows.
        parallelism: the older name of `override_num_blocks`; -1: it is chosen.
        concurrency: the most tasks that read at a time.
        override_num_blocks: the number of blocks.
    """
    return _range(n, (), concurrency, override_num_blocks or max(parallelism, 0))


@published("mpi_runtime.data")
def range_tensor(
    n: int,
    *,
    shape: tuple[int, ...] = (1,),
    parallelism: int = -1,
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
) -> Dataset:
    """Make a data set of arrays of this shape in the column "data", filled with the numbers below `n`."""
    return _range(n, tuple(shape), concurrency, override_num_blocks or max(parallelism, 0))


def _range(n: int, shape: tuple[int, ...], concurrency: int | None, count: int) -> Dataset:
    rows = whole(n)
    if rows is None or rows < 0:
        raise ValueError(f"range(n): n must be a whole number, 0 or more, not {n!r}")
    n = rows
    row_bytes = 8 * int(numpy.prod(shape))

    def pieces(cpus: int, block_bytes: int) -> list[Block]:
        parts = count or _parts(n, n * row_bytes, cpus, block_bytes)
        bounds = cuts(n, parts)
        return [
            Block(Numbers(start, stop, shape), stop - start, 0, f"range, rows {start} to {stop - 1}", key=(i,))
            for i, (start, stop) in enumerate(bounds)
        ]

    needs = Needs(concurrency=concurrency) if concurrency else PLAIN
    name = "range_tensor" if shape else "range"
    return Dataset(Source(name, pieces, lambda: (n, shape), count=lambda: n, needs=needs))


def cuts(count: int, parts: int) -> list[tuple[int, int]]:
    """The bounds of consecutive parts, whose sizes differ by one at most; none is empty, unless all are."""
    parts = max(1, min(parts, count))
    return [(count * i // parts, count * (i + 1) // parts) for i in builtins.range(parts)]


def _parts(rows: int, amount: int, cpus: int, block_bytes: int) -> int:
    for_cpus = 2 * cpus
    for_size = -(-amount // block_bytes)
    few = max(1, amount // LEAST_BYTES, min(for_cpus, rows // LEAST_ROWS))
    return max(for_size, min(few, 4 * for_cpus))


@published("mpi_runtime.data")
def from_items(items: Sequence[object], *, parallelism: int = -1, override_num_blocks: int | None = None) -> Dataset:
    """Make a data set of a list: of dictionaries, which are rows, or of other values, in the column "item"."""
    items = list(items)
    count = override_num_blocks or max(parallelism, 0) or max(1, min(len(items), 200, -(-len(items) // 16)))
    return _of_tables([blocks.of_items(items[start:stop]) for start, stop in cuts(len(items), count)], "from_items")


@published("mpi_runtime.data")
def from_numpy(ndarrays: numpy.ndarray | Sequence[numpy.ndarray]) -> Dataset:
    """Make a data set of an array, whose first axis is the rows, or of several, one block each: the column "data"."""
    arrays = [ndarrays] if isinstance(ndarrays, numpy.ndarray) else list(ndarrays)
    return _of_tables([blocks.of_batch({blocks.DATA: array}, "from_numpy") for array in arrays], "from_numpy")


@published("mpi_runtime.data")
def from_pandas(dfs: pandas.DataFrame | Sequence[pandas.DataFrame], override_num_blocks: int | None = None) -> Dataset:
    """Make a data set of a data frame, or of several, one block each."""
    frames = list(dfs) if isinstance(dfs, list | tuple) else [dfs]
    return _of_tables(_divided([blocks.of_pandas(frame) for frame in frames], override_num_blocks), "from_pandas")


@published("mpi_runtime.data")
def from_arrow(
    tables: pyarrow.Table | bytes | Sequence[pyarrow.Table | bytes], *, override_num_blocks: int | None = None
) -> Dataset:
    """Make a data set of a table, or of several, one block each; bytes are a stream of Arrow's IPC."""
    given = list(tables) if isinstance(tables, list | tuple) else [tables]
    found = [pa.ipc.open_stream(one).read_all() if isinstance(one, bytes) else one for one in given]
    return _of_tables(_divided(found, override_num_blocks), "from_arrow")


@published("mpi_runtime.data")
def from_arrow_refs(tables: ObjectRef[object] | Sequence[ObjectRef[object]]) -> Dataset:
    """Make a data set of references to tables, or to bytes of Arrow's IPC, one block each."""
    return _of_refs(tables, "from_arrow_refs")


@published("mpi_runtime.data")
def from_pandas_refs(dfs: ObjectRef[object] | Sequence[ObjectRef[object]]) -> Dataset:
    """Make a data set of references to data frames, one block each."""
    return _of_refs(dfs, "from_pandas_refs")


@published("mpi_runtime.data")
def from_numpy_refs(ndarrays: ObjectRef[object] | Sequence[ObjectRef[object]]) -> Dataset:
    """Make a data set of references to arrays, one block each: the column "data"."""
    return _of_refs(ndarrays, "from_numpy_refs")


def _of_refs(given: ObjectRef[object] | Sequence[ObjectRef[object]], name: str) -> Dataset:
    kept = references.stored(given, name)
    return MaterializedDataset(of_blocks(kept, name), kept)


@published("mpi_runtime.data")
def from_blocks(blocks: Sequence[pyarrow.Table | pandas.DataFrame]) -> Dataset:
    """Make a data set of tables and data frames, one block each."""
    from mpi_runtime.data.blocks import of_batch

    return _of_tables([of_batch(block, "from_blocks") for block in blocks], "from_blocks")


def _divided(tables: list[pyarrow.Table], count: int | None) -> list[pyarrow.Table]:
    if not count:
        return tables
    joined = blocks.joined(tables)
    parts = [joined.slice(start, stop - start) for start, stop in cuts(joined.num_rows, count)]
    return parts + [joined.slice(0, 0)] * (count - len(parts))


def _of_tables(tables: list[pyarrow.Table], name: str) -> Dataset:
    stored = []
    rows = 0
    for i, table in enumerate(blocks.compact(blocks.without_views(one)) for one in tables):
        blocks.check_columns(table)
        origin = f"{name}, rows {rows} to {rows + table.num_rows - 1}"
        stored.append(Block(mpi_runtime.put(table), table.num_rows, table.nbytes, origin, SOURCE, (i,)))
        rows += table.num_rows
    return MaterializedDataset(of_blocks(stored, name), stored)
