"""Conditions in strings, such as "id > 5 and kind in ['a', 'b']", as expressions of pyarrow."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

from mpi_runtime.data.arrow import pc

if TYPE_CHECKING:
    import pyarrow.compute

    Expression: TypeAlias = pyarrow.compute.Expression

_OPERATORS: dict[type[ast.AST], Callable[..., Expression]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.And: operator.and_, ast.Or: operator.or_,
    ast.In: lambda left, right: left.isin(right), ast.NotIn: lambda left, right: ~left.isin(right),
}  # fmt: skip
_FUNCTIONS = ("is_nan", "is_null", "is_valid")


def parsed(text: str) -> Expression:
    """Make an expression of a text in Python's syntax: names are columns.

    Raises:
        ValueError: it is not a condition.
    """
    try:
        return _of(ast.parse(text, mode="eval").body)
    except SyntaxError as error:
        raise ValueError(f"filter(expr={text!r}) is not a condition: {error}") from None
    except _UnknownError as error:
        raise ValueError(
            f"filter(expr={text!r}): {error} has no meaning here. A condition has columns, values, comparisons, and, "
            f"or, not, in, + - * /, {', '.join(_FUNCTIONS)}; for others pass a function"
        ) from None


class _UnknownError(Exception):
    """A part of the text is not known."""


def _of(node: ast.expr) -> Expression:
    match node:
        case ast.Constant(value):
            return pc.scalar(value)
        case ast.Name(name):
            return pc.field(name)
        case ast.Compare(left, [(ast.In() | ast.NotIn()) as kind], [ast.List(items) | ast.Tuple(items)]):
            return _OPERATORS[type(kind)](_of(left), [_value(item) for item in items])
        case ast.Compare(left, [kind], [right]) if type(kind) in _OPERATORS and not isinstance(
            kind, ast.In | ast.NotIn
        ):
            return _OPERATORS[type(kind)](_of(left), _of(right))
        case ast.BoolOp(kind, values):
            return reduce(_OPERATORS[type(kind)], map(_of, values))
        case ast.BinOp(left, kind, right) if type(kind) in _OPERATORS:
            return _OPERATORS[type(kind)](_of(left), _of(right))
        case ast.UnaryOp(ast.Not(), value):
            return ~_of(value)
        case ast.UnaryOp(ast.USub(), value):
            return pc.scalar(0) - _of(value)
        case ast.Call(ast.Name(name), [column], []) if name in _FUNCTIONS:
            return getattr(_of(column), name)()
        case _:
            raise _UnknownError(ast.unparse(node))


def _value(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise _UnknownError(ast.unparse(node)) from None
