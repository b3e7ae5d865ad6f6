"""What is kept of the past, for people: attempts that have ended, kinds of errors, totals, what was logged."""

from __future__ import annotations

from collections import deque

from msgspec import Struct, field

from mpi_runtime.scheduler.protocol.entries import ActorEntry, GroupEntry, WorkerEntry
from mpi_runtime.scheduler.protocol.limits import ENDED_ACTORS_MAX, ENDED_MAX, MOVES_MAX, REFUSALS_LOG_US
from mpi_runtime.scheduler.protocol.past import PastMove
from mpi_runtime.scheduler.records.records import Function, Process


class ErrorSeen(Struct, eq=False, gc=False):
    """Equal errors of a function: see `log/errors.py`."""

    function: str
    text: str
    failed: int = 0
    """Calls that have failed with it."""
    retried: int = 0
    """Attempts that have failed with it, of calls that were retried."""
    last_us: int = 0
    rank: int = -1
    host: str = ""
    trace: str = ""
    """The last traceback that was sent."""


class Failed(Struct, eq=False, gc=False):
    """An attempt that has failed, also one that has not run."""

    id: bytes
    parent: bytes
    actor: bytes
    """The actor whose method it is, or that it creates; empty: none."""
    function: Function
    attempt: int
    submitted_us: int
    end_us: int
    code: str
    """The error of the runtime; empty: user code has raised."""
    text: str
    ran: int
    """The number of attempts that had run before its end."""
    driver: int = 0
    """Its owner, as of a task."""


class Run(Struct, eq=False, gc=False):
    """One attempt of a call that has ended."""

    id: bytes
    parent: bytes
    function: Function
    process: Process
    attempt: int
    submitted_us: int
    """By the head's clock."""
    start_us: int
    """By the clock of its host; for DIED by the head's, and not exact."""
    duration_us: int
    outcome: int
    driver: int = 0
    """Its owner, as of a task."""


class Totals(Struct, eq=False, gc=False):
    """Totals for the end of the job, besides those of `statistics`."""

    abandoned: int = 0
    """Calls that were cancelled because the attempt that submitted them died."""
    actors: int = 0
    drivers: int = 0
    """Those that have connected."""
    put_bytes: int = 0
    busy_us: int = 0
    """The sum of the durations of calls."""
    recorded: int = 0
    """Calls of tasks and states of actors in the journal."""


class Logs(Struct, eq=False, gc=False):
    """What was logged, so that it is not repeated, and moves of large values."""

    once: set[str] = field(default_factory=set)
    """The subjects of notes that are logged once: only for membership."""
    times: dict[tuple[str, str], int] = field(default_factory=dict)
    """Counts of frequent events, by event and name."""
    moves: deque[PastMove] = field(default_factory=lambda: deque(maxlen=MOVES_MAX))
    """The last moves of large values."""
    failed: deque[Failed] = field(default_factory=lambda: deque(maxlen=ENDED_MAX))
    """The last attempts that have failed."""
    ended_actors: deque[ActorEntry] = field(default_factory=lambda: deque(maxlen=ENDED_ACTORS_MAX))
    """The last actors that have ended and have no handle left."""
    ended_workers: deque[WorkerEntry] = field(default_factory=lambda: deque(maxlen=ENDED_ACTORS_MAX))
    """The last executors that have ended."""
    removed_groups: deque[GroupEntry] = field(default_factory=lambda: deque(maxlen=ENDED_ACTORS_MAX))
    """The last placement groups that were removed."""
    moved: int = 0
    """The number of moves, with those that are forgotten."""
    refused: int = 0
    """Executors that broke the protocol, or sent unreadable frames."""
    refused_before: int = 0
    refused_us: int = -REFUSALS_LOG_US
    """Those of the last line about them, and its time."""
