"""Calls that yield, as the client that made them sees it and, for back-pressure, the executor that runs them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from mpi_runtime import errors
from mpi_runtime.scheduler.effects import Demand, Item
from mpi_runtime.scheduler.events import Cancelled, Consumed

if TYPE_CHECKING:
    from mpi_runtime.processes.client import Client

_ALL = 1 << 62
"""As many items as there will ever be."""


class Streams:
    """The streams of one client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._items: dict[bytes, deque[bytes]] = {}
        """For each call that streams its items: those that have come and were not taken."""
        self._consumed: dict[bytes, int] = {}
        """How many items of each such call have been taken, where its executor wants to hear of it."""
        self._forgotten: list[bytes] = []
        """Such calls whose items nobody will take any more: their executors have not been told."""
        self.demands: dict[bytes, int] = {}
        """In an executor: how many items have been taken of each call that yields here, as it was told."""

    def begin(self, call: bytes, counts: bool) -> None:
        """A call that streams is about to be submitted; with `counts` its executor wants to hear what is taken."""
        self._items[call] = deque()
        if counts:
            self._consumed[call] = 0

    def next_item(self, call: bytes, timeout_s: float | None, counts: bool) -> bytes | None:
        """Wait for the next item of a stream; its id, now the caller's to count, or None at the end.

        Raises:
            GetTimeoutError: there was none in time.
        """
        items, values = self._items[call], self._client.values

        def complete() -> bool:
            return bool(items) or call in values

        if not complete() and not self._client.wait_until(complete, timeout_s, [call]):
            raise errors.GetTimeoutError(f"nothing was yielded within {timeout_s:g} s")
        if not items:
            return None
        if counts:
            self._consumed[call] = count = self._consumed[call] + 1
            self._client.outbox.post(Consumed(call, count))
        return items.popleft()

    def is_ready(self, call: bytes) -> bool:
        """Whether `next` on a stream would not wait: for an item has come, it has ended, or nobody wants more."""
        items = self._items.get(call)
        return items is None or bool(items) or call in self._client.values

    def is_drained(self, call: bytes) -> bool:
        """Whether a stream has ended and everything was taken."""
        return not self._items.get(call) and call in self._client.values

    def take(self, message: Item) -> None:
        """An item has come, and is ours to count. Of a stream that nobody wants any more it is dropped."""
        items = self._items.get(message.call)
        if items is None:
            self._client.drop(message.id)
        else:
            items.append(message.id)

    def forget(self, call: bytes, cancel: bool = False) -> None:
        """Nobody takes items of a stream any more. Runs in `__del__`: takes no lock unless the call is cancelled."""
        items = self._items.pop(call, None)
        while items:
            self._client.drop(items.popleft())
        if self._consumed.pop(call, None) is not None:
            self._forgotten.append(call)
        if cancel:
            self._client.outbox.post(Cancelled(call, False, False))

    def say_forgotten(self) -> None:
        """Have executors told with the next frame that they need not wait for who takes items."""
        while self._forgotten:
            self._client.outbox.add(Consumed(self._forgotten.pop(), _ALL))

    def demand(self, message: Demand) -> None:
        """In an executor: items of a call have been taken. If it has not begun it will be told again, with the next."""
        if message.call in self.demands:
            self.demands[message.call] = message.count

    def await_demand(self, call: bytes, count: int, timeout_s: float | None) -> bool:
        """In an executor: wait until so many items of a call have been taken; whether they were in time."""

        def complete() -> bool:
            return self.demands[call] >= count

        return complete() or self._client.wait_until(complete, timeout_s, [call])
