"""Blocks, which are tables of pyarrow, and the forms in which functions get their rows."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import numpy

from mpi_runtime.data.arrow import pa, pd

if TYPE_CHECKING:
    import pandas
    import pyarrow

ITEM = "item"
"""The column of values that have no name."""
DATA = "data"
"""The column of arrays that have no name."""
FORMATS = ("default", "numpy", "pandas", "pyarrow", None)
"""Forms of batches. "default" is "numpy", and None "pyarrow", the form of blocks."""
STRINGS_BYTES = 1 << 31
"""The most that a column of usual strings has room for."""
NO_COLUMNS = "rows need a column: without one nothing of them could be passed on. Keep one, or make one"
Row = dict[str, object]


def _columns() -> ModuleType:
    return importlib.import_module("mpi_runtime.data.columns")


def of_rows(rows: Sequence[Mapping[str, object]]) -> pyarrow.Table:
    """Make a block of rows. A row lacks a column: its value is None."""
    names = {name: None for row in rows for name in row}
    columns = _columns()
    if rows and not names:
        raise ValueError(NO_COLUMNS)
    check_names(names)
    return pa.table({name: columns.of_values([row.get(name) for row in rows]) for name in names})


def of_items(items: Sequence[object]) -> pyarrow.Table:
    """Make a block of values, of which dictionaries are rows."""
    if all(isinstance(item, Mapping) for item in items):
        return of_rows(items)  # type: ignore[arg-type]
    return pa.table({ITEM: _columns().of_values(items)})


def of_batch(batch: object, maker: str) -> pyarrow.Table:
    """Make a block of what a function has returned for a batch. `maker`: the function, for the error."""
    if isinstance(batch, pa.Table):
        return without_views(batch)
    if isinstance(batch, pa.RecordBatch):
        return without_views(pa.Table.from_batches([batch]))
    if isinstance(batch, Mapping):
        return _of_mapping(batch, maker)
    if type(batch).__module__.startswith("pandas") and hasattr(batch, "columns"):
        return of_pandas(batch)
    raise ValueError(
        f"{maker} must return a batch: a dictionary of arrays, a pandas.DataFrame or a pyarrow.Table, or be a "
        f"generator of such, not {type(batch).__name__}"
    )


def _of_mapping(batch: Mapping[str, object], maker: str) -> pyarrow.Table:
    columns = _columns()
    made = {}
    for name, value in batch.items():
        if isinstance(value, pa.ChunkedArray | pa.Array):
            made[name] = value
        elif isinstance(value, numpy.ndarray) and value.ndim:
            made[name] = columns.of_numpy(value)
        elif isinstance(value, list | tuple):
            made[name] = columns.of_values(value)
        elif hasattr(value, "__array__") and numpy.ndim(value):  # such as tensors of torch
            made[name] = columns.of_numpy(numpy.asarray(value))
        else:
            raise ValueError(
                f"{maker} must return an array or a list for each column, one item for each row: {name!r} is "
                f"{type(value).__name__}"
            )
    check_names(made)
    sizes = {name: len(column) for name, column in made.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"{maker} has returned columns of different lengths: {sizes}")
    return pa.table(made)


def of_pandas(frame: pandas.DataFrame) -> pyarrow.Table:
    """Make a block of a data frame; its index is dropped, unless it has a name."""
    columns = _columns()
    named = any(name is not None for name in frame.index.names)
    if object not in list(frame.dtypes) or named:
        table = pa.Table.from_pandas(frame, preserve_index=named).replace_schema_metadata()
        return _with_usual_strings(table)
    made = {}
    for name in frame.columns:
        series = frame[name]
        is_object = series.dtype == object
        made[str(name)] = columns.of_values(_plain(series)) if is_object else pa.array(series, from_pandas=True)
    return _with_usual_strings(pa.table(made))


def _with_usual_strings(table: pyarrow.Table) -> pyarrow.Table:
    """A table with the type of strings that other blocks have, such as for joins. Those of pandas 3 have another."""
    for place, field in enumerate(table.schema):
        column = table.column(place)
        if field.type == pa.large_string() and column.nbytes < STRINGS_BYTES:
            table = table.set_column(place, field.name, column.cast(pa.string()))
    return table


def without_views(table: pyarrow.Table) -> pyarrow.Table:
    """A table with usual strings in place of views, such as those of polars: pyarrow cannot sort or filter views."""
    for place, field in enumerate(table.schema):
        kind = _without_views(field.type)
        if kind != field.type:
            column = table.column(place)
            kind = pa.large_string() if kind == pa.string() and column.nbytes >= STRINGS_BYTES else kind
            table = table.set_column(place, field.with_type(kind), column.cast(kind))
    return table


def _without_views(kind: pyarrow.DataType) -> pyarrow.DataType:
    if kind == pa.string_view():
        return pa.string()
    if kind == pa.binary_view():
        return pa.binary()
    is_list = pa.types.is_list(kind) and _without_views(kind.value_type) != kind.value_type
    return pa.list_(_without_views(kind.value_type)) if is_list else kind


def decoded(table: pyarrow.Table, names: Iterable[str] | None = None) -> pyarrow.Table:
    """A table with the values of dictionaries in place of their numbers, in these columns or in all."""
    chosen = None if names is None else frozenset(names)
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) and (chosen is None or field.name in chosen):
            table = table.set_column(place, field.name, table.column(place).cast(field.type.value_type))
    return table


def _plain(series: pandas.Series) -> list[object]:
    return [None if value is pd.NaT or value is pd.NA else value for value in series]


def to_rows(block: pyarrow.Table) -> Iterator[Row]:
    """Yield the rows of a block."""
    check_columns(block)
    check_different(block)
    names = block.column_names
    values = [_columns().to_values(column) for column in block.columns]
    for row in zip(*values, strict=True):
        yield dict(zip(names, row, strict=True))


def values_of(column: pyarrow.ChunkedArray) -> list[object]:
    """The values of a column, as those of rows."""
    values: list[object] = _columns().to_values(column)
    return values


def to_batch(block: pyarrow.Table, form: str | None, zero_copy: bool = False) -> object:
    """Make a batch of a block. With `zero_copy` its arrays may be read-only."""
    if form in ("pyarrow", None):
        return block
    check_columns(block)
    columns = _columns()
    if form == "pandas":
        if not any(isinstance(column.type, pa.BaseExtensionType) for column in block.columns):
            return block.to_pandas()
        values = {}
        for name, column in zip(block.column_names, block.columns, strict=True):
            is_plain = not isinstance(column.type, pa.BaseExtensionType)
            values[name] = column.to_pandas() if is_plain else pd.Series(columns.to_values(column), dtype=object)
        return pd.DataFrame(values)
    check_different(block)
    arrays = {name: columns.to_numpy(block.column(name), zero_copy) for name in block.column_names}
    if zero_copy:
        return arrays
    return {name: array if array.flags.writeable else array.copy() for name, array in arrays.items()}


def check_columns(block: pyarrow.Table) -> None:
    """Refuse rows without columns, by ValueError: neither a dictionary nor a pickle would keep their number."""
    if block.num_rows and not block.num_columns:
        raise ValueError(NO_COLUMNS)


def check_names(names: Iterable[object]) -> None:
    """Refuse names of columns that are not strings, by ValueError."""
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise ValueError(f"the name of a column must be a string, not {wrong[0]!r}")


def check_different(block: pyarrow.Table) -> None:
    """Refuse columns with one name, of which a dictionary would lose all but one, by ValueError."""
    names = block.column_names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"several columns have the name {twice!r}: rename_columns([...]) gives all of them others")


def check_format(form: str | None) -> None:
    """Refuse a form that batches cannot have, by ValueError."""
    if form not in FORMATS:
        raise ValueError(f'batch_format must be "numpy", "pandas" or "pyarrow", not {form!r}')


def with_column(block: pyarrow.Table, name: str, column: pyarrow.ChunkedArray) -> pyarrow.Table:
    """The block with a column, in place of one with this name."""
    if name in block.column_names:
        return block.set_column(block.column_names.index(name), name, column)
    return block.append_column(name, column)


def joined(blocks: Sequence[pyarrow.Table]) -> pyarrow.Table:
    """Make one block of several, whose columns may differ in their order, in null values and in the shape of arrays.

    Texts may be encoded in some blocks, or be of another of Arrow's types.
    """
    blocks = [block for block in blocks if block.num_rows or len(blocks) == 1] or list(blocks[:1])
    if len(blocks) == 1:
        return blocks[0]
    return _concatenated(blocks)


def common_schema(tables: Sequence[pyarrow.Table]) -> pyarrow.Schema:
    """The columns of all tables, which need not have rows, as those of the block of all of them."""
    return _concatenated([table.slice(0, 0) for table in tables]).schema if tables else pa.schema([])


def _concatenated(blocks: Sequence[pyarrow.Table]) -> pyarrow.Table:
    first = blocks[0].schema
    if all(block.schema.equals(first) for block in blocks[1:]):
        return pa.concat_tables(blocks)
    columns = _columns()
    kinds_of: dict[str, list[pyarrow.DataType]] = {}
    for block in blocks:
        for field in block.schema:
            kinds_of.setdefault(field.name, []).append(field.type)
    converted: dict[str, Callable[[pyarrow.ChunkedArray], pyarrow.Array]] = {}
    encoded = set()
    for name, kinds in kinds_of.items():
        if any(kind != kinds[0] for kind in kinds):
            if any(isinstance(kind, columns.ObjectType) for kind in kinds):
                converted[name] = columns.as_objects
            elif any(isinstance(kind, columns.TensorType | pa.FixedShapeTensorType) for kind in kinds):
                converted[name] = columns.as_ragged
            elif any(map(pa.types.is_dictionary, kinds)):
                encoded.add(name)
    fixed = []
    for block in blocks:
        block = decoded(block, encoded)
        for place, name in enumerate(block.column_names if converted else ()):
            if name in converted:
                block = block.set_column(place, name, converted[name](block.column(place)))
        fixed.append(block)
    return pa.concat_tables(fixed, promote_options="permissive")


def compact(block: pyarrow.Table) -> pyarrow.Table:
    """Return the block without bytes of rows that are not in it: pickle writes all memory behind a slice."""
    if block.get_total_buffer_size() <= 1.1 * block.nbytes + 4096:
        return block
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, block.schema) as writer:
        writer.write_table(block)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def cut(table: pyarrow.Table, most: int) -> Iterator[pyarrow.Table]:
    """Yield parts of about `most` bytes."""
    parts = max(1, min(-(-table.nbytes // most), table.num_rows))
    size = max(1, -(-table.num_rows // parts))
    for start in range(0, table.num_rows, size):
        yield table.slice(start, size)


def rebatched(blocks: Iterable[pyarrow.Table], size: int | None, drop_last: bool = False) -> Iterator[pyarrow.Table]:
    """Yield blocks of `size` rows, the last one with the rest; None: the blocks as they are."""
    if size is None:
        yield from filter(len, blocks)
        return
    waiting: list[pyarrow.Table] = []
    rows = 0
    for block in blocks:
        start = 0
        while rows + block.num_rows - start >= size:
            part = block.slice(start, size - rows)
            start += size - rows
            yield joined([*waiting, part]) if waiting else part
            waiting, rows = [], 0
        if start < block.num_rows:
            waiting.append(block.slice(start))
            rows += block.num_rows - start
    if waiting and not drop_last:
        yield joined(waiting)
