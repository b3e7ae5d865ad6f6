"""Writes blocks to files, one file for each, beside its place and renamed.

The name of a file has a digest of the data set, and the place of the block in it. So a program that is run again
replaces its files, and another data set in the same directory keeps its own.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy
from msgspec.structs import asdict

from mpi_runtime.core import published
from mpi_runtime.data import blocks
from mpi_runtime.data.arrow import pa, pa_csv, pq
from mpi_runtime.data.datasource.names import FilenameProvider, beginning_of, checked, forget, index_of, numbered
from mpi_runtime.data.datasource.partitions import MISSING
from mpi_runtime.data.files.finished import Finished, Saved, is_divisible, saved
from mpi_runtime.data.iterating import whole
from mpi_runtime.data.plan import Divided, Mapped, Needs, Operator, check_is_not_read
from mpi_runtime.data.steps import WRITE, Step
from mpi_runtime.data.streams.progress import Stats
from mpi_runtime.data.streams.running import Running, blocks_of
from mpi_runtime.errors import optional
from mpi_runtime.extend import job
from mpi_runtime.files.writing import beside
from mpi_runtime.show import log, numbers

if TYPE_CHECKING:
    import pyarrow

    Save = Callable[[pyarrow.Table, str, Mapping[str, object]], None]


CHUNK_BYTES = 1 << 20
NAMES = "filename_provider"
FLOATS = ("FLOAT", "DOUBLE")
FUNCTIONS = ("arrow_parquet_args_fn", "arrow_csv_args_fn", "pandas_json_args_fn")
"""Options that return further ones. They are called where files are written, since some options cannot be pickled."""


@published("mpi_runtime.data")
class SaveMode:
    """What a write does with files that are in the directory already."""

    APPEND = "append"
    """Keep them, but for those of an earlier run of the same data set, which are replaced."""
    OVERWRITE = "overwrite"
    """Remove them. ValueError: the data set reads one of them."""
    IGNORE = "ignore"
    """Write nothing."""
    ERROR = "error"
    """Raise ValueError."""


def parquet(table: pyarrow.Table, path: str, options: Mapping[str, object]) -> None:
    """Write a file of Parquet.

    pyarrow keeps beside the rows what it prepares of each chunk, and columns with a dictionary until they are whole. So
    chunks are small, and numbers of arrays, which seldom repeat, have no dictionary.
    """
    kept = {name: value for name, value in options.items() if name != "schema"}
    if isinstance(schema := options.get("schema"), pa.Schema):
        table = table.cast(schema)
    chosen = kept if "use_dictionary" in kept else {"use_dictionary": _repeating(table), **kept}
    pq.write_table(blocks.joined(list(blocks.cut(table, CHUNK_BYTES))), path, **chosen)


def _repeating(table: pyarrow.Table) -> list[str]:
    """The columns of a file that are not floating-point numbers of arrays, by their paths in it."""
    sink = pa.BufferOutputStream()
    pq.write_table(table.slice(0, 0), sink)
    with pq.ParquetFile(pa.BufferReader(sink.getvalue())) as empty:
        columns = map(empty.schema.column, range(len(empty.schema)))
        return [one.path for one in columns if not (one.max_repetition_level and one.physical_type in FLOATS)]


def csv(table: pyarrow.Table, path: str, options: Mapping[str, object]) -> None:
    """Write a file of comma-separated values."""
    write_options = options.get("write_options") or pa_csv.WriteOptions(**options)
    pa_csv.write_csv(table, path, write_options)


def json(table: pyarrow.Table, path: str, options: Mapping[str, object]) -> None:
    """Write a file with an object of JSON in each line."""
    kept = {"orient": "records", "lines": True, **options}
    frame = blocks.to_batch(table, "pandas")
    frame.to_json(path, **kept)  # type: ignore[attr-defined]


def numpy_file(table: pyarrow.Table, path: str, options: Mapping[str, object]) -> None:
    """Write a column as a file of numpy."""
    column = str(options["column"])
    batch = blocks.to_batch(table.select([column]), "numpy", zero_copy=True)
    assert isinstance(batch, dict)
    with open(path, "wb") as file:
        numpy.save(file, batch[column])


def image(table: pyarrow.Table, path: str, options: Mapping[str, object]) -> None:
    """Write the image of a row."""
    pillow = optional.load("write_images", "PIL.Image", "pillow")
    [row] = blocks.to_rows(table)
    pillow.fromarray(numpy.asarray(row[str(options["column"])])).save(path, str(options["file_format"]))


class Writer:
    """Writes a block. It is a step of a task."""

    def __init__(
        self,
        save: Save,
        folder: str,
        prefix: str,
        suffix: str,
        options: Mapping[str, object],
        partition: Sequence[str],
        rows: int,
        names: FilenameProvider | None,
    ) -> None:
        self._save = save
        self._folder = folder
        self._prefix = prefix
        self._suffix = suffix
        self._options = {name: value for name, value in options.items() if name not in (NAMES, *FUNCTIONS)}
        self._added = next((options[name] for name in FUNCTIONS if name in options), None)
        self._partition = partition
        self._rows = rows
        self._names = names

    def __call__(self, table: pyarrow.Table, place: tuple[int, ...]) -> pyarrow.Table:
        """Write it, and report its files."""
        name = f"{self._prefix}_{'_'.join(f'{number:06d}' for number in place)}.{self._suffix}"
        if self._names is not None:
            name = checked(self._names.get_filename_for_task(self._prefix, index_of(place)))
        folders = _partitioned(table, self._partition) if self._partition else {"": table}
        parts = {os.path.join(folder, name): part for folder, part in folders.items()}
        if self._rows:
            parts = {
                numbered(one, start): part.slice(start, self._rows)
                for one, part in parts.items()
                for start in range(0, part.num_rows, self._rows)
            }
        options = {**self._options, **self._added()} if callable(self._added) else self._options
        for one, part in parts.items():
            os.makedirs(os.path.dirname(os.path.join(self._folder, one)), exist_ok=True)
            with beside(os.path.join(self._folder, one)) as path:
                self._save(part, path, options)
        return blocks.of_rows([asdict(saved(self._folder, one)) for one in parts])


def _partitioned(table: pyarrow.Table, columns: Sequence[str]) -> dict[str, pyarrow.Table]:
    """The rows for each directory, without the columns that its name has."""
    if not set(table.column_names) - set(columns):
        raise ValueError(f"a file needs a column beside those of partition_cols, {', '.join(columns)}")
    rest = table.drop_columns(list(columns))
    rows: dict[str, list[int]] = {}
    for number, values in enumerate(zip(*(table.column(name).to_pylist() for name in columns), strict=True)):
        texts = [MISSING if value is None else quote(str(value), safe="") for value in values]
        folder = os.path.join(*(f"{name}={text}" for name, text in zip(columns, texts, strict=True)))
        rows.setdefault(folder, []).append(number)
    return {folder: rest.take(numbers) for folder, numbers in rows.items()}


def write(
    operator: Operator,
    note: Callable[[Stats], None],
    save: Save,
    path: str,
    suffix: str,
    options: Mapping[str, object],
    mode: str,
    concurrency: int | None,
    partition: Sequence[str] = (),
    rows: int | None = None,
    rows_max: int | None = None,
) -> None:
    """Write all blocks into a directory, each into a file; `rows`, `rows_max`: bounds of the rows of files."""
    names = options.get(NAMES)
    if not isinstance(names, FilenameProvider | None):
        raise TypeError(f"filename_provider must be a FilenameProvider, not {type(names).__name__}")
    for name, value in (("min_rows_per_file", rows), ("max_rows_per_file", rows_max)):
        if value is not None and (whole(value) or 0) < 1:
            raise ValueError(f"{name} must be a positive integer, not {value!r}")
    rows, rows_max = whole(rows), whole(rows_max)
    if rows and rows_max and rows > rows_max:
        raise ValueError(f"min_rows_per_file ({rows}) cannot be greater than max_rows_per_file ({rows_max})")
    if rows is not None:
        operator = Divided(operator, rows, is_exact=False)
    mode = str(getattr(mode, "value", mode)).lower()
    if mode not in ("append", "overwrite", "ignore", "error"):
        raise ValueError(f'mode must be "append", "overwrite", "ignore" or "error", not {mode!r}')
    folder = os.path.abspath(os.path.expanduser(local(path)))
    if mode in ("ignore", "error") and os.path.exists(folder):
        if mode == "ignore":
            return
        raise ValueError(f'{folder} exists, and mode="error" writes only into a new directory')
    bounds = [rows_max] if rows_max else []
    prefix = beginning_of(operator, folder, suffix, *partition, *bounds)
    try:
        check_is_not_read(operator, folder, "" if mode == "overwrite" else f"{prefix}_")
        if mode == "overwrite":
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(folder)
        os.makedirs(folder, exist_ok=True)
        writer = Writer(save, folder, prefix, suffix, options, partition, rows_max or 0, names)
        mapped = Mapped(operator, Step(WRITE, f"write_{suffix}", writer), Needs(concurrency=concurrency or None))
        _run(mapped, note, folder, prefix, options, len(partition), names is not None)
    except BaseException:
        forget(folder, prefix)
        raise


def _run(
    mapped: Mapped,
    note: Callable[[Stats], None],
    folder: str,
    prefix: str,
    options: Mapping[str, object],
    depth: int,
    has_own_names: bool,
) -> None:
    """Run a data set whose last step writes files, and remove its other files, which lie `depth` directories below."""
    operator, directory = mapped.parent, job().store.journal
    finished = Finished(directory, folder, prefix, operator, options) if directory and is_divisible(operator) else None
    running = Running(mapped, False, note, earlier=finished)
    below = os.path.join(glob.escape(folder), *["*"] * depth)
    written = set(finished.kept) if finished else set()
    if replaced := _others(below, folder, prefix, written):
        count = numbers.plural(len(replaced), "file")
        text = f"an earlier run has written this data set to {folder}: its {count} will be replaced"
        log.say(log.line(log.INFO, log.DATA, text), quiet=False)
    try:
        for block in blocks_of(running):
            files = [Saved(**row) for row in blocks.to_rows(running.table(block))]  # type: ignore[arg-type]
            if has_own_names and (twice := [file.name for file in files if file.name in written]):
                raise ValueError(f"filename_provider has given the name {twice[0]} to two files: rows are lost")
            written.update(file.name for file in files)
            if finished:
                finished.wrote(block.key, files)
                finished.note(running.stream)
        if finished:  # not after an error: a block may have been taken, and its files not be known
            finished.note(running.stream, is_last=True)
        _remove(_others(below, folder, prefix, written))
    finally:
        if finished:
            finished.close()
        running.wait_closed()
        _remove(glob.iglob(f"{below}/.{prefix}_*.new"))  # what ended before its file was whole


def _others(below: str, folder: str, prefix: str, written: set[str]) -> list[str]:
    """Files with this beginning of their names that are none of those that were written."""
    return [name for name in glob.iglob(f"{below}/{prefix}_*") if os.path.relpath(name, folder) not in written]


def of_format(options: Mapping[str, object], caller: str, takes_others: bool = True) -> dict[str, object]:
    """Options of a format, without those of Ray that ask for what is the case here.

    Raises:
        TypeError: another file system is asked for, or something that is not `takes_others`.
    """
    kept = {name: value for name, value in options.items() if name not in ("try_create_dir", "ray_remote_args")}
    for name in ("filesystem", "arrow_open_stream_args"):
        value = kept.pop(name, None)
        if value is not None and not (name == "filesystem" and is_local(value)):
            raise TypeError(f"{caller}() has no argument {name}: it writes files of this file system")
    if kept.keys() - {NAMES} and not takes_others:
        raise TypeError(f"{caller}() has no argument {', '.join(kept.keys() - {NAMES})}")
    return kept


def _remove(paths: Iterable[str]) -> None:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def is_local(filesystem: object) -> bool:
    """Whether it is an object of pyarrow or fsspec for this file system."""
    return type(filesystem).__name__ == "LocalFileSystem"


def local(path: object) -> str:
    """A path of this file system; ValueError: it is an address of another one."""
    text = os.fspath(path)  # type: ignore[call-overload]
    for scheme in ("local://", "file://"):
        if text.startswith(scheme):
            return str(text.removeprefix(scheme))
    if "://" in text:
        raise ValueError(
            f"{text} is not a path: mount that storage, or copy the files to a directory that all hosts share"
        )
    return str(text)
