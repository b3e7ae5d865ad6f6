"""Numbers as intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from mpi_runtime.core import published
from mpi_runtime.data.aggregate import AggregateFn, Max, Min
from mpi_runtime.data.arrow import pd
from mpi_runtime.data.preprocessors.base import OfColumns

if TYPE_CHECKING:
    from mpi_runtime.data.dataset import Dataset


class _Discretizer(OfColumns):
    """One that replaces numbers by those of intervals."""

    _shown = ("columns", "bins", "right", "include_lowest", "duplicates", "dtypes", "output_columns")

    def __init__(
        self,
        columns: Sequence[str],
        bins: Any,
        *,
        right: bool = True,
        include_lowest: bool = False,
        duplicates: str = "raise",
        dtypes: Mapping[str, Any] | None = None,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        """Options are those of `pandas.cut`.

        Args:
            columns: the columns.
            bins: of all columns, or by column: their bounds, or for `UniformKBinsDiscretizer` their number.
            right: whether an interval has its upper bound, else its lower one.
            include_lowest: whether the first interval has its lower bound too.
            duplicates: "raise" for bounds that are there twice, or "drop" to leave them out.
            dtypes: by column a `pandas.CategoricalDtype` with a category for each interval, in place of a number.
            output_columns: names of new columns; None: the columns are replaced.
        """
        super().__init__(columns, output_columns)
        self._bins = bins
        self._right = right
        self._include_lowest = include_lowest
        self._duplicates = duplicates
        self._dtypes = dtypes

    @property
    def bins(self) -> Any:
        """The bounds of intervals, or their number."""
        return self._bins

    @property
    def right(self) -> bool:
        """Whether an interval has its upper bound."""
        return self._right

    @property
    def include_lowest(self) -> bool:
        """Whether the first interval has its lower bound."""
        return self._include_lowest

    @property
    def duplicates(self) -> str:
        """What is done with bounds that are there twice."""
        return self._duplicates

    @property
    def dtypes(self) -> Mapping[str, Any] | None:
        """Categories by column."""
        return self._dtypes

    def _check_bins(self) -> None:
        if isinstance(self._bins, Mapping) and not set(self._columns) <= set(self._bins):
            raise ValueError(f"`bins` has no {sorted(set(self._columns) - set(self._bins))}: it needs all `columns`")

    def _bounds(self, column: str) -> Any:
        return self._bins[column] if isinstance(self._bins, Mapping) else self._bins

    def _transform_pandas(self, df: Any) -> Any:
        def cut(values: Any, column: str) -> Any:
            kind: Any = (self._dtypes or {}).get(column)
            is_category = isinstance(kind, pd.CategoricalDtype)
            return pd.cut(
                values, self._bounds(column), right=self._right, include_lowest=self._include_lowest,
                labels=list(kind.categories) if is_category else False, duplicates=self._duplicates,
                ordered=bool(kind.ordered) if is_category else True,
            )  # fmt: skip

        return self._each(df, cut)


@published("mpi_runtime.data.preprocessors")
class CustomKBinsDiscretizer(_Discretizer):
    """Numbers become those of intervals with these bounds."""

    _is_fittable = False

    def __init__(self, columns: Sequence[str], bins: Any, **options: Any) -> None:
        """Options as of `UniformKBinsDiscretizer`; `bins` are bounds, such as [0, 10, 100]."""
        super().__init__(columns, bins, **options)
        self._check_bins()


@published("mpi_runtime.data.preprocessors")
class UniformKBinsDiscretizer(_Discretizer):
    """Numbers become those of intervals of equal widths."""

    def _reductions(self) -> list[AggregateFn]:
        return [fn for column in self._columns for fn in (Min(column), Max(column))]

    def _fit(self, ds: Dataset) -> object:
        self._check_bins()
        for column in self._columns:
            if not isinstance(self._bounds_given(column), int):
                raise TypeError(f"`bins` must be an integer or a dict of integers, not {self._bounds_given(column)!r}")
        found = ds.aggregate(*self._reductions()) or {}
        self.stats_ = {column: self._edges(found, column) for column in self._columns}
        return self

    def _bounds_given(self, column: str) -> Any:
        return super()._bounds(column)

    def _bounds(self, column: str) -> Any:
        return self.stats_[column]

    def _edges(self, found: Mapping[str, Any], column: str) -> Any:
        """The bounds of a column, a little wider on the side that has not its own bound, as in `pandas.cut`."""
        low, high = found.get(f"min({column})"), found.get(f"max({column})")
        if low is None or high is None:
            raise ValueError(f"Column {column} has no values to bin.")
        if numpy.isinf(low) or numpy.isinf(high):
            raise ValueError(f"Column {column} has infinite values, so its range has no parts: pass the bounds of bins")
        count = self._bounds_given(column)
        if low == high:
            apart = 0.001 * abs(low) or 0.001
            return numpy.linspace(low - apart, high + apart, count + 1)
        edges = numpy.linspace(low, high, count + 1)
        if self._right:
            edges[0] -= 0.001 * (high - low)
        else:
            edges[-1] += 0.001 * (high - low)
        return edges
