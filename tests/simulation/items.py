"""Looks from outside at streams: each item once, in order, not before it is wanted, and none is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpi_runtime.core.client.incoming import ALL
from mpi_runtime.scheduler.protocol.events import Yielded
from tests.simulation.oracle import Thing
from tests.simulation.require import require
from tests.simulation.steps import TASK

if TYPE_CHECKING:
    from tests.simulation.checkers import Checker


class Items:
    """What has been seen of the items of all calls that stream."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self._given: dict[bytes, tuple[bytes, int]] = {}
        """The call and the index of each item that was yielded."""
        self.taken: dict[bytes, int] = {}
        """How many items of each call its client has taken; ALL when it takes no more."""
        self._heard: dict[bytes, int] = {}
        """How many the head has heard of."""
        self._repeated: dict[bytes, int] = {}
        """How many it had heard of when the running attempt began: these it yields again, wanted or not."""
        self._position: dict[bytes, int] = {}
        """How many of them the attempt has yielded that was heard of last, unless it was lost with its rank."""
        self._to_come: set[bytes] = set()
        """Items that have lost every copy, and are yielded again. Only for membership."""
        self._broke_off: set[bytes] = set()
        """Calls that have ended with an error, as for an item that found no room. Only for membership."""
        self._firsts: dict[tuple[bytes, int], bytes] = {}
        """The id of each item in the first attempt that came to it: its client knows it by that."""
        self._made_by: dict[int, list[bytes]] = {}

    def made(self, call: bytes, client: int) -> None:
        """A client makes a call that streams."""
        self._made_by.setdefault(client, []).append(call)

    def client_died(self, client: int) -> None:
        """A client is gone: nobody takes what it has asked for."""
        for call in self._made_by.pop(client, ()):
            self.taken[call] = ALL

    def started(self, call: bytes) -> None:
        """An attempt of a call begins."""
        self._repeated[call] = self._heard.get(call, 0)

    def given(self, id: bytes, call: bytes, index: int, backpressure: int) -> None:
        """An executor yields."""
        self._given[id] = (call, index)
        wanted = max(self.taken.get(call, 0), self._repeated.get(call, 0)) + backpressure
        name = f"item {index} of call {call.hex()}"
        require(not backpressure or index < wanted, f"{name} is yielded, and only {wanted} are wanted")

    def heard(self, event: Yielded) -> None:
        """The head hears of an item."""
        self._checker.world.counters["items again"] += event.index < self._heard.get(event.call, 0)
        self._heard[event.call] = max(self._heard.get(event.call, 0), event.index + 1)
        self._position[event.call] = event.index + 1
        self.first(event)

    def first(self, event: Yielded) -> bytes:
        """The id by which the client knows an item."""
        return self._firsts.setdefault((event.call, event.index), event.id)

    def lost_with_rank(self, call: bytes) -> None:
        """A call was in hand on a rank that is lost: it begins anew, if it may."""
        self._position[call] = 0

    def has_no_copy(self, id: bytes) -> None:
        """A copy of an object was the last. If it is an item, and its call has not ended or come further, it is to come
        again. It may have come again since an earlier loss.
        """
        self._to_come.discard(id)
        call, index = self._given.get(id, (b"", 0))
        if call and index >= self._position.get(call, 0) and not self._checker.ends[call]:
            self._to_come.add(id)

    def broke_off(self, call: bytes) -> None:
        """A call has ended with an error (`values.py` checks that it may): the rest of its items never comes."""
        self._broke_off.add(call)

    def may_be_lost(self, id: bytes) -> bool:
        """Whether an object may be lost for good: it is no item that is to come again, or its call has failed."""
        if id not in self._to_come:
            return True
        checker, call = self._checker, self._given[id][0]
        function = checker.function_of(call)
        return (
            function.kind != TASK
            or bool(checker.raised[call])
            or call in self._broke_off
            or 0 <= function.max_retries < checker.runs[call]
            or checker.cancels.is_to_end(call)
            or checker.times.is_over(call)
            or checker.has_no_place(call)
            or any(checker.losses.explain(one) for one in checker.calls[call].arguments)
        )

    def came(self, call: bytes, id: bytes, position: int) -> None:
        """An item is told to who made the call."""
        require(self._given[id] == (call, position), f"item {position} of call {call.hex()} is {self._given[id]}")

    def ended(self, call: bytes, come: int) -> None:
        """A stream has ended as it must, after so many items."""
        must_be = len(self._checker.oracle.items[self._checker.names[call][0]])
        require(come == must_be, f"call {call.hex()} has ended, and {come} of {must_be} items have come")

    def thing(self, id: bytes) -> Thing | None:
        """What an object must be, if it is an item."""
        if id not in self._given:
            return None
        call, index = self._given[id]
        return self._checker.oracle.items[self._checker.names[call][0]][index]
