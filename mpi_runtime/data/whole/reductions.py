"""What a reduction of groups is: functions that begin, extend, join and end an accumulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from mpi_runtime.core import published
from mpi_runtime.data import blocks
from mpi_runtime.data.arrow import pa, pc

if TYPE_CHECKING:
    import pyarrow


INT64 = 1 << 63


def total_of(values: pyarrow.ChunkedArray) -> object:
    """The sum of values. Arrow's would wrap around where that of integers is larger than they may be."""
    if pa.types.is_integer(values.type) and len(values):
        low, high = pc.min_max(values).as_py().values()
        if max(abs(low or 0), abs(high or 0)) * len(values) >= INT64:
            return sum(value for value in values.to_pylist() if value is not None)
    return pc.sum(values).as_py()


@published("mpi_runtime.data")
class AggregateFn:
    """A reduction of a group of rows, made of functions.

    total = AggregateFn(init=lambda key: 0, accumulate_row=lambda a, row: a + row["x"],
                        merge=lambda a, b: a + b, name="total")
    ds.groupby("kind").aggregate(total)
    """

    may_lack_column = True
    """Whether it can reduce rows without looking at one column."""

    def __init__(
        self,
        init: Callable[[object], object],
        merge: Callable[[object, object], object],
        name: str,
        accumulate_row: Callable[[object, Mapping[str, object]], object] | None = None,
        accumulate_block: Callable[[object, pyarrow.Table], object] | None = None,
        finalize: Callable[[object], object] | None = None,
    ) -> None:
        """Give either `accumulate_row` or `accumulate_block`, which gets a table; `name`: the column of results."""
        if (accumulate_row is None) == (accumulate_block is None):
            raise ValueError("AggregateFn needs either accumulate_row or accumulate_block")
        if not isinstance(name, str):
            raise TypeError(f"AggregateFn needs a name, a string, not {name!r}")
        self.name = name
        self._init, self._merge, self._finalize = init, merge, finalize
        self._row = accumulate_row
        self._block = accumulate_block

    def init(self, key: object) -> object:
        """The accumulator of no rows."""
        return self._init(key)

    def merge(self, accumulator: object, new: object) -> object:
        """Join two accumulators."""
        return self._merge(accumulator, new)

    def result(self, accumulator: object) -> object:
        """The value of an accumulator."""
        return accumulator if self._finalize is None else self._finalize(accumulator)

    def get_target_column(self) -> str | None:
        """The column that it looks at; None: it is not known."""
        return None

    def accumulate_block(self, accumulator: object, block: pyarrow.Table) -> object:
        """Extend an accumulator by the rows of a table."""
        if self._block is not None:
            return self._block(accumulator, block)
        assert self._row is not None
        for row in blocks.to_rows(block):
            accumulator = self._row(accumulator, row)
        return accumulator


@published("mpi_runtime.data")
class AggregateFnV2(AggregateFn):
    """A reduction as a class: derive from it, and define `aggregate_block`, `combine`, and `finalize` if needed."""

    def __init__(
        self, name: str, zero_factory: Callable[[], object], *, on: str | None = None, ignore_nulls: bool = True
    ) -> None:
        """`zero_factory`: makes the accumulator of no rows. None as an accumulator: there are no values yet."""
        if not name:
            raise ValueError("a reduction needs a name")
        self.name = name
        self._target_col_name = on
        self._ignore_nulls = ignore_nulls
        self._zero = zero_factory

    def init(self, key: object) -> object:
        """The accumulator of no rows."""
        del key
        return None if self._ignore_nulls else self._zero()

    def accumulate_block(self, accumulator: object, block: pyarrow.Table) -> object:
        """Extend an accumulator by the rows of a table."""
        return self.merge(accumulator, self.aggregate_block(block))

    def merge(self, accumulator: object, new: object) -> object:
        """Join two accumulators. None is that of no values, or of a missing one that counts."""
        if accumulator is None or new is None:
            return (new if accumulator is None else accumulator) if self._ignore_nulls else None
        return self.combine(accumulator, new)

    def result(self, accumulator: object) -> object:
        """The value of an accumulator."""
        return None if accumulator is None else self.finalize(accumulator)

    def get_target_column(self) -> str | None:
        """The column that it looks at."""
        return self._target_col_name

    def aggregate_block(self, block: pyarrow.Table) -> object:
        """The accumulator of the rows of a table."""
        raise NotImplementedError

    def combine(self, current_accumulator: object, new: object) -> object:
        """Join two accumulators."""
        raise NotImplementedError

    def finalize(self, accumulator: object) -> object:
        """Make a value of an accumulator."""
        return accumulator

    def _column(self, block: pyarrow.Table) -> list[object]:
        """The values of the column; missing ones too, unless they do not count."""
        column = block.column(self._target_col_name)
        return blocks.values_of(column.drop_null() if self._ignore_nulls else column)

    def _values(self, block: pyarrow.Table) -> pyarrow.ChunkedArray | None:
        """The values of the column; None: there are none, or a missing one counts."""
        column = blocks.decoded(block.select([self._target_col_name])).column(0)
        if self._ignore_nulls:
            column = column.drop_null()
        return None if column.null_count or not len(column) else column
