"""Items of calls that yield, in the client that made the calls. The simulator runs this too."""

from __future__ import annotations

from collections import deque

from mpi_runtime.core.client.feed import ALL
from mpi_runtime.core.client.outgoing import Outgoing
from mpi_runtime.scheduler.protocol.effects import Item
from mpi_runtime.scheduler.protocol.events import CancelRequested, Consumed


class ReceivedItems:
    """The items of one client's calls that have arrived and were not consumed."""

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        self._values = outgoing.references.values
        self._waiting: dict[bytes, deque[bytes]] = {}
        """Items by call."""
        self._taken: dict[bytes, int] = {}
        """The number of consumed items, for each call that waits for its consumer."""

    def begin(self, call: bytes, is_limited: bool) -> None:
        """Register a call that yields, before it is submitted.

        If `is_limited`, consumed items are reported to its executor.
        """
        self._waiting[call] = deque()
        if is_limited:
            self._taken[call] = 0

    def came(self, message: Item) -> None:
        """Note an item, which this client now counts. If items of the call are no longer wanted, it is dropped."""
        waiting = self._waiting.get(message.call)
        if waiting is None:
            self._outgoing.drop(message.id)
        else:
            waiting.append(message.id)

    def has_ended_or_item(self, call: bytes) -> bool:
        """Whether `take` has an answer."""
        return bool(self._waiting.get(call)) or call in self._values

    def is_ready(self, call: bytes) -> bool:
        """Whether `take` need not wait: it has an answer, or items are no longer wanted."""
        waiting = self._waiting.get(call)
        return waiting is None or bool(waiting) or call in self._values

    def is_drained(self, call: bytes) -> bool:
        """Whether a call has ended and all items were consumed."""
        return not self._waiting.get(call) and call in self._values

    def take(self, call: bytes, resumes: bool = True) -> bytes | None:
        """The next item, which the caller now counts; None at the end. Unless it `resumes`, `resume` reports it."""
        waiting = self._waiting[call]
        if not waiting:
            return None
        count = self._taken.get(call)
        if count is not None:
            self._taken[call] = count + 1
            if resumes:
                self._outgoing.post(Consumed(call, count + 1))
        return waiting.popleft()

    def resume(self, call: bytes) -> None:
        """Report consumed items to the executor of a call."""
        count = self._taken.get(call)
        if count is not None:
            self._outgoing.post(Consumed(call, count))

    def forget(self, call: bytes, cancel: bool = False) -> None:
        """Stop consuming items of a call. Runs in `__del__`: takes no lock unless the call is cancelled."""
        waiting = self._waiting.pop(call, None)
        while waiting:
            self._outgoing.drop(waiting.popleft())
        if self._taken.pop(call, None) is not None:
            self._outgoing.add(Consumed(call, ALL))  # its executor must not wait for a consumer
        if cancel:
            self._outgoing.post(CancelRequested(call, False, False))
