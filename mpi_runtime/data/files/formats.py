"""Reads a file of one format, as tables."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING

import numpy

from mpi_runtime.data import blocks
from mpi_runtime.data.arrow import pa, pa_csv, pa_json, pq
from mpi_runtime.errors import optional

if TYPE_CHECKING:
    import pyarrow

LINES = 1 << 14
JSON_BYTES = ARRAY_BYTES = 4 << 20
BATCH_ROWS = 1 << 16
BATCH_BYTES = 1 << 20
"""About the most that is decoded at once: rows of a file may be large, and a row group has many of them."""
READ_BYTES = 1 << 20
"""The most of each column that is read at once. Without it pyarrow reads whole row groups, or the whole file."""


def parquet_rows(path: str, options: Mapping[str, object]) -> Iterator[pyarrow.Table]:
    """Rows of a file of Parquet, or of some of its row groups."""
    columns, condition, groups = options["columns"], options["filter"], options.get("groups")
    with pq.ParquetFile(path, buffer_size=READ_BYTES, pre_buffer=False) as file:
        chosen = list(groups) if groups else list(range(file.metadata.num_row_groups))  # type: ignore[call-overload]
        rows = _rows_at_once(file, chosen, columns)
        for batch in file.iter_batches(rows, row_groups=chosen, columns=columns, use_threads=False):
            table = pa.Table.from_batches([batch])
            del batch
            yield table if condition is None else table.filter(condition)
        if not file.metadata.num_rows:
            yield file.schema_arrow.empty_table() if columns is None else file.read(columns)


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


def csv_rows(path: str, options: Mapping[str, object]) -> Iterator[pyarrow.Table]:
    """Rows of a file of comma-separated values."""
    try:
        with pa_csv.open_csv(path, **options) as reader:
            for batch in reader:
                yield pa.Table.from_batches([batch])
    except pa.ArrowInvalid as error:
        raise ValueError(f"Failed to read CSV file {path}: {error}") from error


def json_rows(path: str, options: Mapping[str, object]) -> Iterator[pyarrow.Table]:
    """Objects of a file of JSON."""
    with pa.input_stream(path, compression="detect") as file:
        head = b""
        while not head.strip() and (part := file.read(JSON_BYTES)):
            head = part
        if head.lstrip().startswith(b"[") and not options["lines"]:
            yield blocks.of_items(json.loads(head + file.read()))
            return
        for lines in _whole_lines(head, file):
            read_options = pa_json.ReadOptions(use_threads=False, block_size=max(1, len(lines)))
            yield pa_json.read_json(io.BytesIO(lines), read_options)


def _whole_lines(head: bytes, file: IO[bytes]) -> Iterator[bytes]:
    """Some lines at a time, of a file of which `head` was read. An empty file has one empty part."""
    waiting, is_first = head, True
    while part := file.read(JSON_BYTES):
        lines, newline, rest = part.rpartition(b"\n")
        if newline and (waiting + lines).strip():
            yield waiting + lines
            waiting, is_first = rest, False
        else:
            waiting += part
    if is_first or waiting.strip():
        yield waiting


def text_rows(path: str, options: Mapping[str, object]) -> Iterator[pyarrow.Table]:
    """Lines of a file."""
    with pa.input_stream(path, compression="detect") as file:
        lines: list[str] = []
        for line in io.TextIOWrapper(io.BufferedReader(file), encoding=str(options["encoding"])):
            text = line.rstrip("\r\n")
            if text or not options["drop_empty_lines"]:
                lines.append(text)
            if len(lines) == LINES:
                yield pa.table({"text": lines})
                lines = []
    yield pa.table({"text": pa.array(lines, pa.string())})


def binary_rows(path: str, options: Mapping[str, object]) -> Iterator[pyarrow.Table]:
    """A row with all bytes of a file."""
    del options
    with pa.input_stream(path, compression="detect") as file:
        yield pa.table({"bytes": pa.array([file.read()], pa.large_binary())})


def numpy_rows(path: str, options: Mapping[str, object]) -> Iterator[pyarrow.Table]:
    """Rows of an array."""
    array = numpy.load(
        path, mmap_mode=None if options["allow_pickle"] else "r", allow_pickle=bool(options["allow_pickle"])
    )
    rows = max(1, ARRAY_BYTES // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        yield blocks.of_batch({blocks.DATA: numpy.asarray(array[start : start + rows])}, "read_numpy")


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
