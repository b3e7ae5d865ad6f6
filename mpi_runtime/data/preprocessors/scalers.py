"""Numbers of another scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy

from mpi_runtime.core import published
from mpi_runtime.data.aggregate import AbsMax, AggregateFn, Max, Mean, Min, Quantile, Std
from mpi_runtime.data.preprocessors.base import OfColumns

if TYPE_CHECKING:
    from mpi_runtime.data.dataset import Dataset

TINY = 1e-8
"""A smaller range is taken for none."""


class _Scaler(OfColumns):
    """One that subtracts a number of each column, and divides by another."""

    def __init__(self, columns: Sequence[str], output_columns: Sequence[str] | None = None) -> None:
        """`output_columns`: names of new columns; None: the columns are replaced."""
        super().__init__(columns, output_columns)

    def _reductions(self, column: str) -> list[AggregateFn]:
        raise NotImplementedError

    def _fit(self, ds: Dataset) -> object:
        wanted = [fn for column in self._columns for fn in self._reductions(column)]
        self.stats_ = ds.aggregate(*wanted) or {fn.name: None for fn in wanted}
        return self

    def _parts(self, column: str) -> tuple[Any, Any]:
        """What is subtracted, and by what is divided; by 0: all become 0. None: it is not known."""
        raise NotImplementedError

    def _transform_pandas(self, df: Any) -> Any:
        def scaled(values: Any, column: str) -> Any:
            less, by = self._parts(column)
            if less is None or by is None:
                return values * numpy.nan
            return (values - less) / by if by else values * 0

        return self._each(df, scaled)


@published("mpi_runtime.data.preprocessors")
class StandardScaler(_Scaler):
    """Columns with a mean of 0 and a standard deviation of 1."""

    def _reductions(self, column: str) -> list[AggregateFn]:
        return [Mean(column), Std(column, ddof=0)]

    def _parts(self, column: str) -> tuple[Any, Any]:
        spread = self.stats_[f"std({column})"]
        return self.stats_[f"mean({column})"], 1 if spread is not None and spread < TINY else spread


@published("mpi_runtime.data.preprocessors")
class MinMaxScaler(_Scaler):
    """Columns with values from 0 to 1."""

    def _reductions(self, column: str) -> list[AggregateFn]:
        return [Min(column), Max(column)]

    def _parts(self, column: str) -> tuple[Any, Any]:
        least, most = self.stats_[f"min({column})"], self.stats_[f"max({column})"]
        if least is None or most is None:
            return None, None
        return least, most - least if most - least >= TINY else 1


@published("mpi_runtime.data.preprocessors")
class MaxAbsScaler(_Scaler):
    """Columns with values from -1 to 1; 0 stays 0."""

    def _reductions(self, column: str) -> list[AggregateFn]:
        return [AbsMax(column)]

    def _parts(self, column: str) -> tuple[Any, Any]:
        most = self.stats_[f"abs_max({column})"]
        return 0, 1 if most == 0 else most


@published("mpi_runtime.data.preprocessors")
class RobustScaler(_Scaler):
    """Columns with a median of 0 and a distance of 1 between two quantiles."""

    _shown = ("columns", "quantile_range", "output_columns")

    def __init__(
        self,
        columns: Sequence[str],
        quantile_range: tuple[float, float] = (0.25, 0.75),
        output_columns: Sequence[str] | None = None,
        quantile_precision: int = 800,
    ) -> None:
        """`quantile_range`: the two quantiles; `quantile_precision` is Ray's: quantiles are exact here."""
        super().__init__(columns, output_columns)
        self._quantile_range = quantile_range
        self._quantile_precision = quantile_precision

    @property
    def quantile_range(self) -> tuple[float, float]:
        """The two quantiles."""
        return self._quantile_range

    @property
    def quantile_precision(self) -> int:
        """Ray's, without effect."""
        return self._quantile_precision

    def _reductions(self, column: str) -> list[AggregateFn]:
        low, high = self._quantile_range
        wanted = {"low_quantile": low, "median": 0.5, "high_quantile": high}
        return [Quantile(column, share, alias_name=f"{name}({column})") for name, share in wanted.items()]

    def _parts(self, column: str) -> tuple[Any, Any]:
        low, median, high = (self.stats_[f"{name}({column})"] for name in ("low_quantile", "median", "high_quantile"))
        if low is None or median is None or high is None:
            return None, None
        return median, high - low


NORMS = {
    "l1": lambda values: numpy.abs(values).sum(axis=1),
    "l2": lambda values: numpy.sqrt((values**2).sum(axis=1)),
    "max": lambda values: numpy.abs(values).max(axis=1),
}


@published("mpi_runtime.data.preprocessors")
class Normalizer(OfColumns):
    """Columns that are together a vector of length 1 in each row."""

    _is_fittable = False
    _shown = ("columns", "norm", "output_columns")

    def __init__(
        self, columns: Sequence[str], norm: str = "l2", *, output_columns: Sequence[str] | None = None
    ) -> None:
        """`norm`: "l1", "l2" or "max"."""
        super().__init__(columns, output_columns)
        if norm not in NORMS:
            raise ValueError(f"Norm {norm} is not supported: it must be one of {', '.join(NORMS)}")
        self._norm = norm

    @property
    def norm(self) -> str:
        """How length is measured."""
        return self._norm

    def _transform_pandas(self, df: Any) -> Any:
        lengths = NORMS[self._norm](df[self._columns])
        return self._each(df, lambda values, _: values / lengths)


@published("mpi_runtime.data.preprocessors")
class PowerTransformer(OfColumns):
    """Columns whose values are more like those of a normal distribution."""

    _is_fittable = False
    _shown = ("columns", "power", "method", "output_columns")

    def __init__(
        self,
        columns: Sequence[str],
        power: float,
        method: str = "yeo-johnson",
        *,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        """`method`: "yeo-johnson", or "box-cox" for values above 0."""
        super().__init__(columns, output_columns)
        if method not in ("yeo-johnson", "box-cox"):
            raise ValueError(f'Method {method} is not supported: it must be "yeo-johnson" or "box-cox"')
        self._power = power
        self._method = method

    @property
    def power(self) -> float:
        """The exponent."""
        return self._power

    @property
    def method(self) -> str:
        """The formula."""
        return self._method

    def _transform_pandas(self, df: Any) -> Any:
        def transformed(values: Any, _: str) -> Any:
            if self._method == "box-cox":
                return _box_cox(values, self._power)
            above = _box_cox(values.clip(lower=0) + 1, self._power)
            below = -_box_cox(1 - values.clip(upper=0), 2 - self._power)
            return above.where(values >= 0, below)

        return self._each(df, transformed)


def _box_cox(values: Any, power: float) -> Any:
    return numpy.log(values) if power == 0 else (values**power - 1) / power
