"""What all preprocessors have in common."""

from __future__ import annotations

import hashlib
import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import cloudpickle
import numpy

from mpi_runtime.core import published
from mpi_runtime.data import blocks
from mpi_runtime.data.arrow import pa, pd
from mpi_runtime.data.plan import fixed

if TYPE_CHECKING:
    from mpi_runtime.data.dataset import Dataset

    Self = TypeVar("Self", bound="Preprocessor")

MAGIC = b"CPKL:"
"""The beginning of a preprocessor as bytes."""
VALUE = "__value__"
"""The column of an array that is a batch."""


@published("mpi_runtime.data.preprocessors")
class PreprocessorNotFittedException(RuntimeError):
    """A preprocessor is to change rows before it has learned from some: call `fit` first."""


@published("mpi_runtime.data.preprocessors")
class Preprocessor:
    """Changes columns, with what it has learned of a data set; a program has its own as subclasses.

        class Centred(Preprocessor):
            def _fit(self, ds):
                self.stats_ = {"mean": ds.mean("x")}
                return self

            def _transform_pandas(self, df):
                return df.assign(x=df["x"] - self.stats_["mean"])

    `_transform_numpy` gets a dictionary of arrays instead. One that learns nothing has `_is_fittable = False`.
    """

    class FitStatus(str, Enum):
        """Whether it has learned."""

        NOT_FITTABLE = "NOT_FITTABLE"
        """There is nothing to learn."""
        NOT_FITTED = "NOT_FITTED"
        """It has not."""
        PARTIALLY_FITTED = "PARTIALLY_FITTED"
        """Some of a `Chain` have."""
        FITTED = "FITTED"
        """It has."""

    _is_fittable = True
    _columns: Sequence[str] = ()
    _output_columns: Sequence[str] = ()
    _shown: Sequence[str] = ("columns", "output_columns")
    """What its `repr` has."""

    def __init__(self) -> None:
        """It has learned nothing."""
        self.stats_: dict[str, Any] = {}

    def fit_status(self) -> Preprocessor.FitStatus:
        """Whether it has learned."""
        if not self._is_fittable:
            return Preprocessor.FitStatus.NOT_FITTABLE
        knows = any(name.endswith("_") and _is_something(value) for name, value in vars(self).items())
        is_fitted = knows or getattr(self, "_fitted", False)
        return Preprocessor.FitStatus.FITTED if is_fitted else Preprocessor.FitStatus.NOT_FITTED

    def has_stats(self) -> bool:
        """Whether `stats_`, what it has learned, has something."""
        return bool(getattr(self, "stats_", None))

    def fit(self: Self, ds: Dataset) -> Self:
        """Learn from a data set, which runs now; return the preprocessor."""
        status = self.fit_status()
        if status == Preprocessor.FitStatus.NOT_FITTABLE:
            return self
        if status != Preprocessor.FitStatus.NOT_FITTED:
            warnings.warn(
                "`fit` has already been called on the preprocessor, or a part of it; what it has learned is replaced",
                stacklevel=2,
            )
        self.stats_ = {}
        self._fit(ds)
        self._fitted = True
        return self

    def fit_transform(
        self,
        ds: Dataset,
        *,
        transform_num_cpus: float | None = None,
        transform_memory: float | None = None,
        transform_batch_size: int | None = None,
        transform_concurrency: int | None = None,
    ) -> Dataset:
        """Learn from a data set, and change it: `fit` and `transform`."""
        return self.fit(ds).transform(
            ds, batch_size=transform_batch_size, num_cpus=transform_num_cpus, memory=transform_memory,
            concurrency=transform_concurrency,
        )  # fmt: skip

    def transform(
        self,
        ds: Dataset,
        *,
        batch_size: int | None = None,
        num_cpus: float | None = None,
        memory: float | None = None,
        concurrency: int | None = None,
    ) -> Dataset:
        """Return a data set with changed columns; arguments as of `map_batches`.

        Raises:
            PreprocessorNotFittedException: it has not learned yet.
        """
        self._check_fitted("transform")
        given = {"batch_size": batch_size, "num_cpus": num_cpus, "memory": memory, "concurrency": concurrency}
        options = {**self._get_transform_config(), **{key: one for key, one in given.items() if one is not None}}
        return self._transform(ds, options)

    def transform_batch(self, data: Any) -> Any:
        """Change a batch: a data frame, a table of pyarrow, a dictionary of arrays, or an array.

        Raises:
            PreprocessorNotFittedException: it has not learned yet.
            ValueError: it is something else.
        """
        self._check_fitted("transform_batch")
        if not isinstance(data, pd.DataFrame | pa.Table | Mapping | numpy.ndarray):
            raise ValueError(
                f"`transform_batch` takes a data frame, a table, a dictionary of arrays or an array, not {type(data)}"
            )
        return self._transform_batch(data)

    def get_input_columns(self) -> list[str]:
        """The columns that it reads."""
        return list(self._columns)

    def get_output_columns(self) -> list[str]:
        """The columns that it makes."""
        return list(self._output_columns)

    @classmethod
    def preferred_batch_format(cls) -> str:
        """The form of batches if it has a method for both: "pandas" or "numpy"."""
        return "pandas"

    def serialize(self) -> bytes:
        """The preprocessor with what it has learned, as bytes."""
        made: bytes = cloudpickle.dumps(self)
        return MAGIC + made

    @staticmethod
    def deserialize(serialized: bytes) -> Preprocessor:
        """The preprocessor of such bytes, which must be from a trusted place.

        Raises:
            ValueError: they are something else.
        """
        if not isinstance(serialized, bytes) or not serialized.startswith(MAGIC):
            raise ValueError(f"Failed to deserialize preprocessor: these are not the bytes of one: {serialized[:50]!r}")
        made = pickle.loads(serialized[len(MAGIC) :])
        assert isinstance(made, Preprocessor)
        return made

    def __repr__(self) -> str:
        shown = {name: getattr(self, "_" + name, None) for name in self._shown}
        texts = [f"{name}={getattr(one, '__name__', None) or repr(one)}" for name, one in shown.items()]
        return f"{type(self).__name__}({', '.join(texts)})"

    def _fit(self, ds: Dataset) -> object:
        """Fill `stats_`."""
        raise NotImplementedError(f"{type(self).__name__} must have a method _fit(ds)")

    def _transform_pandas(self, df: Any) -> Any:
        """Change a data frame."""
        raise NotImplementedError

    def _transform_numpy(self, np_data: Any) -> Any:
        """Change a dictionary of arrays."""
        raise NotImplementedError

    def _get_transform_config(self) -> dict[str, Any]:
        """Options of `map_batches`."""
        return {}

    def _determine_transform_to_use(self) -> str:
        """The form of batches. NotImplementedError: there is no method for either."""
        methods = {"pandas": "_transform_pandas", "numpy": "_transform_numpy"}
        own = [form for form, name in methods.items() if getattr(type(self), name) is not getattr(Preprocessor, name)]
        if not own:
            raise NotImplementedError(f"{type(self).__name__} needs a method _transform_pandas or _transform_numpy")
        return own[0] if len(own) == 1 else str(getattr(self.preferred_batch_format(), "value", "pandas"))

    def _transform(self, ds: Dataset, options: Mapping[str, Any]) -> Dataset:
        form = str(getattr(self._determine_transform_to_use(), "value", self._determine_transform_to_use()))
        state = hashlib.blake2b(_text(vars(self)).encode(), digest_size=16).hexdigest()
        return ds.map_batches(partial(_transformed, self, form, state), batch_format=form, **options)

    def _transform_batch(self, data: Any) -> Any:
        form = self._determine_transform_to_use()
        if form == "numpy":
            is_table = isinstance(data, pd.DataFrame | pa.Table)
            return self._transform_numpy(blocks.to_batch(blocks.of_batch(data, "it"), "numpy") if is_table else data)
        return self._transform_pandas(_as_frame(data))

    def _check_fitted(self, caller: str) -> None:
        if self.fit_status() in (Preprocessor.FitStatus.NOT_FITTED, Preprocessor.FitStatus.PARTIALLY_FITTED):
            raise PreprocessorNotFittedException(f"`fit` must be called before `{caller}`, or use fit_transform()")


def _transformed(preprocessor: Preprocessor, form: str, state: str, batch: Any) -> Any:
    """A changed batch. `state`: a digest of what it knows, on which the names of written files depend."""
    del state
    return preprocessor._transform_pandas(batch) if form == "pandas" else preprocessor._transform_numpy(batch)


def _text(value: Any) -> str:
    """A text of what a preprocessor knows, the same in each run of a program."""
    if isinstance(value, Mapping):
        return str({fixed(key): _text(one) for key, one in value.items()})
    if isinstance(value, pd.CategoricalDtype):
        value = [*value.categories, value.ordered]
    return fixed(value.tolist() if isinstance(value, numpy.ndarray) else value)


def _is_something(value: Any) -> bool:
    """Whether a value is there, and not empty; arrays and data frames have no truth of their own."""
    return len(value) > 0 if hasattr(value, "__len__") else bool(value)


def _as_frame(data: Any) -> Any:
    """A batch as a data frame that may be changed without changing the batch."""
    if isinstance(data, pd.DataFrame):
        return data.copy(deep=False)
    if isinstance(data, numpy.ndarray):
        data = {VALUE: data}
    if isinstance(data, Mapping):
        return pd.DataFrame({name: list(one) if numpy.ndim(one) > 1 else one for name, one in data.items()})
    return blocks.to_batch(data, "pandas")


def output_columns(columns: Sequence[str], given: Sequence[str] | None) -> list[str]:
    """The names of new columns: as they are given, or the same.

    Raises:
        ValueError: there are more or fewer.
    """
    if given and len(given) != len(columns):
        raise ValueError(f"Invalid output_columns: {len(given)} names for {len(columns)} columns")
    return list(given or columns)


class OfColumns(Preprocessor):
    """A preprocessor that makes a column of each of some columns."""

    def __init__(self, columns: Sequence[str], output_columns_: Sequence[str] | None) -> None:
        super().__init__()
        self._columns: list[str] = list(columns)
        self._output_columns: list[str] = output_columns(columns, output_columns_)

    @property
    def columns(self) -> list[str]:
        """The columns that it reads."""
        return self._columns

    @property
    def output_columns(self) -> list[str]:
        """The columns that it makes."""
        return self._output_columns

    def _each(self, df: Any, made: Callable[[Any, str], Any]) -> Any:
        """The data frame with a column made of each column."""
        new = [made(df[name], name) for name in self._columns]
        for name, column in zip(self._output_columns, new, strict=True):
            df[name] = column
        return df
