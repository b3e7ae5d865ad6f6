"""Values of a client: written into messages or the arena, and read again from what messages bring."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from typing import Any

from mpi_runtime import errors
from mpi_runtime.client.outbox import Outbox
from mpi_runtime.client.questions import Questions
from mpi_runtime.objects import serialize
from mpi_runtime.objects.arena import ClientArena
from mpi_runtime.scheduler.effects import Entry, Ready, ReadyError, ReadyFailed, ReadyStored
from mpi_runtime.scheduler.events import ErrorRead, Stored, Value
from mpi_runtime.transport.messages import Abandon


class Store:
    """One client's way into the object store and out of it."""

    def __init__(
        self, outbox: Outbox, questions: Questions, arena: ClientArena, regions: dict[int, int], inline_bytes_max: int
    ) -> None:
        """Use this host's arena; for `regions` and `inline_bytes_max` see `Client`."""
        self._outbox = outbox
        self._questions = questions
        self._arena = arena
        self._regions = regions
        self._inline_bytes_max = inline_bytes_max

    def write(self, serialized: serialize.Serialized, is_error: bool = False) -> Value:
        """Where a serialised value is to be: in a message, or written into the arena.

        Raises:
            ObjectStoreFullError: there is no room for it.
        """
        size = serialized.size()
        if size <= self._inline_bytes_max:
            return Value(serialized.inline(), None, serialized.refs, is_error)
        reply = self._questions.allocate(size)
        if reply.offset < 0:
            raise errors.ObjectStoreFullError(reply.reason)
        try:
            self._arena.write(self._regions[reply.rank], reply.offset, size, serialized.parts())
        except BaseException:
            self._outbox.send_local(Abandon(reply.offset))
            raise
        return Value(b"", Stored(reply.rank, reply.offset, size), serialized.refs, is_error)

    def write_all(self, serialized: list[serialize.Serialized]) -> list[Value]:
        """Like `write`, for several: all or none.

        Raises:
            ObjectStoreFullError: there is no room for all of them.
        """
        values: list[Value] = []
        try:
            for one in serialized:
                values.append(self.write(one))  # noqa: PERF401  (those that were stored must be known)
        except BaseException:
            self.abandon(values)
            raise
        return values

    def abandon(self, values: Iterable[Value]) -> None:
        """Give back the room of values that were written and will not be sent."""
        for value in values:
            if value.stored is not None:
                self._outbox.send_local(Abandon(value.stored.offset))

    def look_at(self, id: bytes) -> Entry | None:
        """What is known of an object's value; if it is in the arena, to be read at once by `load_seen`."""
        return self._outbox.look_at(id)

    def load(self, entry: Entry, read: Callable[..., Any] = pickle.loads) -> Any:
        """The value that a message brought with a call, which keeps it there. See `load_seen`."""
        if isinstance(entry, ReadyStored):
            self._outbox.view(entry.id)
        return self.load_seen(entry, read)

    def load_seen(self, entry: Entry, read: Callable[..., Any] = pickle.loads) -> Any:
        """The value that a message brought. `read`: see `serialize.loads`.

        Raises:
            MpiRuntimeError: the object is an error; a `TaskError` is an instance of the user's class too.
        """
        if type(entry) is Ready:
            return serialize.loads(entry.data, read)
        if isinstance(entry, ReadyStored):
            if entry.is_error:
                self._outbox.add(ErrorRead([entry.id]))
                raise errors.from_bytes(self._view(entry))
            return serialize.loads(self._view(entry), read)
        if isinstance(entry, ReadyError):
            self._outbox.add(ErrorRead([entry.id]))
            raise errors.from_bytes(entry.data)
        assert isinstance(entry, ReadyFailed), f"{entry} is no value"
        self._outbox.add(ErrorRead([entry.id]))
        raise errors.from_code(entry.code, entry.message)

    def _view(self, entry: ReadyStored) -> memoryview:
        """The bytes of a stored object. The view has been counted."""
        id, drop = entry.id, self._outbox.drop_view
        return self._arena.read(self._regions[entry.rank], entry.offset, entry.size, lambda: drop(id))
