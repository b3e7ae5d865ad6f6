"""Sorts rows: bounds from samples of all blocks, a part for each range of keys, and each part sorted by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy

import mpi_runtime
from mpi_runtime.data import blocks
from mpi_runtime.data.arrow import pa, pc
from mpi_runtime.data.plan import Operator
from mpi_runtime.data.streams.lost_blocks import RETRIES, Rebuilding, table_of
from mpi_runtime.data.streams.records import Block
from mpi_runtime.data.streams.storing import stored
from mpi_runtime.data.whole.exchange import check_columns, count_of, exchange
from mpi_runtime.errors import ObjectLostError

if TYPE_CHECKING:
    import pyarrow

Keys = tuple[tuple[str, str], ...]
"""Columns, each "ascending" or "descending"."""
SAMPLES = 64
"""Rows of a block that are looked at, for each new block."""


def keys_of(caller: str, key: str | Sequence[str], descending: bool | Sequence[bool] = False) -> Keys:
    """Check the columns of an order, and their directions.

    Raises:
        ValueError: there is no column, or another number of directions.
    """
    names = [key] if isinstance(key, str) else [] if callable(key) else list(key or ())
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{caller}() needs the name of a column, or a list of names, not {key!r}")
    down = [descending] * len(names) if isinstance(descending, bool) else list(descending)
    if len(down) != len(names):
        raise ValueError(f"{caller}(descending={descending!r}): it must be a boolean, or one for each of {names}")
    return tuple((name, "descending" if one else "ascending") for name, one in zip(names, down, strict=True))


def order(table: pyarrow.Table, keys: Keys) -> numpy.ndarray:
    """The places of the rows in their order; equal ones keep theirs, and missing values are last."""
    check_columns(table, [name for name, _ in keys])
    sortable = blocks.decoded(table.select([name for name, _ in keys]))
    try:
        return numpy.asarray(pc.sort_indices(sortable, sort_keys=list(keys)))
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        kinds = {field.name: str(field.type) for field in sortable.schema}
        raise TypeError(f"these columns have no order: {kinds}") from error


def sort_rows(table: pyarrow.Table, keys: Keys) -> pyarrow.Table:
    """The rows of a table in their order."""
    return table.take(order(table, keys))


@mpi_runtime.remote(max_retries=RETRIES)
def _sample(table: pyarrow.Table, keys: Keys, count: int) -> object:
    names = [name for name, _ in keys]
    check_columns(table, names)
    few = numpy.random.default_rng(table.num_rows).permutation(table.num_rows)[:count]
    return blocks.compact(table.select(names).take(few))


def bounds(kept: list[Block], keys: Keys, count: int) -> pyarrow.Table:
    """The keys with which new blocks begin, but for the first; there may be fewer than wanted."""
    rows = max(SAMPLES, SAMPLES * count // max(1, len(kept)))
    samples = _samples(kept, keys, rows)
    ordered = sort_rows(blocks.joined(samples), keys)
    places = [ordered.num_rows * i // count for i in range(1, count)] if ordered.num_rows else []
    return ordered.take(pa.array(sorted(set(places)), pa.int64()))


def _samples(kept: list[Block], keys: Keys, rows: int) -> list[pyarrow.Table]:
    try:
        return mpi_runtime.get([_sample.remote(block.value, keys, rows) for block in kept])
    except ObjectLostError:
        if not Rebuilding().rebuild(kept):
            raise
        return _samples(kept, keys, rows)


def by_range(
    name: str,
    operator: Operator,
    keys: Keys,
    count: int | None,
    cpus: int,
    block_bytes: int,
    begins: Sequence[object] | None = None,
) -> list[Block]:
    """New blocks in the order of keys. Rows with equal keys are in one block; without keys all rows are.

    `begins`: the keys with which they begin, but for the first. None: they are chosen.
    """
    kept = stored(operator)
    if not kept:
        return []
    if not keys:
        return exchange(name, kept, 1, cpus, block_bytes, _first, _as_it_is)
    if begins is None:
        edges = bounds(kept, keys, count or count_of(kept, cpus, block_bytes))
    else:
        kind = table_of(kept[0]).schema.field(keys[0][0]).type
        edges = sort_rows(pa.table({keys[0][0]: pa.array(begins, kind)}), keys)

    def places(table: pyarrow.Table, number: int) -> numpy.ndarray:
        del number
        names = [name for name, _ in keys]
        both = blocks.joined([edges, table.select(names)]) if edges.num_rows else table.select(names)
        found = order(both, keys)
        is_edge = found < edges.num_rows  # an edge is before the rows that are equal to it
        parts = numpy.empty(len(found), numpy.int64)
        parts[found] = numpy.cumsum(is_edge)
        return parts[edges.num_rows :]

    def finish(table: pyarrow.Table, number: int) -> pyarrow.Table:
        del number
        return sort_rows(table, keys)

    return exchange(name, kept, edges.num_rows + 1, cpus, block_bytes, places, finish)


def _first(table: pyarrow.Table, number: int) -> numpy.ndarray:
    return numpy.zeros(table.num_rows, numpy.int64)


def _as_it_is(table: pyarrow.Table, number: int) -> pyarrow.Table:
    return table
