"""Loads optional libraries, or names the one that is missing."""

from __future__ import annotations

import importlib
from types import ModuleType


def load(user: str, module: str, package: str = "") -> ModuleType:
    """Return a module of an optional library, which is installed as `package`; empty: under the same name.

    `user` is the public name that needs it.

    Raises:
        ImportError: it cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{user} needs {package or module}: pip install {package or module}") from error
