"""Rows by their places: their number, in another number of blocks, some of them, those of several data sets as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

import mpi_runtime
from mpi_runtime.data import blocks
from mpi_runtime.data.iterating import value_of
from mpi_runtime.data.plan import Divided, Exchanged, Joined, Limited, Mapped, Operator, Source
from mpi_runtime.data.steps import ROWS, Piece, Where
from mpi_runtime.data.streams.lost_blocks import DEPTH_MAX, RETRIES, Rebuilding, depth_of, forget, note_rebuilt
from mpi_runtime.data.streams.records import SOURCE, Block
from mpi_runtime.data.streams.storing import stored

if TYPE_CHECKING:
    import pyarrow

KEEPING = ("select_columns", "drop_columns", "rename_columns", "add_column", "with_columns")
"""Steps that keep the number of rows."""
Rows = tuple[Block, int, int]
"""Rows of a block: the block, the first row, the number of rows."""
Part = tuple[object, int, int]
"""Rows of a block: its reference, the first row, the number of rows."""


def rows_of(kept: list[Block], start: int, stop: int) -> list[Rows]:
    """Where the rows from one to another are; without any: the columns alone."""
    found: list[Rows] = []
    begin = 0
    for block in kept:
        low, high = max(start, begin), min(stop, begin + block.rows)
        if low < high:
            found.append((block, low - begin, high - low))
        begin += block.rows
    return found or [(block, 0, 0) for block in kept[:1]]


def parts_of(rows: list[Rows]) -> list[Part]:
    """The same by references."""
    return [(block.value, start, count) for block, start, count in rows]


class RowsRecipe(Struct, frozen=True, eq=False):
    """How a block of rows of other blocks is rebuilt."""

    sides: list[list[Rows]]
    make: Callable[[list[list[Part]]], object]
    depth: int

    def __call__(self, rebuilding: Rebuilding, value: object) -> object | None:
        """Make it again, of blocks that are rebuilt if they are lost; None: that is impossible.

        These keep their new values, since their neighbours among the new blocks need them too.
        """
        for block in (block for side in self.sides for block, _, _ in side):
            if rebuilding.is_lost(block.value) and not rebuilding.rebuild([block]):
                return None
        return self.make(list(map(parts_of, self.sides)))


def recipe_of(sides: list[list[Rows]], make: Callable[[list[list[Part]]], object]) -> RowsRecipe | None:
    """How a block of these rows is rebuilt; None: it is not. Their blocks are to be forgotten."""
    depth = 1 + depth_of(block for side in sides for block, _, _ in side)
    return RowsRecipe(sides, make, depth) if depth <= DEPTH_MAX else None


def table_of(parts: list[Part]) -> pyarrow.Table:
    """These rows as a table."""
    return blocks.joined([value_of(ref).slice(start, rows) for ref, start, rows in parts])


@mpi_runtime.remote(max_retries=RETRIES)
def _join(parts: list[Part]) -> object:
    return blocks.compact(table_of(parts))


def _join_again(sides: list[list[Part]]) -> object:
    return note_rebuilt(_join.options(num_cpus=0).remote(sides[0]))


def _joined(rows: list[Rows], size: int, origin: str, number: int) -> Block:
    """A block of these rows."""
    count = sum(some for _, _, some in rows)
    recipe = recipe_of([rows], _join_again)
    return Block(_join.remote(parts_of(rows)), count, size, origin, key=(number,), rebuild=recipe)


def stored_part(kept: list[Block], start: int, stop: int) -> list[Block]:
    """The rows of stored blocks from one to another, as stored blocks."""
    made: list[Block] = []
    for block, low, count in rows_of(kept, start, stop):
        copied = Block(block.value, block.rows, block.bytes, block.origin, SOURCE, (len(made),), block.rebuild)
        if count == block.rows:
            made.append(copied)
        else:
            size = block.bytes * count // block.rows
            made.append(_joined([(copied, low, count)], size, block.origin, len(made)))
            forget(copied)
    return made


def divide(operator: Operator, count: int, cpus: int, block_bytes: int) -> list[Block]:
    """Run an operator, and return its rows in this number of blocks."""
    del cpus, block_bytes
    kept = stored(operator)
    total = sum(block.rows for block in kept)
    return _divided(kept, [(total * i // count, total * (i + 1) // count) for i in range(count)])


def divide_exactly(operator: Operator, rows: int, cpus: int, block_bytes: int) -> list[Block]:
    """Run an operator, and return its rows in blocks with this number of them; the last one may have fewer."""
    del cpus, block_bytes
    kept = stored(operator)
    total = sum(block.rows for block in kept)
    return _divided(kept, [(start, min(start + rows, total)) for start in range(0, max(total, 1), rows)])


def _divided(kept: list[Block], bounds: Sequence[tuple[int, int]]) -> list[Block]:
    total = sum(block.rows for block in kept)
    size = sum(block.bytes for block in kept)
    made = []
    for i, (start, stop) in enumerate(bounds if kept else ()):
        part = size * (stop - start) // max(1, total)
        origin = f"repartition, rows {start} to {stop - 1}"
        made.append(_joined(rows_of(kept, start, stop), part, origin, i))
    for block in kept:
        forget(block)
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
        self.refs = [ref for side in sides for ref, _, _ in side]

    def read(self, where: Where) -> Iterator[pyarrow.Table]:
        """Yield it. A column that was there before gets a number."""
        where.step = "zip"
        first, *others = map(table_of, self._sides)
        taken = set(first.column_names)
        for table in others:
            for name, column in zip(table.column_names, table.columns, strict=True):
                number, free = 0, name
                while free in taken:
                    number += 1
                    free = f"{name}_{number}"
                taken.add(free)
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
        rows = [rows_of(side, start, stop) for side in sides]
        piece = Beside(list(map(parts_of, rows)))
        origin, recipe = f"zip, rows {start} to {stop - 1}", recipe_of(rows, Beside)
        made.append(Block(piece, block.rows, 0, origin, key=(number,), rebuild=recipe))
        start = stop
    for block in (block for side in sides for block in side):
        forget(block)
    return made


def count_rows(table: pyarrow.Table) -> pyarrow.Table:
    """A table with the number of rows."""
    return blocks.of_batch({"rows": [table.num_rows]}, "count")


def size_of(table: pyarrow.Table) -> pyarrow.Table:
    """A table with the bytes of a block."""
    return blocks.of_batch({"bytes": [table.nbytes]}, "size_bytes")


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
            counts = list(map(known_count, parents)) if keeps_rows else [None]
            return counts[0] if len(set(counts)) == 1 else None  # a zip of others is an error, when it runs
