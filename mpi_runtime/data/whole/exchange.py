"""Gives all rows new places: blocks are cut into pieces by row, and each new block is gathered from one piece of each.

The rows of the parent are in the store first, which spills those for which it has no memory. So the number of new
blocks and the bounds of keys are known, not estimated. A block is freed when it was cut; pieces are freed when the new
blocks were made. New blocks are read as files are: by tasks that stop when the budget of their stream is used up.

Many blocks have pieces too small for the store: the head and the program would keep them, within no budget. So a task
cuts several neighbouring blocks, a bundle, and pieces of neighbouring new blocks are one value, of which each reads its
rows without a copy. See `Grouping`.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy
from msgspec import Struct

import mpi_runtime
from mpi_runtime.data import blocks
from mpi_runtime.data.arrow import pa, pc
from mpi_runtime.data.plan import Operator
from mpi_runtime.data.steps import Piece, Where
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
from mpi_runtime.data.whole import lacking
from mpi_runtime.errors import ObjectLostError

if TYPE_CHECKING:
    import pyarrow

    from mpi_runtime import ObjectRef

Cut: TypeAlias = "tuple[pyarrow.Table, list[int]]"
Ref: TypeAlias = "ObjectRef[Cut | None]"
Places = Callable[["pyarrow.Table", int], numpy.ndarray]
"""The number of the new block of each row of a block, which has a number too."""
Finish = Callable[["pyarrow.Table", int], "pyarrow.Table"]
"""What becomes of the rows of a new block with this number."""
CUTS_AHEAD = 1
"""Tasks beyond the CPUs that cut blocks at a time: each holds a bundle and its pieces in memory."""
VALUE_BYTES = 1 << 17
"""The size of values, twice that of the largest which do not lie in the store: sizes of pieces differ."""
BUNDLE_BLOCKS = 8
"""The most blocks of the usual size in a bundle."""


class Grouping(Struct, frozen=True):
    """What is cut together, and what lies together afterwards.

    If `size` neighbouring new blocks share a value, reading one of them keeps the pieces of all in the store, and every
    host reads all. If a bundle is larger, each task that cuts one needs more memory. Values of
    `VALUE_BYTES` need the product of both, so both have the square root.
    """

    bundles: list[list[int]]
    """The numbers of old blocks that a task cuts together."""
    count: int
    """The number of new blocks."""
    size: int
    """New blocks that share a value."""

    @property
    def values(self) -> int:
        """The number of values of a bundle."""
        return -(-self.count // self.size)


def grouping_of(sizes: Sequence[int], count: int, block_bytes: int) -> Grouping:
    """How blocks of these sizes are cut into this number of new blocks."""
    total = sum(sizes)
    most = min(math.isqrt(VALUE_BYTES * total), VALUE_BYTES * count, BUNDLE_BLOCKS * block_bytes)
    bundles: list[list[int]] = []
    used = 0
    for number, size in enumerate(sizes):
        if not bundles or used + size > most:
            bundles.append([])
            used = 0
        bundles[-1].append(number)
        used += size
    values = min(count, max(1, total // (len(bundles) * VALUE_BYTES)))
    return Grouping(bundles, count, -(-count // values))


class Gathered(Piece):
    """A new block: a piece of each old one."""

    def __init__(
        self, values: list[Ref], number: int, place: int, empty: pyarrow.Table, name: str, finish: Finish
    ) -> None:
        """`place`: which of the new blocks that share these values it is."""
        self.refs: list[Ref] = values
        self._number = number
        self._place = place
        self._empty = empty
        self._name = name
        self._finish = finish

    def read(self, where: Where) -> Iterator[pyarrow.Table]:
        """Yield its rows."""
        where.step = self._name
        made = [self._made()]
        where.step = ""
        yield made.pop()  # while the task rests it keeps no values of the others

    def _made(self) -> pyarrow.Table:
        found = [
            table.slice(edges[self._place], edges[self._place + 1] - edges[self._place])
            for table, edges in filter(None, mpi_runtime.get(self.refs))
        ]
        return self._finish(blocks.joined([self._empty, *found]), self._number)

    def of(self, values: list[Ref]) -> Gathered:
        """The same of other references."""
        return Gathered(values, self._number, self._place, self._empty, self._name, self._finish)


@mpi_runtime.remote(max_retries=RETRIES)
def _cut(first: int, count: int, size: int, places: Places, *tables: pyarrow.Table) -> object:
    """For each `size` new blocks: their rows, and where those of each begin and end; None if there are no rows."""
    found = numpy.concatenate([places(table, number) for number, table in enumerate(tables, first)])
    order = numpy.argsort(found, kind="stable")
    edges = numpy.searchsorted(found[order], numpy.arange(count + 1))
    rows = blocks.joined(tables).combine_chunks()
    values: list[Cut | None] = []
    for low in range(0, count, size):
        own = edges[low : low + size + 1]
        has_rows = own[0] < own[-1]
        values.append((rows.take(order[own[0] : own[-1]]), (own - own[0]).tolist()) if has_rows else None)
    return values[0] if len(values) == 1 else tuple(values)


class Cuts:
    """How old blocks are cut, also again if pieces are lost."""

    def __init__(self, kept: list[Block], grouping: Grouping, places: object) -> None:
        self._kept = kept
        self._grouping = grouping
        self._places = places
        self._rebuilt: dict[int, list[Ref]] = {}
        """By bundle: its values, for all new blocks, since most of these need them."""
        self.depth = 1 + depth_of(kept)

    def cut(self, bundle: int, values: Sequence[object], **options: int) -> list[Ref]:
        """Begin to cut the blocks of a bundle."""
        grouping = self._grouping
        call = _cut.options(num_returns=grouping.values, **options)
        first = grouping.bundles[bundle][0]
        pieces = call.remote(first, grouping.count, grouping.size, self._places, *values)
        return [pieces] if grouping.values == 1 else list(pieces)

    def value(self, bundle: int, group: int, rebuilding: Rebuilding) -> Ref | None:
        """A rebuilt value; None: that is impossible."""
        if bundle not in self._rebuilt or rebuilding.is_lost(self._rebuilt[bundle][group]):
            values = [rebuilding.value(self._kept[old]) for old in self._grouping.bundles[bundle]]
            if any(value is None for value in values):
                return None
            self._rebuilt[bundle] = list(map(note_rebuilt, self.cut(bundle, values, num_cpus=0)))
        return self._rebuilt[bundle][group]


class GatheredRecipe(Struct, frozen=True, eq=False):
    """How a new block is rebuilt, if pieces of it are lost, or what a task has made of it."""

    cuts: Cuts
    like: Gathered
    """The same without its pieces."""
    group: int
    bundles: int

    @property
    def depth(self) -> int:
        """As of `lost_blocks.Recipe`."""
        return self.cuts.depth

    def __call__(self, rebuilding: Rebuilding, value: object) -> object | None:
        """The new block, with rebuilt pieces in place of lost ones; None: that is impossible."""
        before: Sequence[Ref | None] = value.refs if isinstance(value, Gathered) else [None] * self.bundles
        values = [
            self.cuts.value(bundle, self.group, rebuilding) if ref is None or rebuilding.is_lost(ref) else ref
            for bundle, ref in enumerate(before)
        ]
        found = [ref for ref in values if ref is not None]
        return self.like.of(found) if len(found) == len(values) else None


def count_of(kept: list[Block], cpus: int, block_bytes: int) -> int:
    """The number of new blocks: each has about the size of a block, and small ones are not divided further."""
    by_size = -(-sum(block.bytes for block in kept) // block_bytes)
    return max(1, by_size, min(len(kept), 2 * cpus))


@mpi_runtime.remote(max_retries=RETRIES)
def _columns(table: pyarrow.Table) -> object:
    return lacking.columns_of(table), blocks.compact(table.slice(0, 0))


def columns_of(kept: list[Block]) -> tuple[lacking.Known, pyarrow.Schema]:
    """The columns of each of these blocks, and those of all with their types."""
    try:
        found: Any = mpi_runtime.get([_columns.remote(block.value) for block in kept])
    except ObjectLostError:
        if not Rebuilding().rebuild(kept):
            raise
        return columns_of(kept)
    known = [one for each, _ in found for one in each]
    return known, blocks.common_schema([empty for _, empty in found])


def exchange(
    name: str, kept: list[Block], count: int, cpus: int, block_bytes: int, places: Places, finish: Finish
) -> list[Block]:
    """Cut the blocks into pieces, forget them, and return new blocks, which tasks are to read."""
    if not kept:
        return []
    shared = mpi_runtime.put(places)
    empty = blocks.compact(table_of(kept[0]).slice(0, 0))
    grouping = grouping_of([block.bytes for block in kept], count, block_bytes)
    cuts = Cuts(kept, grouping, shared)
    rows: list[list[Ref]] = []
    running: list[Ref] = []
    for number, bundle in enumerate(grouping.bundles):
        if len(running) >= cpus + CUTS_AHEAD:
            _, running = mpi_runtime.wait(running, num_returns=1, fetch_local=False)
        rows.append(cuts.cut(number, [kept[old].value for old in bundle]))
        running.append(rows[-1][0])
        for old in bundle:
            forget(kept[old])
    made = []
    for number in range(count):
        group, place = divmod(number, grouping.size)
        like = Gathered([], number, place, empty, name, finish)
        recipe = GatheredRecipe(cuts, like, group, len(rows)) if cuts.depth <= DEPTH_MAX else None
        origin = f"{name}, part {number + 1} of {count}"
        made.append(Block(like.of([row[group] for row in rows]), 0, 0, origin, key=(number,), rebuild=recipe))
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

    return exchange("random_shuffle", kept, parts, cpus, block_bytes, places, finish)


def sample(table: pyarrow.Table, place: tuple[int, ...], fraction: float, seed: int | None) -> pyarrow.Table:
    """Rows of a block by chance."""
    random = numpy.random.default_rng(None if seed is None else [seed, *place])
    return table.filter(pa.array(random.random(table.num_rows) < fraction))


def by_hash(
    operator: Operator, names: Sequence[str], count: int, is_sorted: bool, cpus: int, block_bytes: int
) -> list[Block]:
    """This number of new blocks. Rows with equal values in these columns are in one of them."""
    kept = stored(operator)
    known, schema = columns_of(kept)
    lacking.check_somewhere(names, known)

    def places(table: pyarrow.Table, number: int) -> numpy.ndarray:
        del number
        return hashed(table, names, count)

    def finish(table: pyarrow.Table, number: int) -> pyarrow.Table:
        del number
        table = lacking.filled(table, schema)
        return table.sort_by([(name, "ascending") for name in names]) if is_sorted else table

    return exchange("repartition", kept, count, cpus, block_bytes, places, finish)


def hashed(table: pyarrow.Table, names: Sequence[str], count: int) -> numpy.ndarray:
    """A number below `count` for each row, the same for equal values in these columns."""
    found = numpy.zeros(table.num_rows, numpy.uint64)
    keys = blocks.decoded(lacking.chosen(table, names))
    for name in names:
        column = keys.column(name)
        column = column.cast(pa.bool_()) if pa.types.is_null(column.type) else column
        codes = pc.dictionary_encode(column, null_encoding="encode").combine_chunks()
        hashes = numpy.array([_hash(value) for value in codes.dictionary.to_pylist()] or [0], numpy.uint64)
        found = found * numpy.uint64(31) + hashes[numpy.asarray(codes.indices)]
    return numpy.asarray(found % numpy.uint64(count), numpy.int64)


def _hash(value: object) -> int:
    """The same in each process; numbers that are equal have the same, whatever their type."""
    is_number = isinstance(value, int | float) and not (isinstance(value, float) and math.isnan(value))
    return hash(value) & 0xFFFFFFFF if is_number else zlib.crc32(repr(value).encode())


def block_order(operator: Operator, seed: int | None, cpus: int, block_bytes: int) -> list[Block]:
    """The same blocks in random places."""
    del cpus, block_bytes
    kept = stored(operator)
    order = numpy.random.default_rng(seed).permutation(len(kept))
    return [kept[place] for place in order]
