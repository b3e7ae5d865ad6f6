"""Groups of the rows of a data set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from mpi_runtime.core import published
from mpi_runtime.data import blocks
from mpi_runtime.data.aggregate import AggregateFn, Count, Max, Mean, Min, Std, Sum
from mpi_runtime.data.expressions import Expr, check_exprs, with_columns
from mpi_runtime.data.plan import PLAIN, Exchanged, Mapped, Operator
from mpi_runtime.data.steps import TABLES, Step
from mpi_runtime.data.streams.records import Block
from mpi_runtime.data.whole import grouping, sorting

Rows = TypeVar("Rows")
"""The class of data sets, which this module does not import."""


@published("mpi_runtime.data")
class GroupedData(Generic[Rows]):
    """The groups of a data set: see `Dataset.groupby`."""

    def __init__(self, dataset: Rows, key: str | Sequence[str] | None, num_partitions: int | None = None) -> None:
        """`num_partitions`: the number of blocks of the result."""
        if num_partitions is not None and num_partitions <= 0:
            raise ValueError(f"num_partitions must be a number above 0, not {num_partitions!r}")
        self._dataset: Any = dataset
        self._key = key
        self._keys = sorting.keys_of("groupby", key) if key or key == "" else ()
        self._names = [name for name, _ in self._keys]
        self._count = num_partitions

    def aggregate(self, *aggs: AggregateFn) -> Rows:
        """Reduce each group: a row with the keys, and a column for each reduction."""
        reductions = tuple((type(fn).__qualname__, vars(fn)) for fn in aggs)
        made = self._exchanged(
            grouping.held(self._dataset._operator, self._names, aggs), reductions, needed=grouping.targets(aggs)
        )
        ended = Step(TABLES, "aggregate", grouping.ended, (self._names, aggs))
        return self._dataset._of_operator(Mapped(made, ended, PLAIN))  # type: ignore[no-any-return]

    def count(self) -> Rows:
        """The number of rows of each group, in the column "count()"."""
        return self.aggregate(Count())

    def sum(self, on: str | Sequence[str] | None = None, ignore_nulls: bool = True) -> Rows:
        """The sum of a column in each group, as "sum(a)"; None: of all columns but the keys."""
        return self._on(Sum, on, ignore_nulls)

    def min(self, on: str | Sequence[str] | None = None, ignore_nulls: bool = True) -> Rows:
        """The least value of a column in each group, as `sum`."""
        return self._on(Min, on, ignore_nulls)

    def max(self, on: str | Sequence[str] | None = None, ignore_nulls: bool = True) -> Rows:
        """The greatest value of a column in each group, as `sum`."""
        return self._on(Max, on, ignore_nulls)

    def mean(self, on: str | Sequence[str] | None = None, ignore_nulls: bool = True) -> Rows:
        """The mean of a column in each group, as `sum`."""
        return self._on(Mean, on, ignore_nulls)

    def std(self, on: str | Sequence[str] | None = None, ddof: int = 1, ignore_nulls: bool = True) -> Rows:
        """The standard deviation of a column in each group, as `sum`; `ddof` is subtracted from the number."""
        return self._on(partial(Std, ddof=ddof), on, ignore_nulls)

    def map_groups(self, fn: Callable[..., object], *, batch_format: str | None = "default", **options: object) -> Rows:
        """Make batches of each group, which must fit into the memory of a process.

        Args:
            fn: gets all rows of a group as a batch, and returns a batch or yields several; or a class.
            batch_format: as of `map_batches`.
            options: as of `map_batches`.
        """
        blocks.check_format(batch_format)
        whole = Mapped(
            self._exchanged(self._dataset._operator), Step(TABLES, "groups", grouping.same, is_exact=True), PLAIN
        )
        of_groups = grouping.of_groups(fn, self._names, batch_format)
        options.pop("zero_copy_batch", None)
        all_rows = self._dataset._of_operator(whole)
        return all_rows.map_batches(of_groups, batch_format="pyarrow", **options)  # type: ignore[no-any-return]

    def with_column(self, column_name: str, expr: Expr, **options: object) -> Rows:
        """Add a column, or replace it, by an expression of the columns of each group."""
        check_exprs([expr])
        return self.map_groups(partial(with_columns, [column_name], [expr]), batch_format="pyarrow", **options)

    def __repr__(self) -> str:
        return f"GroupedData(dataset={self._dataset!r}, key={self._key!r})"

    def _exchanged(self, operator: Operator, *arguments: object, needed: Sequence[str] = ()) -> Operator:
        keys, count = self._keys, self._count

        def made(cpus: int, block_bytes: int) -> list[Block]:
            return sorting.by_range("groupby", operator, keys, count, cpus, block_bytes, needed=needed)

        return Exchanged((operator,), "groupby", (keys, count, *arguments), made, keeps_rows=False)

    def _on(self, made: Callable[..., AggregateFn], on: str | Sequence[str] | None, ignore_nulls: bool) -> Rows:
        if on is None:
            on = [name for name in self._dataset.columns() or [] if name not in self._names]
        names = [on] if isinstance(on, str) else list(on)
        return self.aggregate(*(made(on=name, ignore_nulls=ignore_nulls) for name in names))
