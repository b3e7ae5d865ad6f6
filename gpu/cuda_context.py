"""Whether CUDA still works in this process. The driver's library is asked, if it is loaded.

Libraries on top of CUDA (cuBLAS, cuDNN, NCCL) have errors of their own, which do not say whether the context is dead.
Nothing is loaded here and no context is made: a process that has not used CUDA has no context that could be dead.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

LIBRARY = "libcuda.so.1"


def driver() -> Any:
    """Return the driver's library, or None if this process has not loaded it."""
    try:
        return ctypes.CDLL(LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None


def start_error(cuda: Any) -> int:
    """Return CUDA's number for the error with which it refuses to start in this process; 0 if it starts."""
    return int(cuda.cuInit(0)) if cuda is not None else 0


def error(cuda: Any) -> int:
    """Return CUDA's number for the error that this process now gets from CUDA; 0 if CUDA works.

    Waits for the work that was submitted to the devices, because errors of that work are reported only at its end.
    """
    code = start_error(cuda)
    if cuda is None or code:
        return code
    count = ctypes.c_int()
    cuda.cuDeviceGetCount(ctypes.byref(count))
    return next((code for ordinal in range(count.value) if (code := _error_on(cuda, ordinal))), 0)


def has_begun(cuda: Any) -> bool:
    """Whether this process has a context on any device, that is, uses one."""
    if cuda is None:
        return False
    count = ctypes.c_int()
    return not cuda.cuDeviceGetCount(ctypes.byref(count)) and any(
        _is_active(cuda, ordinal) for ordinal in range(count.value)
    )


def _is_active(cuda: Any, ordinal: int) -> bool:
    device, flags, is_active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(device), ordinal)
    code = cuda.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(is_active))
    return not code and bool(is_active.value)


def _error_on(cuda: Any, ordinal: int) -> int:
    """The same for one device, in its primary context: the one that cupy, torch and the CUDA runtime use."""
    device, flags, is_active, context = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int(), ctypes.c_void_p()
    cuda.cuDeviceGet(ctypes.byref(device), ordinal)
    code = int(cuda.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(is_active)))
    if code or not is_active.value:
        return code
    code = int(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    if code:
        return code
    code = int(cuda.cuCtxPushCurrent_v2(context))  # this thread may have used no context yet
    if not code:
        code = int(cuda.cuCtxSynchronize())
        cuda.cuCtxPopCurrent_v2(ctypes.byref(context))
    cuda.cuDevicePrimaryCtxRelease_v2(device)
    return code
