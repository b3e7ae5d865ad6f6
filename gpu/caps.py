"""Limits the memory pools of libraries in a process to the device memory that its call was granted.

Without a limit the memory pool of a library grows until the device is full, and other calls that share the device fail.
Other memory of a process, above all its CUDA context, is counted as `Device.reserve`. A library gets the limit after
its import.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

FRACTION, PREALLOCATE = "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE"
"""Variables that JAX reads when it starts. Without them it takes three quarters of each device at once."""


def set_cap(cap: int, total: int, environment: MutableMapping[str, str]) -> None:
    """Limit the memory that libraries in this process, also later imports, take of its one device.

    `cap` and `total` are bytes; with a `cap` of 0 the limit is lifted. JAX reads its limits in the environment.
    """
    if not cap and _Watch not in sys.meta_path:
        return  # there was no limit, and there is none now
    _Watch.cap, _Watch.total = cap, total
    if _Watch not in sys.meta_path:
        sys.meta_path.insert(0, _Watch)
    for name in _HOLDERS:
        module = sys.modules.get(name)
        if module is not None and hasattr(module, "cuda"):  # else another thread is importing it
            _hold(module)
    if not _Watch.wrote and {FRACTION, PREALLOCATE} & environment.keys():
        return  # the user has set them
    _Watch.wrote = cap > 0
    for name, text in ((FRACTION, f"{cap / total:.4f}"), (PREALLOCATE, "false")):
        if cap:
            environment[name] = text
        else:
            environment.pop(name, None)


def _hold(module: ModuleType) -> None:
    with contextlib.suppress(Exception):  # if the device cannot be used, the call gets that error when it tries to
        _HOLDERS[module.__name__](module, _Watch.cap, _Watch.total)


def _hold_cupy(cupy: ModuleType, cap: int, _: int) -> None:
    cupy.get_default_memory_pool().set_limit(size=cap)  # 0: no limit


def _hold_torch(torch: ModuleType, cap: int, total: int) -> None:
    """Set the limit once torch starts to use the device: a call may need only the CPU part of torch.

    Builds for ROCm have torch.cuda too. Builds for XPU have a limit since torch 2.9; in earlier ones nothing is set.
    """
    part = torch.xpu if is_for_xpu(torch) else torch.cuda

    def hold() -> None:
        part.set_per_process_memory_fraction(cap / total if cap else 1.0, 0)

    if part.is_initialized():
        hold()
    else:
        part._lazy_call(hold)


def is_for_xpu(torch: ModuleType) -> bool:
    """Whether this torch was built for Intel's devices, which it calls xpu. Those of AMD it calls cuda."""
    xpu = getattr(torch, "xpu", None)
    return xpu is not None and bool(getattr(xpu, "_is_compiled", bool)())


_HOLDERS: dict[str, Callable[[ModuleType, int, int], None]] = {"cupy": _hold_cupy, "torch": _hold_torch}


class _Watch(importlib.abc.MetaPathFinder):
    """A finder in front of all others: it finds no module itself, but sets a library's limit after its import."""

    cap = total = 0
    wrote = False
    """Whether JAX's variables in the environment were set by us."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return what the other finders find, with a loader that sets the limit at the end."""
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
    """The loader that it wraps, followed by `_hold`."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        found: ModuleType | None = self._loader.create_module(spec)
        return found

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _hold(module)
