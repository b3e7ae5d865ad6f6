"""What is known of a data set as a whole: its number of rows, and its rows in another number of blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mpi_runtime
from mpi_runtime.data import blocks
from mpi_runtime.data.iterating import value_of
from mpi_runtime.data.plan import Divided, Exchanged, Joined, Limited, Mapped, Operator, Source
from mpi_runtime.data.records import Block
from mpi_runtime.data.running import stored
from mpi_runtime.data.steps import ROWS

if TYPE_CHECKING:
    import pyarrow


@mpi_runtime.remote
def _join(parts: list[tuple[object, int, int]]) -> object:
    return blocks.compact(blocks.joined([value_of(ref).slice(start, rows) for ref, start, rows in parts]))


def stored_part(kept: list[Block], start: int, stop: int) -> list[Block]:
    """The rows of stored blocks from one to another, as stored blocks."""
    made: list[Block] = []
    begin = 0
    for block in kept:
        low, high = max(start, begin), min(stop, begin + block.rows)
        if low < high:
            is_whole = high - low == block.rows
            value = block.value if is_whole else _join.remote([(block.value, low - begin, high - low)])
            size = block.bytes * (high - low) // block.rows
            made.append(Block(value, high - low, size, block.origin, key=(len(made),)))
        begin += block.rows
    return made


def divide(operator: Operator, count: int, cpus: int, block_bytes: int) -> list[Block]:
    """Run an operator, and return its rows in this number of blocks."""
    del cpus, block_bytes
    kept = stored(operator)
    total = sum(block.rows for block in kept)
    made = []
    for i in range(count):
        start, stop = total * i // count, total * (i + 1) // count
        parts: list[tuple[object, int, int]] = []
        begin = size = 0
        for block in kept:
            low, high = max(start, begin), min(stop, begin + block.rows)
            if low < high:
                parts.append((block.value, low - begin, high - low))
                size += block.bytes * (high - low) // block.rows
            begin += block.rows
        if not parts and kept:  # more blocks than rows: this one has the columns alone
            parts.append((kept[0].value, 0, 0))
        made.append(
            Block(_join.remote(parts), stop - start, size, f"repartition, rows {start} to {stop - 1}", key=(i,))
        )
    return made


def count_rows(table: pyarrow.Table) -> pyarrow.Table:
    """A table with the number of rows."""
    return blocks.of_batch({"rows": [table.num_rows]}, "count")


def known_count(operator: Operator) -> int | None:
    """The number of rows, without a run; None: it is not known."""
    match operator:
        case Source(count=count):
            return None if count is None else count()
        case Limited(parent, rows):
            known = known_count(parent)
            return None if known is None else min(known, rows)
        case Joined(parents):
            counts = [known_count(parent) for parent in parents]
            return None if None in counts else sum(filter(None, counts))
        case Mapped(parent, made, _):
            keeps = made.kind == ROWS or made.name in ("select_columns", "drop_columns", "rename_columns", "add_column")
            return known_count(parent) if keeps else None
        case Divided(parent):
            return known_count(parent)
        case Exchanged(parents, keeps_rows=keeps_rows):
            return known_count(parents[0]) if keeps_rows else None
