"""Columns that some blocks lack, such as those of files with other columns: their values are missing there.

A column that no block has is an error. Only who has seen all blocks can tell.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mpi_runtime.data import blocks
from mpi_runtime.data.arrow import pa
from mpi_runtime.data.steps import BlockValueError

if TYPE_CHECKING:
    import pyarrow

COLUMNS = "__columns__"
"""A column of a table made of a block that lacked one: the columns that this block had; missing: it had all."""
Known = Sequence["Sequence[str] | None"]
"""The columns of each block that has rows; None: it has all that are needed."""


def no_column(names: Sequence[str], known: Iterable[str]) -> str:
    """The message for columns that are not among the known ones."""
    return f"there's no such column in the dataset: {', '.join(names)}. It has {list(known)}"


def check_columns(table: pyarrow.Table, names: Sequence[str]) -> None:
    """Refuse names that are not those of columns of this block, by BlockValueError."""
    found = set(table.column_names)
    if unknown := [name for name in names if name not in found]:
        others = "If other files or blocks have it, give it to these rows too, such as by map_batches()"
        raise BlockValueError(f"{no_column(unknown, table.column_names)}. {others}")


def check_somewhere(names: Sequence[str], known: Known) -> None:
    """Refuse names that are not those of columns of any block, by BlockValueError. Without rows nothing is refused."""
    if not known or None in known:
        return
    found = dict.fromkeys(name for one in known for name in one or ())
    if unknown := [name for name in names if name not in found]:
        raise BlockValueError(no_column(unknown, found))


def columns_of(table: pyarrow.Table) -> Known:
    """The columns of a block, or of those that a table was made of."""
    if not table.num_rows:
        return []
    if COLUMNS not in table.column_names:
        return [table.column_names]
    return [None if one is None else json.loads(one) for one in table.column(COLUMNS).unique().to_pylist()]


def marked(made: pyarrow.Table, block: pyarrow.Table, names: Sequence[str]) -> pyarrow.Table:
    """A table made of a block, with the columns of this, if it lacks one of these."""
    lacks = block.num_rows and not set(names) <= set(block.column_names)
    column = pa.array([json.dumps(block.column_names)] * made.num_rows) if lacks else pa.nulls(made.num_rows)
    return made.append_column(COLUMNS, column)


def chosen(table: pyarrow.Table, names: Sequence[str]) -> pyarrow.Table:
    """These columns of a table; a column that is not there has no values."""
    found = set(table.column_names)
    lacking = pa.schema([(name, pa.null()) for name in names if name not in found])
    return filled(table, lacking).select(list(names))


def filled(table: pyarrow.Table, schema: pyarrow.Schema) -> pyarrow.Table:
    """The table with all columns of a schema; one that is not there, or has the type of no values, has its type."""
    kinds = {field.name: field.type for field in table.schema}
    for field in schema:
        found = kinds.get(field.name)
        if found is None or (pa.types.is_null(found) and not pa.types.is_null(field.type)):
            nulls = pa.chunked_array([pa.nulls(table.num_rows, field.type)])
            table = blocks.with_column(table, field.name, nulls)
    return table
