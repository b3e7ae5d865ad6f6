"""A function or class as bytes."""

from __future__ import annotations

import contextlib
import sys
import warnings

from mpi_runtime import listings
from mpi_runtime.core.client import current
from mpi_runtime.core.client.interrupts import is_of_handler

CODE_BYTES_WARN = 10_000_000
"""Larger code has probably captured data by mistake."""
CODE_BYTES_MAX = 100_000_000
"""The head keeps all code until the job ends, and each process that runs it has its own copy."""


class Code:
    """A function or class as bytes. They are made once for each job, because objects in them may belong to it."""

    def __init__(self, code: object, name: str) -> None:
        self._code = code
        self._name = name
        self._pickled = b""
        self._client: object = None
        """The client at the time of pickling."""

    def pickled(self) -> bytes:
        """The bytes. Errors are those of `dump_code`."""
        client = current.client_or_none()
        if not self._pickled or client is not self._client:
            self.know(dump_code(self._code, self._name))
        return self._pickled

    def know(self, pickled: bytes) -> None:
        """Use these bytes, in which the code arrived. With others the scheduler would see another function."""
        self._pickled, self._client = pickled, current.client_or_none()


def dump_code(code: object, name: str) -> bytes:
    """A function or class as bytes, with all that it refers to. Warns if they are large.

    Raises:
        TypeError: it refers to something that cannot be serialised.
        ValueError: it is far too large.
    """
    with listings.for_all:
        from mpi_runtime.core.objects import code_pickler  # not at the top: it loads cloudpickle

    try:
        pickled = code_pickler.dumps(code)
    except Exception as error:
        if is_of_handler(error):
            raise
        variable = _refused(code)
        what = f"Its variable {variable!r}" if variable else "It"
        raise TypeError(
            f"cannot serialise {name}: {error}. {what} refers to something that belongs to this process (a lock, an "
            "open file, a connection). Create it inside, or pass it as an argument in a form that can be serialised. "
            f"mpi_runtime.util.inspect_serializability({name}) shows what it is."
        ) from error
    if len(pickled) > CODE_BYTES_WARN:
        message = (
            f"{name} takes {len(pickled) / 1e6:.0f} MB, which go to every process that runs it. It refers to something "
            "large: a global variable or one of an enclosing function. put() that once, and pass the reference as an "
            "argument."
        )
        if len(pickled) > CODE_BYTES_MAX:
            raise ValueError(f"{message} The limit is {CODE_BYTES_MAX / 1e6:.0f} MB.")
        warnings.warn(message, stacklevel=_depth_of_user_code())
    return pickled


def _refused(code: object) -> str:
    """A variable of a function, or of the methods of a class, that cannot be serialised; empty: none is known."""
    import inspect  # not at the top: errors alone need it

    for function in vars(code).values() if isinstance(code, type) else (code,):
        if inspect.isfunction(function):
            known = inspect.getclosurevars(function)
            for name, value in {**known.nonlocals, **known.globals}.items():
                if not _can_be_pickled(value):
                    return name
    return ""


def _can_be_pickled(value: object) -> bool:
    from mpi_runtime.core.objects import code_pickler

    with contextlib.suppress(Exception):
        code_pickler.check(value)
        return True
    return False


def _depth_of_user_code() -> int:
    """The number of frames between the caller and user code, as `warnings.warn` counts them."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("mpi_runtime.", "functools")):
        depth, frame = depth + 1, frame.f_back
    return depth
