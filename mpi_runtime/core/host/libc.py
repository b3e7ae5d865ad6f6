"""The C library, for calls that Python lacks. ctypes is imported when needed, because agents do not load it."""

from __future__ import annotations

import functools
import mmap
import os
from typing import Any


@functools.cache
def libc() -> Any:
    """Return the C library that this process has loaded."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def map_file(descriptor: int, offset: int, size: int, protection: int, address: int | None = None) -> int:
    """Map a part of a file, shared, for the life of the process.

    `mmap.mmap` maps where the kernel likes, and keeps a descriptor with a low number, which user code may close or
    write to by mistake.

    Args:
        descriptor: of the file. It stays the caller's.
        offset: where the part begins.
        size: its length in bytes.
        protection: `mmap.PROT_READ` and the like.
        address: where to map it, in place of what is mapped there; None: anywhere.

    Returns:
        The address.

    Raises:
        OSError: the system refuses.
    """
    import ctypes

    MAP_FIXED = 0x10
    function = libc().mmap
    if function.argtypes is None:
        function.restype = ctypes.c_void_p  # first: another thread may be here, too
        function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    flags = mmap.MAP_SHARED | (MAP_FIXED if address is not None else 0)
    found: int = function(address, size, protection, flags, descriptor, offset)
    if found == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found
