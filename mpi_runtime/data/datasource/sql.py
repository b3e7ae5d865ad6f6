"""Databases as sources and sinks, by connections of Python's DB-API."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mpi_runtime.data.blocks import of_batch, to_rows
from mpi_runtime.data.datasource.sinks import Datasink, WriteContext, WriteResult

if TYPE_CHECKING:
    import pyarrow

Connect = Callable[[], Any]
"""Returns a connection of the DB-API."""
ROWS_READ = 10_000
"""Rows of a table."""
ROWS_WRITTEN = 128
"""Rows that are sent at once."""


@contextlib.contextmanager
def cursor_of(connect: Connect) -> Iterator[Any]:
    """A cursor of a new connection. What it has done is committed at the end, or undone after an error."""
    connection = connect()
    for name in ("close", "commit", "cursor"):
        if not hasattr(connection, name):
            raise ValueError(f"connection_factory must return a connection of Python's DB-API: it has no {name}()")
    try:
        yield connection.cursor()
        connection.commit()
    except BaseException:
        with contextlib.suppress(Exception):  # not each database can
            connection.rollback()
        raise
    finally:
        connection.close()


def rows_of(sql: str, connect: Connect, parameters: object) -> Iterator[pyarrow.Table]:
    """Yield the rows of a query."""
    with cursor_of(connect) as cursor:
        execute(cursor, sql, parameters)
        names = [column[0] for column in cursor.description]
        is_first = True
        while (rows := cursor.fetchmany(ROWS_READ)) or is_first:
            columns = list(zip(*rows, strict=True)) or [()] * len(names)
            yield of_batch(dict(zip(names, map(list, columns), strict=True)), "read_sql")
            is_first = False


def execute(cursor: Any, sql: str, parameters: object) -> None:
    """Run a query, with parameters unless they are None."""
    cursor.execute(sql, *([] if parameters is None else [parameters]))


def shards(sql: str, connect: Connect, parameters: object, keys: Sequence[str], hash_fn: str, count: int) -> list[str]:
    """Queries that have the rows of one in `count` parts. A key that is missing has no hash, and is in the first part.

    Raises:
        ValueError: this database has not the functions for that.
    """
    key = keys[0] if len(keys) == 1 else f"CONCAT({','.join(keys)})"
    part = f"MOD(ABS({hash_fn}({key})), {count})"
    wanted = [f"({part} = 0 OR {part} IS NULL)", *(f"{part} = {number}" for number in range(1, count))]
    try:
        with cursor_of(connect) as cursor:
            execute(cursor, f"SELECT COUNT(1) FROM ({sql}) as T WHERE {wanted[0]}", parameters)
    except Exception as error:  # each database has errors of its own
        raise ValueError(f"Database does not support sharding: {error}. Leave out override_num_blocks") from error
    return [f"SELECT * FROM ({sql}) as T WHERE {one}" for one in wanted]


class SQLDatasink(Datasink[Exception | None]):
    """Runs a statement for each row. An error of the database is a result of its task, so that it keeps its class."""

    def __init__(self, sql: str, connect: Connect) -> None:
        self._sql = sql
        self._connect = connect

    def write(self, blocks: Iterable[pyarrow.Table], ctx: WriteContext) -> Exception | None:
        """Run it for the rows of blocks, in one transaction, and return the error if there is one."""
        try:
            with cursor_of(self._connect) as cursor:
                for block in blocks:
                    rows = [tuple(row.values()) for row in to_rows(block)]
                    for start in range(0, len(rows), ROWS_WRITTEN):
                        cursor.executemany(self._sql, rows[start : start + ROWS_WRITTEN])
        except Exception as error:
            return error
        return None

    def on_write_complete(self, write_result: WriteResult[Exception | None]) -> None:
        """Raise the first error."""
        for error in filter(None, write_result.write_returns):
            raise error
