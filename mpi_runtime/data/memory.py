"""Memory of processes that run tasks of data sets: what a task has freed goes back to the system.

pyarrow's own pools keep freed memory for a while, in each process again, and copy a buffer that grows, so that the
largest ones exist twice. The system's pool moves the pages of such a buffer.
"""

from __future__ import annotations

import time

from mpi_runtime.data.arrow import pa

PART = 0.02
"""The most of its time that a process uses to return memory: a heap with many holes takes long."""
_not_before_s = 0.0


def be_frugal() -> None:
    """Have pyarrow allocate from the system in this process."""
    pa.set_memory_pool(pa.system_memory_pool())


def give_back() -> None:
    """Return free memory to the system, unless this was done a short while ago."""
    global _not_before_s
    began_s = time.perf_counter()
    if began_s >= _not_before_s:
        pa.default_memory_pool().release_unused()
        _not_before_s = began_s + (time.perf_counter() - began_s) / PART
