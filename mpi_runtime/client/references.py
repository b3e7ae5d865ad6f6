"""The references of one process: counted for the process as a whole, so that only the first and the last are told.

No lock, no socket: `outgoing.py` says what is to be said, in its order. The simulator runs this too.
"""

from __future__ import annotations

from collections.abc import Sequence

from mpi_runtime.scheduler.effects import Entry, Ready, ReadyElsewhere, ReadyError, ReadyStored
from mpi_runtime.scheduler.events import Put, SubscriptionRequested, Value


class References:
    """Objects of which this process has references or views, and what it knows of their values."""

    def __init__(self) -> None:
        self.counts: dict[bytes, int] = {}
        """How many references and views there are, by object, less those in `dropped`."""
        self.dropped: list[bytes] = []
        """References and views that are gone and not yet taken off. Appended to by `__del__`, which takes no lock."""
        self.values: dict[bytes, Entry] = {}
        """What has come, or was made here."""
        self.borrowed: dict[bytes, bool] = {}
        """Objects that others made: whether they have been subscribed to. The others are announced unasked."""

    def settle(self) -> list[bytes]:
        """Take off what was dropped; the objects of which nothing is left here. One caller at a time."""
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
        """There is one reference more; whether it is the first, which is to be told."""
        count = self.counts.get(id, 0)
        self.counts[id] = count + 1
        if not count:
            self.borrowed[id] = False
        return not count

    def made(self, id: bytes, value: Value) -> Put:
        """A value was written that is to be an object, with one reference; how that is told."""
        place = value.stored
        self.counts[id] = 1
        if place is None:
            self.values[id] = ReadyError(id, value.data) if value.is_error else Ready(id, value.data)
        else:
            self.values[id] = ReadyStored(id, place.rank, place.offset, place.size, value.is_error)
        return Put(id, value)

    def ask_again(self, ids: Sequence[bytes]) -> SubscriptionRequested | None:
        """How to ask for those of the objects that are ready elsewhere, if any are."""
        elsewhere = [id for id in ids if type(self.values.get(id)) is ReadyElsewhere]
        for id in elsewhere:
            self.values.pop(id, None)
        return SubscriptionRequested(elsewhere, True) if elsewhere else None

    def subscribe(self, ids: Sequence[bytes], fetch: bool) -> SubscriptionRequested | None:
        """How to ask for those of the objects that others made, if any were not asked for and have not come."""
        unasked = [id for id in ids if self.borrowed.get(id) is False and id not in self.values]
        for id in unasked:
            self.borrowed[id] = True
        return SubscriptionRequested(unasked, fetch) if unasked else None
