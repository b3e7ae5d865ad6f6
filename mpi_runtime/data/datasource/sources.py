"""Sources that a program writes itself: what its tasks read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from mpi_runtime.core import published
from mpi_runtime.data import blocks
from mpi_runtime.data.steps import Piece, Where

if TYPE_CHECKING:
    import pyarrow

    from mpi_runtime.data.accessor import BlockMetadata


@published("mpi_runtime.data.datasource")
class ReadTask:
    """A part of a source: `read_fn` returns tables or data frames, or yields them."""

    def __init__(
        self,
        read_fn: Callable[[], Iterable[Any]],
        metadata: BlockMetadata | None = None,
        schema: object = None,
        per_task_row_limit: int | None = None,
    ) -> None:
        """`metadata` and `schema` are Ray's, without effect; `per_task_row_limit`: the most rows that it reads."""
        self._read_fn = read_fn
        self._metadata = metadata
        self._schema = schema
        self._limit = per_task_row_limit

    @property
    def metadata(self) -> BlockMetadata | None:
        """What it was given."""
        return self._metadata

    @property
    def schema(self) -> object:
        """What it was given."""
        return self._schema

    @property
    def read_fn(self) -> Callable[[], Iterable[Any]]:
        """The function."""
        return self._read_fn

    @property
    def per_task_row_limit(self) -> int | None:
        """The most rows that it reads."""
        return self._limit

    def __call__(self) -> Iterator[Any]:
        """Read it."""
        left = self._limit
        for block in self._read_fn():
            if left is None:
                yield block
            elif left > 0:
                yield block[:left]
                left -= len(block)


@published("mpi_runtime.data.datasource")
class Datasource:
    """What a program reads from, for `read_datasource`: subclass it.

    class Squares(Datasource):
        def get_read_tasks(self, parallelism):
            return [ReadTask(lambda i=i: [pyarrow.table({"square": [i * i]})]) for i in range(parallelism)]
    """

    def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None) -> list[ReadTask]:
        """The parts that tasks read, about `parallelism` of them. It is called for each run."""
        raise NotImplementedError(f"{type(self).__name__} must have a method get_read_tasks(parallelism)")

    def estimate_inmemory_data_size(self) -> int | None:
        """Ray's, and never called."""
        raise NotImplementedError

    def get_name(self) -> str:
        """Its name, for messages and statistics."""
        return type(self).__name__.removesuffix("Datasource")

    @property
    def supports_distributed_reads(self) -> bool:
        """Whether tasks may read on any host; else they do so on that of the program."""
        return True


class Part(Piece):
    """What one task reads."""

    def __init__(self, name: str, task: Callable[[], Iterable[object]]) -> None:
        self._name = name
        self._task = task

    def read(self, where: Where) -> Iterator[pyarrow.Any]:
        """Yield its rows."""
        for block in self._task():
            yield blocks.of_batch(block, f"a ReadTask of {self._name}")


def tasks_of(source: Datasource, count: int) -> list[ReadTask]:
    """The parts of a source.

    Raises:
        ValueError: something else was returned.
    """
    found = list(source.get_read_tasks(count))
    if wrong := [task for task in found if not callable(task)]:
        raise ValueError(f"{type(source).__name__}.get_read_tasks() must return ReadTasks, not {wrong[0]!r}")
    return found
