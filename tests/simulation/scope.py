"""Programs that run in virtual processes: where they wait, and how they are interrupted."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeAlias

import msgspec

from mpi_runtime.core.client import scope
from mpi_runtime.scheduler.protocol.events import Call


class TaintedError(Exception):
    """Something that was needed was lost to a fault."""


class CallInterruptedError(Exception):
    """The call was cancelled while it ran."""


class Pause(msgspec.Struct):
    """A program waits: for time, or until something is there."""

    duration_us: int = 0
    is_over: Callable[[], bool] | None = None
    ids: Sequence[bytes] = ()
    """Some of what it waits for."""


Program: TypeAlias = "Generator[Pause, None, None]"


class Scope(scope.Scope):
    """A program that runs: the driver's, or that of a call."""

    def __init__(self, parent: bytes, attempt: int = 0, call: Call | None = None, name: str = "") -> None:
        super().__init__(parent, attempt, call, name)
        self.slots: dict[int, bytes] = {}
        self.seen: list[bytes] = []
        """What it has computed from."""
