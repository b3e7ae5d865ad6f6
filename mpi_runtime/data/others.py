"""Data sets of torch and of Hugging Face as sources. Neither library is imported here."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

import mpi_runtime
from mpi_runtime.core import published
from mpi_runtime.data import blocks
from mpi_runtime.data.dataset import Dataset
from mpi_runtime.data.datasource.names import of_this_run
from mpi_runtime.data.plan import PLAIN, Needs, Source, fixed
from mpi_runtime.data.sources import cuts, from_arrow
from mpi_runtime.data.steps import Piece, Where
from mpi_runtime.data.streams.records import Block
from mpi_runtime.extend import digest_of

if TYPE_CHECKING:
    import pyarrow

ROWS = 256
"""A task yields this number of rows at a time."""
LEAST_ROWS = 64
PARTS_OF_CPU = 2
PART_BYTES = 32 << 20
"""About the bytes of a block of a table in memory."""


class Indexed(Protocol):
    """Items by number."""

    def __len__(self) -> int:
        """The number of items."""

    def __getitem__(self, index: int, /) -> object:
        """An item."""


class Some(Piece):
    """A part of the items of a data set."""

    def __init__(self, items: Callable[[], Iterable[object]], is_named: bool) -> None:
        self._items = items
        self._is_named = is_named
        """Whether items are rows."""

    def read(self, where: Where) -> Iterator[pyarrow.Table]:
        """Yield them."""
        items = iter(self._items())
        while part := list(itertools.islice(items, ROWS)):
            yield blocks.of_rows(part if self._is_named else [{blocks.ITEM: item} for item in part])  # type: ignore[arg-type]


@published("mpi_runtime.data")
def from_torch(
    dataset: object, local_read: bool = False, *, concurrency: int | None = None, override_num_blocks: int | None = None
) -> Dataset:
    """Make a data set of one of `torch.utils.data`: the column "item". Tensors become arrays.

    Items are made by tasks each time that rows are asked for. An iterable data set is read by one task.

    Args:
        dataset: has `__len__` and `__getitem__`, or is iterable. It is pickled.
        local_read: accepted for programs written for Ray, without effect.
        concurrency: the most tasks that read at a time.
        override_num_blocks: the number of parts that tasks read; None: it is chosen.
    """
    del local_read
    kept = mpi_runtime.put(dataset)

    def identity() -> tuple[object, ...]:
        return fixed(dataset), digest_of(dataset) or of_this_run()

    needs = Needs(concurrency=concurrency) if concurrency else PLAIN
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        if not hasattr(dataset, "__iter__"):
            raise TypeError(f"from_torch() takes a data set of torch, not {type(dataset).__name__}")

        def whole(cpus: int, block_bytes: int) -> list[Block]:
            return [Block(Some(lambda: mpi_runtime.get(kept), False), 0, 0, "from_torch", key=(0,))]  # type: ignore[arg-type]

        return Dataset(Source("from_torch", whole, identity, needs=needs))
    count = len(dataset)

    def pieces(cpus: int, block_bytes: int) -> list[Block]:
        parts = override_num_blocks or max(1, min(PARTS_OF_CPU * cpus, count // LEAST_ROWS))
        made = []
        for number, (start, stop) in enumerate(cuts(count, parts)):
            some = Some(_items(kept, start, stop), is_named=False)
            made.append(Block(some, stop - start, 0, f"from_torch, items {start} to {stop - 1}", key=(number,)))
        return made

    return Dataset(Source("from_torch", pieces, lambda: (*identity(), count), count=lambda: count, needs=needs))


def _items(kept: object, start: int, stop: int) -> Callable[[], Iterable[object]]:
    def items() -> Iterator[object]:
        found: Indexed = mpi_runtime.get(kept)  # type: ignore[call-overload]
        return (found[number] for number in range(start, stop))

    return items


@published("mpi_runtime.data")
def from_huggingface(
    dataset: object,
    parallelism: int = -1,
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
) -> Dataset:
    """Make a data set of one of Hugging Face's `datasets`; of an iterable one each shard is read by a task.

    Args:
        dataset: a `datasets.Dataset`, whose rows are stored now, or a `datasets.IterableDataset`.
        parallelism: the older name of `override_num_blocks`; -1: it is chosen.
        concurrency: the most tasks that read at a time.
        override_num_blocks: the number of blocks of a `datasets.Dataset`.

    Raises:
        TypeError: it has several splits: pass one, such as dataset["train"].
    """
    if isinstance(dataset, Mapping):
        raise TypeError(
            f"from_huggingface() takes one of the splits, such as dataset[{next(iter(dataset), 'train')!r}]"
        )
    if not hasattr(dataset, "with_format"):
        raise TypeError(f"from_huggingface() takes a data set of Hugging Face, not {type(dataset).__name__}")
    if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__"):
        table: pyarrow.Table = dataset.with_format("arrow")[:]
        table = table.replace_schema_metadata()
        parts = override_num_blocks or max(parallelism, 0) or max(1, table.nbytes // PART_BYTES)
        return from_arrow(table, override_num_blocks=parts)
    count = int(getattr(dataset, "num_shards", 1))

    def pieces(cpus: int, block_bytes: int) -> list[Block]:
        shards = [dataset.shard(count, number) for number in range(count)] if count > 1 else [dataset]  # type: ignore[attr-defined]
        return [
            Block(Some(_rows(shard), True), 0, 0, f"from_huggingface, shard {number + 1} of {count}", key=(number,))
            for number, shard in enumerate(shards)
        ]

    needs = Needs(concurrency=concurrency) if concurrency else PLAIN
    return Dataset(Source("from_huggingface", pieces, lambda: (fixed(dataset), count), needs=needs))


def _rows(shard: object) -> Callable[[], Iterable[object]]:
    return lambda: shard  # type: ignore[return-value]
