"""One end of a line: moves its frames between the streams of the present line and whoever has this end.

Nothing here waits, but `read_frame` and `write_frame`, with which a line begins.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from typing import NamedTuple

import msgspec

from mpi_runtime.core.lines.numbered import (
    FRAME_MAX,
    HEADER,
    PAYLOAD_MAX,
    REFUSED,
    Cutter,
    Frame,
    LineError,
    Numbered,
    encoded,
)
from mpi_runtime.scheduler.protocol.ids import digest

BEAT_S = 5.0
"""Each end sends something at least this often."""
SILENCE_S = 20.0
"""After this many seconds without a byte a line counts as dead. A stopped ssh or a lost link sends no word of it."""
ACKNOWLEDGE_FRAMES = 64
"""An end acknowledges at the latest after this many frames, even if it sends nothing else."""
READ_BYTES = 1 << 20
KEPT_MAX = 64 << 20
"""Bytes without acknowledgement, after which an end takes nothing more from its program: that waits in `send`."""
MAGIC = b"\nmpi_runtime line 1\n"
"""From the host of the session before all else. What shells and prologs print comes before it."""


class Opening(msgspec.Struct):
    """The first frame of each direction."""

    key: bytes
    """Names the driver: a random number that only its dialler and its attendant know."""
    epoch: int
    """The number of the line: the larger, the later it was dialled."""
    received: int
    """The number of the last frame that has arrived on earlier lines."""
    has_begun: bool = False
    """Whether there was an earlier line, so that the attendant must know the key."""
    reconnect_s: float = 0.0
    """How many seconds the attendant waits for the next line."""
    files: str = ""
    """A directory on the driver's host for `passed_files`; empty: this line is fast."""


def address_of(secret: str) -> str:
    """Return the address at which `session pipe` finds the attendants of a session of this user."""
    return f"\0mpi_runtime-lines-{os.geteuid()}-{digest(b'lines ' + secret.encode(), 16).hex()}"


def read_frame(descriptor: int, limit_s: float) -> Frame:
    """Wait for one frame, and read no byte beyond it.

    Raises:
        LineError: the line has ended, is silent, or has something else.
    """
    until_s = time.monotonic() + limit_s
    data = _read_exactly(descriptor, HEADER.size, until_s)
    length = HEADER.unpack(data)[0]
    if length > FRAME_MAX:
        raise LineError(f"no frame starts with {data!r}")
    data += _read_exactly(descriptor, length + 1, until_s)
    (frame,) = Cutter().feed(data)
    return frame


def _read_exactly(descriptor: int, size: int, until_s: float) -> bytes:
    data = b""
    while len(data) < size:
        data += read_some(descriptor, size - len(data), until_s)
    return data


def read_some(descriptor: int, size: int, until_s: float) -> bytes:
    """Wait for some bytes.

    Raises:
        LineError: the line has ended, or is silent.
    """
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    if not waiting.poll(max(0.0, until_s - time.monotonic()) * 1000):
        raise LineError("it is silent")
    try:
        data = os.read(descriptor, size)
    except OSError as error:
        raise LineError(f"it has failed: {error.strerror}") from error
    if not data:
        raise LineError("it has ended")
    return data


def write_frame(descriptor: int, kind: int, payload: bytes) -> None:
    """Write a frame without a number. It is short, and a new line takes it at once.

    Raises:
        LineError: the line has ended.
    """
    try:
        os.write(descriptor, encoded(Frame(kind, 0, 0, payload)))
    except OSError as error:
        raise LineError(f"it has failed: {error.strerror}") from error


class Arrived(NamedTuple):
    """A line that has been dialled."""

    control: socket.socket
    """Closed at the end of `session pipe`, and to end it."""
    coming: int
    going: int
    opening: Opening

    def close(self) -> None:
        """End it."""
        for descriptor in (self.coming, self.going):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self.control.close()

    def refuse(self, problem: str) -> None:
        """End it, and say why."""
        with contextlib.suppress(LineError):
            write_frame(self.going, REFUSED, problem.encode())
        self.close()


class LineEnd:
    """An end, over all its lines."""

    def __init__(self) -> None:
        self.numbered = Numbered()
        self.coming = self.going = -1
        """The descriptors of the present line, which this end closes; -1: no line is open."""
        self._cutter = Cutter()
        self._unwritten: memoryview = memoryview(b"")
        self._heard_s = self._spoke_s = 0.0
        self._problem: LineError | None = None
        """Why the rest of the present line cannot be read."""

    @property
    def is_up(self) -> bool:
        """Whether there is a line."""
        return self.coming >= 0

    def use(self, coming: int, going: int, epoch: int, received: int) -> None:
        """Use a new line, on which the other end has stated what it has received. The descriptors are this end's.

        Raises:
            LineError: see `Numbered.begin`. The present line is kept.
        """
        self.numbered.begin(epoch, received)
        self.drop()
        os.set_blocking(coming, False)
        os.set_blocking(going, False)
        self.coming, self.going = coming, going
        self._cutter, self._unwritten, self._problem = Cutter(), memoryview(b""), None
        self._heard_s = self._spoke_s = time.monotonic()

    def drop(self) -> None:
        """Close the present line."""
        for descriptor in {self.coming, self.going} - {-1}:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self.coming = self.going = -1

    def put(self, kind: int, data: bytes = b"") -> None:
        """Send this, in as many frames as it takes, on this line or a later one."""
        self.numbered.put(kind, data[:PAYLOAD_MAX])
        for at in range(PAYLOAD_MAX, len(data), PAYLOAD_MAX):
            self.numbered.put(kind, data[at : at + PAYLOAD_MAX])

    def read(self) -> list[Frame]:
        """Return the frames that have arrived, and are to be handled.

        Raises:
            LineError: the line has ended, or something else has arrived.
        """
        try:
            data = os.read(self.coming, READ_BYTES)
        except BlockingIOError:
            return []
        except OSError as error:
            raise LineError(f"it has failed: {error.strerror}") from error
        if not data:
            raise LineError("it has ended")
        self._heard_s = time.monotonic()
        frames = []
        for frame in self._cutter.feed(data):
            try:
                if self.numbered.take(frame):
                    frames.append(frame)
            except LineError as error:  # noqa: PERF203  (those before it count as received)
                self._problem = error
                break
        return frames

    def write(self) -> None:
        """Write what the line takes now.

        Raises:
            LineError: the line has ended.
        """
        numbered = self.numbered
        if numbered.unacknowledged >= ACKNOWLEDGE_FRAMES and not self._unwritten:
            self._unwritten = memoryview(numbered.beat())
        while True:
            if not self._unwritten:
                frame = numbered.next()
                if frame is None:
                    return
                self._unwritten = memoryview(frame)
            try:
                written = os.write(self.going, self._unwritten)
            except BlockingIOError:
                return
            except OSError as error:
                raise LineError(f"it has failed: {error.strerror}") from error
            self._unwritten = self._unwritten[written:]
            self._spoke_s = time.monotonic()

    @property
    def is_writing(self) -> bool:
        """Whether the line did not take all."""
        return bool(self._unwritten)

    def beat(self) -> None:
        """Acknowledge what is handled, now."""
        if not self._unwritten:
            self._unwritten = memoryview(self.numbered.beat())

    def turn(self, is_reading: bool = True) -> float:
        """Give a sign of life if one is due. Return the seconds until the next call must come.

        `is_reading`: whether this end reads at present what arrives.

        Raises:
            LineError: the other end gives none.
        """
        if self._problem is not None:
            raise self._problem
        now = time.monotonic()
        if not is_reading:
            self._heard_s = now
        if now > self._heard_s + SILENCE_S:
            raise LineError(f"it is silent for {SILENCE_S:g} s")
        if now >= self._spoke_s + BEAT_S:
            self._spoke_s = now
            self.beat()
        return max(0.0, min(self._spoke_s + BEAT_S, self._heard_s + SILENCE_S + 0.01) - now)
