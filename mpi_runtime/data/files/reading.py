"""Data sets of files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

from mpi_runtime.core import published
from mpi_runtime.data.arrow import pa, pq
from mpi_runtime.data.dataset import Dataset
from mpi_runtime.data.files import formats, webdataset
from mpi_runtime.data.files.finding import File, FileShuffleConfig, Orders, Paths, find
from mpi_runtime.data.files.writing import MISSING, is_local
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
ABSENT = ("filesystem", "partitioning", "partition_filter", "meta_provider", "arrow_open_stream_args")
"""Arguments of Ray that are not here. None asks for nothing."""
IMAGES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".webp")


class Files(Piece):
    """Some files, which one task reads."""

    def __init__(self, files: list[File], read: Read, options: Mapping[str, object], include_paths: bool) -> None:
        self._files = files
        self._read = read
        self._options = options
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
        for name, value in _of_directories(file).items():
            if name not in table.column_names and (columns is None or name in columns):  # type: ignore[operator]
                table = table.append_column(name, pa.array([value] * table.num_rows, pa.string()))
        if self._include_paths:
            table = table.append_column(PATH, pa.array([file.path] * table.num_rows, pa.string()))
        return table


def _of_directories(file: File) -> dict[str, str | None]:
    """Values of columns, which are texts: nobody knows whether "01" is a number."""
    found: dict[str, str | None] = {}
    for part in os.path.relpath(os.path.dirname(file.path), file.root).split(os.sep):
        name, equals, value = part.partition("=")
        if equals:
            found[name] = None if value == MISSING else unquote(value)
    return found


@published("mpi_runtime.data")
def read_parquet(
    paths: Paths,
    *,
    columns: Sequence[str] | None = None,
    filter: object = None,
    include_paths: bool = False,
    file_extensions: Sequence[str] | None = ("parquet",),
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
    **options: object,
) -> Dataset:
    """Read files of Parquet: paths, patterns such as "in/*.parquet", or directories with all below them.

    Args:
        paths: where the files are.
        columns: only these are read.
        filter: an expression of pyarrow: only rows for which it is true are read.
        include_paths: add a column "path".
        file_extensions: of files in directories.
        concurrency: the most tasks that read at a time.
        override_num_blocks: the number of parts that tasks read.
        options: `shuffle`: "files" or a `FileShuffleConfig` gives the files another order in each run.
            `ignore_missing_paths`: paths that are not there are left out. `num_cpus`, `memory` and others of
            `map_batches`, for the tasks.
    """
    kept = {"columns": None if columns is None else list(columns), "filter": filter}
    made = _of_files(
        "read_parquet",
        paths,
        formats.parquet_rows,
        kept,
        include_paths,
        file_extensions,
        concurrency,
        override_num_blocks,
        options,
    )
    if filter is None:
        return _counted(made)
    return made


@published("mpi_runtime.data")
def read_csv(
    paths: Paths,
    *,
    include_paths: bool = False,
    file_extensions: Sequence[str] | None = ("csv", "csv.gz", "csv.bz2"),
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
    read_options: object = None,
    parse_options: object = None,
    convert_options: object = None,
    **options: object,
) -> Dataset:
    """Read files of comma-separated values; arguments as of `read_parquet`, or of `pyarrow.csv.open_csv`."""
    kept = {"read_options": read_options, "parse_options": parse_options, "convert_options": convert_options}
    return _of_files(
        "read_csv", paths, formats.csv_rows, kept, include_paths, file_extensions, concurrency,
        override_num_blocks, options,
    )  # fmt: skip


@published("mpi_runtime.data")
def read_json(
    paths: Paths,
    *,
    lines: bool = False,
    include_paths: bool = False,
    file_extensions: Sequence[str] | None = ("json", "jsonl", "json.gz", "jsonl.gz"),
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
    **options: object,
) -> Dataset:
    """Read files with an object of JSON in each line, or with a list of objects; arguments as of `read_parquet`."""
    return _of_files(
        "read_json", paths, formats.json_rows, {"lines": lines}, include_paths, file_extensions, concurrency,
        override_num_blocks, options,
    )  # fmt: skip


@published("mpi_runtime.data")
def read_text(
    paths: Paths,
    *,
    encoding: str = "utf-8",
    drop_empty_lines: bool = True,
    include_paths: bool = False,
    file_extensions: Sequence[str] | None = None,
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
    **options: object,
) -> Dataset:
    """Read the lines of files, into the column "text"; arguments as of `read_parquet`."""
    kept = {"encoding": encoding, "drop_empty_lines": drop_empty_lines}
    return _of_files(
        "read_text", paths, formats.text_rows, kept, include_paths, file_extensions, concurrency,
        override_num_blocks, options,
    )  # fmt: skip


@published("mpi_runtime.data")
def read_binary_files(
    paths: Paths,
    *,
    include_paths: bool = False,
    file_extensions: Sequence[str] | None = None,
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
    **options: object,
) -> Dataset:
    """Read whole files, each a row with the column "bytes"; arguments as of `read_parquet`."""
    return _of_files(
        "read_binary_files", paths, formats.binary_rows, {}, include_paths, file_extensions, concurrency,
        override_num_blocks, options,
    )  # fmt: skip


@published("mpi_runtime.data")
def read_numpy(
    paths: Paths,
    *,
    include_paths: bool = False,
    file_extensions: Sequence[str] | None = ("npy",),
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
    allow_pickle: bool = False,
    **options: object,
) -> Dataset:
    """Read files of numpy, whose first axis is the rows, into the column "data"; arguments as of `read_parquet`."""
    return _of_files(
        "read_numpy", paths, formats.numpy_rows, {"allow_pickle": allow_pickle}, include_paths, file_extensions,
        concurrency,
        override_num_blocks, options,
    )  # fmt: skip


@published("mpi_runtime.data")
def read_images(
    paths: Paths,
    *,
    size: tuple[int, int] | None = None,
    mode: str | None = None,
    include_paths: bool = False,
    file_extensions: Sequence[str] | None = IMAGES,
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
    **options: object,
) -> Dataset:
    """Read images with Pillow, each a row with an array in the column "image".

    Args:
        paths: where the files are, as of `read_parquet`.
        size: height and width to which they are resized.
        mode: to which they are converted, as "RGB"; None: they stay as they are.
        include_paths: add a column "path".
        file_extensions: of files in directories.
        concurrency: the most tasks that read at a time.
        override_num_blocks: the number of parts that tasks read.
        options: as of `read_parquet`.
    """
    if size is not None and (len(size) != 2 or min(size) < 1):
        raise ValueError(f"read_images(size={size!r}) must be a height and a width of at least 1")
    kept = {"size": size, "mode": mode}
    return _of_files(
        "read_images", paths, formats.images_rows, kept, include_paths, file_extensions, concurrency,
        override_num_blocks, options,
    )  # fmt: skip


@published("mpi_runtime.data")
def read_webdataset(
    paths: Paths,
    *,
    decoder: object = True,
    fileselect: object = None,
    filerename: object = None,
    suffixes: object = None,
    include_paths: bool = False,
    file_extensions: Sequence[str] | None = ("tar",),
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
    **options: object,
) -> Dataset:
    """Read tar files with samples: files with the same name up to its first dot are a row, their endings the columns.

    Args:
        paths: where the files are, as of `read_parquet`.
        decoder: True: texts, numbers ("cls"), JSON, arrays ("npy") and images by their endings; "PIL": images are
            those of Pillow; a function of a sample; None: all stays bytes; or a list of these.
        fileselect: patterns of names, or a function: others are left out.
        filerename: pairs of a part of a name and what it becomes, or a function.
        suffixes: patterns of endings, or a function: others are left out.
        include_paths: add a column "path".
        file_extensions: of files in directories.
        concurrency: the most tasks that read at a time.
        override_num_blocks: the number of parts that tasks read.
        options: as of `read_parquet`.
    """
    kept = {"decoder": decoder, "fileselect": fileselect, "filerename": filerename, "suffixes": suffixes}
    return _of_files(
        "read_webdataset", paths, webdataset.samples, kept, include_paths, file_extensions, concurrency,
        override_num_blocks, options,
    )  # fmt: skip


def _of_files(
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
    asked = {name: options[name] for name in ABSENT if name in options}
    if is_local(asked.get("filesystem")):
        del asked["filesystem"]
    if unknown := [name for name, value in asked.items() if value is not None]:
        raise TypeError(f"{caller}() has no argument {unknown[0]}: it reads files of this file system")
    of_files = {*ABSENT, "shuffle", "ignore_missing_paths"}
    given = {**options, **(options.get("ray_remote_args") or {})}  # type: ignore[dict-item]
    of_tasks = {name: value for name, value in given.items() if name not in {*of_files, "ray_remote_args"}}
    wanted = needs(caller, False, concurrency=concurrency, **of_tasks)  # type: ignore[arg-type]
    files = find(paths, extensions, bool(options.get("ignore_missing_paths")))
    if "partitioning" in asked:  # None: names of directories are not values
        files = [File(file.path, file.size, os.path.dirname(file.path)) for file in files]
    shuffle = options.get("shuffle")
    if not (shuffle is None or shuffle == "files" or isinstance(shuffle, FileShuffleConfig)):
        raise ValueError(f'{caller}(shuffle={shuffle!r}): it must be None, "files" or a FileShuffleConfig')
    config = FileShuffleConfig() if shuffle == "files" else shuffle
    orders = Orders(config) if isinstance(config, FileShuffleConfig) else None

    def pieces(cpus: int, block_bytes: int) -> list[Block]:
        ordered = files if orders is None else orders.of(files)
        parts = [part for file in ordered for part in _parts(file, read, block_bytes)]
        total = sum(part.size for part in parts)
        few = count or max(TASKS_OF_CPU * cpus, -(-total // block_bytes))
        made = []
        for i, (start, stop) in enumerate(cuts(len(parts), few)):
            some = parts[start:stop]
            origin = some[0].path if len(some) == 1 else f"{some[0].path} and {len(some) - 1} more"
            made.append(Block(Files(some, read, kept, include_paths), 0, 0, origin, key=(i,)))
        return made

    by_chance = () if shuffle is None else (repr(config),)
    identity = tuple((file.path, file.size) for file in files), fixed(kept), *by_chance
    names = tuple(file.path for file in files)
    return Dataset(Source(caller, pieces, lambda: identity, files=names, needs=wanted))


def _counted(made: Dataset) -> Dataset:
    """The same, with the number of rows from the ends of files."""
    source = made._operator
    assert isinstance(source, Source)

    def count() -> int:
        return sum(pq.read_metadata(name).num_rows for name in source.files)

    return Dataset(Source(source.name, source.blocks, source.identity, count, source.files, needs=source.needs))


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
            parts.append(File(file.path, size, file.root, tuple(groups)))
            groups, size = [], 0
    return parts or [file]
