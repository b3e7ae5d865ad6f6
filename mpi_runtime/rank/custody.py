"""Custody: what an agent knows of the calls that one executor has in hand. No socket, no clock.

The agent passes frames on unread. It knows which calls are in them, in order, and how many of them have ended. It
takes calls back by taking their tokens (`transport/tokens.py`), the last first, while the executor takes tokens from
the other end; so it need not ask the executor, which may be busy for hours.

After calls were taken back, the executor still has their frames. It drops them when it finds no token for its next
call, together with everything else that it has received and not started. Until it has said so (`Drained`) no further
call may be sent: its token would let the executor start one that was taken back. Calls are held back meanwhile, but not
what is in the same frame: the running call may wait for it.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable

from mpi_runtime.transport.codec import BadFrameError, apart
from mpi_runtime.transport.tokens import Tokens


class Custody:
    """The calls of one executor, from when its agent is given them until they have ended or are given back."""

    def __init__(self, tokens: Tokens, send: Callable[[bytes], object]) -> None:
        """Count with these tokens, and send frames to the executor."""
        self._tokens = tokens
        self._send = send
        self.ids: deque[bytes] = deque()
        """Calls that were sent and have not ended, in order."""
        self._sent = 0
        """How many calls it has ever been sent."""
        self._draining = False
        """Calls were taken back, and it has not said that it has dropped them."""
        self._held_back: deque[tuple[list[bytes], int, bytes]] = deque()
        """Frames with calls that wait for that: ids that may still be started, number of calls, the frame."""
        self._is_doomed = False
        """It is being killed, and may end its call before: nothing else may start."""
        self._unclaimed = 0
        """Calls whose tokens were taken for that."""

    def pass_on(self, ids: list[bytes], frame: bytes) -> None:
        """Send a frame, now or when calls may be sent again; `ids` are the calls in it, in order."""
        if ids:
            if self._draining or self._held_back:
                frame, calls = apart(frame)
                self._held_back.append((ids, len(ids), calls))
            else:
                self.ids.extend(ids)
                self._tokens.add(len(ids))
                self._sent += len(ids)
        if frame:
            self._send(frame)

    def _give(self, ids: list[bytes], count: int, frame: bytes) -> None:
        """Send a frame with `count` calls, of which only `ids` may be started: one at least."""
        self.ids.extend(ids)
        self._tokens.add(len(ids))
        self._sent += count
        if len(ids) < count:
            self._draining = True
        self._send(frame)

    def end(self, count: int) -> None:
        """So many calls end in a frame of the executor.

        Raises:
            BadFrameError: it does not have so many.
        """
        ids = self.ids
        if count > len(ids):
            raise BadFrameError(f"it ends {count} call(s), and {len(ids)} are in hand")
        for _ in range(count):
            ids.popleft()

    def take_back(self, count: int) -> list[bytes]:
        """Take up to `count` calls back that were not started, the last first; which they are, in order."""
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
        """Take everything back, so that no other call can be running: what was, and whether this one is.

        If it is, the executor is to be killed, and starts nothing any more.
        """
        taken = self.take_back(sys.maxsize)
        is_running = bool(self.ids) and self.ids[-1] == id
        if is_running:
            self._draining = self._is_doomed = True
        return taken, is_running

    def doom(self) -> None:
        """The executor is to be killed, and starts nothing any more; what it has in hand is told when it is gone."""
        self._unclaimed += self._claim_all()
        self._draining = self._is_doomed = True

    def drained(self, received: int) -> None:
        """The executor has dropped all of the calls that it had `received` and not started.

        Raises:
            BadFrameError: it has no reason to say so.
        """
        if received > self._sent or not self._draining:
            raise BadFrameError(
                f"it drops what it has of {received} call(s); it was sent {self._sent}, none taken back"
            )
        if received != self._sent or self._is_doomed:
            return  # more is on the way to it, and will be dropped too; or it is to start nothing more
        self._draining = False
        while self._held_back and not self._draining:
            self._give(*self._held_back.popleft())

    def close(self) -> bytes:
        """The executor is gone: the call that it was running, or empty."""
        claimed = len(self.ids) - self._unclaimed - self._claim_all()
        return self.ids[claimed - 1] if claimed > 0 else b""

    def _claim_all(self) -> int:
        """Take the tokens of all calls that have not started; how many these are."""
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
