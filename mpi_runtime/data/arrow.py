"""pyarrow and pandas, loaded when something of them is used: the names of `mpi_runtime.data` exist without them.

Arrow allocates from the system. Its own pools keep freed memory for a while, each process its own, and they copy a
buffer that grows, so that the largest ones exist twice. The system moves the pages of such a buffer.
"""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING

from mpi_runtime.errors import optional

PART = 0.02
"""The most of its time that a process uses to return memory: a heap with many holes takes long."""
_not_before_s = 0.0


class _Lazy:
    """A module that is loaded when one of its names is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._name,)  # functions that are pickled as a whole refer to it

    def __getattr__(self, name: str) -> object:
        package = self._name.partition(".")[0]
        value = getattr(optional.load("mpi_runtime.data", self._name, package), name)
        if package == "pyarrow":  # what it reads before it knows our types would have none of them
            importlib.import_module("mpi_runtime.data.columns")
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as pa_csv
    import pyarrow.fs as pa_fs
    import pyarrow.json as pa_json
    import pyarrow.parquet as pq
else:
    pa = _Lazy("pyarrow")
    pc = _Lazy("pyarrow.compute")
    pa_csv = _Lazy("pyarrow.csv")
    pa_fs = _Lazy("pyarrow.fs")
    pa_json = _Lazy("pyarrow.json")
    pq = _Lazy("pyarrow.parquet")
    pd = _Lazy("pandas")

__all__ = ["pa", "pa_csv", "pa_fs", "pa_json", "pc", "pd", "pq"]


def be_frugal() -> None:
    """Have pyarrow allocate from the system even if it was loaded before, and leave signals to others in this process.

    pyarrow has a handler of its own while it parses, and loses an interrupt that arrives as it puts back the other one.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    pa.enable_signal_handlers(False)


def give_back() -> None:
    """Return free memory to the system, unless this was done a short while ago."""
    global _not_before_s
    began_s = time.perf_counter()
    if began_s >= _not_before_s:
        pa.default_memory_pool().release_unused()
        _not_before_s = began_s + (time.perf_counter() - began_s) / PART
