"""Columns made of columns: `col("price") * 2`, for `filter(expr=...)` and `with_column`.

from mpi_runtime.data.expressions import col, lit

ds.filter(expr=col("id") > 5).with_column("name", col("name").str.upper())
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy
from msgspec import Struct

from mpi_runtime.data import blocks, namespaces, operations
from mpi_runtime.data.arrow import pa, pc, pd
from mpi_runtime.data.datatype import DataType
from mpi_runtime.data.whole.lacking import check_columns

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.compute

    Text = str
    """In a class that has a `str` of its own."""

__all__ = [
    "AliasExpr", "BinaryExpr", "ColumnExpr", "Expr", "LiteralExpr", "Operation", "PyArrowComputeUDFExpr",
    "UDFExpr", "UnaryExpr", "col", "lit", "udf",
]  # fmt: skip


class Operation(str, Enum):
    """What an operator does."""

    ADD, SUB, MUL, DIV, MOD, FLOORDIV = "add", "sub", "mul", "div", "mod", "floordiv"
    GT, LT, GE, LE, EQ, NE = "gt", "lt", "ge", "le", "eq", "ne"
    AND, OR, NOT = "and", "or", "not"
    IS_NULL, IS_NOT_NULL, IN, NOT_IN = "is_null", "is_not_null", "in", "not_in"


class Expr(Struct, frozen=True, eq=False):
    """A column for each table, or a value. Made by `col`, `lit`, `udf` and operators."""

    @property
    def name(self) -> Text | None:
        """The column, if it is one or was given a name by `alias`; else None."""
        return None

    @property
    def data_type(self) -> DataType:
        """The type of its values, if it is known without a table; else that of all objects."""
        return DataType(object)

    def parts(self) -> tuple[Expr, ...]:
        """The expressions of which it is made."""
        return ()

    def own(self) -> tuple[object, ...]:
        """What it is beside its parts."""
        return ()

    def evaluate(self, table: pyarrow.Table) -> object:
        """Its values for the rows of a table, or one for all."""
        raise NotImplementedError

    def to_pyarrow(self) -> pyarrow.compute.Expression:
        """The same as an expression of pyarrow. TypeError: it has a function, which those cannot have."""
        raise TypeError(f"{type(self).__name__} expressions cannot be converted to those of pyarrow")

    def structurally_equals(self, other: object) -> bool:
        """Whether the other is made of the same parts in the same way."""
        if type(self) is not type(other) or not isinstance(other, Expr) or self.own() != other.own():
            return False
        pairs = list(zip(self.parts(), other.parts(), strict=False))
        return len(self.parts()) == len(other.parts()) and all(one.structurally_equals(two) for one, two in pairs)

    def column_of(self, table: pyarrow.Table) -> pyarrow.ChunkedArray:
        """Its values for the rows of a table."""
        found = self.evaluate(table)
        if isinstance(found, pa.Scalar):
            found = pa.array([found.as_py()] * table.num_rows, found.type)
        if not isinstance(found, pa.Array | pa.ChunkedArray):
            found = pa.array(found)
        return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])

    def alias(self, name: Text) -> Expr:
        """The same with a name."""
        return AliasExpr(self, name)

    def is_null(self) -> Expr:
        """Whether a value is missing."""
        return UnaryExpr(Operation.IS_NULL, self)

    def is_not_null(self) -> Expr:
        """Whether a value is there."""
        return UnaryExpr(Operation.IS_NOT_NULL, self)

    def is_in(self, values: Sequence[object] | Expr) -> Expr:
        """Whether it is one of these values, or of those of a column."""
        return BinaryExpr(Operation.IN, self, values if isinstance(values, Expr) else LiteralExpr([*values]))

    def not_in(self, values: Sequence[object] | Expr) -> Expr:
        """Whether it differs from all of these values."""
        return BinaryExpr(Operation.NOT_IN, self, values if isinstance(values, Expr) else LiteralExpr([*values]))

    def cast(self, target_type: DataType | pyarrow.DataType, *, safe: bool = True) -> Expr:
        """Its values as those of another type; without `safe` digits may be lost."""
        kind = target_type if isinstance(target_type, DataType) else None
        if kind is None and not isinstance(target_type, pa.DataType):
            raise TypeError(
                f"target_type must be a ray.data.datatype.DataType, such as DataType.int64(), or a type of pyarrow, "
                f"not {target_type!r}"
            )
        if kind is not None and kind.is_python_type():
            raise TypeError(
                f"cast({kind!r}): a Python-type-backed DataType requires its values to find a type of Arrow: use "
                "another, such as DataType.int64() or DataType.string()"
            )
        return call("cast", self, kind.to_arrow_dtype() if kind else target_type, safe=safe)

    @property
    def str(self) -> namespaces.Texts:
        """Functions of texts, such as `col("a").str.upper()`."""
        return namespaces.Texts(self, call)

    @property
    def list(self) -> namespaces.Lists:
        """Functions of lists, such as `col("a").list.len()`, and their items: `col("a").list[0]`."""
        return namespaces.Lists(self, call)

    @property
    def struct(self) -> namespaces.Structs:
        """The fields of structures: `col("a").struct["b"]`."""
        return namespaces.Structs(self, call)

    @property
    def map(self) -> namespaces.Maps:
        """The keys and the values of maps."""
        return namespaces.Maps(self, call)

    @property
    def arr(self) -> namespaces.Arrays:
        """Functions of arrays."""
        return namespaces.Arrays(self, call)

    @property
    def dt(self) -> namespaces.Times:
        """Functions of times, such as `col("a").dt.year()`."""
        return namespaces.Times(self, call)

    def __getattr__(self, name: Text) -> Callable[..., Expr]:
        if name not in _OF_NUMBERS:
            raise AttributeError(f"expressions have no {name!r}; a function of batches, in map_batches(), may do it")
        return functools.partial(call, name, self)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return _binary(Operation.EQ, self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return _binary(Operation.NE, self, other)

    def __lt__(self, other: object) -> Expr:
        return _binary(Operation.LT, self, other)

    def __le__(self, other: object) -> Expr:
        return _binary(Operation.LE, self, other)

    def __gt__(self, other: object) -> Expr:
        return _binary(Operation.GT, self, other)

    def __ge__(self, other: object) -> Expr:
        return _binary(Operation.GE, self, other)

    def __add__(self, other: object) -> Expr:
        return _binary(Operation.ADD, self, other)

    def __radd__(self, other: object) -> Expr:
        return _binary(Operation.ADD, other, self)

    def __sub__(self, other: object) -> Expr:
        return _binary(Operation.SUB, self, other)

    def __rsub__(self, other: object) -> Expr:
        return _binary(Operation.SUB, other, self)

    def __mul__(self, other: object) -> Expr:
        return _binary(Operation.MUL, self, other)

    def __rmul__(self, other: object) -> Expr:
        return _binary(Operation.MUL, other, self)

    def __truediv__(self, other: object) -> Expr:
        return _binary(Operation.DIV, self, other)

    def __rtruediv__(self, other: object) -> Expr:
        return _binary(Operation.DIV, other, self)

    def __floordiv__(self, other: object) -> Expr:
        return _binary(Operation.FLOORDIV, self, other)

    def __rfloordiv__(self, other: object) -> Expr:
        return _binary(Operation.FLOORDIV, other, self)

    def __mod__(self, other: object) -> Expr:
        return _binary(Operation.MOD, self, other)

    def __rmod__(self, other: object) -> Expr:
        return _binary(Operation.MOD, other, self)

    def __and__(self, other: object) -> Expr:
        return _binary(Operation.AND, self, other)

    def __rand__(self, other: object) -> Expr:
        return _binary(Operation.AND, other, self)

    def __or__(self, other: object) -> Expr:
        return _binary(Operation.OR, self, other)

    def __ror__(self, other: object) -> Expr:
        return _binary(Operation.OR, other, self)

    def __invert__(self) -> Expr:
        return UnaryExpr(Operation.NOT, self)

    def __neg__(self) -> Expr:
        return call("negate", self)

    def __bool__(self) -> bool:
        raise TypeError("an expression has no truth: join conditions by & and |, in parentheses")


_OF_NUMBERS = (
    *("abs", "ceil", "floor", "round", "trunc", "sign", "negate", "power"),
    *("exp", "ln", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan"),
)


class ColumnExpr(Expr, frozen=True, eq=False):
    """The values of a column."""

    _name: str

    @property
    def name(self) -> Text:
        """The column."""
        return self._name

    def own(self) -> tuple[object, ...]:
        """Its name."""
        return (self._name,)

    def evaluate(self, table: pyarrow.Table) -> object:
        """The column."""
        check_columns(table, [self._name])
        column = table.column(self._name)
        is_encoded = pa.types.is_dictionary(column.type) and operations.is_text(column.type.value_type)
        return pc.cast(column, column.type.value_type) if is_encoded else column

    def to_pyarrow(self) -> pyarrow.compute.Expression:
        """A field."""
        return pc.field(self._name)

    def __repr__(self) -> Text:
        return f"col({self._name!r})"


class LiteralExpr(Expr, frozen=True, eq=False):
    """The same value in each row."""

    value: Any

    @property
    def data_type(self) -> DataType:
        """That of the value."""
        return DataType.infer_dtype(self.value)

    def own(self) -> tuple[object, ...]:
        """The value."""
        return type(self.value), self.value

    def evaluate(self, table: pyarrow.Table) -> object:
        """The value."""
        del table
        return pa.scalar(self.value)

    def to_pyarrow(self) -> pyarrow.compute.Expression:
        """A scalar."""
        return pc.scalar(self.value)

    def __repr__(self) -> Text:
        return f"lit({self.value!r})"


class UnaryExpr(Expr, frozen=True, eq=False):
    """An operation on one expression."""

    op: Operation
    operand: Expr

    @property
    def data_type(self) -> DataType:
        """All are conditions."""
        return DataType.from_arrow(pa.bool_())

    def parts(self) -> tuple[Expr, ...]:
        """The operand."""
        return (self.operand,)

    def own(self) -> tuple[object, ...]:
        """The operation."""
        return (self.op,)

    def evaluate(self, table: pyarrow.Table) -> object:
        """Its values for the rows of a table."""
        return operations.unary(self.op.value, self.operand.evaluate(table))

    def to_pyarrow(self) -> pyarrow.compute.Expression:
        """The same as an expression of pyarrow."""
        return operations.unary(self.op.value, self.operand.to_pyarrow())

    def __repr__(self) -> Text:
        return f"{self.op.value}({self.operand!r})"


class BinaryExpr(Expr, frozen=True, eq=False):
    """An operation on two expressions."""

    op: Operation
    left: Expr
    right: Expr

    def parts(self) -> tuple[Expr, ...]:
        """The operands."""
        return self.left, self.right

    def own(self) -> tuple[object, ...]:
        """The operation."""
        return (self.op,)

    def evaluate(self, table: pyarrow.Table) -> object:
        """Its values for the rows of a table."""
        return operations.binary(self.op.value, self.left.evaluate(table), self.right.evaluate(table))

    def to_pyarrow(self) -> pyarrow.compute.Expression:
        """The same as an expression of pyarrow."""
        left = self.left.to_pyarrow()
        if self.op in (Operation.IN, Operation.NOT_IN):
            if not isinstance(self.right, LiteralExpr):
                raise TypeError("is_in() of a column cannot be converted to an expression of pyarrow")
            found = left.isin(self.right.value)
            return found if self.op is Operation.IN else ~found
        return operations.binary(self.op.value, left, self.right.to_pyarrow())

    def __repr__(self) -> Text:
        sign = operations.SIGNS.get(self.op.value, self.op.value)
        left, right = (repr(one.value if isinstance(one, LiteralExpr) else one) for one in (self.left, self.right))
        return f"({left} {sign} {right})"


class AliasExpr(Expr, frozen=True, eq=False):
    """An expression with a name."""

    expr: Expr
    _name: str

    @property
    def name(self) -> Text:
        """The name."""
        return self._name

    @property
    def data_type(self) -> DataType:
        """That of the expression."""
        return self.expr.data_type

    def parts(self) -> tuple[Expr, ...]:
        """The expression."""
        return (self.expr,)

    def own(self) -> tuple[object, ...]:
        """The name."""
        return (self._name,)

    def evaluate(self, table: pyarrow.Table) -> object:
        """The values of the expression."""
        return self.expr.evaluate(table)

    def to_pyarrow(self) -> pyarrow.compute.Expression:
        """The same as an expression of pyarrow."""
        return self.expr.to_pyarrow()

    def __repr__(self) -> Text:
        return f"{self.expr!r}.alias({self._name!r})"


class UDFExpr(Expr, frozen=True, eq=False):
    """What a function makes of columns."""

    fn: Callable[..., object]
    args: Sequence[Expr] = ()
    kwargs: Mapping[Text, Expr] = {}
    data_type: DataType | None = None  # type: ignore[assignment]

    def parts(self) -> tuple[Expr, ...]:
        """The arguments."""
        return *self.args, *self.kwargs.values()

    def own(self) -> tuple[object, ...]:
        """The function, and how it is called."""
        return self.fn, len(self.args), tuple(self.kwargs)

    def evaluate(self, table: pyarrow.Table) -> object:
        """What the function makes of the rows of a table."""
        found = self._called(lambda expr: expr.evaluate(table))
        if not isinstance(found, pa.Array | pa.ChunkedArray | pd.Series | numpy.ndarray | list):
            raise TypeError(
                f"the function {_named(self.fn)!r} has returned invalid type {type(found).__name__}. Expected type: "
                "pandas.Series, numpy.ndarray, pyarrow.Array or pyarrow.ChunkedArray, with a value for each row"
            )
        return found

    def to_pyarrow(self) -> pyarrow.compute.Expression:
        """TypeError: pyarrow does not know the function."""
        raise TypeError("UDF expressions cannot be converted to those of pyarrow")

    def _called(self, value: Callable[[Expr], object]) -> object:
        def given(expr: Expr) -> object:
            return expr.value if isinstance(expr, LiteralExpr) else value(expr)

        return self.fn(*map(given, self.args), **{name: given(one) for name, one in self.kwargs.items()})

    def __repr__(self) -> Text:
        values = [one.value if isinstance(one, LiteralExpr) else one for one in self.parts()]
        names = [""] * len(self.args) + [f"{name}=" for name in self.kwargs]
        return f"{_named(self.fn)}({', '.join(f'{name}{one!r}' for name, one in zip(names, values, strict=True))})"


class PyArrowComputeUDFExpr(UDFExpr, frozen=True, eq=False):
    """What a function of `pyarrow.compute` makes of columns."""

    def evaluate(self, table: pyarrow.Table) -> object:
        """What the function makes of the rows of a table."""
        try:
            return self._called(lambda expr: expr.evaluate(table))
        except pa.ArrowNotImplementedError:
            found = [one.evaluate(table) for one in self.parts() if not isinstance(one, LiteralExpr)]
            if any(isinstance(one, pa.Array | pa.ChunkedArray) and pa.types.is_null(one.type) for one in found):
                return pa.nulls(table.num_rows)  # a block without any value has no type that the function knows
            raise

    def to_pyarrow(self) -> pyarrow.compute.Expression:
        """The same as an expression of pyarrow."""
        return self._called(lambda expr: expr.to_pyarrow())


def _named(function: object) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _literal(value: object) -> Expr:
    return value if isinstance(value, Expr) else LiteralExpr(value)


def _binary(op: Operation, left: object, right: object) -> Expr:
    return BinaryExpr(op, _literal(left), _literal(right))


def call(function: str | Callable[..., object], *args: object, **kwargs: object) -> Expr:
    """An expression of a function of `pyarrow.compute`, by its name, or of another that takes and returns arrays."""
    found = getattr(pc, function) if isinstance(function, str) else function
    given = {name: _literal(value) for name, value in kwargs.items()}
    return PyArrowComputeUDFExpr(found, [*map(_literal, args)], given, DataType(object))


def col(name: str) -> ColumnExpr:
    """The values of a column."""
    return ColumnExpr(name)


def lit(value: object) -> LiteralExpr:
    """The same value in each row."""
    return LiteralExpr(value)


class _Instance:
    """An object of a class with `__call__`, made in the process that calls it."""

    def __init__(self, of: type, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        self.__name__ = of.__name__
        self._of = of, args, kwargs
        self._made: Callable[..., object] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return _Instance, self._of

    def __call__(self, *args: object, **kwargs: object) -> object:
        if self._made is None:
            of, own_args, own_kwargs = self._of
            self._made = of(*own_args, **own_kwargs)
        return self._made(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Instance) and self._of == other._of

    def __hash__(self) -> int:
        return hash(self._of[0])


def udf(return_dtype: DataType | None = None) -> Callable[[Callable[..., object]], Callable[..., Any]]:
    """Make a function of arrays of Arrow one of expressions; `return_dtype` is accepted, without effect.

    Of a class with `__call__` each process makes an object: `Adder(5)(col("a"))`.
    """

    def of_function(function: Callable[..., object], *args: object, **kwargs: object) -> Expr:
        given = {name: _literal(value) for name, value in kwargs.items()}
        return UDFExpr(function, [*map(_literal, args)], given, return_dtype)

    def of_class(of: type, *args: object, **kwargs: object) -> Callable[..., Expr]:
        return functools.partial(of_function, _Instance(of, args, kwargs))

    def decorated(function: Callable[..., object]) -> Callable[..., Any]:
        made: Callable[..., Any] = of_class if inspect.isclass(function) else of_function
        return functools.update_wrapper(functools.partial(made, function), function)

    return decorated


def check_exprs(given: Iterable[object]) -> None:
    """Refuse what is not an expression, by TypeError."""
    if wrong := [one for one in given if not isinstance(one, Expr)]:
        raise TypeError(f"with_column() takes an expression of data.expressions, not {wrong[0]!r}")


def with_columns(names: Sequence[str], exprs: Sequence[Expr], table: pyarrow.Table) -> pyarrow.Table:
    """The table with columns of expressions, each of which sees those before it."""
    for name, expr in zip(names, exprs, strict=True):
        table = blocks.with_column(table, name, expr.column_of(table))
    return table


def has_objects(expr: Expr) -> bool:
    """Whether it needs an object of a class, which actors keep."""
    return any(isinstance(one, UDFExpr) and isinstance(one.fn, _Instance) for one in _all(expr))


def _all(expr: Expr) -> Iterator[Expr]:
    yield expr
    for part in expr.parts():
        yield from _all(part)
