"""What an executor is fed with: calls to run, their specs, and how much is wanted of those that yield.

The simulator runs this too.
"""

from __future__ import annotations

from collections import deque

from mpi_runtime.scheduler.effects import Demand, Entry
from mpi_runtime.scheduler.events import Call, Spec


class Feed:
    """What has come for one executor."""

    def __init__(self) -> None:
        self.calls: deque[tuple[Call, list[Entry]]] = deque()
        """Calls to run, each with the values of its arguments."""
        self.received = 0
        """How many calls have come."""
        self.specs: dict[int, Spec] = {}
        self.exiting = False
        """Whether the process is to end when it has run its calls."""
        self._taken: dict[bytes, int] = {}
        """Of each call that yields here: how many of its items were taken, as it was told."""

    def came(self, call: Call, arguments: list[Entry]) -> None:
        """A call has come."""
        self.received += 1
        self.calls.append((call, arguments))

    def is_ready(self) -> bool:
        """Whether there is something to do."""
        return bool(self.calls) or self.exiting

    def retire(self) -> None:
        """Run nothing more. What came keeps its tokens: others will run it."""
        self.calls.clear()
        self.exiting = True

    # Calls that yield

    def begins_to_yield(self, call: bytes) -> None:
        """From now on it matters what is taken of it."""
        self._taken[call] = 0

    def yields_no_more(self, call: bytes) -> None:
        """It has ended."""
        self._taken.pop(call, None)

    def demanded(self, message: Demand) -> None:
        """Items of a call have been taken. If it has not begun it will be told again, with the next."""
        if message.call in self._taken:
            self._taken[message.call] = message.count

    def wants(self, call: bytes, index: int, backpressure: int) -> bool:
        """Whether a call may yield the item with this index, of which so many may wait to be taken."""
        return self._taken[call] > index - backpressure
