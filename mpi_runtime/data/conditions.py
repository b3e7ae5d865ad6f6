"""Conditions in strings, such as "id > 5 and kind in ['a', 'b']", as expressions."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from functools import reduce

from mpi_runtime.data.expressions import BinaryExpr, Expr, Operation, call, col, lit

_OPERATORS: dict[type[ast.AST], Callable[..., Expr]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.And: operator.and_, ast.Or: operator.or_, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.In: lambda left, right: left.is_in(right), ast.NotIn: lambda left, right: left.not_in(right),
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Expr]] = {
    "is_nan": lambda column: call("is_nan", column),
    "is_null": lambda column: column.is_null(),
    "is_not_null": lambda column: column.is_not_null(),
    "is_valid": lambda column: column.is_not_null(),
    "is_in": lambda column, values: BinaryExpr(Operation.IN, column, values),
}


def parsed(text: str) -> Expr:
    """Make an expression of a text in Python's syntax: names are columns, with points in them or without.

    Raises:
        ValueError: it is not a condition.
    """
    try:
        return _of(ast.parse(text, mode="eval").body)
    except SyntaxError as error:
        raise ValueError(f"filter(expr={text!r}): Invalid syntax in the expression: {error}") from None
    except _UnknownError as error:
        raise ValueError(
            f"filter(expr={text!r}): {error} has no meaning here. A condition has columns, values, comparisons, and, "
            f"or, not, in, + - * / // %, {', '.join(_FUNCTIONS)}; for others pass a function"
        ) from None


class _UnknownError(Exception):
    """A part of the text is not known."""


def _of(node: ast.expr) -> Expr:
    match node:
        case ast.Constant(value):
            return lit(value)
        case ast.Name(name):
            return col(name)
        case ast.Attribute():
            return col(_dotted(node))
        case ast.List(items) | ast.Tuple(items):
            return lit([_value(item) for item in items])
        case ast.Compare(left, [kind], [right]) if type(kind) in _OPERATORS:
            return _OPERATORS[type(kind)](_of(left), _of(right))
        case ast.BoolOp(kind, values):
            return reduce(_OPERATORS[type(kind)], map(_of, values))
        case ast.BinOp(left, kind, right) if type(kind) in _OPERATORS:
            return _OPERATORS[type(kind)](_of(left), _of(right))
        case ast.UnaryOp(ast.Not() | ast.Invert(), value):
            return ~_of(value)
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)):
            return lit(-value)
        case ast.UnaryOp(ast.USub(), value):
            return -_of(value)
        case ast.Call(ast.Name(name), arguments, []) if name in _FUNCTIONS and len(arguments) == 1 + (name == "is_in"):
            return _FUNCTIONS[name](*map(_of, arguments))
        case _:
            raise _UnknownError(ast.unparse(node))


def _dotted(node: ast.expr) -> str:
    match node:
        case ast.Name(name):
            return name
        case ast.Attribute(value, name):
            return f"{_dotted(value)}.{name}"
        case _:
            raise _UnknownError(ast.unparse(node))


def _value(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise _UnknownError(ast.unparse(node)) from None
