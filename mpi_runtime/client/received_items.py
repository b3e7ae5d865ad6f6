"""The items of calls that yield, as the client has them that made the calls. The simulator runs this too."""

from __future__ import annotations

from collections import deque

from mpi_runtime.client.outgoing import Outgoing
from mpi_runtime.scheduler.effects import Item
from mpi_runtime.scheduler.events import CancelRequested, Consumed

ALL = 1 << 62
"""As many items as there will ever be."""


class ReceivedItems:
    """What has come of the calls of one client that yield, and was not taken."""

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        self._values = outgoing.references.values
        self._waiting: dict[bytes, deque[bytes]] = {}
        """By call."""
        self._taken: dict[bytes, int] = {}
        """How many items were taken of each call whose executor waits for that."""

    def begin(self, call: bytes, is_limited: bool) -> None:
        """A call that yields is about to be submitted; if `is_limited` its executor wants to hear what is taken."""
        self._waiting[call] = deque()
        if is_limited:
            self._taken[call] = 0

    def came(self, message: Item) -> None:
        """An item has come, and is ours to count. Of a call whose items nobody wants any more it is dropped."""
        waiting = self._waiting.get(message.call)
        if waiting is None:
            self._outgoing.drop(message.id)
        else:
            waiting.append(message.id)

    def has_ended_or_item(self, call: bytes) -> bool:
        """Whether `take` has an answer."""
        return bool(self._waiting.get(call)) or call in self._values

    def is_ready(self, call: bytes) -> bool:
        """Whether one need not wait for `take`: it has an answer, or nobody wants more."""
        waiting = self._waiting.get(call)
        return waiting is None or bool(waiting) or call in self._values

    def is_drained(self, call: bytes) -> bool:
        """Whether a call has ended and everything was taken."""
        return not self._waiting.get(call) and call in self._values

    def take(self, call: bytes) -> bytes | None:
        """The next item, now the caller's to count; None at the end."""
        waiting = self._waiting[call]
        if not waiting:
            return None
        count = self._taken.get(call)
        if count is not None:
            self._taken[call] = count + 1
            self._outgoing.post(Consumed(call, count + 1))
        return waiting.popleft()

    def forget(self, call: bytes, cancel: bool = False) -> None:
        """Nobody takes items of a call any more. Runs in `__del__`: takes no lock unless the call is cancelled."""
        waiting = self._waiting.pop(call, None)
        while waiting:
            self._outgoing.drop(waiting.popleft())
        if self._taken.pop(call, None) is not None:
            self._outgoing.add(Consumed(call, ALL))  # its executor need not wait for who takes them
        if cancel:
            self._outgoing.post(CancelRequested(call, False, False))
