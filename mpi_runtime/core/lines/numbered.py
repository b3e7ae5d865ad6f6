"""Frames of a line, numbered, so that each arrives exactly once and in order although the line is cut.

    length: 4 bytes | the same, inverted: 4 | kind: 1 | number: 8 | acknowledged: 8 | payload | newline

Streams of srun hand on whole lines only, so a frame ends with a newline. Frames of a kind above `BEAT` are numbered
from 1, in each direction. A sender keeps them until they are acknowledged. On each new line the ends first exchange
the numbers of the last frames that they have received, and repeat what follows. A frame of another number than the
next is an error, after which the line is dialled again.

No socket, no clock.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import NamedTuple

HEADER = struct.Struct("<IIBQQ")
ALL_BITS = 0xFFFFFFFF
PAYLOAD_MAX = 1 << 18
"""The longest part of a stream in one frame: what is repeated at least if a line is cut within it."""
FRAME_MAX = 1 << 24
"""A header with a larger length is not valid."""

OPEN = 1
"""The first frame of each direction of a line: `Opening`."""
REFUSED = 2
"""In place of the attendant's `OPEN`: the reason."""
BEAT = 3
"""Has only its acknowledgement: a sign of life."""
HELLO = 4
"""From the driver, once: its `Hello`."""
WELCOME = 5
"""To the driver, once: the answer of the session."""
DATA = 6
"""A part of the stream of frames between driver and head."""
OUTPUT = 7
"""To the driver: what its calls print."""
ERRORS = 8
"""The same of their standard error."""
END = 9
"""The last frame: the sender's program, or the session, has ended."""


class LineError(Exception):
    """What arrived cannot follow what arrived before. The line is useless, and another must be dialled."""


class Frame(NamedTuple):
    """A frame as it arrived."""

    kind: int
    number: int
    acknowledged: int
    payload: bytes


def encoded(frame: Frame) -> bytes:
    """Return the bytes of a frame."""
    length = len(frame.payload)
    header = HEADER.pack(length, length ^ ALL_BITS, frame.kind, frame.number, frame.acknowledged)
    return b"".join((header, frame.payload, b"\n"))


class Cutter:
    """Cuts the bytes of one line into frames."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that are complete with this data.

        Raises:
            LineError: these bytes are not frames.
        """
        kept = self._data
        kept += data
        frames = []
        at = 0
        while len(kept) - at >= HEADER.size:
            length, turned, kind, number, acknowledged = HEADER.unpack_from(kept, at)
            if length ^ turned != ALL_BITS or length > FRAME_MAX:
                raise LineError(f"no frame starts with {bytes(kept[at : at + 40])!r}")
            stop = at + HEADER.size + length
            if len(kept) <= stop:
                break
            if kept[stop] != ord("\n"):
                raise LineError(f"a frame ends with {bytes(kept[stop : stop + 40])!r}")
            frames.append(Frame(kind, number, acknowledged, bytes(kept[at + HEADER.size : stop])))
            at = stop + 1
        del kept[:at]
        return frames


class Numbered:
    """What one end has sent and received, over all lines between the same two ends."""

    def __init__(self) -> None:
        self._kept: deque[tuple[int, bytes]] = deque()
        """Kinds and payloads that the other end has not acknowledged, in order."""
        self._first = 1
        """The number of the first of them."""
        self._sent = 0
        """How many of them were sent on the present line."""
        self.kept_bytes = 0
        self.epoch = 0
        """The number of the present line, or of the last one."""
        self.received = 0
        """The number of the last frame that has arrived."""
        self.handled = 0
        """The number of the last frame that this end has passed on: what it acknowledges."""
        self._acknowledged = 0
        """What it has acknowledged."""

    def put(self, kind: int, payload: bytes = b"") -> None:
        """Send a frame on this line, or on a later one."""
        self._kept.append((kind, payload))
        self.kept_bytes += len(payload)

    def begin(self, epoch: int, received: int) -> None:
        """Begin with a new line, on which the other end has stated what it has received.

        Raises:
            LineError: this line is older than the present one, or the statement cannot be right.
        """
        if epoch <= self.epoch:
            raise LineError("a later line is used by now")
        if not self._first - 1 <= received < self._first + len(self._kept):
            raise LineError(f"the other end states {received} frames, and {self._first - 1} were acknowledged")
        self.epoch = epoch
        self._drop(received)
        self._sent = 0

    def next(self) -> bytes | None:
        """Return the next frame for the present line, encoded; None: all are sent."""
        if self._sent == len(self._kept):
            return None
        kind, payload = self._kept[self._sent]
        self._sent += 1
        return encoded(Frame(kind, self._first + self._sent - 1, self._acknowledge(), payload))

    def beat(self) -> bytes:
        """Return a frame that only acknowledges."""
        return encoded(Frame(BEAT, 0, self._acknowledge(), b""))

    def _acknowledge(self) -> int:
        self._acknowledged = self.handled
        return self.handled

    @property
    def unacknowledged(self) -> int:
        """How many frames were handled of which the other end knows nothing."""
        return self.handled - self._acknowledged

    def take(self, frame: Frame) -> bool:
        """Note a frame that has arrived on the present line. Return whether its payload is to be handled.

        Raises:
            LineError: it is not the next one.
        """
        if not 0 <= frame.acknowledged < self._first + self._sent:
            raise LineError(f"frame {frame.acknowledged} is acknowledged, and was not sent")
        self._drop(frame.acknowledged)
        if frame.kind == BEAT:
            return False
        if frame.number != self.received + 1 or frame.kind < BEAT:
            raise LineError(f"frame {frame.number} of kind {frame.kind} follows frame {self.received}")
        self.received += 1
        return True

    def _drop(self, acknowledged: int) -> None:
        while self._first <= acknowledged:
            self.kept_bytes -= len(self._kept.popleft()[1])
            self._first += 1
            self._sent = max(0, self._sent - 1)

    @property
    def is_acknowledged(self) -> bool:
        """Whether all that was ever sent is acknowledged."""
        return not self._kept
