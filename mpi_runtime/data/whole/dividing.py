"""Rows by their places: their number, in another number of blocks, some of them, those of several data sets as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import mpi_runtime
from mpi_runtime.data import blocks
from mpi_runtime.data.iterating import value_of
from mpi_runtime.data.plan import Divided, Exchanged, Joined, Limited, Mapped, Operator, Source
from mpi_runtime.data.steps import ROWS, Piece, Where
from mpi_runtime.data.streams.lost_blocks import RETRIES
from mpi_runtime.data.streams.records import Block
from mpi_runtime.data.streams.storing import stored

if TYPE_CHECKING:
    import pyarrow

KEEPING = ("select_columns", "drop_columns", "rename_columns", "add_column", "with_columns")
"""Steps that keep the number of rows."""
Part = tuple[object, int, int]
"""Rows of a block: its reference, the first row, the number of rows."""


def rows_of(kept: list[Block], start: int, stop: int) -> list[Part]:
    """Where the rows from one to another are; without any: the columns alone."""
    parts: list[Part] = []
    begin = 0
    for block in kept:
        low, high = max(start, begin), min(stop, begin + block.rows)
        if low < high:
            parts.append((block.value, low - begin, high - low))
        begin += block.rows
    return parts or [(block.value, 0, 0) for block in kept[:1]]


def table_of(parts: list[Part]) -> pyarrow.Table:
    """These rows as a table."""
    return blocks.joined([value_of(ref).slice(start, rows) for ref, start, rows in parts])


@mpi_runtime.remote(max_retries=RETRIES)
def _join(parts: list[Part]) -> object:
    return blocks.compact(table_of(parts))


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
    if not made and kept:
        made.append(Block(_join.remote([(kept[0].value, 0, 0)]), 0, 0, kept[0].origin, key=(0,)))
    return made


def divide(operator: Operator, count: int, cpus: int, block_bytes: int) -> list[Block]:
    """Run an operator, and return its rows in this number of blocks."""
    del cpus, block_bytes
    kept = stored(operator)
    total = sum(block.rows for block in kept)
    size = sum(block.bytes for block in kept)
    made = []
    for i in range(count):
        start, stop = total * i // count, total * (i + 1) // count
        part = size * (stop - start) // max(1, total)
        origin = f"repartition, rows {start} to {stop - 1}"
        made.append(Block(_join.remote(rows_of(kept, start, stop)), stop - start, part, origin, key=(i,)))
    return made


def edges(rows: int, shares: Sequence[float]) -> list[int]:
    """The places at which rows are divided into these shares of them, and a last part; none is empty if possible."""
    places = [int(rows * sum(shares[: number + 1])) for number in range(len(shares))]
    for number, after in enumerate(range(rows - len(shares), rows)):
        least = places[number - 1] + 1 if number else 1
        places[number] = max(0, min(max(places[number], least), after))
    return places


class Beside(Piece):
    """Rows of several data sets with the same places, as one block."""

    def __init__(self, sides: list[list[Part]]) -> None:
        self._sides = sides

    def read(self, where: Where) -> Iterator[pyarrow.Table]:
        """Yield it. A column that was there before gets a number."""
        where.step = "zip"
        first, *others = map(table_of, self._sides)
        for table in others:
            for name, column in zip(table.column_names, table.columns, strict=True):
                number, free = 0, name
                while free in first.column_names:
                    number += 1
                    free = f"{name}_{number}"
                first = first.append_column(free, column)
        where.step = ""
        yield first


def beside(operators: Sequence[Operator], cpus: int, block_bytes: int) -> list[Block]:
    """Run operators with the same number of rows, and return blocks with the columns of all, as of the first."""
    del cpus, block_bytes
    sides = [stored(operator) for operator in operators]
    counts = [sum(block.rows for block in side) for side in sides]
    if len(set(counts)) > 1:
        raise ValueError(f"zip() needs data sets with the same number of rows, not {' and '.join(map(str, counts))}")
    made = []
    start = 0
    for number, block in enumerate(sides[0]):
        stop = start + block.rows
        piece = Beside([rows_of(side, start, stop) for side in sides])
        made.append(Block(piece, block.rows, 0, f"zip, rows {start} to {stop - 1}", key=(number,)))
        start = stop
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
            keeps = made.kind == ROWS or made.name.startswith(KEEPING)
            return known_count(parent) if keeps else None
        case Divided(parent):
            return known_count(parent)
        case Exchanged(parents, keeps_rows=keeps_rows):
            return known_count(parents[0]) if keeps_rows else None
