"""Checks what the user is told of errors that nobody has read. In these worlds an error names its call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpi_runtime.scheduler.protocol.events import Call, ErrorRead
from tests.simulation.require import require

if TYPE_CHECKING:
    from tests.simulation.checkers import Checker


class Unread:
    """What the head has heard of errors."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        self.read: set[bytes] = set()
        """Objects whose errors somebody has read."""
        self.passed_on: set[bytes] = set()
        """Objects that calls have had as arguments: their errors may have become those of the calls."""

    def heard(self, event: object) -> None:
        """The head hears this from a client."""
        if isinstance(event, ErrorRead):
            self.read.update(event.ids)
        elif isinstance(event, Call):
            self.passed_on.update(event.arguments)

    def told(self, texts: Sequence[str]) -> None:
        """The user is told of these errors."""
        for text in texts:
            found = re.search(r"raised by ([0-9a-f]{32})", text)
            if found is None:
                continue  # one of the runtime
            call = bytes.fromhex(found[1])
            first, count = int.from_bytes(call, "big"), max(1, self.checker.function_of(call).num_returns)
            ids = {(first + index).to_bytes(16, "big") for index in range(count)}
            self.checker.world.counters["errors that nobody has read"] += 1
            if not ids & self.passed_on:
                require(not ids & self.read, f"the error of call {call.hex()} was read, and is told as if it was not")
