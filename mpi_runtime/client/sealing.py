"""Frames of a client that has a draft: what is sealed is said even if the process dies, see `transport/draft.py`.

The simulator runs this too.
"""

from __future__ import annotations

from mpi_runtime.client.outgoing import Outgoing, ends_in
from mpi_runtime.transport import codec
from mpi_runtime.transport.draft import Draft


def seal(outgoing: Outgoing, draft: Draft) -> bool:
    """Put everything that is due into the draft. Returns whether it fits; if not it is due still."""
    frame = outgoing.frame()
    if draft.add(frame, ends_in(frame)):
        return True
    outgoing.messages[:0] = frame
    return False


def take(outgoing: Outgoing, draft: Draft | None) -> tuple[int, bytes]:
    """Everything that is due or was sealed, as one frame, after the number of calls that end in it. It may be empty."""
    frame = outgoing.frame()
    if draft is not None and draft.count:
        return draft.frame(frame, ends_in(frame))
    return (ends_in(frame), codec.encode(frame)) if frame else (0, b"")
