"""Waits for values: `get`, `wait` and futures.

Values that this client made or requested are announced without a subscription. Values of others (borrowed ones) are
subscribed to when a thread waits for them.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from mpi_runtime import errors
from mpi_runtime.core.client.connection import Line
from mpi_runtime.core.client.incoming import Arrivals, ReceivedItems, Watch
from mpi_runtime.core.client.references import References, is_error
from mpi_runtime.core.client.stalls import Stalls
from mpi_runtime.core.client.store import Store
from mpi_runtime.core.objects import serialize
from mpi_runtime.core.objects.serialize import NONE
from mpi_runtime.scheduler.protocol.effects import Ready, ReadyElsewhere
from mpi_runtime.scheduler.protocol.events import SubscriptionRequested

SUBSCRIBED_MAX = 100
"""The number of objects that are requested from elsewhere at a time, during a wait for many."""


class Waiting:
    """The waits of one client's threads."""

    def __init__(
        self, line: Line, references: References, arrivals: Arrivals, items: ReceivedItems, store: Store, stalls: Stalls
    ) -> None:
        self._line = line
        self._references = references
        self._values = references.values
        self._arrivals = arrivals
        self._items = items
        self._store = store
        self._stalls = stalls

    def get(
        self, ids: Sequence[bytes], timeout_s: float | None, read: Callable[..., object] = pickle.loads
    ) -> list[Any]:
        """Wait for values and return them, in order. `read`: see `serialize.loads`.

        Raises:
            GetTimeoutError: not all arrived in time.
            MpiRuntimeError: one of them is an error, even if others are still missing.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._wait_for_all(ids, timeout_s)
        values, load = self._values, self._load
        loaded = []
        for id in ids:
            entry = values.get(id)
            if type(entry) is Ready:  # the frequent case, without three calls
                data = entry.data
                loaded.append(None if data == NONE else serialize.loads(data, read))
            else:
                loaded.append(load(id, deadline, read))
        return loaded

    def _load(self, id: bytes, deadline: float | None, read: Callable[..., object]) -> object:
        while True:
            entry, data = self._store.look_at(id)
            if entry is not None and type(entry) is not ReadyElsewhere:
                return self._store.load_seen(entry, data, read)
            # It was spilled after it had arrived, because no view of it existed.
            self._wait_for_all([id], None if deadline is None else max(0.0, deadline - time.monotonic()))

    def _wait_for_all(self, ids: Sequence[bytes], timeout_s: float | None) -> None:
        values = self._values
        missing = [id for id in ids if (entry := values.get(id)) is None or type(entry) is ReadyElsewhere]
        if missing:
            watch, watches = Watch(ids), self._arrivals.watches
            watches.append(watch)
            try:
                watch.failed += [id for id in ids if (entry := values.get(id)) is not None and is_error(entry)]
                self._wait_for_values(missing, watch, timeout_s)
            finally:
                watches.remove(watch)

    def _wait_for_values(self, missing: list[bytes], watch: Watch, timeout_s: float | None) -> None:
        at = 0

        def complete() -> bool:
            nonlocal at
            values = self._values
            while at < len(missing):
                entry = values.get(missing[at])
                if entry is None:
                    break
                if type(entry) is ReadyElsewhere:
                    self._subscribe_elsewhere(missing[at : at + SUBSCRIBED_MAX])
                    break
                at += 1
            for id in watch.failed:
                if is_error(values.get(id)):
                    self._store.load(values[id])
            return at == len(missing)

        self._subscribe_elsewhere(missing)
        self._subscribe_borrowed(missing, fetch=True)
        if not self._stalls.wait(complete, timeout_s, missing, lambda: missing[at:]):
            waited = f"waited {timeout_s:g} s"
            if timeout_s is not None and timeout_s < 0:
                waited = f"does not wait with timeout={timeout_s:g} (with None it does)"
            # A program that polls, with 0, need not wait for a name.
            first = self._stalls.name(missing[at]) if timeout_s and timeout_s > 0 else f"object {missing[at].hex()}"
            raise errors.GetTimeoutError(
                f"get() {waited}, and {len(missing) - at} of {len(missing)} values have not arrived. "
                f"The first that is missing: {first}. mpi_runtime.explain(ref) shows why."
            )

    def _subscribe_elsewhere(self, ids: Sequence[bytes]) -> None:
        """Request the objects that are ready elsewhere."""
        self._post(self._references.ask_again(ids))

    def _subscribe_borrowed(self, ids: Sequence[bytes], fetch: bool) -> None:
        self._post(self._references.subscribe(ids, fetch))

    def _post(self, request: SubscriptionRequested | None) -> None:
        if request is not None:
            self._line.outbox.post(request)

    def wait(
        self, ids: Sequence[bytes], count: int, timeout_s: float | None, streams: Sequence[bytes] = ()
    ) -> list[bool]:
        """Wait until `count` of the objects are ready or failed, or have an item to consume, if their calls stream.

        Returns:
            Whether each of `ids`, and then each of `streams`, is ready.
        """
        values, is_ready, arrivals = self._values, self._items.is_ready, self._arrivals
        missing = [id for id in ids if id not in values]
        pending = [call for call in streams if not is_ready(call)]
        if len(ids) - len(missing) + len(streams) - len(pending) < count or timeout_s == 0:
            self._subscribe_borrowed(missing, fetch=False)
            least = 0

            def complete() -> bool:
                nonlocal least
                if arrivals.taken >= least:  # else too few messages have arrived to count again
                    lacking = count - sum(id in values for id in ids) - sum(map(is_ready, streams))
                    # The end of a call that streams is one message for its reference and its stream.
                    least = arrivals.taken + (lacking if not streams else min(lacking, 1))
                return least <= arrivals.taken

            self._stalls.wait(
                complete,
                timeout_s,
                missing + pending,
                lambda: [id for id in missing if id not in values] + [call for call in pending if not is_ready(call)],
            )
        return [id in values for id in ids] + [is_ready(call) for call in streams]

    def first_ready(self, ids: Sequence[bytes], count: int) -> list[int]:
        """Return the positions of the first `count` of these objects that are ready now, or of all that are."""
        values = self._values
        return list(islice((place for place, id in enumerate(ids) if id in values), count))

    def may_be_error(self, id: bytes) -> bool:
        """Whether an object that has arrived is an error, or is a large value elsewhere, which may be one."""
        entry = self._values.get(id)
        return is_error(entry) or type(entry) is ReadyElsewhere

    def expect(self, id: bytes) -> bool:
        """Expect an object, so that `wait_for_expected` returns it when its value is here. `ask_for` must follow.

        Returns:
            Whether the value has arrived already. Then it is not expected: no further message would end a wait.
        """
        self._arrivals.expected.add(id)
        entry = self._values.get(id)  # read after it is expected; the reading thread does both in the other order
        if entry is None or type(entry) is ReadyElsewhere:
            return False
        self._arrivals.expected.discard(id)
        return True

    def expect_no_more(self, id: bytes) -> None:
        """Do not expect an object any more."""
        self._arrivals.expected.discard(id)

    def ask_for(self, id: bytes) -> None:
        """Request the value of an object."""
        self._subscribe_elsewhere([id])
        self._subscribe_borrowed([id], fetch=True)
        self._line.outbox.hurry(self._line.lost)

    def wait_for_expected(self) -> list[bytes]:
        """Wait until some of the expected objects have a value here, and return their ids.

        Raises:
            MpiRuntimeError: the connection is closed: see `Line.wait_until`.
        """
        arrived: list[bytes] = []
        arrivals = self._arrivals.arrived

        def complete() -> bool:
            while arrivals:
                id = arrivals.popleft()
                entry = self._values.get(id)
                if type(entry) is ReadyElsewhere:
                    self._subscribe_elsewhere([id])
                elif entry is not None:
                    self._arrivals.expected.discard(id)
                    arrived.append(id)
            return bool(arrived)

        self._line.wait_until(complete, None, None)
        return arrived

    def next_item(self, call: bytes, timeout_s: float | None, resumes: bool) -> bytes | None:
        """Wait for the next item of a call that yields, and return its id, which the caller now counts; None: the end.

        Unless it `resumes`, the item is not reported as consumed.

        Raises:
            GetTimeoutError: no item was yielded in time.
        """
        items = self._items

        def complete() -> bool:
            return items.has_ended_or_item(call)

        if not complete() and not self._stalls.wait(complete, timeout_s, [call], lambda: [call]):
            raise errors.GetTimeoutError(f"nothing was yielded within {timeout_s:g} s")
        return items.take(call, resumes)
