"""Reads the rows of a data set in the process that asks for them."""

from __future__ import annotations

import contextlib
import operator
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

import numpy

import mpi_runtime
from mpi_runtime.core import published
from mpi_runtime.data import blocks
from mpi_runtime.data.blocks import Row
from mpi_runtime.data.columns_of_torch import to_torch
from mpi_runtime.data.context import DataContext
from mpi_runtime.data.schema import Schema

if TYPE_CHECKING:
    import pyarrow

    from mpi_runtime import ObjectRef

T = TypeVar("T")
BATCH_ROWS = 256
FULL_S = 0.2


class Tables:
    """The tables of a data set, and how to end their iteration from another thread."""

    def __init__(self, tables: Iterator[pyarrow.Table], stop: Callable[[], None]) -> None:
        self.tables = tables
        self.stop = stop


@published("mpi_runtime.data")
class DataIterator:
    """Reads the rows of a data set, or of a part of it, as often as it is asked for them."""

    def _tables(self, ordered: bool) -> Tables:
        raise NotImplementedError

    def get_context(self) -> DataContext:
        """Its settings."""
        return DataContext.get_current()

    def materialize(self) -> mpi_runtime.data.MaterializedDataset:
        """Read all rows, and keep them as a data set."""
        return mpi_runtime.data.from_arrow(list(self._tables(ordered=True).tables)).materialize()

    def iter_rows(self) -> Iterator[Row]:
        """Iterate over rows, dictionaries of values by column."""
        return _prefetched(self._tables(ordered=True), _all_rows, 1)

    def iter_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = BATCH_ROWS,
        batch_format: str | None = "default",
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        _collate_fn: Callable[[object], object] | None = None,
    ) -> Iterator[object]:
        """Iterate over batches.

            for batch in ds.iter_batches(batch_size=32):
                print(batch["id"].mean())

        Args:
            prefetch_batches: the number of batches that a thread prepares ahead.
            batch_size: their rows; the last batch may have fewer. None: each block is a batch.
            batch_format: "numpy", a dictionary of arrays by column, "pandas" or "pyarrow".
            drop_last: leave out a last batch with fewer rows.
            local_shuffle_buffer_size: rows are drawn at random from this number of rows or more.
            local_shuffle_seed: the seed of these draws.
        """
        blocks.check_format(batch_format)
        batch_size = check_positive("batch_size", batch_size)
        check_positive("local_shuffle_buffer_size", local_shuffle_buffer_size)
        if local_shuffle_buffer_size and batch_size is None:
            raise ValueError("local_shuffle_buffer_size needs a batch_size")

        def made(tables: Iterator[pyarrow.Table]) -> Iterator[object]:
            if local_shuffle_buffer_size:
                tables = _shuffled(tables, local_shuffle_buffer_size, local_shuffle_seed)
            for table in blocks.rebatched(tables, batch_size, drop_last):
                batch = blocks.to_batch(table, batch_format)
                yield batch if _collate_fn is None else _collate_fn(batch)

        return _prefetched(self._tables(ordered=False), made, prefetch_batches)

    def iter_torch_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = BATCH_ROWS,
        dtypes: object = None,
        device: object = "auto",
        collate_fn: Callable[[Mapping[str, numpy.ndarray]], object] | None = None,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        pin_memory: bool = False,
    ) -> Iterator[object]:
        """Iterate over batches of tensors by column.

        Args:
            prefetch_batches: the number of batches that a thread prepares ahead, on the device already.
            batch_size: their rows.
            dtypes: the type of tensors, or types by column.
            device: where they are; "auto": on the device of this worker of a training, else on the CPU.
            collate_fn: makes the batch of a dictionary of arrays, in place of tensors by column.
            drop_last: leave out a last batch with fewer rows.
            local_shuffle_buffer_size: as of `iter_batches`.
            local_shuffle_seed: as of `iter_batches`.
            pin_memory: copy through pinned memory, which is faster with a GPU.

        Raises:
            ImportError: torch is not installed.
        """

        def collated(batch: object) -> object:
            assert isinstance(batch, dict)
            if collate_fn is not None:
                return to_torch(collate_fn(batch), None, device, pin_memory)
            return to_torch(batch, dtypes, device, pin_memory)

        return self.iter_batches(
            prefetch_batches=prefetch_batches, batch_size=batch_size, drop_last=drop_last,
            local_shuffle_buffer_size=local_shuffle_buffer_size, local_shuffle_seed=local_shuffle_seed,
            _collate_fn=collated,
        )  # fmt: skip

    def schema(self) -> Schema | None:
        """The names and types of columns; None: there are none."""
        tables = self._tables(ordered=True)
        try:
            for table in tables.tables:
                return Schema(table.schema)
            return None
        finally:
            tables.tables.close()  # type: ignore[attr-defined]


def whole(value: object) -> int | None:
    """A whole number of any type, such as one of numpy; None: it is something else."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def check_positive(name: str, value: int | None) -> int | None:
    """The same number; ValueError: it is below 1."""
    if value is None:
        return None
    number = whole(value)
    if number is None or number < 1:
        raise ValueError(f"{name} must be a number above 0, or None, not {value!r}")
    return number


def _all_rows(tables: Iterator[pyarrow.Table]) -> Iterator[Row]:
    for table in tables:
        for start in range(0, table.num_rows, 1024):
            yield from blocks.to_rows(table.slice(start, 1024))


def _shuffled(tables: Iterator[pyarrow.Table], least: int, seed: int | None) -> Iterator[pyarrow.Table]:
    random = numpy.random.default_rng(seed)
    waiting: list[pyarrow.Table] = []
    rows = 0
    for table in tables:
        waiting.append(table)
        rows += table.num_rows
        if rows >= 2 * least:
            mixed = blocks.joined(waiting).take(random.permutation(rows))
            yield mixed.slice(least)
            waiting, rows = [mixed.slice(0, least)], least
    if waiting:
        yield blocks.joined(waiting).take(random.permutation(rows))


class _End:
    """The last item of a prefetching thread: the error of it, if it raised."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def _prefetched(source: Tables, made: Callable[[Iterator[pyarrow.Table]], Iterable[T]], count: int) -> Iterator[T]:
    """Yield items that a thread makes ahead. Without prefetching they are made in the thread that asks."""
    if count <= 0:
        try:
            yield from made(source.tables)
        finally:
            source.tables.close()  # type: ignore[attr-defined]
        return
    items: queue.Queue[T | _End] = queue.Queue(count)
    stops = threading.Event()

    def put(item: T | _End) -> None:
        while not stops.is_set():
            with contextlib.suppress(queue.Full):
                items.put(item, timeout=FULL_S)
                break

    def work() -> None:
        error = None
        try:
            for item in made(source.tables):
                put(item)
                if stops.is_set():
                    break
        except BaseException as raised:
            error = raised
        finally:
            source.tables.close()  # type: ignore[attr-defined]
            put(_End(error))
            error = None  # its traceback has this frame: a circle would keep the rows, and what they come from

    thread = threading.Thread(target=work, name="mpi_runtime data", daemon=True)
    thread.start()
    try:
        while not isinstance(item := items.get(), _End):
            yield item
        error, item.error = item.error, None
        if error is not None:
            try:
                raise error
            finally:
                error = None  # as above
    finally:
        stops.set()
        source.stop()
        thread.join()


def value_of(ref: object) -> pyarrow.Table:
    """The block of a reference."""
    reference: ObjectRef[pyarrow.Table] = ref  # type: ignore[assignment]
    return mpi_runtime.get(reference)
