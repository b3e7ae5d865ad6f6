"""Public paths of classes and functions.

Pickles, and hashes of functions, name a class or function by its module. Some of them lie on disk for months. So what a
face offers is named by that face, and its module may move. The face must be loaded when such a thing is pickled:
cloudpickle takes what it does not find there for a part of the program. `mpi_runtime` itself is always loaded.
"""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def published(face: str = "mpi_runtime") -> Callable[[T], T]:
    """Name the decorated class or function by the module that offers it."""

    def named(thing: T) -> T:
        thing.__module__ = face
        return thing

    return named
