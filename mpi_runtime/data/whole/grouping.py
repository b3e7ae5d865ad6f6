"""Groups of rows with equal keys: reduced, or given to a function.

A reduction begins where the blocks are: each task makes an accumulator for each group of its block, and these move. For
a function the rows move. Both by ranges of keys, so the result is in the order of keys.
"""

from __future__ import annotations

import inspect
import itertools
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import cloudpickle
import numpy

from mpi_runtime.data import blocks
from mpi_runtime.data.aggregate import AggregateFn, names_of
from mpi_runtime.data.arrow import pa, pc
from mpi_runtime.data.plan import PLAIN, Mapped, Operator
from mpi_runtime.data.steps import TABLES, Step
from mpi_runtime.data.whole import lacking
from mpi_runtime.data.whole.sorting import keys_of, sort_rows

if TYPE_CHECKING:
    import pyarrow


HELD = "__accumulators__"
"""The column with the accumulators of groups."""
LAST = "__is_last__"
"""The column of rows that a stratified division puts into the test."""


def groups(table: pyarrow.Table, names: Sequence[str]) -> Iterator[pyarrow.Table]:
    """Yield the rows of each group. The table is in the order of these columns; without any, all rows are one group."""
    if not names:
        yield table
    if not names or not table.num_rows:
        return
    changes = numpy.zeros(table.num_rows - 1, bool)
    keys = blocks.decoded(table.select(list(names)))
    for name in names:  # a missing value, and one that is not a number, is equal to itself
        codes = pc.dictionary_encode(keys.column(name), null_encoding="encode").combine_chunks().indices
        codes = numpy.asarray(codes)
        changes |= codes[1:] != codes[:-1]
    edges = [0, *(numpy.flatnonzero(changes) + 1).tolist(), table.num_rows]
    for low, high in itertools.pairwise(edges):
        yield table.slice(low, high - low)


def _held(table: pyarrow.Table, names: Sequence[str], fns: Sequence[AggregateFn]) -> pyarrow.Table:
    """The accumulators of the groups of a block."""
    needed = [*names, *targets(fns)]
    is_nothing = bool(names) and not table.num_rows
    block, table = table, lacking.filled(table, pa.schema([(name, pa.null()) for name in targets(fns)]))
    names = [name for name in names if name in block.column_names]  # others are missing in all rows
    if names:
        table = sort_rows(table, keys_of("groupby", names))
    parts = [] if is_nothing else list(groups(table, names))
    held = [cloudpickle.dumps([fn.accumulate_block(fn.init(None), part) for fn in fns]) for part in parts]
    made = pa.table(_keys_of_parts(table, parts, names) | {HELD: pa.array(held, pa.large_binary())})
    return lacking.marked(made, block, needed)


def targets(fns: Sequence[AggregateFn]) -> list[str]:
    """The columns that reductions look at."""
    return [on for fn in fns if (on := fn.get_target_column()) is not None]


def _keys_of_parts(
    table: pyarrow.Table, parts: Sequence[pyarrow.Table], names: Sequence[str]
) -> dict[str, pyarrow.ChunkedArray]:
    firsts = numpy.cumsum([0, *(part.num_rows for part in parts)])[:-1].astype(numpy.int64)
    return {name: table.column(name).take(pa.array(firsts)) for name in names}


def ended(table: pyarrow.Table, names: Sequence[str], fns: Sequence[AggregateFn]) -> pyarrow.Table:
    """The results of groups whose accumulators are in a table, in the order of keys."""
    parts = list(groups(table, names))
    results = [merged(part, fns) for part in parts]
    columns = _keys_of_parts(table, parts, names)
    for place, name in enumerate(names_of(fns)):
        values = [result[place] for result in results]
        columns[name] = blocks.of_batch({"x": values}, name).column("x")
    return pa.table(columns)


def merged(table: pyarrow.Table, fns: Sequence[AggregateFn]) -> list[object]:
    """The results of all accumulators of a table."""
    joined = [fn.init(None) for fn in fns]
    for data in table.column(HELD).to_pylist():
        joined = [fn.merge(one, new) for fn, one, new in zip(fns, joined, pickle.loads(data), strict=True)]
    return [fn.result(one) for fn, one in zip(fns, joined, strict=True)]


def held(operator: Operator, names: Sequence[str], fns: Sequence[AggregateFn]) -> Operator:
    """The accumulators of groups of each block."""
    for fn in fns:
        if not isinstance(fn, AggregateFn):
            raise TypeError(f"aggregate() takes instances of AggregateFn, such as Sum('x'), not {fn!r}")
        on = fn.get_target_column()
        if not isinstance(on, str) and not (on is None and fn.may_lack_column):
            raise ValueError(f"{type(fn).__name__}(on={on!r}): it must be the name of a column")
    return Mapped(operator, Step(TABLES, "aggregate", _held, (tuple(names), tuple(fns))), PLAIN)


def last_marked(table: pyarrow.Table, share: float) -> pyarrow.Table:
    """A group with a column that says which rows are in its last part."""
    edge = table.num_rows - int(table.num_rows * share)
    return table.append_column(LAST, pa.array(numpy.arange(table.num_rows) >= edge))


def same(table: object) -> object:
    """The same rows: a step that keeps groups whole."""
    return table


def of_groups(fn: Callable[..., object], names: Sequence[str], form: str | None) -> Callable[..., object]:
    """A function, or a class, which calls another for each group of a table in the order of these columns."""

    def applied(
        function: Callable[..., object], table: pyarrow.Table, args: Sequence[object], kwargs: dict[str, object]
    ) -> Iterator[object]:
        for part in groups(table, names):
            made = function(blocks.to_batch(part, form), *args, **kwargs)
            yield from made if isinstance(made, Iterator) else (made,)

    if not inspect.isclass(fn):

        def each(table: pyarrow.Table, *args: object, **kwargs: object) -> Iterator[object]:
            return applied(fn, table, args, kwargs)

        each.__name__ = str(getattr(fn, "__name__", type(fn).__name__))
        return each

    class Each:
        def __init__(self, *args: object, **kwargs: object) -> None:
            self._function = fn(*args, **kwargs)

        def __call__(self, table: pyarrow.Table, *args: object, **kwargs: object) -> Iterator[object]:
            return applied(self._function, table, args, kwargs)  # type: ignore[arg-type]

    Each.__name__, Each.__qualname__ = fn.__name__, fn.__qualname__
    return Each
