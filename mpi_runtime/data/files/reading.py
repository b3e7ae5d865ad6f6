"""Data sets of files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpi_runtime.core import published
from mpi_runtime.data.arrow import pq
from mpi_runtime.data.dataset import Dataset
from mpi_runtime.data.files import formats, webdataset
from mpi_runtime.data.files.finding import Paths
from mpi_runtime.data.files.opening import CSV, IMAGES, JSON, NUMPY, PARQUET, TAR, of_files
from mpi_runtime.data.plan import Source

if TYPE_CHECKING:
    import pyarrow


@published("mpi_runtime.data")
def read_parquet(
    paths: Paths,
    *,
    columns: Sequence[str] | None = None,
    filter: object = None,
    schema: pyarrow.Schema | None = None,
    batch_size: int | None = None,
    include_paths: bool = False,
    file_extensions: Sequence[str] | None = PARQUET,
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
    **options: object,
) -> Dataset:
    """Read files of Parquet: paths, patterns such as "in/*.parquet", or directories with all below them.

    Files may have different columns. Where a file lacks one, its rows have no value there, and integers become floats
    if another file has floats in that column. If the types of a column have nothing in common, each file keeps its own.

    Args:
        paths: where the files are.
        columns: only these are read. ValueError, when the data set is read: no file has one of them.
        filter: an expression of pyarrow: only rows for which it is true are read.
        schema: the columns and their types, of all files: a column that a file lacks has no values.
        batch_size: the most rows that are decoded at once.
        include_paths: add a column "path".
        file_extensions: of files in directories.
        concurrency: the most tasks that read at a time.
        override_num_blocks: the number of parts that tasks read.
        options: `shuffle`: "files" or a `FileShuffleConfig` gives the files another order in each run.
            `ignore_missing_paths`: paths that are not there are left out. `skip_paths`: so are these.
            `partitioning`: a `Partitioning`; None: names of directories such as "year=2024" are not columns.
            `partition_filter`: a `PathPartitionFilter`. `arrow_open_stream_args`: a dictionary with `compression`, for
            files whose ending does not show it. `num_cpus`, `memory` and others of `map_batches`, for the tasks.
    """
    kept: dict[str, object] = {"columns": None if columns is None else list(columns), "filter": filter}
    kept |= {name: value for name, value in (("schema", schema), ("batch_size", batch_size)) if value is not None}
    made = of_files(
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
    file_extensions: Sequence[str] | None = CSV,
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
    read_options: object = None,
    parse_options: object = None,
    convert_options: object = None,
    **options: object,
) -> Dataset:
    """Read files of comma-separated values; arguments as of `read_parquet`, or of `pyarrow.csv.open_csv`."""
    kept = {"read_options": read_options, "parse_options": parse_options, "convert_options": convert_options}
    return of_files(
        "read_csv", paths, formats.csv_rows, kept, include_paths, file_extensions, concurrency,
        override_num_blocks, options,
    )  # fmt: skip


@published("mpi_runtime.data")
def read_json(
    paths: Paths,
    *,
    lines: bool = False,
    include_paths: bool = False,
    file_extensions: Sequence[str] | None = JSON,
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
    read_options: object = None,
    parse_options: object = None,
    **options: object,
) -> Dataset:
    """Read files with an object of JSON in each line, or with a list of objects; arguments as of `read_parquet`.

    `parse_options` are those of `pyarrow.json.read_json`, such as a schema; `read_options` have no effect.
    """
    del read_options
    kept = {"lines": lines, "parse_options": parse_options}
    return of_files(
        "read_json", paths, formats.json_rows, kept, include_paths, file_extensions, concurrency,
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
    return of_files(
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
    return of_files(
        "read_binary_files", paths, formats.binary_rows, {}, include_paths, file_extensions, concurrency,
        override_num_blocks, options,
    )  # fmt: skip


@published("mpi_runtime.data")
def read_numpy(
    paths: Paths,
    *,
    include_paths: bool = False,
    file_extensions: Sequence[str] | None = NUMPY,
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
    allow_pickle: bool = False,
    **options: object,
) -> Dataset:
    """Read files of numpy, whose first axis is the rows, into the column "data"; arguments as of `read_parquet`."""
    return of_files(
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
    return of_files(
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
    expand_json: bool = False,
    include_paths: bool = False,
    file_extensions: Sequence[str] | None = TAR,
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
        expand_json: the entries of the object in the column "json" are columns too, unless there is such a column.
        include_paths: add a column "path".
        file_extensions: of files in directories.
        concurrency: the most tasks that read at a time.
        override_num_blocks: the number of parts that tasks read.
        options: as of `read_parquet`.
    """
    kept = {
        "decoder": decoder, "fileselect": fileselect, "filerename": filerename, "suffixes": suffixes,
        "expand_json": expand_json,
    }  # fmt: skip
    return of_files(
        "read_webdataset", paths, webdataset.samples, kept, include_paths, file_extensions, concurrency,
        override_num_blocks, options,
    )  # fmt: skip


def _counted(made: Dataset) -> Dataset:
    """The same, with the number of rows from the ends of files."""
    source = made._operator
    assert isinstance(source, Source)

    def count() -> int:
        return sum(pq.read_metadata(name).num_rows for name in source.files)

    return Dataset(Source(source.name, source.blocks, source.identity, count, source.files, needs=source.needs))
