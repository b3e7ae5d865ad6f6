"""Loaded modules that hide modules of the program with the same names."""

from __future__ import annotations

import os
import sys
from collections.abc import Container
from importlib.machinery import PathFinder


def shadowed(directory: str, at_start: Container[str]) -> list[str]:
    """Return the loaded modules for which the directory of the program has others of the same name.

    Executors unload them, so that an import in a task gives the same module as in the driver.

    Args:
        directory: of the program.
        at_start: names of the modules that Python loads before it looks there.
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
