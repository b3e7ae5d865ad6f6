"""The process of a pool: it runs chunks of calls, and keeps their global variables."""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType
from typing import Any, TypeVar

T = TypeVar("T")
Initializer = tuple[Callable[..., object], tuple[object, ...]]
"""A function and its arguments."""


class PoolProcess:
    """The actor."""

    def __init__(self, initializer: Initializer | None) -> None:
        self._variables: dict[str, dict[str, object]] = {}
        """Global variables of modules that do not exist here, by module: see `_run`."""
        if initializer is not None:
            self._run(initializer[0], initializer[0], *initializer[1])

    def apply(self, function: Callable[..., T], args: Iterable[object], kwds: Mapping[str, object]) -> T:
        """Make one call."""
        return self._run(function, function, *args, **kwds)

    def map(self, function: Callable[..., T], items: Iterable[object]) -> list[T]:
        """Make a call for each item."""
        return self._run(function, lambda: list(map(function, items)))

    def starmap(self, function: Callable[..., T], items: Iterable[Iterable[object]]) -> list[T]:
        """Make a call for each tuple of arguments."""
        return self._run(function, lambda: list(itertools.starmap(function, items)))

    def _run(self, function: Callable[..., object], act: Callable[..., T], /, *args: object, **kwds: object) -> T:
        """Act, with the changes of earlier calls to global variables.

        A function of the main program arrives by value, each time with a copy of the global variables that it uses. A
        process of a pool needs one copy of each, so that an initializer can set variables for later calls.
        """
        ours = _globals(function)
        if ours is None:
            return act(*args, **kwds)
        kept = self._variables.setdefault(str(ours.get("__name__", "")), {})
        ours.update(kept)
        before = dict(ours)
        try:
            return act(*args, **kwds)
        finally:
            for name, value in ours.items():
                # Functions are not kept: each call brings those that it uses, and they get its global variables.
                if not isinstance(value, FunctionType) or value is not before.get(name):
                    kept[name] = value


def _globals(function: Any) -> dict[str, object] | None:
    """The global variables of a function that arrived by value; None for a function that was imported here."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if inspect.isclass(function):
        function = function.__init__
    elif not hasattr(function, "__globals__"):
        function = getattr(type(function), "__call__", None)  # noqa: B004  (not whether there is one, but which)
    found: dict[str, object] | None = getattr(function, "__globals__", None)
    module = sys.modules.get(str(found.get("__name__", ""))) if found is not None else None
    return None if module is not None and vars(module) is found else found
