"""Incoming messages of a client, the threads that wait for them, and items of calls that yield.

No lock, no socket: the simulator runs this too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from mpi_runtime.core.client.executor_feed import ALL, Feed
from mpi_runtime.core.client.outgoing import Outgoing
from mpi_runtime.core.client.references import References, is_error
from mpi_runtime.core.transport.messages import Ahead, Allocated, Exit, ForCalls, GiveBack, Part
from mpi_runtime.scheduler.protocol.effects import Answer, Demand, Entry, Forget, Item, Ready, SaveRequested
from mpi_runtime.scheduler.protocol.events import Call, CancelRequested, Consumed, Spec


class ReceivedItems:
    """The items of one client's calls that have arrived and were not consumed."""

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        self._values = outgoing.references.values
        self._waiting: dict[bytes, deque[bytes]] = {}
        """By call: the items that were not consumed."""
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


class Watch:
    """The objects that a thread waits for in `get`, and those of them that are errors."""

    __slots__ = ("failed", "wanted")

    def __init__(self, wanted: Iterable[bytes]) -> None:
        self.wanted = set(wanted)
        self.failed: list[bytes] = []


class Arrivals:
    """Sorts the incoming messages of one client. The owner lets one thread at a time do so."""

    def __init__(
        self,
        references: References,
        items: ReceivedItems,
        feed: Feed,
        answered: Callable[[Allocated | Answer | Ahead | GiveBack | Part], None],
        forget: Callable[[Forget], None],
    ) -> None:
        """Sort messages into these parts.

        `answered` is called with answers and news of memory, `forget` with requests to forget places.
        """
        self._forget = forget
        self._references = references
        self._items = items
        self._feed = feed
        self._answered = answered
        self.taken = 0
        """The number of messages so far."""
        self.watches: list[Watch] = []
        """One for each thread in `get`."""
        self.expected: set[bytes] = set()
        """Objects that futures wait for."""
        self.arrived: deque[bytes] = deque()
        """Expected objects that have arrived and were not handled."""

    def take(self, messages: list[Any]) -> None:
        """Take in one frame. The values of a call's arguments precede it, or calls before it will make them here."""
        arguments: dict[bytes, Entry] = {}
        is_for_calls = False
        values, counts, expected = self._references.values, self._references.counts, self.expected
        for message in messages:
            kind = type(message)
            if kind is Ready:
                if message.id in counts:
                    values[message.id] = message
                    if expected:
                        self._note_arrival(message)
                else:
                    arguments[message.id] = message
            elif kind is Call:
                self._feed.came(message, [self._argument(id, arguments) for id in message.arguments])
            elif kind is Spec:
                self._feed.specs[message.id] = message
            elif kind in (Allocated, Answer):
                self._answered(message)
            elif kind is Exit:
                self._feed.exiting = True
            elif kind is SaveRequested:
                self._feed.saving = True
            elif kind is Item:
                counts[message.id] = 1
                self._items.came(message)
            elif kind is Demand:
                self._feed.demanded(message)
            elif kind is Forget:
                self._forget(message)
            elif kind is Ahead or kind is GiveBack or kind is Part:
                self._answered(message)
            elif kind is ForCalls:  # values in this frame are for calls only: other references may be stale by now
                is_for_calls = True
            elif message.id in counts and not is_for_calls:
                values[message.id] = arguments[message.id] = message
                self._note_arrival(message)
            else:
                arguments[message.id] = message
        self.taken += len(messages)  # last: waiting threads rely on it

    def _argument(self, id: bytes, arguments: dict[bytes, Entry]) -> Entry:
        found = arguments.get(id)
        if found is None:
            found = self._references.values.get(id)
            if type(found) is not Ready:  # a place that was not sent for this call may be stale
                found = self._feed.lacks(id)
        return found

    def _note_arrival(self, message: Entry) -> None:
        """Note the arrival of a value to which this process has references."""
        if message.id in self.expected:
            self.arrived.append(message.id)
        if self.watches and is_error(message):
            for watch in tuple(self.watches):
                if message.id in watch.wanted:
                    watch.failed.append(message.id)
