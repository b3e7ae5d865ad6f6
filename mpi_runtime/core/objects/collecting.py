"""The references inside a value. They are collected while it is serialised, because the value will hold them."""

from __future__ import annotations

import threading

_serialising = threading.local()


class Collecting:
    """Collects the references that this thread serialises inside the context."""

    __slots__ = ("_before", "found")

    def __init__(self) -> None:
        self.found: list[bytes] = []

    def __enter__(self) -> list[bytes]:
        self._before = getattr(_serialising, "found", None)
        _serialising.found = self.found
        return self.found

    def __exit__(self, *_: object) -> None:
        _serialising.found = self._before


def note(id: bytes) -> bool:
    """Note that a reference is serialised. Return False if no value is being serialised that will hold it."""
    found: list[bytes] | None = getattr(_serialising, "found", None)
    if found is not None:
        found.append(id)
    return found is not None
