"""The methods of a data set that write files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mpi_runtime.data.datasource import sinks
from mpi_runtime.data.datasource import sql as databases
from mpi_runtime.data.datasource.sinks import Datasink
from mpi_runtime.data.files import webdataset, writing
from mpi_runtime.data.plan import Operator
from mpi_runtime.data.streams.progress import Stats


class Saving:
    """What writes the rows of an operator. Each method for files also takes `filename_provider`, which names them."""

    _operator: Operator
    _note: Callable[[Stats], None]
    schema: Callable[[], object]

    def write_datasink(
        self,
        datasink: Datasink[Any],
        *,
        concurrency: int | None = None,
        ray_remote_args: Mapping[str, object] | None = None,
    ) -> None:
        """Write to a sink that the program has written itself.

        Args:
            datasink: an instance of a subclass of `Datasink`.
            concurrency: the most tasks that write at a time.
            ray_remote_args: options for the tasks, as of `map_batches`.
        """
        sinks.write(self._operator, self._note, self.schema, datasink, concurrency, ray_remote_args or {})

    def write_sql(
        self,
        sql: str,
        connection_factory: databases.Connect,
        ray_remote_args: Mapping[str, object] | None = None,
        concurrency: int | None = None,
    ) -> None:
        """Run a statement for each row, by a module with Python's DB-API.

            ds.write_sql("INSERT INTO films VALUES (?, ?)", lambda: sqlite3.connect("films.db"))

        Each block is a transaction. A task whose process dies runs again, so its rows may then be there twice, unless
        the statement prevents it. An error of the database is raised as it is, when all other blocks are written.

        Args:
            sql: the statement, with a parameter for each column.
            connection_factory: returns a connection. It runs in each task.
            ray_remote_args: options for the tasks, as of `map_batches`.
            concurrency: the most tasks that write at a time.
        """
        sink = databases.SQLDatasink(sql, connection_factory)
        self.write_datasink(sink, concurrency=concurrency, ray_remote_args=ray_remote_args)

    def write_parquet(
        self,
        path: str,
        *,
        partition_cols: Sequence[str] | None = None,
        mode: str = writing.SaveMode.APPEND,
        concurrency: int | None = None,
        min_rows_per_file: int | None = None,
        max_rows_per_file: int | None = None,
        **options: object,
    ) -> None:
        """Write a file of Parquet for each block into a directory. Options are those of `pyarrow.parquet.write_table`.

        A program that is run again replaces its files. `mode` says what happens to others: see `SaveMode`.
        With `partition_cols` each block is a file for each of their values, in a directory such as "year=2024".
        `min_rows_per_file`: small blocks are joined to files with this number of rows. `max_rows_per_file`: files with
        more are divided.
        """
        columns = different(partition_cols or ())
        options = writing.of_format(options, "write_parquet")
        writing.write(
            self._operator, self._note, writing.parquet, path, "parquet", options, mode, concurrency, columns,
            rows=min_rows_per_file, rows_max=max_rows_per_file,
        )  # fmt: skip

    def write_csv(
        self,
        path: str,
        *,
        mode: str = writing.SaveMode.APPEND,
        concurrency: int | None = None,
        min_rows_per_file: int | None = None,
        max_rows_per_file: int | None = None,
        **options: object,
    ) -> None:
        """Write a file of comma-separated values for each block. Options are those of `pyarrow.csv.WriteOptions`."""
        options = writing.of_format(options, "write_csv")
        writing.write(
            self._operator, self._note, writing.csv, path, "csv", options, mode, concurrency,
            rows=min_rows_per_file, rows_max=max_rows_per_file,
        )  # fmt: skip

    def write_json(
        self,
        path: str,
        *,
        mode: str = writing.SaveMode.APPEND,
        concurrency: int | None = None,
        min_rows_per_file: int | None = None,
        max_rows_per_file: int | None = None,
        **options: object,
    ) -> None:
        """Write a file with an object in each line for each block. Options are those of `pandas.DataFrame.to_json`."""
        options = writing.of_format(options, "write_json")
        writing.write(
            self._operator, self._note, writing.json, path, "json", options, mode, concurrency,
            rows=min_rows_per_file, rows_max=max_rows_per_file,
        )  # fmt: skip

    def write_numpy(
        self,
        path: str,
        *,
        column: str,
        mode: str = writing.SaveMode.APPEND,
        concurrency: int | None = None,
        min_rows_per_file: int | None = None,
        **options: object,
    ) -> None:
        """Write a column as a file of numpy for each block. Of other options only Ray's are taken, without effect."""
        kept = {**writing.of_format(options, "write_numpy", takes_others=False), "column": column}
        writing.write(
            self._operator, self._note, writing.numpy_file, path, "npy", kept, mode,
            concurrency, rows=min_rows_per_file,
        )  # fmt: skip

    def write_webdataset(
        self,
        path: str,
        *,
        encoder: object = True,
        mode: str = writing.SaveMode.APPEND,
        concurrency: int | None = None,
        min_rows_per_file: int | None = None,
        **options: object,
    ) -> None:
        """Write a tar file for each block, with a file for each column of each row: see `read_webdataset`.

        The column "__key__" has the names of rows; without it they are numbers. `encoder`: True makes bytes of values
        by the names of columns, which are endings; a function of a row, or a list, does what else is needed. Of other
        options only Ray's are taken, without effect.
        """
        options = {**writing.of_format(options, "write_webdataset", takes_others=False), "encoder": encoder}
        writing.write(
            self._operator,
            self._note,
            webdataset.write,
            path,
            "tar",
            options,
            mode,
            concurrency,
            rows=min_rows_per_file,
        )

    def write_images(
        self,
        path: str,
        column: str,
        file_format: str = "png",
        *,
        mode: str = writing.SaveMode.APPEND,
        concurrency: int | None = None,
        **options: object,
    ) -> None:
        """Write an image for each row with Pillow, from the array of a column. Other options are Ray's."""
        options = writing.of_format(options, "write_images", takes_others=False)
        options |= {"column": column, "file_format": {"jpg": "jpeg"}.get(file_format, file_format)}
        writing.write(
            self._operator, self._note, writing.image, path, file_format, options, mode, concurrency, rows_max=1
        )


def different(names: str | Iterable[str], caller: str = "it") -> list[str]:
    """Names of columns as a list; ValueError: one is not a string, or is there twice."""
    found = [names] if isinstance(names, str) else list(names)
    if wrong := [name for name in found if not isinstance(name, str) or found.count(name) > 1]:
        raise ValueError(f"{caller} expects unique column names, strings: there is {wrong[0]!r} in {found}")
    return found
