"""What groups of rows are reduced to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

from mpi_runtime.core import published
from mpi_runtime.data import blocks
from mpi_runtime.data.arrow import pa, pc
from mpi_runtime.data.whole.reductions import AggregateFn, AggregateFnV2, total_of

if TYPE_CHECKING:
    import pyarrow

__all__ = [
    "AbsMax", "AggregateFn", "AggregateFnV2", "AsList", "Count", "CountDistinct", "Max", "Mean", "Min",
    "MissingValuePercentage", "Quantile", "Std", "Sum", "Unique", "ValueCounter", "ZeroPercentage", "names_of",
]  # fmt: skip


@published("mpi_runtime.data")
class Count(AggregateFnV2):
    """The number of rows, or of the values of a column; missing ones count unless `ignore_nulls`."""

    def __init__(self, on: str | None = None, ignore_nulls: bool = False, alias_name: str | None = None) -> None:
        """`alias_name`: of the column of results, as of all others here."""
        super().__init__(alias_name or f"count({on or ''})", int, on=on, ignore_nulls=ignore_nulls)

    def init(self, key: object) -> object:
        """The accumulator of no rows."""
        del key
        return 0

    def aggregate_block(self, block: pyarrow.Table) -> object:
        """The accumulator of the rows of a table."""
        if self._target_col_name is None or not self._ignore_nulls:
            return block.num_rows
        column = block.column(self._target_col_name)
        return len(column) - column.null_count

    def combine(self, current_accumulator: object, new: object) -> object:
        """Join two accumulators."""
        return current_accumulator + new  # type: ignore[operator]


class _OfKernel(AggregateFnV2):
    """A function of pyarrow, and one that joins two of its results."""

    may_lack_column = False
    kind = ""
    kernel = ""
    join: Callable[[list[object]], object] = sum  # type: ignore[assignment]

    def __init__(self, on: str | None = None, ignore_nulls: bool = True, alias_name: str | None = None) -> None:
        """`on`: the column."""
        super().__init__(alias_name or f"{self.kind}({on})", tuple, on=on, ignore_nulls=ignore_nulls)

    def init(self, key: object) -> object:
        """The accumulator of no rows."""
        del key
        return ()

    def merge(self, accumulator: object, new: object) -> object:
        """Join two accumulators: () of no rows, None of a missing value."""
        if accumulator == () or new == ():
            return new if accumulator == () else accumulator
        return super().merge(accumulator, new)

    def aggregate_block(self, block: pyarrow.Table) -> object:
        """The accumulator of the rows of a table."""
        values = self._values(block)
        return None if values is None else getattr(pc, self.kernel)(values).as_py()

    def combine(self, current_accumulator: object, new: object) -> object:
        """Join two accumulators."""
        return type(self).join([current_accumulator, new])

    def result(self, accumulator: object) -> object:
        """The value of an accumulator; None also of one that is not a number, as in Ray Data."""
        first = accumulator[0] if isinstance(accumulator, tuple) and accumulator else accumulator
        is_nan = isinstance(first, float) and math.isnan(first)
        return None if accumulator == () or is_nan else super().result(accumulator)


@published("mpi_runtime.data")
class Sum(_OfKernel):
    """The sum of a column."""

    kind = "sum"
    join = sum

    def aggregate_block(self, block: pyarrow.Table) -> object:
        """The accumulator of the rows of a table."""
        values = self._values(block)
        return None if values is None else total_of(values)


@published("mpi_runtime.data")
class Min(_OfKernel):
    """The least value of a column."""

    kind = kernel = "min"
    join = min  # type: ignore[assignment]


@published("mpi_runtime.data")
class Max(_OfKernel):
    """The greatest value of a column."""

    kind = kernel = "max"
    join = max  # type: ignore[assignment]


@published("mpi_runtime.data")
class AbsMax(_OfKernel):
    """The greatest absolute value of a column."""

    kind, kernel = "abs_max", "max"
    join = max  # type: ignore[assignment]

    def aggregate_block(self, block: pyarrow.Table) -> object:
        """The accumulator of the rows of a table."""
        values = self._values(block)
        return None if values is None else pc.max(pc.abs(values)).as_py()


class _OfValues(_OfKernel):
    """A reduction whose accumulator is made of the values."""

    def aggregate_block(self, block: pyarrow.Table) -> object:
        """The accumulator of the rows of a table."""
        values = self._values(block)
        return None if values is None else self.of(values)

    def of(self, values: pyarrow.ChunkedArray) -> object:
        """The accumulator of values, of which none is missing."""
        raise NotImplementedError


@published("mpi_runtime.data")
class Mean(_OfValues):
    """The mean of a column."""

    kind = "mean"

    def of(self, values: pyarrow.ChunkedArray) -> object:
        """The sum, and the number of values."""
        return total_of(values), len(values)

    def combine(self, current_accumulator: object, new: object) -> object:
        """Join two accumulators."""
        (total, count), (total_, count_) = current_accumulator, new  # type: ignore[misc]
        return total + total_, count + count_  # type: ignore[has-type]

    def finalize(self, accumulator: object) -> object:
        """Make a value of an accumulator."""
        total, count = accumulator  # type: ignore[misc]
        return total / count  # type: ignore[has-type]


@published("mpi_runtime.data")
class Std(_OfValues):
    """The standard deviation of a column."""

    kind = "std"

    def __init__(
        self, on: str | None = None, ddof: int = 1, ignore_nulls: bool = True, alias_name: str | None = None
    ) -> None:
        """`ddof` is subtracted from the number of values."""
        super().__init__(on, ignore_nulls, alias_name)
        self._ddof = ddof

    def of(self, values: pyarrow.ChunkedArray) -> object:
        """The sum of the squares of the distances from the mean, the mean, and the number of values."""
        mean = float(total_of(values) / len(values))  # type: ignore[operator]
        apart = pc.subtract(pc.cast(values, pa.float64(), safe=False), mean)
        return pc.sum(pc.multiply(apart, apart)).as_py(), mean, len(values)

    def combine(self, current_accumulator: object, new: object) -> object:
        """Join two accumulators."""
        (spread, mean, count), (spread_, mean_, count_) = current_accumulator, new  # type: ignore[misc]
        both = count + count_  # type: ignore[has-type]
        apart = (mean_ - mean) ** 2 * count * count_ / both  # type: ignore[has-type]
        return spread + spread_ + apart, (mean * count + mean_ * count_) / both, both  # type: ignore[has-type]

    def finalize(self, accumulator: object) -> object:
        """Make a value of an accumulator."""
        spread, _, count = accumulator  # type: ignore[misc]
        free = count - self._ddof  # type: ignore[has-type]
        return math.sqrt(spread / free) if free > 0 else math.nan  # type: ignore[has-type]


@published("mpi_runtime.data")
class Quantile(_OfValues):
    """A quantile of a column, between two values by a straight line. All values of a group are in one process."""

    kind = "quantile"

    def __init__(
        self, on: str | None = None, q: float = 0.5, ignore_nulls: bool = True, alias_name: str | None = None
    ) -> None:
        """`q`: from 0 to 1."""
        super().__init__(on, ignore_nulls, alias_name)
        self._q = q

    def of(self, values: pyarrow.ChunkedArray) -> object:
        """All values."""
        return values.to_pylist()

    def combine(self, current_accumulator: object, new: object) -> object:
        """Join two accumulators."""
        return [*current_accumulator, *new]  # type: ignore[misc]

    def finalize(self, accumulator: object) -> object:
        """Make a value of an accumulator."""
        return pc.quantile(pa.array(accumulator), self._q)[0].as_py()


@published("mpi_runtime.data")
class AsList(AggregateFnV2):
    """All values of a column, as a list; missing ones too, unless `ignore_nulls`."""

    def __init__(self, on: str, alias_name: str | None = None, ignore_nulls: bool = False) -> None:
        """`on`: the column."""
        super().__init__(alias_name or f"list({on})", list, on=on, ignore_nulls=ignore_nulls)

    def init(self, key: object) -> object:
        """The accumulator of no rows."""
        del key
        return []

    def aggregate_block(self, block: pyarrow.Table) -> object:
        """The accumulator of the rows of a table."""
        return [*self._column(block)]

    def combine(self, current_accumulator: object, new: object) -> object:
        """Join two accumulators."""
        return [*current_accumulator, *new]  # type: ignore[misc]


@published("mpi_runtime.data")
class ValueCounter(AggregateFnV2):
    """How often each value of a column is there: {"values": [...], "counts": [...]}."""

    def __init__(self, on: str, alias_name: str | None = None) -> None:
        """`on`: the column."""
        super().__init__(alias_name or f"value_counter({on})", dict, on=on)

    def aggregate_block(self, block: pyarrow.Table) -> object:
        """The accumulator of the rows of a table."""
        return dict(Counter(self._column(block)))

    def combine(self, current_accumulator: object, new: object) -> object:
        """Join two accumulators."""
        return dict(Counter(current_accumulator) + Counter(new))  # type: ignore[call-overload]

    def finalize(self, accumulator: object) -> object:
        """Make a value of an accumulator."""
        assert isinstance(accumulator, dict)
        return {"values": list(accumulator), "counts": list(accumulator.values())}


class _Share(AggregateFnV2):
    """A percentage: the accumulator is a number of values, and the number of all."""

    def combine(self, current_accumulator: object, new: object) -> object:
        """Join two accumulators."""
        (some, all_), (some_, all__) = current_accumulator, new  # type: ignore[misc]
        return some + some_, all_ + all__  # type: ignore[has-type]

    def finalize(self, accumulator: object) -> object:
        """Make a value of an accumulator."""
        some, of_all = accumulator  # type: ignore[misc]
        return 100 * some / of_all if of_all else None  # type: ignore[has-type]


@published("mpi_runtime.data")
class MissingValuePercentage(_Share):
    """The percentage of values of a column that are missing or not a number."""

    def __init__(self, on: str, alias_name: str | None = None) -> None:
        """`on`: the column."""
        super().__init__(alias_name or f"missing_pct({on})", tuple, on=on)

    def aggregate_block(self, block: pyarrow.Table) -> object:
        """The accumulator of the rows of a table."""
        column = block.column(self._target_col_name)
        return pc.sum(pc.is_null(column, nan_is_null=True)).as_py() or 0, len(column)


@published("mpi_runtime.data")
class ZeroPercentage(_Share):
    """The percentage of values of a column that are 0; missing ones are not counted, unless `ignore_nulls` is false."""

    def __init__(self, on: str, ignore_nulls: bool = True, alias_name: str | None = None) -> None:
        """`on`: the column."""
        super().__init__(alias_name or f"zero_pct({on})", tuple, on=on)
        self._counts_missing = not ignore_nulls

    def aggregate_block(self, block: pyarrow.Table) -> object:
        """The accumulator of the rows of a table."""
        column = block.column(self._target_col_name)
        zeros = pc.sum(pc.equal(column, 0)).as_py() or 0 if column.null_count < len(column) else 0
        return zeros, len(column) if self._counts_missing else len(column) - column.null_count


@published("mpi_runtime.data")
class Unique(AggregateFnV2):
    """The different values of a column, as a list."""

    def __init__(self, on: str | None = None, ignore_nulls: bool = False, alias_name: str | None = None) -> None:
        """`ignore_nulls`: a missing value is not one of them."""
        super().__init__(alias_name or f"unique({on})", list, on=on, ignore_nulls=ignore_nulls)

    def init(self, key: object) -> object:
        """The accumulator of no rows."""
        del key
        return []

    def aggregate_block(self, block: pyarrow.Table) -> object:
        """The accumulator of the rows of a table."""
        column = block.column(self._target_col_name)
        if self._ignore_nulls:
            column = column.drop_null()
        if isinstance(column.type, pa.BaseExtensionType):
            return list(_distinct(blocks.values_of(column)))
        try:
            return column.unique().to_pylist()
        except pa.ArrowNotImplementedError:
            return list(_distinct(column.to_pylist()))

    def combine(self, current_accumulator: object, new: object) -> object:
        """Join two accumulators."""
        return list(_distinct([*current_accumulator, *new]))  # type: ignore[misc]


def _distinct(values: list[object]) -> list[object]:
    """The first of all equal values; NaN is equal to itself, 1 to 1.0 and not to True, and a list is as its parts."""
    seen: dict[object, object] = {}
    for value in values:
        kind = "float" if type(value) is int else type(value).__name__
        key = "nan" if isinstance(value, float) and math.isnan(value) else value
        seen.setdefault((kind, key if isinstance(key, Hashable) else repr(key)), value)
    return list(seen.values())


@published("mpi_runtime.data")
class CountDistinct(Unique):
    """The number of different values of a column."""

    def __init__(self, on: str, ignore_nulls: bool = True, alias_name: str | None = None) -> None:
        """`ignore_nulls`: a missing value does not count."""
        super().__init__(on, ignore_nulls, alias_name or f"count_distinct({on})")

    def finalize(self, accumulator: object) -> object:
        """Make a value of an accumulator."""
        return len(accumulator)  # type: ignore[arg-type]


def names_of(fns: Sequence[AggregateFn]) -> list[str]:
    """The columns of results. A name that is there twice gets a number."""
    names: list[str] = []
    for fn in fns:
        name, number = fn.name, 1
        while name in names:
            number += 1
            name = f"{fn.name}_{number}"
        names.append(name)
    return names
