"""The references of one process. They are counted for the process as a whole; the first and the last are reported.

No lock, no socket: `outgoing.py` keeps the order of messages. The simulator runs this too.
"""

from __future__ import annotations

from collections.abc import Sequence

from mpi_runtime.scheduler.protocol.effects import Entry, Ready, ReadyElsewhere, ReadyError, ReadyFailed, ReadyStored
from mpi_runtime.scheduler.protocol.events import Put, SubscriptionRequested, Value


def is_error(entry: Entry | None) -> bool:
    """Whether `get` would raise an error."""
    if isinstance(entry, ReadyStored):
        return entry.is_error
    return isinstance(entry, (ReadyError, ReadyFailed))


class References:
    """The objects with references or views in this process, and their values."""

    def __init__(self) -> None:
        self.counts: dict[bytes, int] = {}
        """The number of references and views, by object, without those in `dropped`."""
        self.dropped: list[bytes] = []
        """References and views that are gone and not yet subtracted. `__del__` appends to it, without a lock."""
        self.views: dict[bytes, int] = {}
        """The number of views among them."""
        self.dropped_views: list[bytes] = []
        self.values: dict[bytes, Entry] = {}
        """Values that have arrived, or were made here."""
        self.borrowed: dict[bytes, bool] = {}
        """Objects of other processes, and whether they were subscribed to. Other objects are announced without a
        subscription."""

    def settle(self) -> list[bytes]:
        """Subtract what was dropped. Returns the objects without a reference here. One caller at a time."""
        if self.dropped_views:
            self._settle_views()
        dropped, counts = self.dropped, self.counts
        gone: list[bytes] = []
        batch = dropped[:]
        del dropped[: len(batch)]
        for id in batch:
            count = counts[id]
            if count > 1:
                counts[id] = count - 1
                continue
            del counts[id]
            self.values.pop(id, None)
            gone.append(id)
        if self.borrowed:
            for id in gone:
                self.borrowed.pop(id, None)
        return gone

    def add(self, id: bytes) -> bool:
        """Count one more reference. Returns whether it is the first, which is reported."""
        count = self.counts.get(id, 0)
        self.counts[id] = count + 1
        if not count:
            self.borrowed[id] = False
        return not count

    def _settle_views(self) -> None:
        batch = self.dropped_views[:]
        del self.dropped_views[: len(batch)]
        for id in batch:
            self.views[id] -= 1
            if not self.views[id]:
                del self.views[id]

    def forget(self, ids: Sequence[bytes]) -> list[bytes]:
        """Stop using the places of these objects. Returns the objects without views."""
        self._settle_views()
        unseen = [id for id in ids if id not in self.views]
        for id in unseen:
            if type(self.values.get(id)) is ReadyStored:
                self.values[id] = ReadyElsewhere(id)
        return unseen

    def made(self, id: bytes, value: Value) -> Put:
        """Register an object for a value that was written, with one reference. Returns its message."""
        place = value.stored
        self.counts[id] = 1
        if place is None:
            self.values[id] = ReadyError(id, value.data) if value.is_error else Ready(id, value.data)
        else:
            self.values[id] = ReadyStored(id, place.rank, place.offset, place.size, value.is_error)
        return Put(id, value)

    def ask_again(self, ids: Sequence[bytes]) -> SubscriptionRequested | None:
        """The message that requests the objects that are ready elsewhere, or None."""
        elsewhere = [id for id in ids if type(self.values.get(id)) is ReadyElsewhere]
        for id in elsewhere:
            self.values.pop(id, None)
        return SubscriptionRequested(elsewhere, True) if elsewhere else None

    def subscribe(self, ids: Sequence[bytes], fetch: bool) -> SubscriptionRequested | None:
        """The message that subscribes to objects of other processes, or None."""
        unasked = [id for id in ids if self.borrowed.get(id) is False and id not in self.values]
        for id in unasked:
            self.borrowed[id] = True
        return SubscriptionRequested(unasked, fetch) if unasked else None
