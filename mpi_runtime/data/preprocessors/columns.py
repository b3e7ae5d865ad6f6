"""Missing values, several columns as one, and several preprocessors as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from mpi_runtime.core import published
from mpi_runtime.data.aggregate import Mean
from mpi_runtime.data.arrow import pd
from mpi_runtime.data.preprocessors import counting
from mpi_runtime.data.preprocessors.base import OfColumns, Preprocessor
from mpi_runtime.show import log

if TYPE_CHECKING:
    from mpi_runtime.data.dataset import Dataset

STRATEGIES = ("mean", "most_frequent", "constant")


@published("mpi_runtime.data.preprocessors")
class SimpleImputer(OfColumns):
    """Missing values become a value of each column."""

    _shown = ("columns", "strategy", "fill_value", "output_columns")

    def __init__(
        self,
        columns: Sequence[str],
        strategy: str = "mean",
        fill_value: Any = None,
        *,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        """`strategy`: "mean", "most_frequent", or "constant": `fill_value`."""
        super().__init__(columns, output_columns)
        if strategy not in STRATEGIES:
            raise ValueError(f"Strategy {strategy} is not supported: it must be one of {', '.join(STRATEGIES)}")
        if strategy == "constant":
            self._is_fittable = False
            if fill_value is None:
                raise ValueError('strategy "constant" needs a fill_value')
        self._strategy = strategy
        self._fill_value = fill_value

    @property
    def strategy(self) -> str:
        """How the value is found."""
        return self._strategy

    @property
    def fill_value(self) -> Any:
        """The value of "constant"."""
        return self._fill_value

    def _fit(self, ds: Dataset) -> object:
        if self._strategy == "mean":
            self.stats_ = ds.aggregate(*map(Mean, self._columns)) or {}
        else:
            found = counting.counts(ds, self._columns, counting.present)
            tops = {column: count.most_common(1) for column, count in found.items()}
            self.stats_ = {f"most_frequent({column})": top[0][0] if top else None for column, top in tops.items()}
        return self

    def _transform_pandas(self, df: Any) -> Any:
        for column, new in zip(self._columns, self._output_columns, strict=True):
            is_constant = self._strategy == "constant"
            value = self._fill_value if is_constant else self.stats_.get(f"{self._strategy}({column})")
            if value is None:
                raise ValueError(f"Column {column} has no fill value: all values were missing when it learned")
            if column not in df.columns:
                df[new] = value
                continue
            values = df[column]
            if isinstance(values.dtype, pd.CategoricalDtype) and value not in values.cat.categories:
                values = values.cat.add_categories([value])
            if values.dtype == object and values.isna().all():
                values = values.astype(type(value))
            df[new] = values.fillna(value)
        return df


@published("mpi_runtime.data.preprocessors")
class Concatenator(Preprocessor):
    """Several columns of numbers become one of arrays."""

    _is_fittable = False
    _shown = ("columns", "output_column_name", "dtype", "raise_if_missing", "flatten")

    def __init__(
        self,
        columns: Sequence[str],
        output_column_name: str = "concat_out",
        dtype: Any = None,
        raise_if_missing: bool = False,
        flatten: bool = False,
    ) -> None:
        """Make the column `output_column_name` of others, which are dropped.

        Args:
            columns: the columns, in their order in the arrays.
            output_column_name: the name of the new column.
            dtype: the type of arrays; None: that of numpy for the columns.
            raise_if_missing: say in an error of its own that a column is not there.
            flatten: values that are lists or arrays are joined, else they must be numbers.
        """
        super().__init__()
        self._columns: list[str] = list(columns)
        self._output_column_name = output_column_name
        self._dtype = dtype
        self._raise_if_missing = raise_if_missing
        self._flatten = flatten

    @property
    def columns(self) -> list[str]:
        """The columns."""
        return self._columns

    @property
    def output_column_name(self) -> str:
        """The name of the new column."""
        return self._output_column_name

    @property
    def dtype(self) -> Any:
        """The type of arrays."""
        return self._dtype

    @property
    def raise_if_missing(self) -> bool:
        """Whether a column that is not there has an error of its own."""
        return self._raise_if_missing

    @property
    def flatten(self) -> bool:
        """Whether lists are joined."""
        return self._flatten

    def get_output_columns(self) -> list[str]:
        """The name of the new column."""
        return [self._output_column_name]

    def _transform_pandas(self, df: Any) -> Any:
        if missing := [column for column in self._columns if column not in df.columns]:
            if self._raise_if_missing:
                raise ValueError(f"there are no columns {missing}, which are to be joined with others")
            log.say(log.line(log.WARNING, log.DATA, f"Concatenator: there is no column {missing[0]!r}"), quiet=False)
        parts = [df[column] for column in self._columns]
        if self._flatten:
            rows = [
                numpy.concatenate([numpy.atleast_1d(numpy.asarray(value, self._dtype)) for value in row])
                for row in zip(*parts, strict=True)
            ]
        else:
            rows = list(numpy.column_stack([part.to_numpy(dtype=self._dtype) for part in parts]))
        df = df.drop(columns=self._columns)
        df[self._output_column_name] = pd.Series(rows, index=df.index, dtype=object)
        return df


@published("mpi_runtime.data.preprocessors")
class Chain(Preprocessor):
    """Several preprocessors, one after the other; each learns from what those before it have made."""

    def __init__(self, *preprocessors: Preprocessor) -> None:
        """Their order is that of the arguments."""
        super().__init__()
        self._preprocessors = preprocessors

    @property
    def preprocessors(self) -> tuple[Preprocessor, ...]:
        """The preprocessors."""
        return self._preprocessors

    def fit_status(self) -> Preprocessor.FitStatus:
        """Whether all have learned, some, or none."""
        status = Preprocessor.FitStatus
        found = {one.fit_status() for one in self._preprocessors} - {status.NOT_FITTABLE}
        if not found:
            return status.NOT_FITTABLE
        return found.pop() if len(found) == 1 else status.PARTIALLY_FITTED

    def fit_transform(self, ds: Dataset, **options: Any) -> Dataset:
        """Learn from a data set, and change it."""
        for one in self._preprocessors:
            ds = one.fit_transform(ds, **options)
        self._fitted = True
        return ds

    def __repr__(self) -> str:
        return f"Chain({', '.join(map(repr, self._preprocessors))})"

    def _fit(self, ds: Dataset) -> object:
        for one in self._preprocessors[:-1]:
            ds = one.fit_transform(ds)
        self._preprocessors[-1].fit(ds)
        return self

    def _determine_transform_to_use(self) -> str:
        return self._preprocessors[0]._determine_transform_to_use()

    def _transform(self, ds: Dataset, options: Mapping[str, Any]) -> Dataset:
        for one in self._preprocessors:
            ds = one.transform(ds, **options)
        return ds

    def _transform_batch(self, data: Any) -> Any:
        for one in self._preprocessors:
            data = one.transform_batch(data)
        return data
