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
Item = tuple[str, Any, int]
"""An attribute: name, value, type."""


class Process(ctypes.Structure):
    """A process: its namespace and rank."""

    _fields_ = [("namespace", ctypes.c_char * 256), ("rank", c_uint32)]


class Bytes(ctypes.Structure):
    """Bytes and their number."""

    _fields_ = [("bytes", c_void_p), ("size", c_size_t)]


class Array(ctypes.Structure):
    """Values of one type."""

    _fields_ = [("type", c_uint16), ("size", c_size_t), ("array", c_void_p)]


Release = CFUNCTYPE(None, c_void_p)
Collected = CFUNCTYPE(None, c_int, c_void_p, c_size_t, c_void_p, c_void_p, c_void_p)
Looked = CFUNCTYPE(None, c_int, c_void_p, c_size_t, c_void_p)
OnConnected = CFUNCTYPE(c_int, POINTER(Process), c_void_p, c_void_p, c_size_t, c_void_p, c_void_p)
OnFinalized = CFUNCTYPE(c_int, POINTER(Process), c_void_p, c_void_p, c_void_p)
OnAbort = CFUNCTYPE(
    c_int, POINTER(Process), c_void_p, c_int, c_char_p, c_void_p, c_size_t, c_void_p, c_void_p
)  # fmt: skip
OnFence = CFUNCTYPE(
    c_int, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p
)  # fmt: skip
OnModex = CFUNCTYPE(c_int, POINTER(Process), c_void_p, c_size_t, c_void_p, c_void_p)
OnGroup = CFUNCTYPE(
    c_int, c_uint8, c_char_p, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p
)  # fmt: skip
Finished = CFUNCTYPE(None, c_int, c_void_p)
OnLog = CFUNCTYPE(None, POINTER(Process), c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p)
OnEvents = CFUNCTYPE(c_int, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p)
OnNoEvents = CFUNCTYPE(c_int, c_void_p, c_size_t, c_void_p, c_void_p)
OnControl = CFUNCTYPE(
    c_int, POINTER(Process), c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p
)  # fmt: skip
PLACES = {
    # Where the functions stand in the table of the server, from 0.
    "finalized": 1, "abort": 2, "fence": 3, "modex": 4, "register_events": 11, "deregister_events": 12, "log": 17,
    "control": 19, "group": 25, "connected": 27,
}  # fmt: skip
TABLE_SIZE = 40


class PmixError(Exception):
    """The library has refused something."""


def declare(library: Any, supplied: Collection[str] = ()) -> None:
    """State the types of the functions of a library, except those that were supplied to it.

    Raises:
        PmixError: it lacks one.
    """
    pointer, text = c_void_p, c_char_p
    types: dict[str, tuple[Any, list[Any]]] = {
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
