"""The types of PMIx in memory, and its functions, as the headers of OpenPMIx 5 declare them."""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_size_t, c_uint8, c_uint16, c_uint32, c_void_p
from typing import Any

BOOL, STRING, SIZE, UINT16, UINT32, PROC, INFO, BYTES, DATA_ARRAY, RANK, REGEX = 1, 3, 4, 13, 14, 22, 24, 27, 39, 40, 49
"""Numbers of types of values."""
DONE = -157
"""PMIX_OPERATION_SUCCEEDED: all is done, and no callback follows."""
NOT_SUPPORTED = -47
STREAMS = (b"pmix.log.stderr", b"pmix.log.stdout")
"""Attributes with a text for a user. Others are for the log of the system, and for mail."""
WILDCARD = 0xFFFFFFFE
"""The rank that means all ranks of a namespace."""
ENDPOINTS = b"pmix.grp.endpt"
INFO_BYTES = 552
"""The bytes of an attribute in memory: name 512, flags 4, padding 4, type 2, padding 6, value 24."""
KIND, VALUE = 520, 528
"""Where an attribute has the type of its value, and the value. The name comes first."""
Item = tuple[str, object, int]
"""An attribute: name, value, type."""


class Process(ctypes.Structure):
    """pmix_proc_t."""

    _fields_ = [("namespace", ctypes.c_char * 256), ("rank", c_uint32)]


class Bytes(ctypes.Structure):
    """pmix_byte_object_t."""

    _fields_ = [("bytes", c_void_p), ("size", c_size_t)]


class Array(ctypes.Structure):
    """Values of one type."""

    _fields_ = [("type", c_uint16), ("size", c_size_t), ("array", c_void_p)]


Release = CFUNCTYPE(None, c_void_p)
Collected = CFUNCTYPE(None, c_int, c_void_p, c_size_t, c_void_p, c_void_p, c_void_p)
Looked = CFUNCTYPE(None, c_int, c_void_p, c_size_t, c_void_p)
Finished = CFUNCTYPE(None, c_int, c_void_p)
CALLBACKS: dict[str, tuple[int, Any]] = {
    "finalized": (1, CFUNCTYPE(c_int, POINTER(Process), c_void_p, c_void_p, c_void_p)),
    "abort": (
        2, CFUNCTYPE(c_int, POINTER(Process), c_void_p, c_int, c_char_p, c_void_p, c_size_t, c_void_p, c_void_p),
    ),
    "fence": (3, CFUNCTYPE(c_int, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p)),
    "modex": (4, CFUNCTYPE(c_int, POINTER(Process), c_void_p, c_size_t, c_void_p, c_void_p)),
    "register_events": (11, CFUNCTYPE(c_int, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p)),
    "deregister_events": (12, CFUNCTYPE(c_int, c_void_p, c_size_t, c_void_p, c_void_p)),
    "log": (17, CFUNCTYPE(None, POINTER(Process), c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p)),
    "control": (19, CFUNCTYPE(c_int, POINTER(Process), c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p)),
    "group": (25, CFUNCTYPE(c_int, c_uint8, c_char_p, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p)),
    "connected": (27, CFUNCTYPE(c_int, POINTER(Process), c_void_p, c_void_p, c_size_t, c_void_p, c_void_p)),
}  # fmt: skip
"""What the library calls: where each function stands in the table of the server, from 0, and its type."""
TABLE_SIZE = 40


class PmixError(Exception):
    """The library has refused something."""


def declare(library: object, supplied: Collection[str] = ()) -> None:
    """State the types of the functions of a library, except those that were supplied to it.

    Raises:
        PmixError: it lacks one.
    """
    pointer, text = c_void_p, c_char_p
    types: dict[str, tuple[object, list[object]]] = {
        "PMIx_Get_version": (text, []),
        "PMIx_Error_string": (text, [c_int]),
        "PMIx_Info_create": (pointer, [c_size_t]),
        "PMIx_Info_free": (None, [pointer, c_size_t]),
        "PMIx_Info_load": (c_int, [pointer, text, pointer, c_uint16]),
        "PMIx_Data_array_create": (pointer, [c_size_t, c_uint16]),
        "PMIx_Data_array_free": (None, [pointer]),
        "PMIx_Argv_free": (None, [pointer]),
        "PMIx_generate_regex": (c_int, [text, pointer]),
        "PMIx_generate_ppn": (c_int, [text, pointer]),
        "PMIx_server_init": (c_int, [pointer, pointer, c_size_t]),
        "PMIx_server_register_nspace": (c_int, [text, c_int, pointer, c_size_t, pointer, pointer]),
        "PMIx_server_deregister_nspace": (None, [text, pointer, pointer]),
        "PMIx_server_register_client": (c_int, [pointer, c_uint32, c_uint32, pointer, pointer, pointer]),
        "PMIx_server_setup_fork": (c_int, [pointer, pointer]),
        "PMIx_server_dmodex_request": (c_int, [pointer, pointer, pointer]),
    }
    for name, (result, arguments) in types.items():
        if name in supplied:
            continue
        try:
            function = getattr(library, name)
        except AttributeError as error:
            raise PmixError(f"the PMIx library has no {name}: it is older than version 4") from error
        function.restype, function.argtypes = result, arguments
