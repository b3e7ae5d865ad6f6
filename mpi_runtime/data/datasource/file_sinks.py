"""Sinks that write a file for each row or block."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from mpi_runtime.core import published
from mpi_runtime.data.accessor import BlockAccessor
from mpi_runtime.data.arrow import pa_fs
from mpi_runtime.data.blocks import joined
from mpi_runtime.data.datasource.names import FilenameProvider, checked, numbered
from mpi_runtime.data.datasource.sinks import UUID, Datasink, WriteContext, WriteResult
from mpi_runtime.data.files.writing import is_local, local
from mpi_runtime.data.plan import Operator, check_is_not_read
from mpi_runtime.files.writing import beside

if TYPE_CHECKING:
    import pyarrow


class FileDatasink(Datasink[None]):
    """What those for rows and for blocks have in common."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        filesystem: object = None,
        try_create_dir: bool = True,
        open_stream_args: Mapping[str, object] | None = None,
        filename_provider: FilenameProvider | None = None,
        dataset_uuid: str | None = None,
        file_format: str | None = None,
        mode: str = "append",
    ) -> None:
        """A sink of files in a directory.

        Args:
            path: the directory, which all hosts share.
            filesystem: one of pyarrow or fsspec for local files; others are refused.
            try_create_dir: create the directory.
            open_stream_args: passed to `open_output_stream` of pyarrow's file system, such as `compression`.
            filename_provider: names the files.
            dataset_uuid: the beginning of their names.
            file_format: the ending of their names, without the dot.
            mode: what is done with files that are there: see `SaveMode`.
        """
        if filesystem is not None and not is_local(filesystem):
            raise TypeError(f"{type(self).__name__} writes files of this file system")
        self.path = os.path.abspath(os.path.expanduser(local(path)))
        self.filesystem = pa_fs.LocalFileSystem()
        self.try_create_dir = try_create_dir
        self.open_stream_args = dict(open_stream_args or {})
        self.filename_provider = filename_provider or FilenameProvider(dataset_uuid, file_format)
        self.dataset_uuid = dataset_uuid
        self.file_format = file_format
        self.mode = str(getattr(mode, "value", mode)).lower()
        self.has_created_dir = False

    def open_output_stream(self, path: str) -> pyarrow.NativeFile:
        """Open a file for writing."""
        return self.filesystem.open_output_stream(path, **self.open_stream_args)

    def on_write_start(self, schema: pyarrow.Schema | None = None) -> None:
        """Create the directory. ValueError: it is there, and the mode is "error"."""
        is_there = os.path.exists(self.path)
        if is_there and self.mode in ("error", "create"):
            raise ValueError(f'Path {self.path} already exists, and mode="error" writes only into a new directory')
        self._skips = is_there and self.mode == "ignore"
        if is_there and self.mode == "overwrite":
            shutil.rmtree(self.path)
            os.makedirs(self.path)
        if not is_there and self.try_create_dir:
            os.makedirs(self.path)
            self.has_created_dir = True

    def write(self, blocks: Iterable[pyarrow.Table], ctx: WriteContext) -> None:
        """Write the rows of blocks."""
        block = joined(list(blocks))
        if block.num_rows:
            name = self.filename_provider.get_filename_for_task(str(ctx.kwargs[UUID]), ctx.task_idx)
            self.write_block(BlockAccessor(block), checked(name))

    def write_block(self, block: BlockAccessor, name: str) -> None:
        """Write a block, to a file with this name or to several."""
        raise NotImplementedError

    def _place(self) -> str:
        return self.path

    def _check(self, operator: Operator) -> None:
        if self.mode == "overwrite":
            check_is_not_read(operator, self.path)

    def _clean(self, uuid: str) -> None:
        """Remove files that were not whole; their names have this text, unless a provider leaves it out."""
        for path in glob.iglob(os.path.join(glob.escape(self.path), f".*{glob.escape(uuid)}*.new")):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def on_write_complete(self, write_result: WriteResult[None]) -> None:
        """Remove the directory again if there were no rows."""
        if self.has_created_dir and not write_result.num_rows:
            shutil.rmtree(self.path, ignore_errors=True)


@published("mpi_runtime.data.datasource")
class RowBasedFileDatasink(FileDatasink):
    """A sink with a file for each row: subclass it with a method `write_row_to_file`."""

    def write_row_to_file(self, row: dict[str, object], file: pyarrow.NativeFile) -> None:
        """Write a row to an open file."""
        raise NotImplementedError(f"{type(self).__name__} must have a method write_row_to_file(row, file)")

    def write_block(self, block: BlockAccessor, name: str) -> None:
        """Write each row of a block."""
        for number, row in enumerate(block.iter_rows()):
            place = os.path.join(self.path, numbered(name, 0, number))
            with beside(place) as path, self.open_output_stream(path) as file:
                self.write_row_to_file(row, file)


@published("mpi_runtime.data.datasource")
class BlockBasedFileDatasink(FileDatasink):
    """A sink with a file for each block: subclass it with a method `write_block_to_file`.

    class Tables(BlockBasedFileDatasink):
        def write_block_to_file(self, block, file):
            pyarrow.csv.write_csv(block.to_arrow(), file)

    ds.write_datasink(Tables("out", file_format="csv"))
    """

    def __init__(
        self, path: str | os.PathLike[str], *, min_rows_per_file: int | None = None, **options: object
    ) -> None:
        """As `RowBasedFileDatasink`; `min_rows_per_file`: small blocks are joined until they have these rows."""
        super().__init__(path, **options)  # type: ignore[arg-type]
        self._min_rows_per_file = min_rows_per_file

    def write_block_to_file(self, block: BlockAccessor, file: pyarrow.NativeFile) -> None:
        """Write a block to an open file. `block` has `to_arrow`, `to_pandas`, `num_rows` and `iter_rows`."""
        raise NotImplementedError(f"{type(self).__name__} must have a method write_block_to_file(block, file)")

    def write_block(self, block: BlockAccessor, name: str) -> None:
        """Write a block."""
        with beside(os.path.join(self.path, name)) as path, self.open_output_stream(path) as file:
            self.write_block_to_file(block, file)

    @property
    def min_rows_per_write(self) -> int | None:
        """The least rows of a file."""
        return self._min_rows_per_file
