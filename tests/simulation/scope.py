"""Programs that run in virtual processes: where they wait, and how they are interrupted."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from hashlib import blake2b
from typing import TypeAlias

import msgspec


class TaintedError(Exception):
    """Something that was needed was lost to a fault."""


class CallInterruptedError(Exception):
    """The call was cancelled while it ran."""


class Pause(msgspec.Struct):
    """A program waits: for time, or until something is there."""

    duration_us: int = 0
    is_over: Callable[[], bool] | None = None
    ids: Sequence[bytes] = ()
    """Some of what it waits for."""


Program: TypeAlias = "Generator[Pause, None, None]"


class Scope:
    """A program that runs: the driver's, or that of a call. New ids derive from it."""

    def __init__(self, parent: bytes, call: bytes = b"", attempt: int = 0) -> None:
        self.call = call
        """Empty for the driver."""
        self.attempt = attempt
        self.slots: dict[int, bytes] = {}
        self.seen: list[bytes] = []
        """What it has computed from."""
        self._prefix = blake2b(parent, digest_size=10).digest()
        self._index = 0

    def next_id(self, count: int) -> bytes:
        """The first of so many new ids."""
        self._index += 1
        id = self._prefix + self._index.to_bytes(6, "big")
        self._index += max(0, count - 1)
        return id
