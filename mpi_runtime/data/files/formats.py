"""Reads a file of one format, as tables."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy

from mpi_runtime.data import blocks
from mpi_runtime.data.arrow import pa, pa_csv, pa_json, pq
from mpi_runtime.errors import optional

if TYPE_CHECKING:
    import pyarrow

ARRAY_BYTES = 4 << 20
TEXT_BYTES = 1 << 18
JSON_BYTES = 1 << 19
"""About the most of a file of texts that is parsed at once: a parser needs several times this memory."""
TYPES_BYTES = 1 << 20
"""The beginning of a file of comma-separated values that gives the types of columns."""
BATCH_ROWS = 1 << 16
BATCH_BYTES = 1 << 18
"""About the most that is decoded at once: rows of a file may be large, and a row group has many of them."""
READ_BYTES = 1 << 18
"""The most of each column that is read at once. Without it pyarrow reads whole row groups, or the whole file."""
SEVERAL_LINES = (
    "a quoted value continues in the next line, read_csv(..., "
    "parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True)) reads the file"
)
TABLE_BYTES = 1 << 20
"""Smaller tables of a file are joined until they have this size: see `gathered`."""


def gathered(tables: Iterable[pyarrow.Table]) -> Iterator[pyarrow.Table]:
    """Yield the same rows in tables whose columns are in one piece each.

    What a reader makes lies between what it needs for a moment. If a block consisted of that, its process would need
    half as much memory again, since the holes between are of no use.
    """
    waiting: list[pyarrow.Table] = []
    size = 0
    for table in tables:
        if waiting and not table.schema.equals(waiting[0].schema):
            yield _in_one_piece(waiting)
            size = 0
        waiting.append(table)
        size += table.nbytes
        del table
        if size >= TABLE_BYTES:
            yield _in_one_piece(waiting)
            size = 0
    if waiting:
        yield _in_one_piece(waiting)


def _in_one_piece(tables: list[pyarrow.Table]) -> pyarrow.Table:
    """One table of them, which the caller no longer keeps."""
    if len(tables) == 1:
        return tables.pop()
    made = pa.concat_tables(tables).combine_chunks()
    tables.clear()
    return made


def parquet_rows(path: str, options: Mapping[str, object]) -> Iterator[pyarrow.Table]:
    """Rows of a file of Parquet, or of some of its row groups."""
    columns, condition, groups = options["columns"], options["filter"], options.get("groups")
    schema: Any = options.get("schema")
    if schema is not None:
        schema = pa.schema([field for field in schema if columns is None or field.name in columns])  # type: ignore[operator]
        columns = schema.names
    with pq.ParquetFile(path, buffer_size=READ_BYTES, pre_buffer=False) as file:
        chosen = list(groups) if groups else list(range(file.metadata.num_row_groups))  # type: ignore[call-overload]
        rows = min(_rows_at_once(file, chosen, columns), int(options.get("batch_size", BATCH_ROWS)))  # type: ignore[call-overload]
        for batch in file.iter_batches(rows, row_groups=chosen, columns=columns, use_threads=False):
            table = pa.Table.from_batches([batch])
            del batch
            table = table if schema is None else _with_schema(table, schema)
            yield table if condition is None else table.filter(condition)
        if not file.metadata.num_rows:
            table = file.schema_arrow.empty_table() if columns is None else file.read(columns)
            yield table if schema is None else _with_schema(table, schema)


def _with_schema(table: pyarrow.Table, schema: pyarrow.Schema) -> pyarrow.Table:
    """The table with these columns and types; a column that is not there has no values."""
    found = set(table.column_names)
    columns = [
        _of_type(table.column(field.name), field) if field.name in found else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _of_type(column: pyarrow.ChunkedArray, field: pyarrow.Field) -> pyarrow.ChunkedArray:
    """A column with the type that it has in all files; ValueError: a value cannot have it."""
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(
            f"the column {field.name!r} has the type {column.type} in this file, and its values cannot all be "
            f"converted to {field.type}, the type of the files together: {error}. read_parquet(columns=...) can leave "
            "it out, or read these files alone"
        ) from error


def _rows_at_once(file: pq.ParquetFile, groups: Sequence[int], columns: object) -> int:
    found = [file.metadata.row_group(group) for group in groups]
    rows = sum(group.num_rows for group in found)
    size = sum(_bytes(group, columns) for group in found)
    fitting: int = BATCH_BYTES * rows // max(1, size)
    return max(1, min(BATCH_ROWS, fitting))


def _bytes(group: pq.RowGroupMetaData, columns: object) -> int:
    """The size of these columns of a row group; None: of all."""
    if not isinstance(columns, list):
        return int(group.total_byte_size)
    chunks = map(group.column, range(group.num_columns))
    return sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.split(".")[0] in columns)


def _stream(path: str, options: Mapping[str, object]) -> Any:
    """A file as it is without compression."""
    return pa.input_stream(path, compression=options.get("compression", "detect"))


def csv_rows(path: str, options: Mapping[str, object]) -> Iterator[pyarrow.Table]:
    """Rows of a file of comma-separated values. Its first part gives the types of columns."""
    try:
        yield from _csv_parts(path, options)
    except pa.ArrowInvalid as error:
        raise ValueError(f"Failed to read CSV file {path}: {error}") from error


def _csv_parts(path: str, options: Mapping[str, object]) -> Iterator[pyarrow.Table]:
    parsing: Any = options["parse_options"] or pa_csv.ParseOptions()
    converting: Any = copy.copy(options["convert_options"] or pa_csv.ConvertOptions())
    has_lines = parsing.ignore_empty_lines and not parsing.newlines_in_values
    if options["read_options"] is not None or converting.include_columns or not has_lines:
        yield from _csv_stream(path, options)
        return
    header, is_cut = b"", False
    with _stream(path, options) as file:
        for lines in _whole_lines(file.read(TYPES_BYTES), file, TEXT_BYTES):
            read_options = pa_csv.ReadOptions(use_threads=False, block_size=len(header) + len(lines) + 1)
            if is_cut:
                raise pa.ArrowInvalid(f"rows would be wrong: {SEVERAL_LINES}")
            try:
                table = pa_csv.read_csv(io.BytesIO(header + lines), read_options, parsing, converting)
            except pa.ArrowInvalid as error:
                sign = (parsing.quote_char or "").encode()
                if not sign or sign not in lines:
                    raise
                raise pa.ArrowInvalid(f"{error}. If {SEVERAL_LINES}") from None
            if not header:
                header = lines.lstrip(b"\r\n").partition(b"\n")[0] + b"\n"
                types = dict(zip(table.column_names, table.schema.types, strict=True))
                if len(types) < table.num_columns:  # of columns with one name
                    yield from _csv_stream(path, options)
                    return
                converting.column_types = types
            is_cut = _ends_in_value(lines, table, parsing.quote_char)
            yield table


def _ends_in_value(lines: bytes, table: pyarrow.Table, quote: str | Literal[False]) -> bool:
    """Whether these lines end within a quoted value: pyarrow then makes a value of what is there, to the end."""
    if not quote or not table.num_rows or not table.num_columns:
        return False
    last, sign = table.column(table.num_columns - 1)[-1].as_py(), quote.encode()
    has_line = isinstance(last, (str, bytes)) and last[-1:] in ("\n", b"\n")
    return has_line and (lines.count(sign) % 2 == 1 or not lines.rstrip(b"\r\n").endswith(sign))


def _csv_stream(path: str, options: Mapping[str, object]) -> Iterator[pyarrow.Table]:
    """The same by pyarrow, which reads up to 32 parts ahead."""
    given = {name: value for name, value in options.items() if name.endswith("_options")}
    with _stream(path, options) as file, pa_csv.open_csv(file, **given) as reader:
        for batch in reader:
            yield pa.Table.from_batches([batch])


def json_rows(path: str, options: Mapping[str, object]) -> Iterator[pyarrow.Table]:
    """Objects of a file of JSON."""
    with _stream(path, options) as file:
        head = b""
        while not head.strip() and (part := file.read(JSON_BYTES)):
            head = part
        if head.lstrip().startswith(b"[") and not options["lines"]:
            yield blocks.of_items(json.loads(head + file.read()))
            return
        parsing: Any = options.get("parse_options")
        spans = parsing is not None and parsing.newlines_in_values
        for lines in [head + file.read()] if spans else _whole_lines(head, file, JSON_BYTES):
            if not lines.strip():  # the file has no rows
                yield pa.table({})
                continue
            read_options = pa_json.ReadOptions(use_threads=False, block_size=len(lines))
            yield pa_json.read_json(io.BytesIO(lines), read_options, parsing)


def _whole_lines(head: bytes, file: IO[bytes], size: int) -> Iterator[bytes]:
    """Some lines at a time, of a file of which `head` was read. An empty file has one empty part."""
    waiting, is_first = [head], True
    while part := file.read(size):
        lines, newline, rest = part.rpartition(b"\n")
        if newline and (lines.strip() or any(map(bytes.strip, waiting))):
            yield b"".join((*waiting, lines, newline))
            waiting, is_first = [rest], False
        else:
            waiting.append(part)
    last = b"".join(waiting)
    if is_first or last.strip():
        yield last


def text_rows(path: str, options: Mapping[str, object]) -> Iterator[pyarrow.Table]:
    """Lines of a file."""
    with _stream(path, options) as file:
        stream = io.TextIOWrapper(io.BufferedReader(file), encoding=str(options["encoding"]))
        is_first = True
        while (lines := stream.readlines(TEXT_BYTES)) or is_first:
            texts = [line.rstrip("\r\n") for line in lines]
            del lines
            kept = list(filter(None, texts)) if options["drop_empty_lines"] else texts
            yield pa.table({"text": pa.array(kept, pa.string())})
            is_first = False


def binary_rows(path: str, options: Mapping[str, object]) -> Iterator[pyarrow.Table]:
    """A row with all bytes of a file."""
    with _stream(path, options) as file:
        yield pa.table({"bytes": pa.array([file.read()], pa.large_binary())})


def numpy_rows(path: str, options: Mapping[str, object]) -> Iterator[pyarrow.Table]:
    """Rows of an array."""
    has_objects = bool(options["allow_pickle"])
    mode: Literal["r"] | None = None if has_objects else "r"
    array = numpy.load(path, mode, allow_pickle=has_objects)
    rows = max(1, ARRAY_BYTES // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        part = array[start : start + rows]
        if mode is not None:  # a map keeps what was read through it
            part, array = numpy.array(part), numpy.load(path, mode)
        yield blocks.of_batch({blocks.DATA: part}, "read_numpy")
        del part


def images_rows(path: str, options: Mapping[str, object]) -> Iterator[pyarrow.Table]:
    """A row with an image."""
    pillow = optional.load("read_images", "PIL.Image", "pillow")
    try:
        image = pillow.open(path)
    except pillow.UnidentifiedImageError as error:
        raise ValueError(f"{path} is not an image: {error}") from error
    with image:
        image.load()
        made = image
        if options["size"] is not None:
            made = made.resize(options["size"][::-1], resample=pillow.BILINEAR)  # type: ignore[index]
        if options["mode"] is not None:
            made = made.convert(options["mode"])
        yield blocks.of_items([{"image": numpy.asarray(made)}])
