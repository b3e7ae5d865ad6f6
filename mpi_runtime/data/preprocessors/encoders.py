"""Values as numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy

from mpi_runtime.core import published
from mpi_runtime.data.arrow import pd
from mpi_runtime.data.preprocessors import counting
from mpi_runtime.data.preprocessors.base import OfColumns, Preprocessor

if TYPE_CHECKING:
    from mpi_runtime.data.dataset import Dataset

IMPUTE = "where values are missing: a SimpleImputer can fill them before"


def _numbers(
    ds: Dataset,
    columns: Sequence[str],
    joins_lists: bool = True,
    most: Mapping[str, int] | None = None,
    drops_missing: bool = False,
) -> dict[str, dict[Hashable, int]]:
    """The number of each value of each column, in their order; `most`: the most values, which are the frequent ones.

    Raises:
        ValueError: a value is missing, and this is not one of `drops_missing`.
    """
    if unknown := sorted(set(most or {}) - set(columns)):
        raise ValueError(f"max_categories has {unknown[0]!r}, and there are only the columns {list(columns)}")
    found = counting.counts(ds, columns, partial(counting.of_values, joins_lists=joins_lists))
    numbers = {}
    for column, count in found.items():
        values = [value for value, _ in count.most_common((most or {}).get(column))]
        kept = [value for value in values if not counting.is_missing(value)]
        if len(kept) < len(values) and not drops_missing:
            raise ValueError(f"Unable to fit column {column!r} {IMPUTE}")
        numbers[column] = {value: number for number, value in enumerate(sorted(kept))}  # type: ignore[type-var]
    return numbers


def _check_values(df: Any, columns: Sequence[str]) -> None:
    if missing := [column for column in columns if df[column].isnull().any()]:
        raise ValueError(f"Unable to transform columns {missing} {IMPUTE}")


class _Encoder(OfColumns):
    """One that has a number for each value of some columns."""

    _joins_lists = True

    def _fit(self, ds: Dataset) -> object:
        most: Mapping[str, int] = getattr(self, "_max_categories", {})
        found = _numbers(ds, self._columns, self._joins_lists, most)
        self.stats_ = {f"unique_values({column})": numbers for column, numbers in found.items()}
        return self

    def _of(self, column: str) -> dict[Hashable, int]:
        numbers: dict[Hashable, int] = self.stats_[f"unique_values({column})"]
        return numbers


@published("mpi_runtime.data.preprocessors")
class OrdinalEncoder(_Encoder):
    """Each value is its number among all values in their order; one that was not there when it learned is missing."""

    _shown = ("columns", "encode_lists", "output_columns")

    def __init__(
        self, columns: Sequence[str], *, encode_lists: bool = True, output_columns: Sequence[str] | None = None
    ) -> None:
        """`encode_lists`: each part of a list becomes a number, else the list does."""
        super().__init__(columns, output_columns)
        self._encode_lists = self._joins_lists = encode_lists

    @property
    def encode_lists(self) -> bool:
        """Whether each part of a list becomes a number."""
        return self._encode_lists

    def _transform_pandas(self, df: Any) -> Any:
        _check_values(df, self._columns)

        def encoded(values: Any, column: str) -> Any:
            numbers = self._of(column)
            if not counting.has_lists(values):
                return values.map(numbers)
            if self._encode_lists:
                return values.map(lambda parts: [numbers.get(part) for part in parts])
            return values.map(lambda parts: numbers.get(tuple(parts)))

        return self._each(df, encoded)


class _HotEncoder(_Encoder):
    """One that makes a list of each value, with a place for each number."""

    _shown = ("columns", "max_categories", "output_columns")

    def __init__(
        self,
        columns: Sequence[str],
        *,
        max_categories: Mapping[str, int] | None = None,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        """`max_categories`: by column, the most values with a number; others have no place in the lists."""
        super().__init__(columns, output_columns)
        self._max_categories = dict(max_categories or {})

    @property
    def max_categories(self) -> dict[str, int]:
        """By column, the most values with a number."""
        return self._max_categories


@published("mpi_runtime.data.preprocessors")
class OneHotEncoder(_HotEncoder):
    """Each value is a list with a 1 at its number, and zeros."""

    _joins_lists = False

    def _transform_pandas(self, df: Any) -> Any:
        _check_values(df, self._columns)

        def encoded(values: Any, column: str) -> Any:
            numbers = self._of(column)
            made = numpy.zeros((len(values), len(numbers)), dtype=numpy.uint8)
            for row, value in enumerate(values):
                place = numbers.get(tuple(value) if isinstance(value, list | numpy.ndarray) else value)
                if place is not None:
                    made[row, place] = 1
            return pd.Series(made.tolist(), index=values.index, dtype=object)

        return self._each(df, encoded)


@published("mpi_runtime.data.preprocessors")
class MultiHotEncoder(_HotEncoder):
    """Each list is a list of how often each value is in it."""

    def _transform_pandas(self, df: Any) -> Any:
        _check_values(df, self._columns)

        def encoded(values: Any, column: str) -> Any:
            numbers = self._of(column)
            made = []
            for value in values:
                count = Counter(list(value) if isinstance(value, list | numpy.ndarray) else [value])
                made.append([count[known] for known in numbers])
            return pd.Series(made, index=values.index, dtype=object)

        return self._each(df, encoded)


@published("mpi_runtime.data.preprocessors")
class LabelEncoder(Preprocessor):
    """Each value of one column is its number among all values in their order."""

    _shown = ("label_column", "output_column")

    def __init__(self, label_column: str, *, output_column: str | None = None) -> None:
        """`output_column`: the name of a new column; None: the column is replaced."""
        super().__init__()
        self._label_column = label_column
        self._output_column = output_column or label_column

    @property
    def label_column(self) -> str:
        """The column that it reads."""
        return self._label_column

    @property
    def output_column(self) -> str:
        """The column that it makes."""
        return self._output_column

    def get_input_columns(self) -> list[str]:
        """The column that it reads."""
        return [self._label_column]

    def get_output_columns(self) -> list[str]:
        """The column that it makes."""
        return [self._output_column]

    def inverse_transform(self, ds: Dataset) -> Dataset:
        """Return a data set with the values of its numbers.

        Raises:
            PreprocessorNotFittedException: it has not learned yet.
        """
        self._check_fitted("inverse_transform")
        values = {number: value for value, number in self._numbers.items()}
        return ds.map_batches(
            partial(_mapped, self._output_column, self._label_column, values), batch_format="pandas"
        )  # fmt: skip

    @property
    def _numbers(self) -> dict[Hashable, int]:
        numbers: dict[Hashable, int] = self.stats_[f"unique_values({self._label_column})"]
        return numbers

    def _fit(self, ds: Dataset) -> object:
        column = self._label_column
        self.stats_ = {f"unique_values({column})": _numbers(ds, [column])[column]}
        return self

    def _transform_pandas(self, df: Any) -> Any:
        _check_values(df, [self._label_column])
        return _mapped(self._label_column, self._output_column, self._numbers, df)


def _mapped(source: str, target: str, values: Mapping[Any, Any], df: Any) -> Any:
    df[target] = df[source].map(values)
    return df


@published("mpi_runtime.data.preprocessors")
class Categorizer(OfColumns):
    """Columns become those of categories, in pandas `CategoricalDtype`."""

    _shown = ("columns", "dtypes", "output_columns")

    def __init__(
        self,
        columns: Sequence[str],
        dtypes: Mapping[str, Any] | None = None,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        """`dtypes`: the types of some columns; categories of others are the values that are there."""
        super().__init__(columns, output_columns)
        self._dtypes = dict(dtypes or {})

    @property
    def dtypes(self) -> dict[str, Any]:
        """Types that it was given."""
        return self._dtypes

    def _fit(self, ds: Dataset) -> object:
        others = [column for column in self._columns if column not in self._dtypes]
        found = _numbers(ds, others, drops_missing=True) if others else {}
        self.stats_ = {**self._dtypes, **{name: pd.CategoricalDtype(list(values)) for name, values in found.items()}}
        return self

    def _transform_pandas(self, df: Any) -> Any:
        return self._each(df, lambda values, column: values.astype(self.stats_[column]))
