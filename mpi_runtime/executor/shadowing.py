"""Modules that a process has loaded, and that a program means something else by."""

from __future__ import annotations

import os
import sys
from collections.abc import Container
from importlib.machinery import PathFinder


def shadowed(directory: str, at_start: Container[str]) -> list[str]:
    """The modules that are loaded here, but that the program finds in its own directory under the same name.

    Executors forget them, so that an import in a task means what it means in the driver.
    """
    loaded = {name.partition(".")[0] for name in sys.modules}
    try:
        there = {name.partition(".")[0] for name in os.listdir(directory)}
    except OSError:
        return []
    hidden = set()
    for name in loaded & there - {"__main__", "mpi_runtime"}:
        spec = None if name in at_start else PathFinder.find_spec(name, [directory])
        if spec is not None and spec.origin not in (None, getattr(sys.modules.get(name), "__file__", None)):
            hidden.add(name)
    return [name for name in sys.modules if name.partition(".")[0] in hidden]
