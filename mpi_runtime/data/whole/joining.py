"""Rows of two data sets with equal keys, joined.

The rows of both move together, in columns that name their side, so a new block has the rows of both sides whose keys
have the same hash. There pyarrow joins the keys, and other columns are taken by place, whatever their type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy
from msgspec import Struct

import mpi_runtime
from mpi_runtime.data import blocks
from mpi_runtime.data.arrow import pa, pc
from mpi_runtime.data.operations import is_text
from mpi_runtime.data.plan import PLAIN, Mapped, Operator
from mpi_runtime.data.schema import Schema
from mpi_runtime.data.steps import TABLES, BlockValueError, Step
from mpi_runtime.data.streams.records import SOURCE, Block
from mpi_runtime.data.streams.storing import stored
from mpi_runtime.data.whole import lacking
from mpi_runtime.data.whole.exchange import columns_of, exchange, hashed

if TYPE_CHECKING:
    import pyarrow

KINDS = {
    "inner": "inner", "left_outer": "left outer", "right_outer": "right outer", "full_outer": "full outer",
    "left_semi": "left semi", "right_semi": "right semi", "left_anti": "left anti", "right_anti": "right anti",
}  # fmt: skip
"""Ways to join, and their names in pyarrow."""
SIDE = "__side__"
"""The column with the number of the side."""
PLACES = ("__left_place__", "__right_place__")


class Join(Struct, frozen=True):
    """How two data sets are joined."""

    kind: str
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    """The columns of the left side, and those of the right side."""
    suffixes: tuple[str | None, str | None]

    def of(self, left: pyarrow.Table, right: pyarrow.Table) -> pyarrow.Table:
        """The joined rows of two tables."""
        names = self._names(left, right)
        sides = [
            _alike(side, other, keys, others).append_column(place, pa.array(numpy.arange(side.num_rows)))
            for side, other, keys, others, place in zip(
                (left, right), (right, left), self.keys, self.keys[::-1], PLACES, strict=True
            )
        ]
        found = sides[0].join(
            sides[1], list(self.keys[0]), list(self.keys[1]), KINDS[self.kind], coalesce_keys=True, use_threads=False
        )
        columns = {name: found.column(name) for name in found.column_names if name not in PLACES}
        for side, own, place in zip((left, right), names, PLACES, strict=True):
            if place in found.column_names:
                places = found.column(place).combine_chunks()
                columns |= {new: side.column(old).combine_chunks().take(places) for old, new in own.items()}
        is_right = self.kind.startswith("right_")  # then the keys are those of the right side
        keys = dict(zip(self.keys[is_right], columns, strict=False))  # they are the first columns
        order: list[str] = []
        for number, (side, own) in enumerate(zip((left, right), names, strict=True)):
            renamed = {**own, **keys} if number == is_right else own
            order += [renamed[name] for name in side.column_names if name in renamed]
        return pa.table({name: columns[name] for name in order if name in columns})

    def _names(self, left: pyarrow.Table, right: pyarrow.Table) -> list[dict[str, str]]:
        """The columns of each side that are not keys, and their names in the result."""
        own = [
            [name for name in side.column_names if name not in keys]
            for side, keys in zip((left, right), self.keys, strict=True)
        ]
        twice = (
            set(own[0]) & set(own[1]) if self.kind in ("inner", "left_outer", "right_outer", "full_outer") else set()
        )
        if twice and self.suffixes[0] == self.suffixes[1]:
            raise BlockValueError(
                f"both sides of join() have the columns {', '.join(sorted(twice))}. Left and right columns suffixes "
                "cannot be both None, or the same"
            )
        return [
            {name: name + (suffix or "") if name in twice else name for name in names}
            for names, suffix in zip(own, self.suffixes, strict=True)
        ]


def _alike(side: pyarrow.Table, other: pyarrow.Table, keys: Sequence[str], others: Sequence[str]) -> pyarrow.Table:
    """The keys of a side, of the types of which pyarrow joins two columns."""
    found = blocks.decoded(side.select(list(keys)))
    kinds = blocks.decoded(other.select(list(others))).schema.types
    for place, (field, kind) in enumerate(zip(found.schema, kinds, strict=True)):
        wanted = field.type
        if field.type != kind and is_text(field.type) and is_text(kind):
            wanted = pa.large_string()
        elif pa.types.is_null(field.type):  # it has no values
            wanted = pa.bool_() if pa.types.is_null(kind) else kind
        if wanted != field.type:
            found = found.set_column(place, field.with_type(wanted), found.column(place).cast(wanted))
    return found


def _kind_of(kind: pyarrow.DataType | None) -> pyarrow.DataType | None:
    """The type of the values of a key. All texts are alike."""
    if kind is None:
        return None
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.string() if is_text(kind) or kind == pa.string_view() else kind


def check_keys(left: Schema | None, right: Schema | None, keys: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
    """Refuse keys that a side does not have, or that have different types, by ValueError."""
    sides = [{} if one is None else dict(zip(one.names, one.types, strict=True)) for one in (left, right)]
    kinds = [[_kind_of(side.get(name)) for name in names] for side, names in zip(sides, keys, strict=True)]
    if None in kinds[0] or kinds[0] != kinds[1]:
        raise ValueError(
            "Key columns are expected to be present and have the same types in both left and right operands of the "
            f"join operation: left has {left}, but right has {right}"
        )


def _marked(table: pyarrow.Table, side: int) -> pyarrow.Table:
    """The rows with the number of their side, in columns whose names begin with it."""
    marked = table.rename_columns([f"{side}{name}" for name in table.column_names])
    return marked.append_column(SIDE, pa.array(numpy.full(table.num_rows, side, numpy.int8)))


def _unmarked(schema: pyarrow.Schema) -> pyarrow.Schema:
    return pa.schema([field.with_name(field.name[1:]) for field in schema if field.name != SIDE])


def _of_side(table: pyarrow.Table, side: int, like: pyarrow.Schema) -> pyarrow.Table:
    """The rows of one side."""
    marked = pa.schema([field.with_name(f"{side}{field.name}") for field in like])
    rows = table.filter(pc.equal(table.column(SIDE), side))
    return lacking.filled(rows, marked).select(marked.names).rename_columns(like.names)


def _nothing(side: int, keys: Sequence[str]) -> Block:
    """A block of a side that has neither rows nor columns, with its keys alone."""
    table = _marked(pa.table({name: pa.nulls(0) for name in keys}), side)
    return Block(mpi_runtime.put(table), 0, 0, "", SOURCE, (0,))


def joined(left: Operator, right: Operator, join: Join, count: int, cpus: int, block_bytes: int) -> list[Block]:
    """This number of new blocks with the joined rows."""
    marked = (Mapped(one, Step(TABLES, "join", _marked, (side,)), PLAIN) for side, one in enumerate((left, right)))
    kept = [stored(one) or [_nothing(side, join.keys[side])] for side, one in enumerate(marked)]
    likes = []
    for side, names in zip(kept, join.keys, strict=True):
        known, schema = columns_of(side)
        like = _unmarked(schema)
        for name in (name for name in names if name not in like.names):  # no row has it, or it is unknown
            like = like.append(pa.field(name, pa.null()))
        likes.append(like)
        lacking.check_somewhere(names, [[name[1:] for name in one or () if name != SIDE] for one in known])
    first = len(kept[0])

    def places(table: pyarrow.Table, number: int) -> numpy.ndarray:
        side = int(number >= first)
        return hashed(_of_side(table, side, likes[side]), join.keys[side], count)

    def finish(table: pyarrow.Table, number: int) -> pyarrow.Table:
        del number
        return join.of(*(_of_side(table, side, like) for side, like in enumerate(likes)))

    return exchange("join", kept[0] + kept[1], count, cpus, block_bytes, places, finish)
