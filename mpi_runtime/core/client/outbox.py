"""Outgoing messages of a client: sent at once if the connection is quiet, together with others if it is busy.

A loop that submits a million calls makes a million messages: a system call for each, and a turn of the head for each,
would cost too much. But a single call whose result is awaited must leave at once. The client cannot know which of the
two it sees. The idea: it looks at the time since it last sent something.

    post --+-- nothing was sent for 200 us --------------> send now
           |
           +-- busy --> wait for the first of:  100 messages | the client waits for an answer | a thread, after 1 ms

The thread exists only while there are messages, and for some ticks after. Without it the last calls of a burst would
wait for as long as the program computes.

What always holds: messages are sent in the order in which they were posted. A release of a reference is sent after all
messages that were posted while it lived (`outgoing.py`). One lock orders frames. A destructor takes no lock, because it
may run in the middle of code that has it: `drop` appends to a list, and may start the thread.

A result of a call that must not run twice cannot be lost while it waits here for others. So an executor *seals* it in
its *draft*: memory that its agent reads if the process dies (`transport/unsent_frame.py`, docs/decisions/0303).

Not obvious: `signal` handlers may raise in the main thread at any instruction, so each step that must not be half done
runs within `interrupts`. A forked child shares the socket, and must `mute` its outbox. The simulator runs `seal` and
`take` too.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import msgspec

from mpi_runtime.core.client.interrupts import Interrupts, is_of_handler
from mpi_runtime.core.client.outgoing import Outgoing, ends_in
from mpi_runtime.core.client.references import References
from mpi_runtime.core.transport import codec
from mpi_runtime.core.transport.base import Buffer
from mpi_runtime.core.transport.channel import COUNT_MAX, LOCAL, packed
from mpi_runtime.core.transport.unsent_frame import Draft
from mpi_runtime.errors import HeadDiedError
from mpi_runtime.scheduler.protocol.effects import Entry, Forget, Ready, ReadyStored

LOST = "The connection to the scheduler is gone: its process ended or was killed. The job cannot continue."
CLOSED = (
    "The connection to the scheduler is gone: code of this process has closed its descriptor, as os.closerange() does. "
    "Close only descriptors that you have opened."
)
QUIET_S = 200e-6
"""A connection is quiet after this many seconds without a message: about a round trip."""
FRAME_MESSAGES = 100
TICK_S = 1e-3
TICKS_IDLE_MAX = 20
SLOW_TICK_S = 4e-3
"""The pause after that many looks in vain, as long as the client itself sends everything before the thread looks."""
DROPPED_MAX = 1000
"""Number of releases of small values that may wait for other messages."""


def is_closed_here(end: socket.socket) -> bool:
    """Whether the descriptor of a socket was closed behind its back."""
    try:
        os.fstat(end.fileno())
    except OSError:
        return end.fileno() >= 0
    return False


class Outbox(Outgoing):
    """Orders and sends the messages of one client. Any thread may post."""

    def __init__(
        self,
        end: socket.socket,
        references: References,
        draft: Draft | None,
        interrupts: AbstractContextManager[None] | None,
        why_lost: Callable[[], str | HeadDiedError] | None,
    ) -> None:
        """Use a connected, blocking socket. Releases of these references are sent too. For the rest see `Client`."""
        super().__init__(references)
        self._socket: socket.socket | None = end
        self.draft = draft
        """In an executor: sealed messages, which its agent reads if the process dies."""
        self._dropped = references.dropped
        self._values = references.values
        self.lock = threading.RLock()
        self.interrupts = interrupts or Interrupts()
        """A context in which no signal interrupts the main thread."""
        self._last_s = 0.0
        self._gathers = 0
        """The number of `gathering` blocks, in which messages wait for others even on a quiet connection."""
        self.ticking = False
        """Whether a thread exists that sends messages soon."""
        self._tick_s = TICK_S
        """Pause of that thread in seconds."""
        self._has_sent = False
        """Whether anything was sent since it looked last, in slow ticks."""
        self.ends_call = False
        """Whether the result of a call will be posted at once, and releases with it."""
        self.on_quiet: Callable[[], None] | None = None
        """Called when the thread that sends messages soon has sent all."""
        self._why_lost = why_lost or (lambda: CLOSED if is_closed_here(end) else LOST)

    def lost(self) -> HeadDiedError:
        """Return the error for a connection that is lost."""
        why = self._why_lost()
        return HeadDiedError(why) if isinstance(why, str) else why

    def post(self, message: object) -> None:
        """Post a message, to be sent soon."""
        messages = self.messages
        messages.append(message)
        if len(messages) >= FRAME_MESSAGES or (not self._gathers and time.monotonic() - self._last_s > QUIET_S):
            self.flush()
        elif not self.ticking:
            self._tick_s = TICK_S
            self.tick()

    def request(self, message: msgspec.Struct) -> None:
        """Post a message with values of users in it.

        Raises:
            TypeError: the scheduler could not read it. It is not posted.
        """
        codec.check(message)
        self.post(message)

    @contextlib.contextmanager
    def gathering(self) -> Iterator[None]:
        """Treat the connection as busy within this block, and send the rest at its end."""
        self._gathers += 1
        try:
            yield
        finally:
            self._gathers -= 1
            self.flush_or(lambda: None)  # the next read will notice it

    def hurry(self, lost: Callable[[], None]) -> None:
        """Send everything like `flush_or`; within `gathering`, after about a millisecond or at its end."""
        if not self._gathers:
            self.flush_or(lost)
        elif not self.ticking and self.messages:
            self.tick()

    def drop(self, id: bytes, urgent: bool = False) -> None:
        """Note that a reference or a view is gone. Runs in `__del__`: takes no lock, raises nothing."""
        self._dropped.append(id)
        if not (self.ticking or self.ends_call) and (
            urgent or len(self._dropped) > DROPPED_MAX or type(self._values.get(id)) is not Ready
        ):
            self.tick()  # the object may use much memory

    def adopt(self, id: bytes) -> None:
        """Note that a reference arrived inside a value. Runs within `interrupts`: what is counted must be kept too."""
        with self.lock:
            super().adopt(id)
        if not self.ticking and self.messages:
            self.tick()

    def view(self, id: bytes) -> None:
        """Note that a view of an object is made. There is no hurry: something else holds the object by now."""
        with self.interrupts, self.lock:  # no other thread forgets its place meanwhile
            super().view(id)

    def look_at(self, id: bytes) -> Entry | None:
        """Return the value of an object, or None. If it is in the arena, it counts as viewed from now on."""
        entry = self._values.get(id)
        if type(entry) is not ReadyStored:
            return entry
        with self.interrupts, self.lock:
            return super().look_at(id)

    def forget(self, request: Forget) -> None:
        """Forget places of objects, and answer soon."""
        with self.interrupts, self.lock:
            super().forget(request)
        if not self.ticking:
            self.tick()

    def keep(self, id: bytes) -> None:
        """Add a reference for the life of the process. Another reference must exist during this call."""
        with self.interrupts, self.lock:
            self.references.add(id)

    def post_now(self, message: object) -> None:
        """Send a message at once, with everything posted before."""
        self.messages.append(message)
        self.flush()

    def entrust(self, message: object, gather_us: int = 0) -> None:
        """Send this soon; from now on it is delivered even if this process dies, because its agent reads the draft.

        `gather_us`: the time that it may wait for others.
        """
        self.messages.append(message)
        gather_s = gather_us * 1e-6
        if self.draft is None or time.monotonic() - self._last_s > (gather_s or QUIET_S):
            self.flush()
            return
        self._tick_s = gather_s or TICK_S
        self._seal()

    def secure(self) -> None:
        """Have everything that was posted delivered even if this process dies."""
        with self.interrupts, self.lock:  # another thread may be sending it
            if self.messages:
                self._seal()

    def _seal(self) -> None:
        with self.interrupts, self.lock:
            is_full = self.draft is None or not seal(self, self.draft) or self.draft.count >= FRAME_MESSAGES
        if is_full:
            self.flush()
        elif not self.ticking:
            self.tick()

    def flush(self) -> None:
        """Send everything that was posted before.

        Raises:
            HeadDiedError: the other end has closed.
        """
        try:
            self._flush()
        except HeadDiedError as error:
            raise self.lost() from error.__cause__

    def _flush(self) -> None:
        if not self._is_due():
            return
        with self.interrupts, self.lock:
            ended, frame = take(self, self.draft)
            if frame:
                assert ended <= COUNT_MAX  # an executor never has more calls
                self._send(frame, ended)
            self._last_s = time.monotonic()
            self._has_sent = True

    def _is_due(self) -> bool:
        return bool(self.messages or self._dropped or (self.draft is not None and self.draft.count))

    def flush_or(self, lost: Callable[[], None]) -> None:
        """Send everything. Call `lost` if the other end has closed."""
        try:
            self._flush()
        except HeadDiedError:
            lost()

    def send_local(self, message: object) -> None:
        """Send a message to the agent at once, after everything posted before."""
        with self.interrupts, self.lock:
            self.flush()
            self._send(codec.encode([message]), LOCAL)

    def send_last(self, message: object) -> None:
        """Send the last message to the agent. Later ones are dropped: other threads may still drop references."""
        with self.interrupts, self.lock:
            self.send_local(message)
            self._socket = None

    def mute(self) -> None:
        """Send nothing any more, for instance in a forked child, which shares the socket with its parent."""
        self._socket = None
        self.draft = None
        self.lock = threading.RLock()
        self.ticking = True  # so that no thread is started

    def _send(self, frame: Buffer, count: int) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendall(packed(frame, count))
        except OSError as error:
            if is_of_handler(error):
                raise
            raise HeadDiedError(LOST) from error
        if self.draft is not None:
            self.draft.sent()

    def tick(self) -> None:
        """Start a thread that sends posted messages within a millisecond or so. Takes no lock: `__del__` calls it."""
        try:
            self.ticking = True
            _thread.start_new_thread(self._tick, ())
        except RuntimeError:  # the interpreter is ending, or the system allows no further threads
            self.ticking = False
        except BaseException:  # an interrupt: no thread may have started, and two do no harm
            self.ticking = False
            raise

    def _tick(self) -> None:
        idle = 0
        while True:
            time.sleep(self._tick_s if idle < TICKS_IDLE_MAX else SLOW_TICK_S)
            if self._is_due():
                idle = 0
                try:
                    self._flush()
                except HeadDiedError:
                    return  # the next read will notice it
            elif idle < TICKS_IDLE_MAX:
                idle += 1
            elif self._has_sent:
                self._has_sent = False
            else:
                self.ticking = False
                if not self._is_due():
                    if self.on_quiet is not None:
                        self.on_quiet()
                    return
                self.ticking = True


def seal(outgoing: Outgoing, draft: Draft) -> bool:
    """Put everything that is due into the draft. Returns whether it fits; otherwise it stays due."""
    frame = outgoing.frame()
    if draft.add(frame, ends_in(frame)):
        return True
    outgoing.messages[:0] = frame
    return False


def take(outgoing: Outgoing, draft: Draft | None) -> tuple[int, bytes]:
    """The number of calls that end in the next frame, and the frame: everything due or sealed. It may be empty."""
    frame = outgoing.frame()
    if draft is not None and draft.count:
        return draft.frame(frame, ends_in(frame))
    return (ends_in(frame), codec.encode(frame)) if frame else (0, b"")
