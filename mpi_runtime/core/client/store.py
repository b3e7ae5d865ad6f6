"""Values of a client: written into messages or the arena, and read from messages or the arena."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from mpi_runtime import errors
from mpi_runtime.core.client.outbox import Outbox
from mpi_runtime.core.client.questions import Questions
from mpi_runtime.core.objects import serialize
from mpi_runtime.core.objects.arena import ClientArena
from mpi_runtime.core.transport.messages import Abandon
from mpi_runtime.errors import remote as remote_errors
from mpi_runtime.scheduler.protocol.effects import Entry, Ready, ReadyError, ReadyFailed, ReadyStored
from mpi_runtime.scheduler.protocol.events import ErrorRead, JournalFailed, Kept, Stored, Value

if TYPE_CHECKING:
    from mpi_runtime.core.client.far_arena import FarArena, FarValue


class Store:
    """The object store, as one client uses it."""

    def __init__(
        self,
        outbox: Outbox,
        questions: Questions,
        arena: ClientArena | FarArena,
        regions: dict[int, int],
        inline_bytes_max: int,
        journal: str,
    ) -> None:
        """Use this host's arena; for `regions` and `inline_bytes_max` see `Client`."""
        self._outbox = outbox
        self._questions = questions
        self._arena = arena
        self._regions = regions
        self.inline_bytes_max = inline_bytes_max
        self.journal = journal
        """The directory of the job's journal; empty: none."""
        if journal:
            from mpi_runtime.core.objects import code_pickler  # not at the top: it loads cloudpickle

            code_pickler.keep_ids()

    def write(self, serialized: serialize.Serialized, is_error: bool = False, keep: str = "") -> Value:
        """Write a serialised value: a small one into the returned `Value`, a large one into the arena.

        With `keep`, a large value is also written into a file of the journal with this name.

        Raises:
            ObjectStoreFullError: the store has no room for it.
        """
        data = serialized.inline_up_to(self.inline_bytes_max)
        if data is not None:
            return Value(data, None, serialized.refs, is_error)
        size = serialized.size()
        reply = self._questions.allocate(size)
        if reply.offset < 0:
            raise errors.ObjectStoreFullError(reply.reason)
        try:
            place = self._regions[reply.rank], reply.offset, size
            self._arena.write(*place, serialized.parts(lambda: self._arena.pinned(*place)))
        except BaseException:
            self._outbox.send_local(Abandon(reply.offset))
            raise
        value = Value(b"", Stored(reply.rank, reply.offset, size), serialized.refs, is_error)
        if self.journal and not is_error:
            self._note_for_journal(value, serialized, keep)
        return value

    def _note_for_journal(self, value: Value, serialized: serialize.Serialized, keep: str) -> None:
        from mpi_runtime.core.journal import value_files  # not at the top: most jobs have no journal

        if keep and not serialized.refs:
            try:
                value.file, value.digest = value_files.write(self.journal, keep, serialized.parts())
                return
            except OSError as error:
                self._outbox.post(JournalFailed(f"{error.strerror or error} ({error.filename or self.journal})"))
        identity = serialized.identity
        value.digest = value_files.digest_of([(0, identity)] if identity else serialized.parts())

    def recall(self, kept: Sequence[Kept], otherwise: str) -> list[Value] | None:
        """The values of a call from the journal, as from `write`; None: one cannot be read.

        `otherwise`: what happens to the call then, for the log.

        Raises:
            ObjectStoreFullError: the store has no room for them.
        """
        from mpi_runtime.core.journal import value_files

        values: list[Value] = []
        try:
            for one in kept:
                if not one.file:
                    values.append(Value(one.data))
                    continue
                reply = self._questions.allocate(one.size)
                if reply.offset < 0:
                    raise errors.ObjectStoreFullError(reply.reason)
                values.append(Value(b"", Stored(reply.rank, reply.offset, one.size), digest=one.digest))
                parts = value_files.read(self.journal, one)
                self._arena.write(self._regions[reply.rank], reply.offset, one.size, parts)
        except BaseException as error:
            self.abandon(values)
            if not isinstance(error, (value_files.DamagedError, OSError)):
                raise
            self._outbox.post(JournalFailed(f"{error}. {otherwise}", one.file))
            return None
        return values

    def write_all(self, serialized: list[serialize.Serialized], keep: str = "") -> list[Value]:
        """Write several values like `write`, all or none.

        Raises:
            ObjectStoreFullError: the store has no room for all of them.
        """
        values: list[Value] = []
        try:
            for index, one in enumerate(serialized):
                values.append(self.write(one, keep=keep and f"{keep}{index:02x}"))
        except BaseException:
            self.abandon(values)
            raise
        return values

    def abandon(self, values: Iterable[Value]) -> None:
        """Free the extents of values that were written and will not be sent."""
        for value in values:
            if value.stored is not None:
                self._outbox.send_local(Abandon(value.stored.offset))

    def look_at(self, id: bytes) -> tuple[Entry | None, memoryview | FarValue | None]:
        """Return the value of an object as it arrived, or None; and its bytes, if they are in the arena.

        As long as these are referenced, they stay in place.
        """
        with self._outbox.interrupts:  # so that the view is counted and made together
            entry = self._outbox.look_at(id)
            return entry, self._view(entry) if type(entry) is ReadyStored else None

    def load(self, entry: Entry, read: Callable[..., object] = pickle.loads) -> Any:
        """Return the value of an argument. See `load_seen`."""
        data: memoryview | FarValue | None = None
        if isinstance(entry, ReadyStored):
            with self._outbox.interrupts:
                self._outbox.view(entry.id)
                data = self._view(entry)
        return self.load_seen(entry, data, read)

    def load_seen(self, entry: Entry, data: memoryview | FarValue | None, read: Callable[..., object]) -> object:
        """Return a value that has arrived, given its bytes if they are in the arena. `read`: see `serialize.loads`.

        Raises:
            MpiRuntimeError: the object is an error; a `TaskError` is an instance of the user's class too.
        """
        if type(entry) is Ready:
            return serialize.loads(entry.data, read)
        if isinstance(entry, ReadyStored):
            assert data is not None
            if type(data) is not memoryview:
                data = data.read()
            if entry.is_error:
                self._outbox.add(ErrorRead([entry.id]))
                try:
                    raise remote_errors.from_bytes(data)
                finally:
                    with contextlib.suppress(BufferError):  # the error has further views
                        data.release()  # frames of its traceback refer to it
            return serialize.loads(data, read)
        if isinstance(entry, ReadyError):
            self._outbox.add(ErrorRead([entry.id]))
            raise remote_errors.from_bytes(entry.data)
        assert isinstance(entry, ReadyFailed), f"{entry} is not a value"
        self._outbox.add(ErrorRead([entry.id]))
        raise errors.from_code(entry.code, entry.message)

    def _view(self, entry: ReadyStored) -> memoryview | FarValue:
        """Return the bytes of an object in the arena or, if that is full, on disk. The caller has counted the view."""
        id, drop = entry.id, self._outbox.drop_view
        if not entry.file:
            return self._arena.read(self._regions[entry.rank], entry.offset, entry.size, lambda: drop(id))
        if not isinstance(self._arena, ClientArena):
            return self._arena.read_file(entry.file, entry.offset, entry.size, lambda: drop(id))
        from mpi_runtime.core.objects.spill_file import mapped  # not at the top: few jobs need it

        try:
            return self._arena.lend(mapped(entry.file, entry.offset, entry.size), lambda: drop(id))
        except OSError as error:
            drop(id)
            raise errors.ObjectStoreFullError(
                f"The object store of this host is full, and the value cannot be read from disk instead: {error}."
            ) from error
