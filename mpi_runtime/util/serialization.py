"""How values of a class are serialised, where the class itself does not say so, or says it badly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["deregister_serializer", "register_serializer"]

T = TypeVar("T")


def register_serializer(cls: type[T], *, serializer: Callable[[T], Any], deserializer: Callable[[Any], T]) -> None:
    """Have this process serialise values of a class by a function; who reads them needs to know nothing of it.

    It concerns this process alone: tasks and actors that return such values register it too.

    Args:
        cls: the class itself; classes derived from it are not concerned.
        serializer: makes of a value something that can be serialised.
        deserializer: makes the value of that again.
    """
    import cloudpickle

    cloudpickle.Pickler.dispatch_table[cls] = lambda value: (deserializer, (serializer(value),))


def deregister_serializer(cls: type) -> None:
    """Forget it: values of the class are serialised as the class says. Does nothing if there is none."""
    import cloudpickle

    cloudpickle.Pickler.dispatch_table.maps[0].pop(cls, None)
