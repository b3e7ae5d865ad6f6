"""A function or class as bytes."""

from __future__ import annotations

import sys
import warnings

from mpi_runtime.client import current

CODE_BYTES_WARN = 10_000_000
"""Code that takes more has probably caught data."""
CODE_BYTES_MAX = 100_000_000
"""The head keeps all code for as long as the job lives, and each process that runs it has its own copy."""


class Code:
    """A function or class as bytes: made once in a job, since what it refers to may belong to the job."""

    def __init__(self, code: object, name: str) -> None:
        self._code = code
        self._name = name
        self._pickled = b""
        self._client: object = None
        """With whose job it was made."""

    def pickled(self) -> bytes:
        """The bytes; see `dump_code` for what it raises."""
        client = current.client_or_none()
        if not self._pickled or client is not self._client:
            self.know(dump_code(self._code, self._name))
        return self._pickled

    def know(self, pickled: bytes) -> None:
        """It came as these bytes: others would be another function elsewhere."""
        self._pickled, self._client = pickled, current.client_or_none()


def dump_code(code: object, name: str) -> bytes:
    """A function or class as bytes. Warns if there are many: what it refers to travels with it.

    Raises:
        TypeError: it refers to something that cannot be serialised.
        ValueError: it is far too large.
    """
    import cloudpickle

    try:
        pickled: bytes = cloudpickle.dumps(code, protocol=5)
    except Exception as error:
        raise TypeError(
            f"cannot serialise {name}: {error}. It refers to something that belongs to this process (a lock, an open "
            "file, a connection); make it inside, or pass it as an argument in a form that can be serialised. "
            f"mpi_runtime.util.inspect_serializability({name}) shows which it is."
        ) from error
    if len(pickled) > CODE_BYTES_WARN:
        message = (
            f"{name} takes {len(pickled) / 1e6:.0f} MB, which go to every process that runs it. It refers to something "
            "large, a global variable or one of an enclosing function: put() that once, and pass the reference as an "
            "argument."
        )
        if len(pickled) > CODE_BYTES_MAX:
            raise ValueError(f"{message} The limit is {CODE_BYTES_MAX / 1e6:.0f} MB.")
        warnings.warn(message, stacklevel=_depth_of_user_code())
    return pickled


def _depth_of_user_code() -> int:
    """For a warning by the caller: how many frames up the first one is that is not of this package."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("mpi_runtime.", "functools")):
        depth, frame = depth + 1, frame.f_back
    return depth
