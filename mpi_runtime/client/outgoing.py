"""What a client has to say, in the order in which the scheduler must hear it.

1. A reference that is gone is told after everything that was posted while it was there: it may be an argument, or to
   a value that had one of those inside that were adopted since.
2. A reference that comes back is told in a later frame than that it was gone.

No lock, no socket: `outbox.py` adds them. The simulator runs this too.
"""

from __future__ import annotations

from mpi_runtime.client.references import References
from mpi_runtime.scheduler.events import Done, Held, Released, Returned


class Outgoing:
    """The messages of one client that were not sent."""

    def __init__(self, references: References) -> None:
        self.references = references
        self.messages: list[object] = []

    def post(self, message: object) -> None:
        """Say this, soon."""
        self.messages.append(message)

    def add(self, message: object) -> None:
        """Say this with whatever is said next. Takes no lock."""
        self.messages.append(message)

    def drop(self, id: bytes, urgent: bool = False) -> None:
        """A reference or a view is gone; `urgent`: it is to be told soon, whatever it was of."""
        self.references.dropped.append(id)

    def adopt(self, id: bytes) -> None:
        """A reference came to this process inside a value, or a view of an object was made."""
        if self.references.add(id):
            self.messages.append(Held([id]))

    def frame(self) -> list[object]:
        """Everything that is to be said by now. What it returns is said before what a later call returns."""
        gone = self.references.settle() if self.references.dropped else None
        # Only now, and not before: a reference that is gone may have been posted as an argument until then.
        messages = self.messages
        frame = messages[:]
        del messages[: len(frame)]
        if gone:
            frame.append(Released(gone))
        return frame


def ends_in(frame: list[object]) -> int:
    """How many calls end in a frame of an executor. Its agent counts on that, which does not look inside."""
    return sum(1 for message in frame if type(message) is Done or type(message) is Returned)
