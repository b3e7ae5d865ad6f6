"""`multiprocessing` in a task: it pickles functions and classes of the program by value.

It pickles them by name, in `__main__`, which in an executor is not the program. So its pickler is extended as soon as
user code imports it.
"""

from __future__ import annotations

import functools
import pickle
import sys
from collections.abc import Sequence
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

_MODULE = "multiprocessing.reduction"
_OF_CODE = (FunctionType, type, type(functools.lru_cache(len)))


def _reduce(self: pickle.Pickler, thing: object) -> object:
    if isinstance(thing, _OF_CODE) and thing.__module__ == "__main__":
        found: object = sys.modules["__main__"]
        for name in thing.__qualname__.split("."):
            found = getattr(found, name, None)
        if found is not thing:
            from mpi_runtime.core.objects.code_pickler import dumps  # not at the top: it loads cloudpickle

            return pickle.loads, (dumps(thing),)
    return NotImplemented


class _Finder:
    """Extends the pickler of `multiprocessing` once it is imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _MODULE:
            return None
        from importlib.machinery import PathFinder  # not at the top: few executors need it

        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                _extend(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _extend(module: ModuleType) -> None:
    module.ForkingPickler.reducer_override = _reduce


def install() -> None:
    """Extend the pickler of `multiprocessing`, now or when it is imported."""
    if _MODULE in sys.modules:
        _extend(sys.modules[_MODULE])
    else:
        sys.meta_path.insert(0, _Finder())
