"""Sums, bounds, means and deviations of columns: each task reduces its blocks, and the driver joins the results."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mpi_runtime.data import blocks
from mpi_runtime.data.arrow import pa, pc
from mpi_runtime.data.plan import PLAIN, Mapped, Operator
from mpi_runtime.data.steps import TABLES, Step
from mpi_runtime.data.streams.progress import Stats
from mpi_runtime.data.streams.running import Running, tables_of
from mpi_runtime.data.whole.lacking import check_somewhere
from mpi_runtime.data.whole.reductions import total_of

if TYPE_CHECKING:
    import pyarrow


BOUNDS = ("min", "max")
"""What columns without numbers have too."""


class Partial(Struct):
    """What is known of some values of a column."""

    name: str
    count: int
    """The values, without those that are missing if they do not count."""
    missing: int
    total: float
    least: float
    greatest: float
    spread: float
    """The sum of the squares of the distances from the mean."""

    def joined(self, other: Partial) -> Partial:
        """Of both."""
        if not self.count or not other.count:
            kept = self if self.count else other
            return Partial(
                kept.name, kept.count, self.missing + other.missing, kept.total, kept.least, kept.greatest, kept.spread
            )
        count = self.count + other.count
        apart = float(other.total / other.count - self.total / self.count)
        return Partial(
            self.name,
            count,
            self.missing + other.missing,
            self.total + other.total,
            min(self.least, other.least),
            max(self.greatest, other.greatest),
            self.spread + other.spread + apart**2 * self.count * other.count / count,
        )

    def value(self, kind: str, ddof: int) -> float | None:
        """The result; None: there are no values, or a missing one counts."""
        if not self.count or self.missing:
            return None
        match kind:
            case "sum":
                return self.total
            case "min":
                return self.least
            case "max":
                return self.greatest
            case "mean":
                return self.total / self.count
            case _:
                return math.sqrt(self.spread / (self.count - ddof)) if self.count > ddof else None


def aggregate(
    operator: Operator,
    note: Callable[[Stats], None],
    kind: str,
    on: str | Sequence[str] | None,
    ignore_nulls: bool,
    ddof: int = 1,
) -> float | dict[str, float | None] | None:
    """Return a value of one column, or values of several by name."""
    names = [on] if isinstance(on, str) else None if on is None else list(on)
    step = Step(TABLES, kind, _reduce, (kind, names, ignore_nulls))
    joined: dict[str, Partial] = {}
    known: list[list[str]] = []
    blocks_with = Counter[str]()
    for table in tables_of(Running(Mapped(operator, step, PLAIN), ordered=True, note=note)):
        for data in table.column("partials").to_pylist():
            columns, parts = pickle.loads(data)
            known += columns
            for part in parts:
                blocks_with[part.name] += bool(columns)
                joined[part.name] = joined[part.name].joined(part) if part.name in joined else part
    check_somewhere(names or (), known)
    if not ignore_nulls:
        for name, part in joined.items():  # a block that lacks a column has no values of it
            part.missing += len(known) - blocks_with[name]
    found = {name: joined[name].value(kind, ddof) for name in names or joined if name in joined}
    if isinstance(on, str):
        return found.get(on)
    if on is None and len(found) == 1:
        return next(iter(found.values()))
    return {f"{kind}({name})": value for name, value in found.items()} or None


def _reduce(table: pyarrow.Table, kind: str, names: Sequence[str] | None, ignore_nulls: bool) -> pyarrow.Table:
    numeric = [field.name for field in table.schema if _is_number(field.type)]
    table = blocks.decoded(table)
    found = set(table.column_names)
    wanted = numeric if names is None else [name for name in names if name in found]
    made = [_partial(kind, name, table.column(name), ignore_nulls) for name in wanted]
    known = [table.column_names] if table.num_rows else []
    held = pickle.dumps((known, made))  # as bytes: a sum of integers may be larger than Arrow's
    return pa.table({"partials": [held]})


def _is_number(kind: pyarrow.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _partial(kind: str, name: str, column: pyarrow.ChunkedArray, ignore_nulls: bool) -> Partial:
    values = column.drop_null() if ignore_nulls else column
    if not len(values) - values.null_count:
        return Partial(name, 0, values.null_count, 0, 0, 0, 0.0)
    has_bounds_alone = not _is_number(values.type) and not pa.types.is_boolean(values.type)  # such as texts and times
    if has_bounds_alone and kind not in BOUNDS:
        raise TypeError(f"{kind}() needs numbers, and the column {name!r} has the type {values.type}")
    low, high = pc.min(values).as_py(), pc.max(values).as_py()
    if has_bounds_alone:
        return Partial(name, len(values), values.null_count, math.nan, low, high, math.nan)
    total: Any = total_of(values)
    apart = pc.subtract(pc.cast(values, pa.float64(), safe=False), float(total / len(values)))
    return Partial(name, len(values), values.null_count, total, low, high, pc.sum(pc.multiply(apart, apart)).as_py())
