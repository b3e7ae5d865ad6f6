"""How much of a device's memory the libraries of a process may take: what its call was promised, and no more.

A library's pool grows until the device is full, and other calls that share the device find it so. What a process takes
beyond its libraries, its context above all, is `Device.reserve`. A library that is imported later is told then.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

FRACTION, PREALLOCATE = "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE"
"""What JAX reads when it begins; by itself it takes three quarters of each device at once."""


def set_cap(cap: int, total: int, environment: MutableMapping[str, str]) -> None:
    """Hold the libraries of this process to so much of its one device from now on; those that come later, too.

    Args:
        cap: bytes; 0: all.
        total: bytes that the device has.
        environment: of this process, for what libraries read there.
    """
    if not cap and _Watch not in sys.meta_path:
        return  # there was no limit, and is none
    _Watch.cap, _Watch.total = cap, total
    if _Watch not in sys.meta_path:
        sys.meta_path.insert(0, _Watch)
    for name in _HOLDERS:
        module = sys.modules.get(name)
        if module is not None and hasattr(module, "cuda"):  # else another thread is importing it
            _hold(module)
    if not _Watch.wrote and {FRACTION, PREALLOCATE} & environment.keys():
        return  # it is the user's own word
    _Watch.wrote = cap > 0
    for name, text in ((FRACTION, f"{cap / total:.4f}"), (PREALLOCATE, "false")):
        if cap:
            environment[name] = text
        else:
            environment.pop(name, None)


def _hold(module: ModuleType) -> None:
    with contextlib.suppress(Exception):  # a device that cannot be used says so to the call, when it begins to
        _HOLDERS[module.__name__](module, _Watch.cap, _Watch.total)


def _hold_cupy(cupy: Any, cap: int, _: int) -> None:
    cupy.get_default_memory_pool().set_limit(size=cap)  # 0: none


def _hold_torch(torch: Any, cap: int, total: int) -> None:
    """When torch begins to use CUDA: a call may need torch for nothing but its CPU part."""

    def hold() -> None:
        torch.cuda.set_per_process_memory_fraction(cap / total if cap else 1.0, 0)

    if torch.cuda.is_initialized():
        hold()
    else:
        torch.cuda._lazy_call(hold)


_HOLDERS: dict[str, Callable[[Any, int, int], None]] = {"cupy": _hold_cupy, "torch": _hold_torch}


class _Watch(importlib.abc.MetaPathFinder):
    """Stands before the finders of modules, and finds none: has a library told its limits when it has been loaded."""

    cap = total = 0
    wrote = False
    """Whether what the environment says to JAX is ours."""

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """What the other finders find, with our own word at the end."""
        if fullname not in _HOLDERS or fullname in _looking:
            return None
        _looking.add(fullname)
        try:
            found = importlib.util.find_spec(fullname)
        finally:
            _looking.discard(fullname)
        if found is not None and found.loader is not None:
            found.loader = _Loader(found.loader)
        return found


_looking: set[str] = set()


class _Loader(importlib.abc.Loader):
    """As the loader that it was made from."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        found: ModuleType | None = self._loader.create_module(spec)
        return found

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _hold(module)
