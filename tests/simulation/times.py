"""What is demanded of time: where the job's ends, nothing begins that says it cannot end before, and the user hears
why; and calls with a time limit that is enforced do not run on for long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpi_runtime.scheduler.protocol.events import Call
from tests.simulation.cancels import LATE_US
from tests.simulation.require import require
from tests.simulation.steps import GATHER_US, METHOD

if TYPE_CHECKING:
    from tests.simulation.checkers import Checker


class Times:
    """Compares calls that say how long they may take with the end, when they are sent and when they begin."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        self.world = checker.world
        options = self.world.options
        self.way_us = max(options.network_us[1], options.socket_us[1]) + options.socket_us[1] + 2 * options.stall_us
        """How long a message to an executor takes at most."""
        self.told_us = self.way_us + max(options.batch_us, GATHER_US if options.accounts else 0) + 100
        """How long the end of a call takes to be heard of at most."""
        self.sent_us: dict[bytes, int] = {}
        self.ran: dict[tuple[bytes, int], tuple[int, int]] = {}
        """Since when each attempt of a call with a limit has run, and until when; -1: it runs."""
        self.notes: list[str] = []
        self.measured: set[int] = set()
        """Functions of which a call has ended, by number: what was expected of them counts no more."""

    def limit_us(self, id: bytes) -> int:
        """How long a call may take, if it says so."""
        return self.checker.function_of(id).time_limit_us

    def claim_us(self, id: bytes) -> int:
        """How much time a call must have left to be started, as far as its function says."""
        function = self.checker.function_of(id)
        if function.expect_us:
            return 0 if function.number in self.measured else function.expect_us
        return function.time_limit_us

    def sent(self, calls: Sequence[Call]) -> None:
        """The head gives calls to an executor: they can end before the job does, as far as they have said."""
        now, end_us = self.world.now, self.world.options.end_us
        for call in calls if end_us else ():
            self.sent_us[call.id] = now
            late = now < end_us < now + self.claim_us(call.id)
            require(not late, f"call {call.id.hex()} is sent at {now}, and cannot end in time")

    def is_over(self, id: bytes, attempt: int = -1) -> bool:
        """Whether a call, or this attempt of it, may have been ended because of its limit."""
        if not self.checker.function_of(id).enforces_limit:
            return False
        return any(
            (self.world.now if until_us < 0 else until_us) - since_us >= self.limit_us(id) - self.told_us
            for (call, number), (since_us, until_us) in self.ran.items()
            if call == id and attempt in (-1, number)
        )

    def any_is_over(self) -> bool:
        """Whether any call may have been."""
        return any(self.is_over(*key) for key in self.ran)

    def ended(self, call: Call) -> None:
        """It has ended, or its process is gone: with a limit, not much later than that."""
        key = call.id, call.attempt
        function = self.checker.function_of(call.id)
        self.measured.add(function.number)
        self.world.counters["calls that were expected to be short"] += bool(function.expect_us)
        if key in self.ran:
            since_us, now = self.ran[key][0], self.world.now
            self.ran[key] = since_us, now
            most_us = self.limit_us(call.id) + self.world.options.grace_us + LATE_US
            require(now - since_us <= most_us, f"call {call.id.hex()} has run for {now - since_us} us, over its limit")
            self.world.counters["calls over their limit"] += self.is_over(*key)

    def started(self, call: Call) -> None:
        """It begins. What an actor does begins as soon as it is there: behind others it might be too late."""
        if self.checker.function_of(call.id).enforces_limit:
            self.ran[call.id, call.attempt] = self.world.now, -1
        if not self.world.options.end_us or not self.limit_us(call.id):
            return
        if self.checker.function_of(call.id).kind == METHOD:
            took_us = self.world.now - self.sent_us[call.id]
            require(took_us <= self.way_us, f"call {call.id.hex()} was sent {took_us} us before it began")
            self.world.counters["calls of actors that say how long"] += 1

    def noted(self, notes: Sequence[str]) -> None:
        """The user is told these."""
        for note in notes:
            name = note.split(",")[0]
            require(name not in self.notes, f"said again: {note}")
            self.notes.append(name)

    def held_back(self, function: str, calls: int) -> None:
        """Calls have not been started, since the time was too short."""
        self.world.counters["calls held back"] += calls
        require(not calls or f"calls of {function}" in self.notes, f"nobody was told that {function} is not started")
