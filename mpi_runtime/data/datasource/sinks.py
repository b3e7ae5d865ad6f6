"""Sinks that a program writes itself: what its tasks write to."""

from __future__ import annotations

import contextlib
import inspect
import pickle
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

import cloudpickle
from msgspec import Struct

import mpi_runtime
from mpi_runtime.core import published
from mpi_runtime.data import blocks
from mpi_runtime.data.datasource.names import beginning_of, forget, index_of
from mpi_runtime.data.options import needs
from mpi_runtime.data.plan import Divided, Mapped, Operator
from mpi_runtime.data.steps import WRITE, Step
from mpi_runtime.data.streams.progress import Stats
from mpi_runtime.data.streams.running import Running, tables_of
from mpi_runtime.util.scheduling_strategies import NodeAffinitySchedulingStrategy

if TYPE_CHECKING:
    import pyarrow

Return = TypeVar("Return")
UUID = "write_uuid"


@published("mpi_runtime.data.datasource")
class WriteResult(Struct, Generic[Return]):
    """What was written."""

    num_rows: int
    """The number of rows."""
    size_bytes: int
    """Their bytes in memory."""
    write_returns: list[Return]
    """What each `write` has returned."""


@published("mpi_runtime.data.datasource")
class WriteContext(Struct):
    """About a call of `write`."""

    task_idx: int
    """A number of its own, the same if this block is written again. Numbers may have gaps."""
    op_name: str = ""
    """The name of the sink."""
    kwargs: dict[str, object] = {}
    """With "write_uuid", a text that is the same for all calls of a write."""


@published("mpi_runtime.data.datasource")
class Datasink(Generic[Return]):
    """What a program writes to, for `Dataset.write_datasink`: subclass it.

    class Rows(Datasink):
        def write(self, blocks, ctx):
            for block in blocks:
                send(block.to_pylist())

    `write` runs in tasks, on copies of the sink; all else runs in the program. A task whose process dies runs again,
    so `write` must do no harm if it writes the same block twice.
    """

    _skips = False
    """Whether nothing is to be written, as `on_write_start` has found."""

    def on_write_start(self, schema: pyarrow.Schema | None = None) -> None:
        """Begin. `schema`: the columns, which are found out if this method is overridden and takes them."""

    def write(self, blocks: Iterable[pyarrow.Table], ctx: WriteContext) -> Return:
        """Write blocks."""
        raise NotImplementedError(f"{type(self).__name__} must have a method write(blocks, ctx)")

    def _place(self) -> str:
        """Where it writes; a second write of the same rows has another `write_uuid`."""
        return self.get_name()

    def _check(self, operator: Operator) -> None:
        """Check that the data set does not read what this replaces."""

    def _clean(self, uuid: str) -> None:
        """Remove what tasks of this write have left that were killed."""

    def on_write_complete(self, write_result: WriteResult[Return]) -> None:
        """All is written. If this fails, `on_write_failed` is called."""

    def on_write_failed(self, error: Exception) -> None:
        """Something has failed; the error is raised afterwards."""

    def get_name(self) -> str:
        """Its name, for messages and statistics."""
        return type(self).__name__.removeprefix("_").removesuffix("Datasink")

    @property
    def supports_distributed_writes(self) -> bool:
        """Whether tasks may write on any host; else they do so on that of the program."""
        return True

    @property
    def min_rows_per_write(self) -> int | None:
        """The least rows of a call of `write`, but for the last ones; None: those of a block."""
        return None


class Write:
    """Writes a block. It is a step of a task."""

    def __init__(self, sink: Datasink[object], uuid: str) -> None:
        self._sink = sink
        self._uuid = uuid

    def __call__(self, table: pyarrow.Table, place: tuple[int, ...]) -> pyarrow.Table:
        """Write it, and report what the sink returned."""
        context = WriteContext(index_of(place), self._sink.get_name(), {UUID: self._uuid})
        made = self._sink.write([table], context)
        return blocks.of_rows(
            [{"rows": table.num_rows, "bytes": table.nbytes, "made": cloudpickle.dumps(made)}],
        )


def on_this_host(is_anywhere: bool) -> dict[str, object]:
    """Options for tasks that run on the host of the program."""
    if is_anywhere:
        return {}
    node = mpi_runtime.get_runtime_context().get_node_id()
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}


def write(
    operator: Operator,
    note: Callable[[Stats], None],
    schema: Callable[[], object],
    sink: Datasink[object],
    concurrency: int | None,
    options: Mapping[str, object],
) -> None:
    """Write all blocks to a sink; `schema`: of the rows, if it is asked for."""
    if not isinstance(sink, Datasink):
        raise TypeError(f"write_datasink() takes a Datasink, not {type(sink).__name__}")
    of_tasks = {**on_this_host(sink.supports_distributed_writes), **options}
    wanted = needs("write_datasink", False, concurrency=concurrency, **of_tasks)  # type: ignore[arg-type]
    sink._check(operator)
    place = sink._place()
    uuid = beginning_of(operator, place)
    if sink.min_rows_per_write:
        operator = Divided(operator, sink.min_rows_per_write, is_exact=False)
    try:
        _begin(sink, schema)
        step = Step(WRITE, f"write_{sink.get_name()}", Write(sink, uuid))
        running = Running(Mapped(operator, step, wanted), ordered=True, note=note)
        sink.on_write_complete(WriteResult(0, 0, []) if sink._skips else _result(running, sink, uuid))
    except BaseException as error:
        forget(place, uuid)
        if isinstance(error, Exception):
            with contextlib.suppress(Exception):  # the first error is the one that counts
                sink.on_write_failed(error)
        raise


def _result(running: Running, sink: Datasink[object], uuid: str) -> WriteResult[object]:
    """Run it, and return what was written. No task writes any more when this returns or fails."""
    found: WriteResult[object] = WriteResult(0, 0, [])
    try:
        for row in (row for table in tables_of(running) for row in table.to_pylist()):
            found.num_rows += row["rows"]
            found.size_bytes += row["bytes"]
            found.write_returns.append(pickle.loads(row["made"]))
    finally:
        running.wait_closed()
        sink._clean(uuid)
    return found


def _begin(sink: Datasink[object], schema: Callable[[], object]) -> None:
    """Call `on_write_start`, as a subclass has it: those of older programs take no schema."""
    takes = inspect.signature(sink.on_write_start).parameters
    is_own = not type(sink).on_write_start.__module__.startswith("mpi_runtime.")
    if not takes:
        sink.on_write_start()
        return
    found = schema() if is_own else None
    sink.on_write_start(getattr(found, "base_schema", None))
