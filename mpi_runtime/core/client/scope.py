"""The running call of a process, from which new ids derive.

The same program makes the same ids. A process runs one call at a time, or is an actor that runs several. In that case
each call has its scope in a context variable, with a value for each thread and asyncio task.
"""

from __future__ import annotations

import itertools
import threading
from contextvars import ContextVar

from mpi_runtime.scheduler.protocol.events import Call, Where
from mpi_runtime.scheduler.protocol.ids import ID_BYTES, PREFIX_BYTES, index_of_several, prefix_of

beside: ContextVar[Scope | None] = ContextVar("mpi_runtime scope", default=None)
"""The scope of a call that runs concurrently with others."""
_COUNTER_BYTES = ID_BYTES - PREFIX_BYTES
_CLEANING_UP = 1 << 31
"""Added to the number of the attempt of an interrupted call, for the ids of the calls that it makes then."""
_lock = threading.Lock()
"""For the first id of a scope, and for calls with several return values, which are rare. All scopes share it."""


class Scope:
    """The scope of one call, or of the driver."""

    __slots__ = ("_attempt", "_parent", "_prefix", "_several", "_single", "call", "has_errors", "name", "waiting")
    _several: int
    """The number of used indices for calls with several return values. They are counted separately, under the lock."""

    def __init__(self, parent: bytes, attempt: int = 0, call: Call | None = None, name: str = "") -> None:
        """Make ids that derive from the id of a call and the number of its attempt."""
        self._parent, self._attempt = parent, attempt
        self._prefix = b""
        """Hash of the parent, made on first use: most calls make no ids."""
        self.call = call
        """None in the driver."""
        self.name = name
        self.has_errors = False
        """Whether its value contains errors of calls that it submitted."""
        self.waiting = 0
        """The number of threads of the call that wait for objects."""

    def next_ids(self, count: int) -> bytes:
        """Return the first of `count` consecutive new ids: the prefix of the parent, and a counter."""
        if not self._prefix:
            self._begin()
        if count <= 1:
            index = next(self._single)
        else:
            with _lock:
                index, self._several = index_of_several(count, self._several)
        return self._prefix + index.to_bytes(_COUNTER_BYTES, "big")

    def clean_up(self) -> None:
        """Make ids that do not derive from this attempt: the call is being interrupted because it was cancelled.

        Calls that it has submitted before are cancelled with it, by their ids. Those that it submits in order to clean
        up are not. Takes no lock: a signal handler calls this.
        """
        self._attempt |= _CLEANING_UP
        if self._prefix:
            self._prefix = prefix_of(self._parent, self._attempt)

    def _begin(self) -> None:
        with _lock:
            if not self._prefix:
                self._single = itertools.count(1)
                self._several = 0
                self._prefix = prefix_of(self._parent, self._attempt)


class Scopes:
    """Which scope the calling thread or coroutine is in."""

    def __init__(self, running: Scope | None = None) -> None:
        self.running = running or Scope(b"driver")
        """The scope of the running call, or of the driver. Concurrent calls of an actor have their own."""

    def current(self) -> Scope:
        """Return the scope of the call that this thread or coroutine runs; the driver's in the driver."""
        return beside.get() or self.running

    def next_ids(self, count: int) -> bytes:
        """Return the first of `count` consecutive new ids."""
        scope = beside.get() or self.running
        if count == 1 and scope._prefix:  # the frequent case, without a further call
            return scope._prefix + next(scope._single).to_bytes(_COUNTER_BYTES, "big")
        return scope.next_ids(count)


class Inherited:
    """In an executor the settings of its call, in the driver those of the job."""

    def __init__(self, namespace: str = "", environment: dict[str, str] | None = None) -> None:
        self.namespace = namespace
        """The default namespace of names."""
        self.environment = environment or {}
        """Variables, and archives: see `executor/scratch.py`."""
        self.where: Where | None = None
        """The place of calls, if the running call captures them."""
        self.archives: dict[str, bytes] = {}
        """Archives of calls made here, by hash. They are kept until the process ends."""
        self.packed: dict[tuple[str, tuple[str, ...], str], str] = {}
        """The hash of each packed path, by path, excludes and way of packing."""
