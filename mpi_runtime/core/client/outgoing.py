"""Outgoing messages of a client, in the order in which the scheduler must get them.

1. A release is sent after all messages that were posted while the reference lived: it may be an argument of one, or of
a value that contained an adopted reference. 2. A reference that returns is sent in a later frame than its release.

No lock, no socket: `outbox.py` adds them. The simulator runs this too.
"""

from __future__ import annotations

from mpi_runtime.core.client.references import References
from mpi_runtime.scheduler.protocol.effects import Entry, Forget, ReadyStored
from mpi_runtime.scheduler.protocol.events import Done, Forgotten, Held, Released, Returned, Unfilled


class Outgoing:
    """The messages of one client that were not sent yet."""

    def __init__(self, references: References) -> None:
        self.references = references
        self.messages: list[object] = []

    def post(self, message: object) -> None:
        """Post a message, to be sent soon."""
        self.messages.append(message)

    def add(self, message: object) -> None:
        """Add a message, to be sent with the next one. Takes no lock."""
        self.messages.append(message)

    def drop(self, id: bytes, urgent: bool = False) -> None:
        """Note that a reference or a view is gone. `urgent`: send the release soon."""
        self.references.dropped.append(id)

    def adopt(self, id: bytes) -> None:
        """Note that a reference arrived inside a value, or that a view of an object was made."""
        if self.references.add(id):
            self.messages.append(Held([id]))

    def view(self, id: bytes) -> None:
        """Note that a view of an object is made. It counts as a reference, and keeps the object where it is."""
        views = self.references.views
        views[id] = views.get(id, 0) + 1
        Outgoing.adopt(self, id)

    def drop_view(self, id: bytes) -> None:
        """Note that a view is gone. Runs in a destructor: takes no lock, raises nothing."""
        self.references.dropped_views.append(id)
        self.drop(id)

    def look_at(self, id: bytes) -> Entry | None:
        """Return the value of an object, or None. If it is in the arena, it counts as viewed from now on."""
        entry = self.references.values.get(id)
        if type(entry) is ReadyStored:
            self.view(id)
        return entry

    def forget(self, request: Forget) -> None:
        """Forget the places of objects without views, and answer with their ids."""
        self.add(Forgotten(request.request, request.ids, self.references.forget(request.ids)))

    def frame(self) -> list[object]:
        """Take all messages that are due, as one frame. It must be sent before the frames of later calls."""
        gone = self.references.settle() if self.references.dropped else None
        # Only after settling: until then a dropped reference may have been posted as an argument.
        messages = self.messages
        frame = messages[:]
        del messages[: len(frame)]
        if gone and type(frame[0] if frame else None) is Held:
            gone = _unsaid(frame, gone)
        if gone:
            frame.append(Released(gone))
        return frame


def _unsaid(frame: list[object], gone: list[bytes]) -> list[bytes]:
    """Remove from a frame that ends one call, and does nothing else, the references that lived within that call.

    The call itself holds what it has read, until its end is handled. Returns the other releases.
    """
    *adopted, last = frame
    if not isinstance(last, (Done, Returned)) or any(type(one) is not Held for one in adopted):
        return gone
    brief = {one.ids[0] for one in adopted if isinstance(one, Held)}.intersection(gone)
    frame[:-1] = [one for one in adopted if isinstance(one, Held) and one.ids[0] not in brief]
    return [id for id in gone if id not in brief]


def ends_in(frame: list[object]) -> int:
    """Return how many calls end in a frame of an executor. Its agent does not decode the frame."""
    count = 0
    for message in frame:
        kind = type(message)
        if kind is Done or kind is Returned or kind is Unfilled:
            count += 1
    return count
