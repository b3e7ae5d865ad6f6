"""What the operators of expressions do with columns, values, and expressions of pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mpi_runtime.data.arrow import pa, pc

if TYPE_CHECKING:
    import pyarrow

SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%", "floordiv": "//", "gt": ">", "lt": "<", "ge": ">=",
    "le": "<=", "eq": "==", "ne": "!=", "and": "&", "or": "|", "not_in": "not in",
}  # fmt: skip
_COMPUTE = {
    "sub": "subtract", "mul": "multiply", "gt": "greater", "lt": "less", "ge": "greater_equal", "le": "less_equal",
    "eq": "equal", "ne": "not_equal", "and": "and_kleene", "or": "or_kleene", "not": "invert", "is_null": "is_null",
    "is_not_null": "is_valid",
}  # fmt: skip


def unary(operation: str, value: object) -> Any:
    """The result of an operation on one operand."""
    return getattr(pc, _COMPUTE[operation])(value)


def binary(operation: str, left: object, right: object) -> Any:
    """The result of an operation on two operands."""
    match operation:
        case "add":
            return _added(left, right)
        case "div":
            return _divided(left, right)
        case "floordiv":
            return _floor_divided(left, right)
        case "mod":
            return pc.subtract(left, pc.multiply(_floor_divided(left, right), right))
        case "in":
            return pc.is_in(left, value_set=_values(right))
        case "not_in":
            return pc.invert(pc.is_in(left, value_set=_values(right)))
        case _:
            return getattr(pc, _COMPUTE[operation])(left, right)


def is_text(kind: pyarrow.DataType) -> bool:
    """Whether it is a type of texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _added(left: object, right: object) -> Any:
    kinds = {one.type for one in (left, right) if hasattr(one, "type") and not callable(one.type)}
    if pa.large_string() in kinds:
        large = pa.large_string()
        both = [pc.cast(one, large) if getattr(one, "type", None) == pa.string() else one for one in (left, right)]
        return pc.binary_join_element_wise(*both, pa.scalar("", large))
    if any(map(is_text, kinds)):
        return pc.binary_join_element_wise(left, right, "")
    return pc.add(left, right)


def _divided(left: object, right: object) -> Any:
    return pc.divide(pc.cast(left, pa.float64(), safe=False), right)


def _floor_divided(left: object, right: object) -> Any:
    if not all(hasattr(one, "type") and pa.types.is_integer(one.type) for one in (left, right)):
        return pc.floor(_divided(left, right))
    found = pc.divide(left, right)  # towards zero, and exact where numbers with a point are not
    rest = pc.subtract(left, pc.multiply(found, right))
    is_above = pc.and_(pc.not_equal(rest, 0), pc.xor(pc.less(rest, 0), pc.less(right, 0)))
    return pc.subtract(found, pc.cast(is_above, found.type))


def _values(given: object) -> pyarrow.Array:
    if isinstance(given, pa.ListScalar):
        return given.values
    return given.combine_chunks() if isinstance(given, pa.ChunkedArray) else given
