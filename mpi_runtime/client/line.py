"""A client's line to the process of its rank: what is said goes out, what comes is taken in, threads wait for it.

Any thread may wait: one of those that do reads the socket for all (the leader), the others sleep until it has read
something.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mpi_runtime import errors
from mpi_runtime.client.arrivals import Arrivals
from mpi_runtime.client.blocking import Blocking
from mpi_runtime.client.inbox import Inbox
from mpi_runtime.client.outbox import LOST, Outbox
from mpi_runtime.client.scope import Scope, Scopes
from mpi_runtime.transport import codec
from mpi_runtime.transport.channel import LOCAL

SHUT_DOWN = "mpi_runtime was shut down"
_FORKED = "this is a forked child of a process of mpi_runtime, which cannot use its parent's connection"


class Line:
    """One client's connection."""

    def __init__(
        self, end: socket.socket, outbox: Outbox, arrivals: Arrivals, scopes: Scopes, blocking: Blocking
    ) -> None:
        """Use our end of a socketpair; what waits is a thread of what runs in these scopes."""
        self._socket = end
        self.outbox = outbox
        self._inbox = Inbox(end)
        self._arrivals = arrivals
        self._scopes = scopes
        self._blocking = blocking
        self._changed = threading.Condition()
        self._leading = 0
        """The thread that reads; 0: none."""
        self.closed = ""
        """Why there is no connection any more."""
        self.last_call = b""
        """The call that was submitted last. Who waits for it alone does so with little sleep, if he `may_spin`."""
        self.may_spin = True
        self.cancels = -1
        """In an executor: the pipe that has something to read until the main thread has heard what is cancelled."""

    def wait_until(
        self, complete: Callable[[], bool], timeout_s: float | None, ids: list[bytes] | None, lends: bool = True
    ) -> bool:
        """Read until `complete()` says so, or the time is over.

        With `ids` it is user code that waits, and may be interrupted; an executor's CPU is given up if it `lends`.
        """
        outbox, blocking = self.outbox, self._blocking
        outbox.flush_or(self.lost)
        self._inbox.patience.is_granted = self.may_spin and ids == [self.last_call]
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        is_call = blocking.lends_cpu and ids is not None
        scope = self._scopes.running if is_call and lends else None
        said = False
        try:
            while True:
                with self._changed:
                    if complete():
                        return True
                    self._check_open()
                    left = None if deadline is None else max(0.0, deadline - time.monotonic())
                    if scope is not None and not said:
                        said = True
                        blocking.waits(scope, ids or [])
                    if self._leading and self._leading != threading.get_ident():
                        if left == 0.0:
                            return False
                        self._changed.wait(left)
                        continue
                    self._leading = threading.get_ident()
                try:
                    outbox.flush_or(self.lost)
                    is_interruptible = is_call and threading.current_thread() is threading.main_thread()
                    self._inbox.read(left, self.cancels if is_interruptible else -1)
                finally:
                    with outbox.interrupts:
                        arrived = self._take_in()
                        with self._changed:
                            self._leading = 0
                            self._changed.notify_all()
                if not arrived and left == 0.0:
                    with self._changed:
                        return complete()
        finally:
            if said:
                assert scope is not None
                self._waits_no_more(scope)

    @contextmanager
    def blocked(self) -> Iterator[None]:
        """For a thread that waits for results by other means than `get` and `wait`: gives up an executor's CPU too."""
        if not self._blocking.lends_cpu:
            yield
            return
        scope = self._scopes.running
        with self._changed:
            self._blocking.waits(scope, [])
        try:
            self.outbox.flush_or(self.lost)
            yield
        finally:
            self._waits_no_more(scope)

    def _waits_no_more(self, scope: Scope) -> None:
        with self._changed:
            self._blocking.waits_no_more(scope, self._scopes.running)

    def _check_open(self) -> None:
        if self.closed:
            raise errors.HeadDiedError(self.outbox.why_lost() if self.closed == LOST else self.closed)

    def lost(self) -> None:
        """The other end of the connection is gone."""
        self.closed = self.closed or LOST

    def _take_in(self) -> bool:
        """Take in what was read; whether anything was."""
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
        """Read what still comes, until the head says that the job is over, or says nothing for this long."""
        seen, arrivals = -1, self._arrivals
        while not self.closed and seen != arrivals.taken:
            seen = arrivals.taken
            self.wait_until(lambda seen=seen: bool(self.closed) or arrivals.taken != seen, silence_s, None)  # type: ignore[misc]

    def close(self) -> None:
        """Use the connection no more; the socket itself is its owner's."""
        self.closed = self.closed or SHUT_DOWN
        self.outbox.mute()
        with self._changed:
            self._changed.notify_all()

    def forked(self) -> None:
        """This is a forked child of the process that has the connection: say nothing."""
        self.closed = _FORKED
        self.outbox.mute()
        self._changed = threading.Condition()  # another thread of the parent may have held it
        self._leading = 0
        self._socket.close()  # or the head would not notice the parent's end while the child lives
