"""Asks the CUDA driver, if it is loaded, whether CUDA still works in this process; pins memory.

Libraries on top of CUDA (cuBLAS, cuDNN, NCCL) have errors of their own, which do not say whether the context is dead.
Nothing is loaded here and no context is made: a process that has not used CUDA has no context that could be dead.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

Driver = Any
"""The library of the driver by ctypes, whose functions have no types; None: it is not loaded."""
LIBRARY = "libcuda.so.1"
PORTABLE = 1
"""`CU_MEMHOSTREGISTER_PORTABLE`: the memory counts as pinned in the contexts of all devices."""
NO_CONTEXT = 201
"""`CUDA_ERROR_INVALID_CONTEXT`."""


def driver() -> Driver:
    """Return the driver's library, or None if this process has not loaded it."""
    try:
        return ctypes.CDLL(LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None


def start_error(cuda: Driver) -> int:
    """Return CUDA's number for the error with which it refuses to start in this process; 0 if it starts."""
    return int(cuda.cuInit(0)) if cuda is not None else 0


def error(cuda: Driver) -> int:
    """Return CUDA's number for the error that this process now gets from CUDA; 0 if CUDA works.

    Waits for the work that was submitted to the devices, because errors of that work are reported only at its end.
    """
    return start_error(cuda) or next(filter(None, (_error_on(cuda, ordinal) for ordinal in _ordinals(cuda))), 0)


def has_begun(cuda: Driver) -> bool:
    """Whether this process has a context on any device, that is, uses one."""
    return any(_state(cuda, ordinal) == (0, True) for ordinal in _ordinals(cuda))


def _ordinals(cuda: Driver) -> range:
    """Return CUDA's numbers for the devices of this process; none without the driver, or if it cannot count them."""
    count = ctypes.c_int()
    return range(0 if cuda is None or cuda.cuDeviceGetCount(ctypes.byref(count)) else count.value)


def _state(cuda: Driver, ordinal: int) -> tuple[int, bool]:
    """Return CUDA's number for an error or 0, and whether this process has a context on the device."""
    device, flags, is_active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(device), ordinal)
    code = cuda.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(is_active))
    return int(code), bool(is_active.value)


def register(cuda: Driver, address: int, size: int, flags: int = PORTABLE) -> int:
    """Have memory of this process pinned, so that devices read and write it themselves; returns CUDA's number or 0.

    This asks the driver and not the CUDA runtime: libraries ask the runtime for its last error after each kernel, and
    would find a refusal there.

    The memory must be whole pages, mapped to be written. `size` is in bytes, `flags` are those of `cuMemHostRegister`.
    """
    return _in_a_context(
        cuda, lambda: cuda.cuMemHostRegister_v2(ctypes.c_void_p(address), ctypes.c_size_t(size), flags)
    )


def unregister(cuda: Driver, address: int) -> int:
    """Undo `register` for the memory that starts there; returns CUDA's number or 0: only then is it not pinned."""
    return _in_a_context(cuda, lambda: cuda.cuMemHostUnregister(ctypes.c_void_p(address)))


def _in_a_context(cuda: Driver, call: Callable[[], int]) -> int:
    """Make a call in a context that this process has."""
    active = (ordinal for ordinal in _ordinals(cuda) if _state(cuda, ordinal) == (0, True))
    return next((_in_context(cuda, ordinal, call) for ordinal in active), NO_CONTEXT)


def _error_on(cuda: Driver, ordinal: int) -> int:
    """Return CUDA's number for the error on one device, or 0."""
    code, is_active = _state(cuda, ordinal)
    return code if code or not is_active else _in_context(cuda, ordinal, cuda.cuCtxSynchronize)


def _in_context(cuda: Driver, ordinal: int, call: Callable[[], int]) -> int:
    """Make a call in a device's primary context: the one that cupy, torch and the CUDA runtime use."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    cuda.cuDeviceGet(ctypes.byref(device), ordinal)
    code = int(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    if code:
        return code
    code = int(cuda.cuCtxPushCurrent_v2(context))  # this thread may have used no context yet
    if not code:
        code = int(call())
        cuda.cuCtxPopCurrent_v2(ctypes.byref(context))
    cuda.cuDevicePrimaryCtxRelease_v2(device)
    return code
