"""Waiting for values: what a client does in `get` and `wait`, and for futures.

Values that this client made or asked to be made are announced without being asked for; those that others made (borrowed
ones) are subscribed to when somebody waits for them.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mpi_runtime import errors
from mpi_runtime.scheduler.effects import Ready, ReadyElsewhere, ReadyError, ReadyFailed, ReadyStored
from mpi_runtime.scheduler.events import Subscribed

if TYPE_CHECKING:
    from mpi_runtime.processes.client import Client

SUBSCRIBED_MAX = 100
"""How many objects that are ready elsewhere are asked for at a time, while one waits for many."""

Entry = Ready | ReadyStored | ReadyError | ReadyFailed | ReadyElsewhere
"""What a client knows of a value: the message that brought it."""


class _Watch:
    """What a thread waits for in `get`, and what of that has turned out to be an error."""

    __slots__ = ("failed", "wanted")

    def __init__(self, wanted: set[bytes]) -> None:
        self.wanted = wanted
        self.failed: list[bytes] = []


class Waiting:
    """What the threads of one client wait for."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.borrowed: dict[bytes, bool] = {}
        """Objects that others made: whether they have been subscribed to."""
        self._watches: list[_Watch] = []
        """One for each thread in `get`."""
        self.expected: set[bytes] = set()
        """Objects that futures wait for."""
        self._come: deque[bytes] = deque()
        """Those of them that have come and were not looked at."""

    def came(self, message: Entry) -> None:
        """A value has come that this process has references to."""
        if message.id in self.expected:
            self._come.append(message.id)
        if self._watches and _is_error(message):
            for watch in tuple(self._watches):
                if message.id in watch.wanted:
                    watch.failed.append(message.id)

    def get(self, ids: Sequence[bytes], timeout_s: float | None, read: Callable[..., Any] = pickle.loads) -> list[Any]:
        """The values, in order; waits for them. `read`: see `serialize.loads`.

        Raises:
            GetTimeoutError: not all were there in time.
            MpiRuntimeError: one of them is an error, even if others are still missing.
        """
        values = self._client.values
        missing = [id for id in ids if (entry := values.get(id)) is None or type(entry) is ReadyElsewhere]
        if missing:
            watch = _Watch(set(ids))
            self._watches.append(watch)
            try:
                watch.failed += [id for id in ids if _is_error(values.get(id))]
                self._wait_for_values(missing, watch, timeout_s)
            finally:
                self._watches.remove(watch)
        return [self._client.store.load(values[id], read) for id in ids]

    def _wait_for_values(self, missing: list[bytes], watch: _Watch, timeout_s: float | None) -> None:
        at = 0

        def complete() -> bool:
            nonlocal at
            values = self._client.values
            while at < len(missing):
                entry = values.get(missing[at])
                if entry is None:
                    break
                if type(entry) is ReadyElsewhere:
                    self._subscribe_elsewhere(missing[at : at + SUBSCRIBED_MAX])
                    break
                at += 1
            for id in watch.failed:
                if _is_error(values.get(id)):
                    self._client.store.load(values[id])
            return at == len(missing)

        self._subscribe_elsewhere(missing)
        self._subscribe_borrowed(missing, fetch=True)
        if not self._client.wait_until(complete, timeout_s, missing):
            raise errors.GetTimeoutError(
                f"get() waited {timeout_s:g} s, and {len(missing) - at} of {len(missing)} values are not there yet. "
                f"mpi_runtime.explain(ref) tells why; the first is {missing[at].hex()}."
            )

    def _subscribe_elsewhere(self, ids: list[bytes]) -> None:
        """Ask for those of the objects that are ready elsewhere."""
        ids = [id for id in ids if type(self._client.values.get(id)) is ReadyElsewhere]
        for id in ids:
            self._client.values.pop(id, None)
        if ids:
            self._client.outbox.post(Subscribed(ids, True))

    def _subscribe_borrowed(self, ids: Sequence[bytes], fetch: bool) -> None:
        borrowed = [id for id in ids if self.borrowed.get(id) is False and id not in self._client.values]
        for id in borrowed:
            self.borrowed[id] = True
        if borrowed:
            self._client.outbox.post(Subscribed(borrowed, fetch))

    def wait(
        self, ids: Sequence[bytes], count: int, timeout_s: float | None, streams: Sequence[bytes] = ()
    ) -> list[bool]:
        """Wait until `count` of the objects are ready or failed, or have an item to take, if their calls stream.

        Returns:
            For each of `ids`, and then for each of `streams`, whether it is ready.
        """
        values, is_ready = self._client.values, self._client.streams.is_ready
        missing = [id for id in ids if id not in values]
        pending = [call for call in streams if not is_ready(call)]
        if len(ids) - len(missing) + len(streams) - len(pending) < count or timeout_s == 0:
            self._subscribe_borrowed(missing, fetch=False)
            least = 0

            def complete() -> bool:
                nonlocal least
                if self._client.taken >= least:  # else too little has come for a count to be worth it
                    lacking = count - sum(id in values for id in ids) - sum(map(is_ready, streams))
                    # The end of a call that streams is one message for two: for its reference and for its stream.
                    least = self._client.taken + (lacking if not streams else min(lacking, 1))
                return least <= self._client.taken

            self._client.wait_until(complete, timeout_s, missing + pending)
        return [id in values for id in ids] + [is_ready(call) for call in streams]

    def may_be_error(self, id: bytes) -> bool:
        """Whether an object that has come is an error, or is elsewhere, where only large values are."""
        entry = self._client.values.get(id)
        return _is_error(entry) or type(entry) is ReadyElsewhere

    def expect(self, id: bytes) -> bool:
        """Have `wait_for_expected` tell when this object has a value here, after `ask_for`; or whether it has one now.

        It does not tell of one that there is now: it may be asleep, and nothing more comes that would wake it.
        """
        self.expected.add(id)
        entry = self._client.values.get(id)  # looked at after it is expected: who reads does it in the other order
        if entry is None or type(entry) is ReadyElsewhere:
            return False
        self.expected.discard(id)
        return True

    def ask_for(self, id: bytes) -> None:
        """Have the value of an object brought here."""
        self._subscribe_elsewhere([id])
        self._subscribe_borrowed([id], fetch=True)
        self._client.outbox.flush_or(self._client.lost)

    def wait_for_expected(self) -> list[bytes]:
        """Wait until some of the expected objects have a value here; which.

        Raises:
            HeadDiedError: none will come any more.
        """
        arrived: list[bytes] = []

        def complete() -> bool:
            while self._come:
                id = self._come.popleft()
                entry = self._client.values.get(id)
                if type(entry) is ReadyElsewhere:
                    self._subscribe_elsewhere([id])
                elif entry is not None:
                    self.expected.discard(id)
                    arrived.append(id)
            return bool(arrived)

        self._client.wait_until(complete, None, None)
        return arrived


def _is_error(entry: Entry | None) -> bool:
    if isinstance(entry, ReadyStored):
        return entry.is_error
    return isinstance(entry, (ReadyError, ReadyFailed))
