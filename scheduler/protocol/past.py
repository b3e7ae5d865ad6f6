"""Answers about what has run: attempts of calls that have ended, and moves of large values."""

from __future__ import annotations

from msgspec import Struct

RETURNED, RAISED, DIED, CANCELLED, LEFT = range(5)
"""The outcomes of an attempt. DIED: with its process. CANCELLED: it was interrupted, or had not run. LEFT: it has ended
its actor, as it wanted."""


def titled(actor: str, name: str) -> str:
    """The name of a call, with that of its actor, if it does not have that already."""
    return f"{actor}: {name}" if actor and actor not in name else name


class Run(Struct, array_like=True):
    """An attempt of a call that has ended, for pages. Times are since 1970."""

    name: str
    kind: int
    """TASK, ACTOR or METHOD."""
    host: str
    rank: int
    pid: int
    actor: str
    """The title of the actor of its process; empty: none."""
    submitted_us: int
    start_us: int
    duration_us: int
    outcome: int
    """RETURNED, RAISED, DIED or CANCELLED."""
    attempt: int
    cpus: float
    gpus: float
    gpu_ids: list[int]

    @property
    def title(self) -> str:
        """The name of the call, with that of the actor of its process."""
        return titled(self.actor, self.name)

    @property
    def end_us(self) -> int:
        """When it ended."""
        return self.start_us + self.duration_us

    @property
    def waited_us(self) -> int:
        """The time from its submission to its start."""
        return self.start_us - self.submitted_us


class Runs(Struct):
    """Attempts that have ended, in the order of their ends."""

    ran: int
    """The number of all that have ended, with those that are forgotten."""
    runs: list[Run]


class RunProcess(Struct, array_like=True):
    """A process that has run a call."""

    executor: int
    pid: int
    name: str
    """The title of its actor; empty: none."""
    rank: int


class RunNode(Struct, array_like=True):
    """The number and the host of a node."""

    number: int
    hostname: str


class RunTimes(Struct, array_like=True):
    """The times of a call, by the head's clock."""

    submitted_us: int
    start_us: int
    duration_us: int


class PastRun(Struct, array_like=True):
    """An attempt of a call that has ended, for `timeline()`."""

    id: str
    name: str
    type: str
    attempt: int
    actor_id: str | None
    process: RunProcess
    node: RunNode
    times: RunTimes
    error: str
    """Why it has failed, in words; empty: it has not."""
    driver: int = 0
    """The driver of a session that it belongs to; 0: none."""


class MoveTimes(Struct, array_like=True):
    """The times of a move, by the head's clock."""

    start_us: int
    duration_us: int


class PastMove(Struct, array_like=True):
    """A move of a large value, or the level of an arena."""

    what: str
    """"copy", "spill", "read" or "level"."""
    object_id: str
    made_by: str
    size: int
    node: RunNode
    source: str
    """The host from which it was copied."""
    times: MoveTimes


class PastRuns(Struct):
    """Runs in the order of their ends. Add `wall_us` for times since 1970."""

    wall_us: int
    dropped: int
    """The number of earlier runs that are forgotten."""
    runs: list[PastRun]


class PastMoves(Struct):
    """Moves of large values, in their order."""

    moves_dropped: int
    moves: list[PastMove]


class Past(PastRuns):
    """Runs and moves."""

    moves_dropped: int
    moves: list[PastMove]
