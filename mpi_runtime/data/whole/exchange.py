"""Gives all rows new places: blocks are cut into pieces by row, and each new block is gathered from one piece of each.

The rows of the parent are in the store first, which spills those for which it has no memory. So the number of new
blocks and the bounds of keys are known, not estimated. A block is freed when it was cut; the pieces of a new block are
freed when it was made. New blocks are read as files are: by tasks that stop when the budget of their stream is used up.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy
from msgspec import Struct

import mpi_runtime
from mpi_runtime.data import blocks
from mpi_runtime.data.arrow import pa, pc
from mpi_runtime.data.plan import Operator
from mpi_runtime.data.steps import BlockValueError, Piece, Where
from mpi_runtime.data.streams.lost_blocks import (
    DEPTH_MAX,
    RETRIES,
    Rebuilding,
    depth_of,
    forget,
    note_rebuilt,
    table_of,
)
from mpi_runtime.data.streams.records import Block
from mpi_runtime.data.streams.storing import stored

if TYPE_CHECKING:
    import pyarrow

    from mpi_runtime import ObjectRef

Ref: TypeAlias = "ObjectRef[pyarrow.Table | None]"
Places = Callable[["pyarrow.Table", int], numpy.ndarray]
"""The number of the new block of each row of a block, which has a number too."""
Finish = Callable[["pyarrow.Table", int], "pyarrow.Table"]
"""What becomes of the rows of a new block with this number."""
CUTS_AHEAD = 1
"""Tasks beyond the CPUs that cut blocks at a time: each holds a block and its pieces in memory."""


class Gathered(Piece):
    """A new block: a piece of each old one."""

    def __init__(self, pieces: list[Ref], number: int, empty: pyarrow.Table, name: str, finish: Finish) -> None:
        self.refs: list[Ref] = pieces
        self._number = number
        self._empty = empty
        self._name = name
        self._finish = finish

    def read(self, where: Where) -> Iterator[pyarrow.Table]:
        """Yield its rows."""
        where.step = self._name
        found = [piece for piece in mpi_runtime.get(self.refs) if piece is not None]
        table = self._finish(blocks.joined([self._empty, *found]), self._number)
        where.step = ""
        yield table

    def of(self, pieces: list[Ref]) -> Gathered:
        """The same of other references."""
        return Gathered(pieces, self._number, self._empty, self._name, self._finish)


@mpi_runtime.remote(max_retries=RETRIES)
def _cut(table: pyarrow.Table, number: int, count: int, places: Places) -> object:
    found = places(table, number)
    order = numpy.argsort(found, kind="stable")
    edges = numpy.searchsorted(found[order], numpy.arange(count + 1))
    rows = table.take(order)
    parts = [
        blocks.compact(rows.slice(low, high - low)) if low < high else None
        for low, high in itertools.pairwise(edges.tolist())
    ]
    return parts[0] if count == 1 else tuple(parts)


class Cuts:
    """How old blocks were cut, for the case that pieces are lost."""

    def __init__(self, kept: list[Block], count: int, places: object) -> None:
        self._kept = kept
        self._count = count
        self._places = places
        self._rebuilt: dict[int, list[Ref]] = {}
        """By old block: its pieces, for all new blocks, since most of these need them."""
        self.depth = 1 + depth_of(kept)

    def cut(self, old: int, value: object, **options: int) -> list[Ref]:
        """Begin to cut a block."""
        pieces = _cut.options(num_returns=self._count, **options).remote(value, old, self._count, self._places)
        return [pieces] if self._count == 1 else list(pieces)

    def piece(self, old: int, new: int, rebuilding: Rebuilding) -> Ref | None:
        """A rebuilt piece; None: that is impossible."""
        if old not in self._rebuilt or rebuilding.is_lost(self._rebuilt[old][new]):
            value = rebuilding.value(self._kept[old])
            if value is None:
                return None
            self._rebuilt[old] = list(map(note_rebuilt, self.cut(old, value, num_cpus=0)))
        return self._rebuilt[old][new]


class GatheredRecipe(Struct, frozen=True, eq=False):
    """How a new block is rebuilt, if pieces of it are lost, or what a task has made of it."""

    cuts: Cuts
    like: Gathered
    """The same without its pieces."""
    number: int
    size: int

    @property
    def depth(self) -> int:
        """As of `lost_blocks.Recipe`."""
        return self.cuts.depth

    def __call__(self, rebuilding: Rebuilding, value: object) -> object | None:
        """The new block, with rebuilt pieces in place of lost ones; None: that is impossible."""
        before: Sequence[Ref | None] = value.refs if isinstance(value, Gathered) else [None] * self.size
        pieces = [
            self.cuts.piece(old, self.number, rebuilding) if piece is None or rebuilding.is_lost(piece) else piece
            for old, piece in enumerate(before)
        ]
        found = [piece for piece in pieces if piece is not None]
        return self.like.of(found) if len(found) == len(pieces) else None


def count_of(kept: list[Block], cpus: int, block_bytes: int) -> int:
    """The number of new blocks: each has about the size of a block, and small ones are not divided further."""
    by_size = -(-sum(block.bytes for block in kept) // block_bytes)
    return max(1, by_size, min(len(kept), 2 * cpus))


def exchange(name: str, kept: list[Block], count: int, cpus: int, places: Places, finish: Finish) -> list[Block]:
    """Cut the blocks into pieces, forget them, and return new blocks, which tasks are to read."""
    if not kept:
        return []
    shared = mpi_runtime.put(places)
    empty = blocks.compact(table_of(kept[0]).slice(0, 0))
    cuts = Cuts(kept, count, shared)
    rows: list[list[Ref]] = []
    running: list[Ref] = []
    for number, block in enumerate(kept):
        if len(running) >= cpus + CUTS_AHEAD:
            _, running = mpi_runtime.wait(running, num_returns=1, fetch_local=False)
        rows.append(cuts.cut(number, block.value))
        running.append(rows[-1][0])
        forget(block)
    made = []
    for number in range(count):
        like = Gathered([], number, empty, name, finish)
        recipe = GatheredRecipe(cuts, like, number, len(kept)) if cuts.depth <= DEPTH_MAX else None
        origin = f"{name}, part {number + 1} of {count}"
        made.append(Block(like.of([row[number] for row in rows]), 0, 0, origin, key=(number,), rebuild=recipe))
    return made


def shuffle(operator: Operator, seed: int | None, count: int | None, cpus: int, block_bytes: int) -> list[Block]:
    """New blocks, with all rows in random places."""
    kept = stored(operator)
    parts = count or count_of(kept, cpus, block_bytes)
    base = int(numpy.random.SeedSequence(seed).generate_state(1)[0])

    def places(table: pyarrow.Table, number: int) -> numpy.ndarray:
        return numpy.asarray(numpy.random.default_rng([base, 0, number]).integers(0, parts, table.num_rows))

    def finish(table: pyarrow.Table, number: int) -> pyarrow.Table:
        return table.take(numpy.random.default_rng([base, 1, number]).permutation(table.num_rows))

    return exchange("random_shuffle", kept, parts, cpus, places, finish)


def sample(table: pyarrow.Table, place: tuple[int, ...], fraction: float, seed: int | None) -> pyarrow.Table:
    """Rows of a block by chance."""
    random = numpy.random.default_rng(None if seed is None else [seed, *place])
    return table.filter(pa.array(random.random(table.num_rows) < fraction))


def by_hash(
    operator: Operator, names: Sequence[str], count: int, is_sorted: bool, cpus: int, block_bytes: int
) -> list[Block]:
    """This number of new blocks. Rows with equal values in these columns are in one of them."""
    del block_bytes

    def places(table: pyarrow.Table, number: int) -> numpy.ndarray:
        del number
        return hashed(table, names, count)

    def finish(table: pyarrow.Table, number: int) -> pyarrow.Table:
        del number
        return table.sort_by([(name, "ascending") for name in names]) if is_sorted else table

    return exchange("repartition", stored(operator), count, cpus, places, finish)


def hashed(table: pyarrow.Table, names: Sequence[str], count: int) -> numpy.ndarray:
    """A number below `count` for each row, the same for equal values in these columns."""
    check_columns(table, names)
    found = numpy.zeros(table.num_rows, numpy.uint64)
    for name in names:
        codes = pc.dictionary_encode(table.column(name), null_encoding="encode").combine_chunks()
        hashes = numpy.array([_hash(value) for value in codes.dictionary.to_pylist()] or [0], numpy.uint64)
        found = found * numpy.uint64(31) + hashes[numpy.asarray(codes.indices)]
    return numpy.asarray(found % numpy.uint64(count), numpy.int64)


def _hash(value: object) -> int:
    """The same in each process; numbers that are equal have the same, whatever their type."""
    is_number = isinstance(value, int | float) and not (isinstance(value, float) and math.isnan(value))
    return hash(value) & 0xFFFFFFFF if is_number else zlib.crc32(repr(value).encode())


def check_columns(table: pyarrow.Table, names: Sequence[str]) -> None:
    """Refuse names that are not those of columns, by BlockValueError."""
    if unknown := [name for name in names if name not in table.column_names]:
        raise BlockValueError(no_column(unknown, table))


def no_column(names: Sequence[str], table: pyarrow.Table) -> str:
    """The message for columns that a table does not have."""
    return f"there's no such column in the dataset: {', '.join(names)}. It has {table.column_names}"


def block_order(operator: Operator, seed: int | None, cpus: int, block_bytes: int) -> list[Block]:
    """The same blocks in random places."""
    del cpus, block_bytes
    kept = stored(operator)
    order = numpy.random.default_rng(seed).permutation(len(kept))
    return [kept[place] for place in order]
