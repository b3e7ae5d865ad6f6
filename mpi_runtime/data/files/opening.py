"""A data set of files of one format: which files, what tasks read, and columns beside those of the files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mpi_runtime.data.arrow import pa, pc, pq
from mpi_runtime.data.dataset import Dataset
from mpi_runtime.data.datasource.partitions import Partitioning, PathPartitionParser, columns_of
from mpi_runtime.data.files import formats
from mpi_runtime.data.files.finding import File, FileShuffleConfig, Orders, Paths, find, only
from mpi_runtime.data.files.schemas import check_columns, common_schema, schemas_of
from mpi_runtime.data.files.writing import is_local
from mpi_runtime.data.options import needs
from mpi_runtime.data.plan import Source, fixed
from mpi_runtime.data.sources import cuts
from mpi_runtime.data.steps import Piece, Where
from mpi_runtime.data.streams.records import Block

if TYPE_CHECKING:
    import pyarrow

Read = Callable[[str, Mapping[str, object]], Iterator["pyarrow.Table"]]
PATH = "path"
TASKS_OF_CPU = 4
"""Small files are read several by a task, so that there are about this number of tasks for each CPU."""
OF_FILES = frozenset(
    {
        "arrow_open_stream_args", "filesystem", "ignore_missing_paths", "meta_provider", "partition_filter",
        "partitioning", "shuffle", "skip_paths",
    }
)  # fmt: skip
"""Options that all readers take."""
COMPRESSION, SCHEMA = "compression", "schema"
PARQUET = ("parquet",)
CSV = ("csv", "csv.gz", "csv.bz2")
JSON = ("json", "jsonl", "json.gz", "jsonl.gz")
NUMPY = ("npy",)
IMAGES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".webp")
TAR = ("tar",)
USUAL = (PARQUET, CSV, JSON, NUMPY, IMAGES, TAR)
"""Endings by which directories are searched. Files that are named may have others, unless a program states endings."""
HIVE = PathPartitionParser.of()


class Files(Piece):
    """Some files, which one task reads."""

    def __init__(
        self,
        files: list[File],
        read: Read,
        options: Mapping[str, object],
        parser: PathPartitionParser | None,
        include_paths: bool,
    ) -> None:
        self._files = files
        self._read = read
        self._options = options
        self._parser = parser
        self._include_paths = include_paths

    def read(self, where: Where) -> Iterator[pyarrow.Table]:
        """Yield their rows."""
        for file in self._files:
            rows = 0
            where.origin = file.path
            options = {**self._options, "groups": file.groups} if file.groups else self._options
            for table in formats.gathered(self._read(file.path, options)):
                where.origin = f"{file.path}, rows {rows} to {rows + table.num_rows - 1}"
                rows += table.num_rows
                yield self._with_columns(table, file)

    def _with_columns(self, table: pyarrow.Table, file: File) -> pyarrow.Table:
        columns = self._options.get("columns")
        for name, value in columns_of(file.path, self._parser).items():
            if name in table.column_names:
                table = _with_value(table, name, value, file.path)
            elif columns is None or name in columns:  # type: ignore[operator]
                kind = None if value is None or isinstance(value, str) else pa.scalar(value).type
                table = table.append_column(name, pa.array([value] * table.num_rows, kind or pa.string()))
        if self._include_paths:
            table = table.append_column(PATH, pa.array([file.path] * table.num_rows, pa.string()))
        return table


def _with_value(table: pyarrow.Table, name: str, value: object, path: str) -> pyarrow.Table:
    """A table with a column that its directory has too; ValueError: the values differ."""
    column = table.column(name)
    if value is None:
        return table
    wanted = pa.scalar(value).cast(column.type)
    if column.null_count == len(column):
        return table.set_column(table.column_names.index(name), name, pa.repeat(wanted, len(column)))
    if not pc.all(pc.equal(column, wanted)).as_py():
        raise ValueError(f"the column {name!r} of {path} has other values than its directory, {value!r}")
    return table


def of_files(
    caller: str,
    paths: Paths,
    read: Read,
    kept: Mapping[str, object],
    include_paths: bool,
    extensions: Sequence[str] | None,
    concurrency: int | None,
    count: int | None,
    options: Mapping[str, object],
) -> Dataset:
    """The data set of files that `read` reads, with `kept` as its options.

    Raises:
        TypeError: there is no such option, or it has a wrong type.
        ValueError: no file stays.
    """
    if (given := options.get("filesystem")) is not None and not is_local(given):
        raise TypeError(f"{caller}() has no argument filesystem: it reads files of this file system")
    everything = {**options, **(options.get("ray_remote_args") or {})}  # type: ignore[dict-item]
    of_tasks = {name: value for name, value in everything.items() if name not in {*OF_FILES, "ray_remote_args"}}
    wanted = needs(caller, False, concurrency=concurrency, **of_tasks)  # type: ignore[arg-type]
    files = find(paths, extensions, bool(options.get("ignore_missing_paths")))
    skipped = {os.path.abspath(one) for one in _paths(options.get("skip_paths"))}
    files = [file for file in files if file.path not in skipped]
    is_usual = any(extensions is one for one in USUAL)
    files = only(files, None if is_usual else extensions, options.get("partition_filter"))  # type: ignore[arg-type]
    partitioning = options.get("partitioning", HIVE)
    parser = PathPartitionParser(partitioning) if isinstance(partitioning, Partitioning) else partitioning
    if not isinstance(parser, PathPartitionParser | None):
        raise TypeError(f"{caller}(partitioning={partitioning!r}): it must be a Partitioning, or None")
    kept = _opened(caller, kept, options.get("arrow_open_stream_args"))
    shuffle = options.get("shuffle")
    if not (shuffle is None or shuffle == "files" or isinstance(shuffle, FileShuffleConfig)):
        raise ValueError(f'{caller}(shuffle={shuffle!r}): it must be None, "files" or a FileShuffleConfig')
    config = FileShuffleConfig() if shuffle == "files" else shuffle
    orders = Orders(config) if isinstance(config, FileShuffleConfig) else None

    known: list[Mapping[str, object]] = []  # not `functools.cache`: cloudpickle takes none, and programs pass data sets

    def how() -> Mapping[str, object]:
        known[:] = known or [_completed(kept, read, files, parser)]
        return known[0]

    def pieces(cpus: int, block_bytes: int) -> list[Block]:
        ordered = files if orders is None else orders.of(files)
        parts = [part for file in ordered for part in _parts(file, read, block_bytes)]
        total = sum(part.size for part in parts)
        few = count or max(TASKS_OF_CPU * cpus, -(-total // block_bytes))
        made = []
        for i, (start, stop) in enumerate(cuts(len(parts), few)):
            some = parts[start:stop]
            origin = some[0].path if len(some) == 1 else f"{some[0].path} and {len(some) - 1} more"
            made.append(Block(Files(some, read, how(), parser, include_paths), 0, 0, origin, key=(i,)))
        return made

    by_chance = () if shuffle is None else (repr(config),)
    of_directories = () if parser is HIVE else (fixed(parser and vars(parser.scheme)),)
    identity = tuple((file.path, file.size) for file in files), fixed(kept), *by_chance, *of_directories
    names = tuple(file.path for file in files)
    return Dataset(Source(caller, pieces, lambda: identity, files=names, needs=wanted))


def _completed(
    kept: Mapping[str, object], read: Read, files: Sequence[File], parser: PathPartitionParser | None
) -> Mapping[str, object]:
    """The options of a format: if files of Parquet have different columns, with those of all.

    Raises:
        ValueError: no file has one of the columns that are asked for.
    """
    columns: Any = kept.get("columns")
    if read is not formats.parquet_rows or SCHEMA in kept or (len(files) == 1 and not columns):
        return kept
    schemas = schemas_of([file.path for file in files])
    check_columns(schemas, columns or (), {PATH, *columns_of(files[0].path, parser)})
    common = common_schema(schemas, columns)
    return kept if common is None else {**kept, SCHEMA: common}


def _paths(given: object) -> list[str]:
    """The paths of an argument that may be one of them."""
    return [] if given is None else [given] if isinstance(given, str) else list(given)  # type: ignore[call-overload]


def _opened(caller: str, kept: Mapping[str, object], how: object) -> Mapping[str, object]:
    """The options of a format, with the compression of files that are streams.

    Raises:
        TypeError: something else is asked for.
    """
    given = dict(how or {})  # type: ignore[call-overload]
    if others := sorted(given.keys() - {COMPRESSION, "buffer_size"}):
        raise TypeError(f"{caller}(arrow_open_stream_args=...) takes compression, not {others[0]}")
    return {**kept, COMPRESSION: given[COMPRESSION]} if COMPRESSION in given else kept


def _parts(file: File, read: Read, block_bytes: int) -> list[File]:
    """A large file of Parquet is read by several tasks."""
    if read is not formats.parquet_rows or file.size <= block_bytes:
        return [file]
    metadata = pq.read_metadata(file.path)
    parts: list[File] = []
    groups: list[int] = []
    size = 0
    for number in range(metadata.num_row_groups):
        groups.append(number)
        size += metadata.row_group(number).total_byte_size
        if size >= block_bytes or number == metadata.num_row_groups - 1:
            parts.append(File(file.path, size, tuple(groups)))
            groups, size = [], 0
    return parts or [file]
