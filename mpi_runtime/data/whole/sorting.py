"""Sorts rows: bounds from samples of all blocks, a part for each range of keys, and each part sorted by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy

import mpi_runtime
from mpi_runtime.data import blocks
from mpi_runtime.data.arrow import pa, pc
from mpi_runtime.data.plan import Operator
from mpi_runtime.data.streams.lost_blocks import RETRIES, Rebuilding
from mpi_runtime.data.streams.records import Block
from mpi_runtime.data.streams.storing import stored
from mpi_runtime.data.whole import lacking
from mpi_runtime.data.whole.exchange import count_of, exchange
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
    found: dict[str, str] = {}
    for name, one in zip(names, down, strict=True):
        found.setdefault(name, "descending" if one else "ascending")
    return tuple(found.items())


def order(table: pyarrow.Table, keys: Keys) -> numpy.ndarray:
    """The places of the rows in their order; equal ones keep theirs, and missing values are last."""
    lacking.check_columns(table, [name for name, _ in keys])
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
    few = numpy.random.default_rng(table.num_rows).permutation(table.num_rows)[:count]
    sample = lacking.chosen(table, [name for name, _ in keys]).take(few)
    return blocks.compact(sample), lacking.columns_of(table)


def bounds(samples: pyarrow.Table, keys: Keys, count: int) -> pyarrow.Table:
    """The keys with which new blocks begin, but for the first; there may be fewer than wanted."""
    ordered = sort_rows(samples, keys)
    places = [ordered.num_rows * i // count for i in range(1, count)] if ordered.num_rows else []
    return ordered.take(pa.array(sorted(set(places)), pa.int64()))


def _samples(kept: list[Block], keys: Keys, rows: int) -> list[tuple[pyarrow.Table, lacking.Known]]:
    try:
        return mpi_runtime.get([_sample.remote(block.value, keys, rows) for block in kept])  # type: ignore[misc]
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
    needed: Sequence[str] = (),
) -> list[Block]:
    """New blocks in the order of keys. Rows with equal keys are in one block; without keys all rows are.

    Args:
        name: of the operator, for messages.
        operator: what makes the rows.
        keys: the columns.
        count: the number of new blocks; None: it is chosen. There may be fewer.
        cpus: of the job.
        block_bytes: the size of blocks.
        begins: the keys with which new blocks begin, but for the first. None: they are chosen.
        needed: other columns that a block must have.
    """
    kept = stored(operator)
    if not kept:
        return []
    names = [one for one, _ in keys]
    wanted = count or count_of(kept, cpus, block_bytes)
    found = _samples(kept, keys, max(SAMPLES, SAMPLES * wanted // len(kept)))
    lacking.check_somewhere([*names, *needed], [one for _, known in found for one in known])
    if not keys:
        return exchange(name, kept, 1, cpus, block_bytes, _first, _as_it_is)
    samples = blocks.joined([sample for sample, _ in found])
    if begins is None:
        edges = bounds(samples, keys, wanted)
    else:
        edges = sort_rows(pa.table({names[0]: pa.array(begins, samples.schema.types[0])}), keys)

    def places(table: pyarrow.Table, number: int) -> numpy.ndarray:
        del number
        own = lacking.chosen(table, names)
        both = blocks.joined([edges, own]) if edges.num_rows else own
        found = order(both, keys)
        is_edge = found < edges.num_rows  # an edge is before the rows that are equal to it
        parts = numpy.empty(len(found), numpy.int64)
        parts[found] = numpy.cumsum(is_edge)
        return parts[edges.num_rows :]

    def finish(table: pyarrow.Table, number: int) -> pyarrow.Table:
        del number
        return sort_rows(lacking.filled(table, edges.schema), keys)

    return exchange(name, kept, edges.num_rows + 1, cpus, block_bytes, places, finish)


def _first(table: pyarrow.Table, number: int) -> numpy.ndarray:
    return numpy.zeros(table.num_rows, numpy.int64)


def _as_it_is(table: pyarrow.Table, number: int) -> pyarrow.Table:
    return table
