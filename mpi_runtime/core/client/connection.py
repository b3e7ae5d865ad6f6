"""The connection of a client to the process of its rank, on which threads wait for messages.

Any number of threads may wait. One of them, the leader, reads the socket for all. The others sleep until it has read
something.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from mpi_runtime import errors
from mpi_runtime.core.client.blocking import Blocking
from mpi_runtime.core.client.incoming import Arrivals
from mpi_runtime.core.client.interrupts import is_of_handler
from mpi_runtime.core.client.outbox import LOST, Outbox
from mpi_runtime.core.client.scope import Scope, Scopes
from mpi_runtime.core.transport import codec
from mpi_runtime.core.transport.channel import LOCAL, READ_BYTES, Frame, Splitter
from mpi_runtime.core.transport.polling import Patience
from mpi_runtime.scheduler.protocol.events import Query
from mpi_runtime.scheduler.protocol.questions import NodeOfRank


class Inbox:
    """Reads a connected, blocking socket."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._arrived: deque[bytes] = deque()
        """Bytes that were read and not handled."""
        self._splitter = Splitter()
        self.patience = Patience()
        self.is_closed = False
        """Whether the other end has closed."""

    def read(self, timeout_s: float | None, also: int = -1) -> None:
        """Read once, waiting up to the time given, or until there is something to read from another descriptor.

        Python checks for signals before it waits, and a signal between the two does not end the wait. If a signal must
        not be missed, its sender writes to a pipe first.
        """
        patience = self.patience
        try:
            if patience.begin(timeout_s):
                while not self._read_now(socket.MSG_DONTWAIT) and patience.look_again():
                    pass
            if not self._arrived:
                watched = [self._socket.fileno(), *[also] * (also >= 0)]
                at_once = timeout_s is None and also < 0  # then the read itself waits
                if at_once or watched[0] in select.select(watched, [], [], timeout_s)[0]:
                    self._read_now(0)
        except OSError as error:
            if is_of_handler(error):
                raise
            self._arrived.append(b"")
        patience.end()

    def _read_now(self, flags: int) -> bool:
        try:
            # Reading and noting are one call, so that Ctrl-C cannot separate them.
            self._arrived.extend(map(self._socket.recv, (READ_BYTES,), (flags,)))
        except BlockingIOError:
            return False
        return True

    def frames(self) -> list[Frame] | None:
        """The complete frames in what was read; None if nothing was read."""
        if not self._arrived:
            return None
        data = self._arrived.popleft()
        frames = self._splitter.feed(data)
        if not data or self._splitter.problem:  # another reader has taken bytes from our socket: the rest is lost
            self.is_closed = True
        return frames


SHUT_DOWN = (
    "The job was shut down, by shutdown() in another thread or at the end of the program, with everything that this "
    "thread waits for."
)
_FORKED = "This is a forked child of a process of a job, and cannot use its parent's connection."


class Line:
    """One client's connection."""

    def __init__(
        self, end: socket.socket, outbox: Outbox, arrivals: Arrivals, scopes: Scopes, blocking: Blocking, cancels: int
    ) -> None:
        """Use our end of a socketpair. `scopes` has the call for which a thread waits. `cancels`: see `Executing`."""
        self._socket = end
        self.outbox = outbox
        self._inbox = Inbox(end)
        self._arrivals = arrivals
        self._scopes = scopes
        self._blocking = blocking
        self._lock = threading.RLock()
        """Not a `Condition`: an interrupt in its `__enter__`, which is Python code, would leave it held for ever."""
        self._waiters: list[threading.Lock] = []
        """A lock for each thread that waits for one that reads. It is released when something has arrived."""
        self._leading = 0
        """The thread that reads; 0: none."""
        self.closed = ""
        """Why the connection is closed; empty: it is open."""
        self.last_call = b""
        """The call that was submitted last. A thread of the driver that waits only for it polls before it sleeps."""
        self.cancels = cancels
        """In an executor: the pipe with the ids of cancelled calls, which also ends a wait of the main thread."""

    def wait_until(
        self, complete: Callable[[], bool], timeout_s: float | None, ids: list[bytes] | None, lends: bool = True
    ) -> bool:
        """Read until `complete()` is true, or the time is over. Return whether it is.

        Args:
            complete: is called after each frame.
            timeout_s: the most seconds to wait; None: no limit.
            ids: the objects waited for. With them user code waits, and may be interrupted.
            lends: with `ids`: whether an executor lends its CPU meanwhile.

        Raises:
            HeadDiedError: the other end has closed the connection.
            ObjectLostError: the job was shut down.
            RuntimeNotInitializedError: this is a forked child.
        """
        outbox, blocking = self.outbox, self._blocking
        outbox.flush_or(self.lost)
        self._inbox.patience.is_granted = self.cancels < 0 and ids == [self.last_call]
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        is_call = blocking.lends_cpu and ids is not None
        scope = self._scopes.running if is_call and lends else None
        is_reported = False
        is_in_handler = self._leading == threading.get_ident()  # of a signal, which has interrupted a read of ours
        try:
            while True:
                leads, waiter, arrived = False, None, True
                try:
                    with self._lock:
                        if complete():
                            return True
                        self._check_open()
                        left = None if deadline is None else max(0.0, deadline - time.monotonic())
                        if scope is not None and not is_reported:
                            with outbox.interrupts:
                                is_reported = True
                                blocking.waits(scope, ids or [])
                        if self._leading and self._leading != threading.get_ident():
                            if left == 0.0:
                                return False
                            waiter = self._new_waiter()
                        else:
                            leads, self._leading = True, threading.get_ident()
                    if leads:
                        outbox.flush_or(self.lost)
                        is_interruptible = ids is not None and threading.current_thread() is threading.main_thread()
                        self._inbox.read(left, self.cancels if is_interruptible else -1)
                finally:
                    if leads:
                        arrived = self._end_lead(is_in_handler)
                if waiter is not None:
                    self._await(waiter, left)
                if not arrived and left == 0.0:
                    with self._lock:
                        return complete()
        finally:
            if is_reported:
                assert scope is not None
                self.end_wait(scope)
            if is_in_handler:
                self._end_interrupted_read()

    def _end_lead(self, continues: bool) -> bool:
        """Handle what this thread has read, and let another one read, unless an interrupted read of its own continues.

        Return whether anything was read.
        """
        with self.outbox.interrupts:
            arrived = self._take_in()
            with self._lock:
                if not continues:
                    self._leading = 0
                self._wake()
        return arrived

    def _end_interrupted_read(self) -> None:
        """Let the read that a signal handler has interrupted end: what it waits for may have been read in the handler.

        Python repeats an interrupted system call. So we ask something to which nobody needs the answer.
        """
        self.outbox.messages.append(Query(0, NodeOfRank(0)))
        self.outbox.flush_or(self.lost)

    def _new_waiter(self) -> threading.Lock:
        waiter = threading.Lock()
        waiter.acquire()
        self._waiters.append(waiter)
        return waiter

    def _await(self, waiter: threading.Lock, timeout_s: float | None) -> None:
        """Wait until something has arrived. After an interrupt `_wake` forgets the waiter."""
        if not waiter.acquire(timeout=-1 if timeout_s is None else min(timeout_s, threading.TIMEOUT_MAX)):
            with self._lock:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    def _wake(self) -> None:
        """Wake all threads that wait. The caller has the lock."""
        while self._waiters:
            self._waiters.pop().release()

    @contextmanager
    def blocked(self) -> Iterator[None]:
        """Return a context in which an executor lends its CPU, for waits other than `get` and `wait`."""
        if not self._blocking.lends_cpu:
            yield
            return
        scope = self._scopes.running
        is_reported = False
        try:
            with self.outbox.interrupts, self._lock:
                is_reported = True
                self._blocking.waits(scope, [])
            self.outbox.flush_or(self.lost)
            yield
        finally:
            if is_reported:
                self.end_wait(scope)

    def begin_wait(self, ids: Sequence[bytes]) -> Scope:
        """In an executor that lends its CPU: do so while a coroutine waits for objects. `end_wait` needs the result.

        The coroutines beside it may run on, like the threads beside one that is in `get`.
        """
        scope = self._scopes.running
        with self.outbox.interrupts, self._lock:
            self._blocking.waits(scope, ids)
        self.outbox.flush_or(self.lost)
        return scope

    def end_wait(self, scope: Scope) -> None:
        """Note that a thread or a coroutine of a call no longer waits."""
        with self.outbox.interrupts, self._lock:  # so that the end of the wait is reported before that of the call
            self._blocking.ends_wait(scope, self._scopes.running)

    def _check_open(self) -> None:
        if self.closed == LOST:
            raise self.outbox.lost()
        if self.closed == SHUT_DOWN:
            raise errors.ObjectLostError(SHUT_DOWN)
        if self.closed:
            raise errors.RuntimeNotInitializedError(self.closed)

    def lost(self) -> None:
        """Note that the other end has closed."""
        self.closed = self.closed or LOST

    def _take_in(self) -> bool:
        """Handle the frames that were read. Return whether anything was read."""
        frames = self._inbox.frames()
        if frames is None:
            return False
        if self._inbox.is_closed:
            self.lost()
        for count, frame in frames:
            if count == LOCAL:
                self.closed = self.closed or SHUT_DOWN
            else:
                self._arrivals.take(codec.to_client.decode(frame))
        return True

    def read_to_end(self, silence_s: float) -> None:
        """Read until the head ends the job, or has sent nothing for `silence_s` seconds."""
        seen, arrivals = -1, self._arrivals
        while not self.closed and seen != arrivals.taken:
            seen = arrivals.taken
            self.wait_until(lambda seen=seen: bool(self.closed) or arrivals.taken != seen, silence_s, None)  # type: ignore[misc]

    def end(self) -> None:
        """Read nothing any more. What is posted is still sent."""
        self.closed = self.closed or SHUT_DOWN
        with self.outbox.interrupts, self._lock:
            self._wake()

    def close(self) -> None:
        """Stop using the connection. The caller closes the socket."""
        self.closed = self.closed or SHUT_DOWN
        self.outbox.mute()
        self.end()

    def forked(self) -> None:
        """Send nothing any more: this process is a forked child of the connection's."""
        self.closed = _FORKED
        self.outbox.mute()
        self._lock = threading.RLock()  # another thread of the parent may have held it
        self._waiters = []
        self._leading = 0
        self._socket.close()  # so that the head notices the end of the parent while the child lives
