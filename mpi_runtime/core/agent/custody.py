"""Custody: an agent's record of the calls assigned to one executor. No socket, no clock.

The agent forwards frames without decoding them. It knows the order of the calls in them, and how many have ended. To
steal calls it takes their tokens (`transport/tokens.py`), the last call first, while the executor takes tokens from the
other end. So it need not ask the executor, which may be busy for hours.

After calls were stolen, the executor still has their frames. When it finds no token for its next call, it drops all
calls that it has received and not started, and sends `Drained`. Until then no further call may be sent: its token would
let the executor start a stolen call. So calls are held back meanwhile. Values in the same frame are not held back,
because the running call may wait for them.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable

from mpi_runtime.core.transport.codec import BadFrameError, apart
from mpi_runtime.core.transport.tokens import Tokens


class Custody:
    """The calls of one executor, from their arrival at its agent until they have ended or are stolen."""

    def __init__(self, tokens: Tokens, send: Callable[[bytes], object]) -> None:
        """`tokens` is the agent's end of the counter; `send` sends a frame to the executor."""
        self._tokens = tokens
        self._send = send
        self.ids: deque[bytes] = deque()
        """Calls that were sent and have not ended, in order."""
        self._sent = 0
        """How many calls were sent to it in its life."""
        self._draining = False
        """Whether calls were stolen, and the executor has not yet sent `Drained`."""
        self._held_back: deque[tuple[list[bytes], int, bytes]] = deque()
        """Frames with calls that wait for `Drained`: ids that may still be started, number of calls, the frame."""
        self._is_doomed = False
        """Whether it is being killed. It may end its running call before, but must not start another."""
        self._unclaimed = 0
        """Number of calls whose tokens were taken for that reason."""

    def pass_on(self, ids: list[bytes], frame: bytes) -> None:
        """Send a frame, now or when calls may be sent again. `ids`: the calls in it, in order."""
        if ids and not (self._draining or self._held_back):
            self._give(ids, len(ids), frame)
            return
        if ids:
            frame, calls = apart(frame)
            self._held_back.append((ids, len(ids), calls))
        if frame:
            self._send(frame)

    def _give(self, ids: list[bytes], count: int, frame: bytes) -> None:
        """Send a frame with `count` calls, of which only `ids` may be started: at least one."""
        self.ids.extend(ids)
        self._tokens.add(len(ids))
        self._sent += count
        if len(ids) < count:
            self._draining = True
        self._send(frame)

    def end(self, count: int) -> None:
        """Note that this many calls end in a frame of the executor.

        Raises:
            BadFrameError: fewer are assigned to it.
        """
        ids = self.ids
        if count > len(ids):
            raise BadFrameError(f"it ends {count} call(s), and {len(ids)} are assigned to it")
        for _ in range(count):
            ids.popleft()

    def take_back(self, count: int) -> list[bytes]:
        """Steal up to `count` calls that were not started, the last first. Return their ids, in order."""
        taken: deque[bytes] = deque()
        for ids, _, _ in reversed(self._held_back):
            while ids and len(taken) < count:
                taken.appendleft(ids.pop())
        while self.ids and len(taken) < count and self._claim():
            taken.appendleft(self.ids.pop())
            self._draining = True
        while self._held_back and not self._held_back[-1][0]:
            self._held_back.pop()
        return list(taken)

    def cancel_by_force(self, id: bytes) -> tuple[list[bytes], bool]:
        """Steal all calls, so that only this one can be running. Return the stolen ids, and whether this one runs.

        If it runs, the caller must kill the executor, which starts no further call.
        """
        taken = self.take_back(sys.maxsize)
        is_running = bool(self.ids) and self.ids[-1] == id
        if is_running:
            self._draining = self._is_doomed = True
        return taken, is_running

    def doom(self) -> None:
        """Prevent further starts, because the executor is about to be killed. Its calls are reported at its end."""
        self._unclaimed += self._claim_all()
        self._draining = self._is_doomed = True

    def drained(self, received: int) -> None:
        """Note that the executor has dropped all calls that it has not started, of `received` calls in its life.

        Raises:
            BadFrameError: it had no reason to drop calls.
        """
        if received > self._sent or not self._draining:
            raise BadFrameError(f"it drops the rest of {received} call(s); it was sent {self._sent}, none taken back")
        if received != self._sent or self._is_doomed:
            return  # more calls are in flight to it, and will be dropped too; or it must not start any
        self._draining = False
        while self._held_back and not self._draining:
            self._give(*self._held_back.popleft())

    def close(self) -> bytes:
        """Return the id of the call that the executor was running when it ended; empty if it ran none."""
        claimed = len(self.ids) - self._unclaimed - self._claim_all()
        return self.ids[claimed - 1] if claimed > 0 else b""

    def _claim_all(self) -> int:
        """Take the tokens of all calls that have not started, and return how many these are."""
        count = 0
        while count < len(self.ids) and self._claim():  # user code may have written more to the counter
            count += 1
        return count

    def _claim(self) -> bool:
        try:
            self._tokens.take()
        except BlockingIOError:
            return False
        return True
