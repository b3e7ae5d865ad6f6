"""The call that runs here: what new ids derive from, and what can be asked about it.

The same program makes the same ids. A process runs one call at a time, or is an actor that runs several: then each has
its scope in a context variable, which threads of ours and asyncio's tasks see each on their own.
"""

from __future__ import annotations

import itertools
import threading
from contextvars import ContextVar

from mpi_runtime.scheduler.events import Call
from mpi_runtime.scheduler.ids import ID_BYTES, PREFIX_BYTES, index_of_several, prefix_of

beside: ContextVar[Scope | None] = ContextVar("mpi_runtime scope", default=None)
"""The scope of a call that runs beside others."""
_lock = threading.Lock()
"""For what is rare: a scope's first id, and calls with several return values. All scopes share it."""


class Scope:
    """One call, or the driver."""

    __slots__ = ("_attempt", "_parent", "_prefix", "_several", "_single", "call", "has_errors", "name", "waiting")
    _several: int
    """How much is used of the indices for calls with several return values: counted apart, under the lock."""

    def __init__(self, parent: bytes, attempt: int = 0, call: Call | None = None, name: str = "") -> None:
        """Make ids that derive from a parent and the number of the attempt."""
        self._parent, self._attempt = parent, attempt
        self._prefix = b""
        """Hash of the parent, once it is needed: most calls make no ids."""
        self.call = call
        """None in the driver."""
        self.name = name
        """Of the function."""
        self.has_errors = False
        """Whether its value holds errors of calls that it has made itself."""
        self.waiting = 0
        """How many of the call's threads wait for objects."""

    def next_ids(self, count: int) -> bytes:
        """The first of `count` consecutive new ids: the parent's prefix, and a counter."""
        if not self._prefix:
            self._begin()
        if count <= 1:
            index = next(self._single)
        else:
            with _lock:
                index, self._several = index_of_several(count, self._several)
        return self._prefix + index.to_bytes(ID_BYTES - PREFIX_BYTES, "big")

    def _begin(self) -> None:
        with _lock:
            if not self._prefix:
                self._single = itertools.count(1)
                self._several = 0
                self._prefix = prefix_of(self._parent, self._attempt)


class Scopes:
    """What runs in one process."""

    def __init__(self) -> None:
        self.running = Scope(b"driver")
        """What runs here, but for calls that run beside it."""

    def enter(self, scope: Scope) -> None:
        """From now on this is what runs here."""
        self.running = scope

    def current(self) -> Scope:
        """What has called this."""
        return beside.get() or self.running

    def next_ids(self, count: int) -> bytes:
        """The first of `count` consecutive new ids."""
        return (beside.get() or self.running).next_ids(count)


def return_ids(id: bytes, num_returns: int) -> list[bytes]:
    """The ids of what a call with this id returns. It has one even if it returns nothing."""
    if num_returns <= 1:
        return [id]
    start = int.from_bytes(id, "big")
    return [(start + index).to_bytes(ID_BYTES, "big") for index in range(num_returns)]
