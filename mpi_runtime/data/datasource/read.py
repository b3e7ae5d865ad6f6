"""Data sets of sources that a program has, and of databases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from mpi_runtime.core import published
from mpi_runtime.data.dataset import Dataset
from mpi_runtime.data.datasource import sql as databases
from mpi_runtime.data.datasource.names import of_this_run
from mpi_runtime.data.datasource.sinks import on_this_host
from mpi_runtime.data.datasource.sources import Datasource, Part, tasks_of
from mpi_runtime.data.options import needs
from mpi_runtime.data.plan import Needs, Source, fixed
from mpi_runtime.data.streams.records import Block

if TYPE_CHECKING:
    Tasks = Callable[[int], Sequence[Callable[[], Iterable[object]]]]

TASKS_OF_CPU = 2


@published("mpi_runtime.data")
def read_datasource(
    datasource: Datasource,
    *,
    parallelism: int = -1,
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
    ray_remote_args: Mapping[str, object] | None = None,
    **options: object,
) -> Dataset:
    """Read from a source that the program has written itself.

    Args:
        datasource: an instance of a subclass of `Datasource`. Its `get_read_tasks` is called for each run.
        parallelism: the older name of `override_num_blocks`; -1: it is chosen.
        concurrency: the most tasks that read at a time.
        override_num_blocks: the number of parts for which it is asked.
        ray_remote_args: options for the tasks.
        options: the same, each as an argument.
    """
    if not isinstance(datasource, Datasource):
        raise TypeError(f"read_datasource() takes a Datasource, not {type(datasource).__name__}")
    of_tasks = {**on_this_host(datasource.supports_distributed_reads), **(ray_remote_args or {}), **options}
    wanted = needs("read_datasource", False, concurrency=concurrency, **of_tasks)  # type: ignore[arg-type]
    tasks = partial(tasks_of, datasource)
    identity = (fixed(type(datasource)), fixed(vars(datasource)))
    return _of_tasks(f"read_{datasource.get_name()}", tasks, override_num_blocks or parallelism, identity, wanted)


@published("mpi_runtime.data")
def read_sql(
    sql: str,
    connection_factory: databases.Connect,
    *,
    sql_params: object = None,
    shard_keys: Sequence[str] | None = None,
    shard_hash_fn: str = "MD5",
    parallelism: int = -1,
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
    ray_remote_args: Mapping[str, object] | None = None,
    **options: object,
) -> Dataset:
    """Read the rows of a query, by a module with Python's DB-API.

        ds = data.read_sql("SELECT * FROM films WHERE year > ?", lambda: sqlite3.connect("films.db"), sql_params=[1990])

    One task runs the query, unless `shard_keys` and `override_num_blocks` divide it.

    Args:
        sql: the query.
        connection_factory: returns a connection. It runs in each task.
        sql_params: parameters of the query, in the form of the module.
        shard_keys: columns by whose hash the query is divided. It needs a database with MOD, ABS and `shard_hash_fn`.
        shard_hash_fn: a function of the database that makes a number of a value.
        parallelism: Ray's, without effect.
        concurrency: the most tasks that read at a time.
        override_num_blocks: the number of parts, each with a query and a task.
        ray_remote_args: options for the tasks.
        options: the same, each as an argument.

    Raises:
        ValueError: the query cannot be divided.
    """
    del parallelism
    of_tasks = {**(ray_remote_args or {}), **options}
    wanted = needs("read_sql", False, concurrency=concurrency, **of_tasks)  # type: ignore[arg-type]
    count = override_num_blocks or 1
    if count > 1 and not shard_keys:
        raise ValueError(f"override_num_blocks={count} needs shard_keys, by which the query is divided")
    queries = [sql]
    if count > 1:
        queries = databases.shards(sql, connection_factory, sql_params, shard_keys or (), shard_hash_fn, count)
    reads = [partial(databases.rows_of, one, connection_factory, sql_params) for one in queries]
    identity = (sql, fixed(sql_params), fixed(connection_factory), len(reads))
    return _of_tasks("read_sql", lambda _: reads, 1, identity, wanted)


def _of_tasks(name: str, tasks: Tasks, count: int, identity: tuple[object, ...], wanted: Needs) -> Dataset:
    def pieces(cpus: int, block_bytes: int) -> list[Block]:
        found = tasks(count if count > 0 else TASKS_OF_CPU * cpus)
        return [
            Block(Part(name, task), 0, 0, f"{name}, part {number + 1} of {len(found)}", key=(number,))
            for number, task in enumerate(found)
        ]

    return Dataset(Source(name, pieces, lambda: (*identity, of_this_run()), needs=wanted))
