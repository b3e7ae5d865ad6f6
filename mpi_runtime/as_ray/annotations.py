"""Marks that libraries made for Ray put on what they define: they change nothing."""

from typing import Any


class RayDeprecationWarning(DeprecationWarning):
    """Raised for what goes away."""


def _mark(*targets: Any, **_: Any) -> Any:
    if len(targets) == 1 and callable(targets[0]):
        return targets[0]
    return lambda target: target


PublicAPI = DeveloperAPI = Deprecated = _mark

__all__ = ["Deprecated", "DeveloperAPI", "PublicAPI", "RayDeprecationWarning"]
