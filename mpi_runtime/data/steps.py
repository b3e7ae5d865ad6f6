"""What a task does with its blocks: steps, one after the other, and what it says if one fails."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from mpi_runtime.core import published
from mpi_runtime.data import blocks
from mpi_runtime.data.arrow import be_frugal, give_back, pa
from mpi_runtime.errors import ObjectLostError
from mpi_runtime.errors.ray import UserCodeException

if TYPE_CHECKING:
    import pyarrow

    Tables = Iterator[pyarrow.Table]

BATCHES, ROWS, FLAT, FILTER, TABLES, WRITE = "batches", "rows", "flat", "filter", "tables", "write"
"""What a function gets and returns: batches; a row for a row; rows for a row; whether a row stays; blocks; a block with
its place in the order, and what is to be reported of its file."""
BATCHES_AT_ONCE, ROWS_AT_ONCE = 4, 16
"""The calls of an asynchronous function that run at a time in a task."""


@published("mpi_runtime.data")
class BlockError(UserCodeException):
    """A function, a reader or a writer of a data set has failed. The message names the rows; the cause is its error."""


@published("mpi_runtime.data")
class BlockValueError(BlockError, ValueError):
    """The same, for a `ValueError`: of a damaged file, of a column that is not there, of the function itself."""


class Step(Struct, frozen=True):
    """A function, and how it is called."""

    kind: str
    name: str
    function: Callable[..., object]
    args: tuple[object, ...] = ()
    kwargs: Mapping[str, object] = {}
    constructor_args: tuple[object, ...] = ()
    constructor_kwargs: Mapping[str, object] = {}
    batch_size: int | None = None
    batch_format: str | None = "default"
    zero_copy: bool = False
    is_exact: bool = False
    """Whether each table that it makes is a block, whatever its size."""

    @property
    def is_class(self) -> bool:
        """Whether it is a class, of which each actor has one instance."""
        return inspect.isclass(self.function)

    @property
    def is_async(self) -> bool:
        """Whether its calls are coroutines or asynchronous generators, of which several run at a time."""
        return is_async(self.function)

    def made(self) -> Step:
        """The same step, with an instance in place of a class."""
        if not self.is_class:
            return self
        from msgspec.structs import replace

        return replace(self, function=self.function(*self.constructor_args, **self.constructor_kwargs))


def is_async(function: object) -> bool:
    """Whether a function, or the instances of a class, are asynchronous."""
    tests = (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    return any(test(one) for test in tests for one in (function, getattr(function, "__call__", None)))  # noqa: B004


class Chain(Struct, frozen=True):
    """The steps of a stage."""

    steps: tuple[Step, ...]
    block_bytes: int
    """Blocks are cut when they are larger."""
    catches: bool = False
    """Whether a failure is reported as a value, since the stream can do without the block."""

    def with_instances(self) -> Chain:
        """The same steps, with an instance in place of each class."""
        return Chain(tuple(step.made() for step in self.steps), self.block_bytes, self.catches)


class Header(Struct, frozen=True):
    """What a task gets beside its blocks."""

    origins: tuple[str, ...]
    """Where the rows of each block are from."""
    key: tuple[int, ...]
    cut: int = -1
    """Rows to keep; -1: all."""


class Meta(Struct, frozen=True):
    """About a block. It follows the block in the stream of its task."""

    rows: int
    bytes: int
    seconds: float
    is_last: bool = False
    error: str = ""


class Where:
    """Where a task is, for its message if it fails."""

    def __init__(self, key: tuple[int, ...]) -> None:
        self.key = key
        self.origin = ""
        self.step = ""
        self.rows = ""

    def __str__(self) -> str:
        place = f" of {self.origin}" if self.origin else ""
        return (f" at {self.rows}" if self.rows else "") + place


class Piece:
    """A part of a source, which a task reads: the blocks of a list or a file."""

    refs: Sequence[object] = ()
    """References to what it reads, if these are freed with it."""

    def read(self, where: Where) -> Iterator[pyarrow.Table]:
        """Yield its rows. `where.origin` says from where, for messages."""
        raise NotImplementedError


def run(chain: Chain, header: Header, inputs: Sequence[object]) -> Iterator[object]:
    """Yield each block that the steps make of the inputs, and after it its `Meta`."""
    where = Where(header.key)
    be_frugal()
    began = time.perf_counter()
    try:
        tables = _tables(header, inputs, where)
        if header.cut >= 0:
            tables = (table.slice(0, header.cut) for table in tables)
        for step in chain.steps:
            tables = _apply(step, tables, where, chain.block_bytes)
        is_exact = bool(chain.steps) and chain.steps[-1].is_exact
        for block, is_last in map(_not_last, tables) if is_exact else _shaped(tables, chain.block_bytes):
            where.step = where.step or (chain.steps[-1].name if chain.steps else "")
            blocks.check_columns(block)
            where.step = ""
            own = blocks.compact(block)
            rows, size = own.num_rows, max(1, own.nbytes)
            del block  # while the task rests it keeps no block, and no memory that Arrow would use again
            yield own
            del own
            give_back()
            yield Meta(rows, size, time.perf_counter() - began, is_last)
            began = time.perf_counter()
    except Exception as error:
        if isinstance(error, ObjectLostError) and any(isinstance(one, Piece) and one.refs for one in inputs):
            raise  # the stream makes it again
        what = f"{where.step} has failed{where}" if where.step else f"reading{where} has failed"
        text = f"{what}: {type(error).__name__}: {error}"
        if "read-only" in text and any(step.zero_copy for step in chain.steps):
            text += ". A function seems to have tried to mutate a zero-copy read-only batch: leave out zero_copy_batch"
        if not chain.catches:
            raise (BlockValueError if isinstance(error, ValueError) else BlockError)(text) from error
        yield None
        yield Meta(0, 0, time.perf_counter() - began, True, text)


def _tables(header: Header, inputs: Sequence[object], where: Where) -> Tables:
    origins = header.origins or ("",) * len(inputs)
    for origin, value in zip(origins, inputs, strict=True):
        where.origin, where.step = origin, ""
        if isinstance(value, Piece):
            yield from map(blocks.without_views, value.read(where))
        else:
            yield value


def _apply(step: Step, tables: Tables, where: Where, block_bytes: int) -> Tables:
    match step.kind:
        case "write":
            return _written(step, tables, where, block_bytes)
        case _ if step.is_async:
            return _at_once(step, tables, where)
        case "batches":
            return _batches(step, tables, where)
        case "tables":
            return _of_tables(step, tables, where)
        case _:
            return _rows(step, tables, where)


def _of_tables(step: Step, tables: Tables, where: Where) -> Tables:
    for table in tables:
        where.step = step.name
        made = [step.function(table, *step.args, **step.kwargs)]
        del table
        yield made.pop()
        where.step = ""


def _written(step: Step, tables: Tables, where: Where, block_bytes: int) -> Tables:
    for number, (table, _) in enumerate(_shaped(tables, block_bytes)):
        where.step = step.name
        if table.num_rows:
            blocks.check_columns(table)
            yield step.function(table, (*where.key, number))
        where.step = ""


def _batches(step: Step, tables: Tables, where: Where) -> Tables:
    begin = 0
    for table in blocks.rebatched(tables, step.batch_size):
        end = begin + table.num_rows
        where.step, where.rows = step.name, f"rows {begin} to {end - 1}"
        made = [step.function(blocks.to_batch(table, step.batch_format, step.zero_copy), *step.args, **step.kwargs)]
        del table  # as all names here, while others work with what was made
        if isinstance(made[0], Iterator):
            for batch in made.pop():  # type: ignore[attr-defined]
                made.append(blocks.of_batch(batch, step.name))
                del batch
                yield made.pop()
                where.step, where.rows = step.name, f"rows {begin} to {end - 1}"  # others have worked with it
        else:
            yield blocks.of_batch(made.pop(), step.name)
        begin = end
        where.step = where.rows = ""


def _rows(step: Step, tables: Tables, where: Where) -> Tables:
    begin = 0
    for table in tables:
        where.step = step.name
        if step.kind == FILTER:
            yield table.filter(pa.array(_kept(step, table, begin, where), pa.bool_()))
        else:
            yield from _in_parts(_new_rows(step, table, begin, where))
        begin += table.num_rows
        where.step = where.rows = ""


def _kept(step: Step, table: pyarrow.Table, begin: int, where: Where) -> list[bool]:
    kept = []
    for number, row in enumerate(blocks.to_rows(table), begin):
        where.rows = f"row {number}"
        kept.append(bool(step.function(row, *step.args, **step.kwargs)))
    return kept


def _new_rows(step: Step, table: pyarrow.Table, begin: int, where: Where) -> Iterator[Mapping[str, object]]:
    for number, row in enumerate(blocks.to_rows(table), begin):
        where.step, where.rows = step.name, f"row {number}"  # others have worked with the rows before
        made = step.function(row, *step.args, **step.kwargs)
        for one in made if step.kind == FLAT else (made,):  # type: ignore[attr-defined]
            yield _checked(step, one)


def _checked(step: Step, row: object) -> Mapping[str, object]:
    if not isinstance(row, Mapping):
        wanted = "a list of dictionaries" if step.kind == FLAT else "a dictionary"
        raise ValueError(f"{step.name} must return {wanted}, one for each row, not {type(row).__name__}")
    return row


def _at_once(step: Step, tables: Tables, where: Where) -> Tables:
    """What an asynchronous function makes, in the order of its input."""
    results = _results_at_once(step, tables, where)
    if step.kind == BATCHES:
        yield from (blocks.of_batch(batch, step.name) for batch in results)
    else:
        yield from _in_parts(_checked(step, row) for row in results)


def _results_at_once(step: Step, tables: Tables, where: Where) -> Iterator[object]:
    from mpi_runtime.data.streams.coroutines import in_order

    def call(item: object) -> object:
        return step.function(item, *step.args, **step.kwargs)

    most = BATCHES_AT_ONCE if step.kind == BATCHES else ROWS_AT_ONCE
    for place, results in in_order(call, _inputs(step, tables, where), most, step.kind == FLAT):
        reading = where.origin
        where.step, (where.origin, where.rows) = step.name, place
        yield from results()
        where.origin, where.step, where.rows = reading, "", ""


def _inputs(step: Step, tables: Tables, where: Where) -> Iterator[tuple[tuple[str, str], object]]:
    """What a function is called with, and where it is from."""
    begin = 0
    for table in blocks.rebatched(tables, step.batch_size) if step.kind == BATCHES else tables:
        where.step = step.name
        if step.kind == BATCHES:
            where.rows = f"rows {begin} to {begin + table.num_rows - 1}"
            yield (where.origin, where.rows), blocks.to_batch(table, step.batch_format, step.zero_copy)
        else:
            for number, row in enumerate(blocks.to_rows(table), begin):
                yield (where.origin, f"row {number}"), row
        begin += table.num_rows
        where.step = where.rows = ""


def _in_parts(rows: Iterable[Mapping[str, object]], size: int = 1024) -> Tables:
    part: list[Mapping[str, object]] = []
    for row in rows:
        part.append(row)
        if len(part) == size:
            yield blocks.of_rows(part)
            part = []
    if part:
        yield blocks.of_rows(part)


def _shaped(tables: Tables, most: int) -> Iterator[tuple[pyarrow.Table, bool]]:
    """Yield blocks of about `most` bytes, and whether it is the last. A row is never cut."""
    waiting: list[pyarrow.Table] = []
    amount = count = 0
    for table in tables:
        if not table.num_rows:
            waiting = waiting or [table]
            continue
        for part in blocks.cut(table, most):
            if amount and amount + part.nbytes > most:
                amount, count = 0, count + 1
                yield _taken(waiting), False
            waiting.append(part)
            amount += part.nbytes
    if waiting and (amount or not count):  # without any row it has the columns alone
        table = part = None
        yield _taken(waiting), True


def _not_last(table: pyarrow.Table) -> tuple[pyarrow.Table, bool]:
    return table, False


def _taken(parts: list[pyarrow.Table]) -> pyarrow.Table:
    """One block of them, which the caller no longer keeps."""
    made = blocks.joined(parts)
    parts.clear()
    return made
