"""What a client has to say: sent at once when the line is quiet, together with others when it is busy.

While the line is busy messages wait until there are enough for a frame, until the client waits for an answer, or at
most about a millisecond: then a thread sends them that exists only while there is something to look after. Without it
the last calls of a burst would wait for as long as the program computes.
"""

from __future__ import annotations

import _thread
import socket
import threading
import time
from collections.abc import Callable

from mpi_runtime.errors import HeadDiedError
from mpi_runtime.processes.interrupts import Interrupts
from mpi_runtime.scheduler.events import Done, Released, Returned
from mpi_runtime.transport import codec
from mpi_runtime.transport.base import Buffer
from mpi_runtime.transport.channel import COUNT_MAX, HEADER, LOCAL

LOST = "The connection to the scheduler is gone: its process ended or was killed. The job cannot go on."
QUIET_S = 200e-6
"""A line that has been silent for this long is quiet: about a round trip."""
FRAME_MESSAGES = 100
TICK_S = 1e-3
TICKS_IDLE_MAX = 20


class Outbox:
    """Orders and sends the messages of one client. Any thread may post."""

    def __init__(self, end: socket.socket, settle: Callable[[], list[bytes]], dropped: list[bytes]) -> None:
        """Send to a socket.

        Args:
            end: connected and blocking.
            settle: asked under the lock: which objects have lost their last reference here.
            dropped: not empty when `settle` has something to do.
        """
        self._socket: socket.socket | None = end
        self._settle = settle
        self._dropped = dropped
        self._messages: list[object] = []
        self.lock = threading.RLock()
        self.interrupts = Interrupts()
        self._last_s = 0.0
        self.ticking = False
        """Whether a thread sees to it that everything is sent soon."""

    def post(self, message: object) -> None:
        """Say this, soon."""
        messages = self._messages
        messages.append(message)
        if len(messages) >= FRAME_MESSAGES or time.monotonic() - self._last_s > QUIET_S:
            self.flush()
        elif not self.ticking:
            self.tick()

    def add(self, message: object) -> None:
        """Say this with whatever is said next."""
        self._messages.append(message)

    def post_now(self, message: object) -> None:
        """Say this at once, with everything posted before."""
        self._messages.append(message)
        self.flush()

    def flush(self) -> None:
        """Send everything that was posted before.

        Raises:
            HeadDiedError: the other end is gone.
        """
        if not self._messages and not self._dropped:
            return
        with self.interrupts, self.lock:
            gone = self._settle()
            # Only now, and not before: a reference that is gone may have been posted as an argument until then.
            messages = self._messages
            frame = messages[:]
            del messages[: len(frame)]
            if gone:
                frame.append(Released(gone))
            if frame:
                # At most COUNT_MAX ends fit the header: an executor never has as many in hand.
                ended = sum(1 for message in frame if type(message) is Done or type(message) is Returned)
                assert ended <= COUNT_MAX
                self._send(codec.encode(frame), ended)
            self._last_s = time.monotonic()

    def flush_or(self, lost: Callable[[], None]) -> None:
        """Send everything; call `lost` if the other end is gone."""
        try:
            self.flush()
        except HeadDiedError:
            lost()

    def post_after_releases(self, message: object) -> None:
        """Say this strictly after all references that are gone by now: it may bring one of them back."""
        with self.interrupts, self.lock:
            gone = self._settle()
            if gone:
                self._messages.append(Released(gone))
            self._messages.append(message)
        if not self.ticking:
            self.tick()

    def send_local(self, message: object) -> None:
        """Say this to the own agent, now, after everything posted before."""
        with self.interrupts, self.lock:
            self.flush()
            self._send(codec.encode([message]), LOCAL)

    def send_last(self, message: object) -> None:
        """Say this to the own agent, and nothing after it: other threads may still drop references."""
        with self.interrupts, self.lock:
            self.send_local(message)
            self._socket = None

    def mute(self) -> None:
        """Say nothing more: in a forked child, which shares the socket with its parent."""
        self._socket = None
        self.lock = threading.RLock()
        self.ticking = True  # there is nothing to look after any more

    def _send(self, frame: Buffer, count: int) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendall(HEADER.pack(len(frame), count) + frame)
        except OSError as error:
            raise HeadDiedError(LOST) from error

    def tick(self) -> None:
        """Have what was posted sent within about a millisecond. Takes no lock: `__del__` may call it."""
        self.ticking = True
        try:
            _thread.start_new_thread(self._tick, ())
        except RuntimeError:  # the interpreter is ending, or there can be no more threads
            self.ticking = False

    def _tick(self) -> None:
        idle = 0
        while True:
            time.sleep(TICK_S)
            if self._messages or self._dropped:
                idle = 0
                try:
                    self.flush()
                except HeadDiedError:
                    return  # whoever reads next notices
            elif idle < TICKS_IDLE_MAX:
                idle += 1
            else:
                self.ticking = False
                if not (self._messages or self._dropped):
                    return
                self.ticking = True
