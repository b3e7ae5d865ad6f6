"""Decorators that libraries made for Ray put on their definitions.

They change nothing, but `Deprecated(warning=True)` warns at each use.
"""

import functools
import warnings
from collections.abc import Callable
from typing import Any


class RayDeprecationWarning(DeprecationWarning):
    """A warning about names that will be removed."""


def PublicAPI(*targets: object, **_: object) -> object:
    """Return the definition, or a decorator that does."""
    if len(targets) == 1 and callable(targets[0]):
        return targets[0]
    return lambda target: target


DeveloperAPI = PublicAPI


def Deprecated(*targets: object, message: str = "", warning: bool = False) -> object:
    """Mark a function or class; with `warning`, each call of it warns, with the message."""
    if targets or not warning:
        return PublicAPI(*targets)

    def marked(target: Any) -> Any:
        if not isinstance(target, type):
            return _warns(target, f"{target.__name__}() is deprecated, and may be removed. {message}")
        text = f"{target.__name__} is deprecated, and may be removed. {message}"
        target.__init__ = _warns(target.__init__, text)  # type: ignore[misc]  # of the class itself: it stays a class
        return target

    return marked


def _warns(function: Callable[..., object], text: str) -> Callable[..., object]:
    @functools.wraps(function)
    def called(*args: object, **kwargs: object) -> object:
        warnings.warn(text.rstrip(), RayDeprecationWarning, stacklevel=2)
        return function(*args, **kwargs)

    return called


__all__ = ["Deprecated", "DeveloperAPI", "PublicAPI", "RayDeprecationWarning"]
