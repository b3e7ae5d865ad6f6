"""Copies of exceptions, made without calling code of their classes.

The class of an exception may have an `__init__` with parameters of its own, properties, `__slots__` or fields in C, and
it may refuse assignments. So `args`, slots and fields are read and written through their descriptors.
"""

from __future__ import annotations

import builtins
import contextlib
from typing import Any, TypeVar

_Error = TypeVar("_Error", bound=BaseException)

_GROUP: Any = getattr(builtins, "BaseExceptionGroup", ())
"""The class of exception groups; () before Python 3.11, which has none."""
_HEAP_TYPE = 1 << 9
"""Flag of classes that were created at run time, not statically in C (Py_TPFLAGS_HEAPTYPE)."""
_ARGS = vars(BaseException)["args"]
"""The descriptor of `args`: a class may have a property of that name, or refuse assignments."""


def is_group(kind: type[BaseException]) -> bool:
    """Whether this is a class of exception groups."""
    return issubclass(kind, _GROUP)


def instance_of(kind: type[_Error], cause: Any) -> _Error:
    """Return an instance of `kind`, a subclass of the class of `cause`, without calling user code."""
    members = (cause.message, cause.exceptions) if isinstance(cause, _GROUP) else ()  # groups need them in __new__
    error: _Error = _builtin_base(kind).__new__(kind, *members)
    return error


def rebuilt(
    kind: type[BaseException], args: tuple[object, ...], state: dict[str, object], slots: dict[str, object]
) -> BaseException:
    """Return an instance of `kind` with this content, without calling user code."""
    base = _builtin_base(kind)
    error: BaseException = base.__new__(kind, *args)
    base.__init__(error, *args)
    _ARGS.__set__(error, args)
    vars(error).update(state)
    for name, value in slots.items():
        BaseException.__setattr__(error, name, value)  # the class may refuse assignments
    return error


def copy_content(cause: BaseException, error: BaseException) -> None:
    """Copy `args`, attributes, slots and fields of C classes from `cause` to `error`."""
    _ARGS.__set__(error, args_of(cause))
    for kind in type(cause).__mro__:
        if kind in (BaseException, object):
            continue
        for name, member in vars(kind).items():
            if type(member).__name__ in ("member_descriptor", "getset_descriptor") and not name.startswith("__"):
                try:
                    member.__set__(error, member.__get__(cause, kind))
                except (AttributeError, TypeError, ValueError):
                    continue  # an empty slot, a computed field, or not a base class of `error`
    vars(error).update(vars(cause))


def args_of(error: BaseException) -> tuple[object, ...]:
    """Return the true `args` of an exception."""
    found: tuple[object, ...] = _ARGS.__get__(error)
    return found


def slots_of(error: BaseException) -> dict[str, object]:
    """Return the values in `__slots__` of classes written in Python, by name."""
    members = [
        (name, member)
        for kind in type(error).__mro__
        if kind.__flags__ & _HEAP_TYPE
        for name, member in vars(kind).items()
        if type(member).__name__ == "member_descriptor"
    ]
    found = {}
    for name, member in members:
        with contextlib.suppress(AttributeError):  # an empty one
            found[name] = member.__get__(error)
    return found


def _builtin_base(kind: type[BaseException]) -> Any:
    """Return the base class written in C, which decides the memory layout of instances."""
    base: Any = kind
    while base.__flags__ & _HEAP_TYPE:
        base = base.__base__
    return base
