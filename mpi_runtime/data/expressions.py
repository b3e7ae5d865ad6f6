"""Columns made of columns: `col("price") * 2`, for `filter(expr=...)` and `with_column`.

from mpi_runtime.data.expressions import col, lit

ds.filter(expr=col("id") > 5).with_column("name", col("name").str.upper())
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from mpi_runtime.data.arrow import pa, pc
from mpi_runtime.data.whole.exchange import check_columns

if TYPE_CHECKING:
    import pyarrow

    Evaluate = Callable[[pyarrow.Table], object]
    Text = str
    """In a class that has a `str` of its own."""

__all__ = ["Expr", "col", "lit", "udf"]


class Expr:
    """A column for each table, or a value. Made by `col`, `lit`, `udf` and operators."""

    def __init__(self, text: Text, evaluate: Evaluate, name: Text | None = None) -> None:
        """Use `col` and `lit` instead. `text`: the same in each run of a program."""
        self._text = text
        self._evaluate = evaluate
        self.name = name
        """The column, if it is one or was given a name by `alias`; else None."""

    def column_of(self, table: pyarrow.Table) -> pyarrow.ChunkedArray:
        """Its values for the rows of a table."""
        found = self._evaluate(table)
        if isinstance(found, pa.Scalar):
            found = pa.array([found.as_py()] * table.num_rows, found.type)
        if not isinstance(found, pa.Array | pa.ChunkedArray):
            found = pa.array(found)
        return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])

    def alias(self, name: Text) -> Expr:
        """The same with a name."""
        return Expr(self._text, self._evaluate, name)

    def is_null(self) -> Expr:
        """Whether a value is missing."""
        return _made("is_null", pc.is_null, self)

    def is_not_null(self) -> Expr:
        """Whether a value is there."""
        return _made("is_not_null", pc.is_valid, self)

    def is_in(self, values: Sequence[object]) -> Expr:
        """Whether it is one of these values."""
        kept = list(values)
        return _made(f"is_in {kept!r}", lambda column: pc.is_in(column, value_set=pa.array(kept)), self)

    def not_in(self, values: Sequence[object]) -> Expr:
        """Whether it differs from all of these values."""
        return ~self.is_in(values)

    def cast(self, target_type: pyarrow.DataType) -> Expr:
        """Its values as those of another type."""
        return _made(f"cast {target_type}", lambda column: pc.cast(column, target_type), self)

    @property
    def str(self) -> Namespace:
        """Functions of texts, such as `col("a").str.upper()`: those of `pyarrow.compute` with "utf8_" or alone."""
        return Namespace(self, ("utf8_", "", "binary_"), {"len": "utf8_length", "contains": "match_substring"})

    @property
    def list(self) -> Namespace:
        """Functions of lists: those of `pyarrow.compute` with "list_"."""
        return Namespace(self, ("list_",), {"len": "list_value_length", "get": "list_element"})

    @property
    def dt(self) -> Namespace:
        """Functions of times, such as `col("a").dt.year()`."""
        return Namespace(self, ("",), {})

    def __getattr__(self, name: Text) -> Callable[..., Expr]:
        if name not in _OF_NUMBERS:
            raise AttributeError(f"expressions have no {name!r}; a function of batches, in map_batches(), may do it")
        return functools.partial(_made, name, getattr(pc, name), self)

    def __hash__(self) -> int:
        return hash(self._text)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return _made("==", pc.equal, self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return _made("!=", pc.not_equal, self, other)

    def __lt__(self, other: object) -> Expr:
        return _made("<", pc.less, self, other)

    def __le__(self, other: object) -> Expr:
        return _made("<=", pc.less_equal, self, other)

    def __gt__(self, other: object) -> Expr:
        return _made(">", pc.greater, self, other)

    def __ge__(self, other: object) -> Expr:
        return _made(">=", pc.greater_equal, self, other)

    def __add__(self, other: object) -> Expr:
        return _made("+", pc.add, self, other)

    def __radd__(self, other: object) -> Expr:
        return _made("+", pc.add, other, self)

    def __sub__(self, other: object) -> Expr:
        return _made("-", pc.subtract, self, other)

    def __rsub__(self, other: object) -> Expr:
        return _made("-", pc.subtract, other, self)

    def __mul__(self, other: object) -> Expr:
        return _made("*", pc.multiply, self, other)

    def __rmul__(self, other: object) -> Expr:
        return _made("*", pc.multiply, other, self)

    def __truediv__(self, other: object) -> Expr:
        return _made("/", _divided, self, other)

    def __rtruediv__(self, other: object) -> Expr:
        return _made("/", _divided, other, self)

    def __floordiv__(self, other: object) -> Expr:
        return _made("//", _floor_divided, self, other)

    def __rfloordiv__(self, other: object) -> Expr:
        return _made("//", _floor_divided, other, self)

    def __mod__(self, other: object) -> Expr:
        return _made("%", _remainder, self, other)

    def __rmod__(self, other: object) -> Expr:
        return _made("%", _remainder, other, self)

    def __and__(self, other: object) -> Expr:
        return _made("&", pc.and_kleene, self, other)

    def __rand__(self, other: object) -> Expr:
        return _made("&", pc.and_kleene, other, self)

    def __or__(self, other: object) -> Expr:
        return _made("|", pc.or_kleene, self, other)

    def __ror__(self, other: object) -> Expr:
        return _made("|", pc.or_kleene, other, self)

    def __invert__(self) -> Expr:
        return _made("not", pc.invert, self)

    def __neg__(self) -> Expr:
        return _made("-", pc.negate, self)

    def __bool__(self) -> bool:
        raise TypeError("an expression has no truth: join conditions by & and |, in parentheses")

    def __repr__(self) -> Text:
        return self._text


_OF_NUMBERS = (
    *("abs", "ceil", "floor", "round", "trunc", "sign", "negate", "power"),
    *("exp", "ln", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan"),
)


def _divided(left: object, right: object) -> object:
    return pc.divide(pc.cast(left, pa.float64()), right)


def _floor_divided(left: object, right: object) -> object:
    found = pc.floor(_divided(left, right))
    kinds = [one.type if hasattr(one, "type") else pa.scalar(one).type for one in (left, right)]
    return pc.cast(found, pa.int64()) if all(map(pa.types.is_integer, kinds)) else found


def _remainder(left: object, right: object) -> object:
    return pc.subtract(left, pc.multiply(_floor_divided(left, right), right))


class Namespace:
    """Functions of `pyarrow.compute` for values of one kind."""

    def __init__(self, expr: Expr, prefixes: Sequence[str], names: Mapping[str, str]) -> None:
        self._expr = expr
        self._prefixes = prefixes
        self._names = names

    def __getattr__(self, name: str) -> Callable[..., Expr]:
        if name.startswith("_"):
            raise AttributeError(name)
        wanted = [self._names[name]] if name in self._names else [prefix + name for prefix in self._prefixes]
        for one in wanted:
            if hasattr(pc, one):
                return functools.partial(_made, one, getattr(pc, one), self._expr)
        raise AttributeError(f"there is no function {name!r}: pyarrow.compute has no {' or '.join(wanted)}")


def _made(name: str, function: Callable[..., object], *args: object, **kwargs: object) -> Expr:
    """An expression of a function of the values of others."""

    def evaluate(table: pyarrow.Table) -> object:
        values = [one._evaluate(table) if isinstance(one, Expr) else one for one in args]
        return function(*values, **kwargs)

    parts = [*map(repr, args), *(f"{key}={value!r}" for key, value in kwargs.items())]
    return Expr(f"{name}({', '.join(parts)})", evaluate)


def col(name: str) -> Expr:
    """The values of a column."""

    def evaluate(table: pyarrow.Table) -> object:
        check_columns(table, [name])
        return table.column(name)

    return Expr(f"col({name!r})", evaluate, name)


def lit(value: object) -> Expr:
    """The same value in each row."""
    return Expr(f"lit({value!r})", lambda table: pa.scalar(value))


def udf(return_dtype: object = None) -> Callable[[Callable[..., object]], Callable[..., Expr]]:
    """Make a function of arrays of Arrow one of expressions; `return_dtype` is accepted, without effect."""
    del return_dtype

    def decorated(function: Callable[..., object]) -> Callable[..., Expr]:
        def columns(*args: object, **kwargs: object) -> Expr:
            return _made(getattr(function, "__name__", "udf"), function, *args, **kwargs)

        return columns

    return decorated
