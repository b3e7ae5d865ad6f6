"""Functions that PMIx libraries have since version 5, for version 4: there they are macros of `pmix_common.h`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, c_size_t, c_void_p
from typing import Any

from mpi_runtime.core.gangs.pmix_types import INFO, INFO_BYTES, KIND, Array, PmixError, Process

_WORDS = POINTER(c_void_p)


def supply(library: Any) -> list[str]:
    """Give a library these functions, and return their names. Memory is that of the C library: both sides free it.

    Raises:
        PmixError: the library is older than version 4.1.
    """
    libc = ctypes.CDLL(None)
    libc.calloc.restype, libc.calloc.argtypes = c_void_p, [c_size_t, c_size_t]
    libc.free.restype, libc.free.argtypes = None, [c_void_p]
    for name in ("PMIx_Value_destruct", "PMIx_Data_array_destruct"):
        try:
            function = getattr(library, name)
        except AttributeError as error:
            raise PmixError(f"the PMIx library has no {name}: it is older than version 4.1") from error
        function.restype, function.argtypes = None, [c_void_p]

    def create_infos(count: int) -> int:
        found: int = libc.calloc(count, INFO_BYTES)
        return found

    def free_infos(infos: int, count: int) -> None:
        for index in range(count):
            library.PMIx_Value_destruct(infos + index * INFO_BYTES + KIND)
        libc.free(infos)

    def create_array(count: int, kind: int) -> int:
        found: int = libc.calloc(1, ctypes.sizeof(Array))
        array = ctypes.cast(found, POINTER(Array)).contents
        array.type, array.size = kind, count
        array.array = libc.calloc(count, INFO_BYTES if kind == INFO else ctypes.sizeof(Process))
        return found

    def free_array(array: int) -> None:
        library.PMIx_Data_array_destruct(array)
        libc.free(array)

    def free_words(words: Any) -> None:
        pointers = ctypes.cast(words, _WORDS)
        index = 0
        while pointers[index]:
            libc.free(pointers[index])
            index += 1
        libc.free(ctypes.cast(words, c_void_p))

    found: dict[str, Callable[..., object]] = {
        "PMIx_Info_create": create_infos,
        "PMIx_Info_free": free_infos,
        "PMIx_Data_array_create": create_array,
        "PMIx_Data_array_free": free_array,
        "PMIx_Argv_free": free_words,
    }
    for name, function in found.items():
        setattr(library, name, function)
    return list(found)
