"""Serialisers for values of a class that cannot be pickled, or not well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import cloudpickle

__all__ = ["deregister_serializer", "register_serializer"]

T = TypeVar("T")


def register_serializer(cls: type[T], *, serializer: Callable[[T], Any], deserializer: Callable[[Any], T]) -> None:
    """Register a serialiser for values of a class, in this process. Readers need no registration.

    Tasks and actors that return such values register it too.

    Args:
        cls: the class itself; derived classes are not affected.
        serializer: turns a value into something that can be serialised.
        deserializer: turns that into the value again.
    """
    cloudpickle.Pickler.dispatch_table[cls] = lambda value: (deserializer, (serializer(value),))


def deregister_serializer(cls: type) -> None:
    """Remove the serialiser of a class. Without one it does nothing."""
    cloudpickle.Pickler.dispatch_table.maps[0].pop(cls, None)
