"""The input of an executor: calls to run, their specs, and how many items of generators were consumed.

The simulator runs this too.
"""

from __future__ import annotations

from collections import deque

from mpi_runtime.scheduler.protocol.effects import Demand, Entry, Ready, ReadyElsewhere
from mpi_runtime.scheduler.protocol.events import FOLLOWED_BYTES_MAX, Call, Done, Spec

ALL = 1 << 62
"""More items than any call yields: the number of consumed items of a call if no process will take its items."""

FOLLOWED_MAX = 256
"""The least number of last results that are kept: those of all calls that may be assigned to an executor."""


class Feed:
    """The input of one executor."""

    def __init__(self) -> None:
        self.calls: deque[tuple[Call, list[Entry]]] = deque()
        """Calls to run, each with the values of its arguments."""
        self.has_followers = False
        """Whether there were calls with arguments that calls before them make."""
        self.recent: dict[bytes, bytes] = {}
        """The last small results since then, by call: since one or two times FOLLOWED_MAX of them."""
        self._older: dict[bytes, bytes] = {}
        self.received = 0
        """The number of calls so far."""
        self.specs: dict[int, Spec] = {}
        self.saving = False
        """Whether the state of the actor must be saved now."""
        self.exiting = False
        """Whether the process ends when it has run its calls."""
        self.block: list[object] = []
        """Elements for the next calls of a chunk (`calls/chunks.py`). A forked child leaves them to its parent."""
        self._taken: dict[bytes, int] = {}
        """The number of items consumed, for each call that yields here."""

    def came(self, call: Call, arguments: list[Entry]) -> None:
        """Note the arrival of a call."""
        self.received += 1
        self.calls.append((call, arguments))

    def lacks(self, argument: bytes) -> Entry:
        """Note that a call arrives without an argument. Return what stands for that."""
        self.has_followers = True
        return ReadyElsewhere(argument)

    def remember(self, end: Done) -> None:
        """Keep a result for calls behind: its bytes, since user code may change the object."""
        if len(end.data) <= FOLLOWED_BYTES_MAX:
            if len(self.recent) == FOLLOWED_MAX:
                self._older, self.recent = self.recent, {}
            self.recent[end.id] = end.data

    def is_follower(self, arguments: list[Entry]) -> bool:
        """Whether a call arrived without some arguments."""
        return self.has_followers and ReadyElsewhere in map(type, arguments)

    def fill(self, arguments: list[Entry]) -> bool:
        """Fill in the arguments that a call lacks. Return whether all were made here."""
        for index, entry in enumerate(arguments):
            if type(entry) is ReadyElsewhere:
                data = self.recent.get(entry.id) or self._older.get(entry.id)
                if data is None:
                    return False
                arguments[index] = Ready(entry.id, data)
        return True

    def is_ready(self) -> bool:
        """Whether the executor has something to do."""
        return bool(self.calls) or self.exiting or self.saving

    def retire(self) -> None:
        """Run nothing more. Calls that have arrived keep their tokens: other executors will run them."""
        self.calls.clear()
        self.exiting = True

    # Calls that yield

    def begins_to_yield(self, call: bytes) -> None:
        """Count the consumed items of this call from now on."""
        self._taken[call] = 0

    def ends_yielding(self, call: bytes) -> None:
        """Stop counting the consumed items of this call."""
        self._taken.pop(call, None)

    def demanded(self, message: Demand) -> None:
        """Note consumed items of a call. Before the call begins it is ignored: the next message has the count."""
        if message.call in self._taken:
            self._taken[message.call] = message.count

    def is_abandoned(self, call: bytes) -> bool:
        """Whether no process will take an item of a call any more."""
        return self._taken[call] >= ALL

    def wants(self, call: bytes, index: int, backpressure: int) -> bool:
        """Whether a call may yield the item with this index, with this many unconsumed items allowed."""
        return self._taken[call] > index - backpressure
