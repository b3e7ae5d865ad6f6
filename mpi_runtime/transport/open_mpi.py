"""How Open MPI passes the time when it is asked in vain: by `sched_yield`, where a host has more ranks than cores.

That is meant for ranks that wait inside MPI. Ours never do. They look and then sleep in `select`, so each yield of
theirs is work put off: executors on the same cores go first, for up to a time slice each time. Open MPI has no switch
for this after MPI_Init, but one of its libraries has a function. Without yields in MPI_Init the ranks would take the
cores from one another while they meet.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress


def set_yields(yields: bool) -> bool:
    """Have Open MPI yield the processor when it finds nothing to do, or not. Return whether it did before.

    Does nothing and returns False if another MPI is loaded, or an Open MPI without this function.
    """
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if "/libopen-pal.so" in line}
    for path in paths:
        with suppress(OSError, AttributeError):
            function = ctypes.CDLL(path).opal_progress_set_yield_when_idle
            function.argtypes, function.restype = [ctypes.c_bool], ctypes.c_bool
            return bool(function(yields))
    return False
