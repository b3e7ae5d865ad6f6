"""Looks from outside at cancelled calls: none is given to anybody any more, and none starts or runs on for long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpi_runtime.scheduler.protocol.events import Call, CancelRequested
from tests.simulation.require import require
from tests.simulation.steps import ACTOR, TASK

if TYPE_CHECKING:
    from tests.simulation.checkers import Checker
    from tests.simulation.scope import Scope

LATE_US = 200_000
"""After this time a call that the head knows to be cancelled does not start, and one that can be interrupted has been:
more than all delays together, and less than calls may take."""


class Cancels:
    """What clients have said about cancelling, and what must have come of it."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self._origins: dict[bytes, tuple[bytes, int]] = {}
        """Which call and which attempt of it made each call; the driver is a call without an id."""
        self._children: dict[tuple[bytes, int], list[bytes]] = {}
        """The other way round, as far as the head has heard."""
        self.hands: dict[bytes, tuple[int, int]] = {}
        """Calls that an executor has, as the head knows: which one, and which attempt."""
        self._said: dict[bytes, bool] = {}
        """Calls that some client has cancelled, and whether recursively."""
        self._heard_us: dict[bytes, int] = {}
        """Calls that must end, and since when."""
        self._recursively: set[bytes] = set()
        """Those that must end with all that they submit. Only for membership."""
        self._ran: dict[int, set[tuple[bytes, int]]] = {}
        """Which attempts each process has run."""
        self._died: set[tuple[bytes, int]] = set()
        """Attempts whose process has died: what they have submitted may be cancelled. Only for membership."""

    # What clients say

    def made(self, call: bytes, scope: Scope) -> None:
        """A program makes a call."""
        self._origins[call] = (b"", 0) if scope.call is None else (scope.call.id, scope.call.attempt)

    def submitted(self, call: bytes) -> None:
        """The head hears of a call."""
        origin = self._origins[call]
        self._children.setdefault(origin, []).append(call)
        is_in_hand = origin[0] in self.hands and self.hands[origin[0]][1] == origin[1]
        if is_in_hand and origin[0] in self._recursively and not self._is_creation(call):
            self._checker.world.counters["calls of cancelled calls"] += 1
            self._heard_us.setdefault(call, self._checker.world.now)
            self._recursively.add(call)

    def cancelled(self, event: CancelRequested, now: int) -> None:
        """The head hears that a call is to end."""
        call = self._checker.call_of(event.id)
        if not call or self._is_creation(call):
            return
        self._said[call] = event.recursive or self._said.get(call, False)
        pending = [call]
        while pending:
            call = pending.pop()
            if self._is_creation(call) or (self._checker.ends[call] and call not in self.hands):
                continue  # what had ended may be run again for its value: that was not meant
            self._heard_us.setdefault(call, now)
            if event.recursive:
                self._recursively.add(call)
            if event.recursive and call in self.hands:
                pending += self._children.get((call, self.hands[call][1]), [])

    def _is_creation(self, call: bytes) -> bool:
        return self._checker.function_of(call).kind == ACTOR

    def is_to_end(self, call: bytes) -> bool:
        """Whether the head knows that somebody has cancelled it."""
        return call in self._heard_us

    def explains(self, call: bytes) -> bool:
        """Whether a call was cancelled, or one that has made it, recursively."""
        if call in self._said:
            return True
        while call:
            origin = self._origins[call]
            if origin in self._died or (origin[0] and self._checker.times.is_over(*origin)):
                return True
            call = self._origins[call][0]
            if call and (self._said.get(call, False)) and not self._is_creation(call):
                return True
        return False

    def ends_with_its_actor(self, call: bytes) -> bool:
        """Whether an actor has made a call, or one that has made it, and is gone: then nobody may want it."""
        while call:
            origin = self._origins[call]
            if origin in self._died and self._checker.function_of(origin[0]).kind != TASK:
                return True
            call = origin[0]
        return False

    # What the head does and hears

    def sent(self, executor: int, calls: Sequence[Call]) -> None:
        """The head gives calls to an executor. One that it had sent before it heard is on its way."""
        now = self._checker.world.now
        for call in calls:
            known_us = self._heard_us.get(call.id, now)
            require(known_us == now, f"call {call.id.hex()} is sent, and was cancelled at {known_us} us")
            self.hands[call.id] = executor, call.attempt

    def ended(self, call: bytes) -> None:
        """The head hears how a call ended."""
        self.hands.pop(call, None)

    def taken_back(self, calls: Sequence[bytes]) -> None:
        """The head hears that calls have not started."""
        for call in calls:
            self.hands.pop(call, None)

    def assigned(self, executor: int) -> dict[bytes, int]:
        """The calls that an executor has, as the head knows, and their attempts: first to last."""
        return {call: attempt for call, (number, attempt) in self.hands.items() if number == executor}

    def executor_died(self, executor: int) -> None:
        """The head hears that an executor is gone."""
        for call in [call for call, (number, _) in self.hands.items() if number == executor]:
            del self.hands[call]

    # What executors do

    def refused(self, call: bytes, is_alone: bool) -> None:
        """An executor finds that a call which it was about to start was cancelled; `is_alone`: it could not be taken
        back earlier.
        """
        require(is_alone or not self._is_late(call), f"call {call.hex()} was cancelled, and waited for long to hear it")

    def started(self, executor: int, call: Call) -> None:
        """An executor starts a call."""
        require(not self._is_late(call.id), f"call {call.id.hex()} starts long after it was cancelled")
        self._ran.setdefault(executor, set()).add((call.id, call.attempt))

    def died(self, executor: int) -> None:
        """The process of an executor is gone."""
        self._died |= self._ran.pop(executor, set())

    def stopped(self, call: bytes) -> None:
        """A call that can be interrupted has ended."""
        require(not self._is_late(call), f"call {call.hex()} ran on long after it was cancelled")

    def _is_late(self, call: bytes) -> bool:
        now = self._checker.world.now
        return now > self._heard_us.get(call, now) + LATE_US
