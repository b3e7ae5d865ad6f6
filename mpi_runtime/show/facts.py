"""All that is known about a job: what its page, its metrics and `top` show."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mpi_runtime.scheduler.protocol.entries import ActorEntry, DriverEntry
from mpi_runtime.scheduler.protocol.past import Run
from mpi_runtime.scheduler.protocol.series import Row
from mpi_runtime.scheduler.protocol.window_questions import ErrorEntry, JobState, Listed, Piece, StoreState
from mpi_runtime.show.estimates import Estimate
from mpi_runtime.show.measures import Measured
from mpi_runtime.show.numbers import clock, count, seconds
from mpi_runtime.show.terminal import visible

PASSED_ON = "an argument is "
"""Errors with these words are not the first of their kind: see `scheduler/values/call_ends.py`."""


NO_ACTORS: Listed[ActorEntry] = Listed(0, [])


class Waiting(msgspec.Struct):
    """Calls of a function that wait."""

    why: str
    """Of the oldest: others may wait for something else."""
    calls: int
    function: str

    @property
    def reason(self) -> str:
        """Why they wait, in words."""
        return self.why if self.calls == 1 else f"the oldest {self.why}"


class Search(msgspec.Struct):
    """A search that the program runs."""

    name: str
    progress: str
    """In words."""


class Facts(msgspec.Struct, kw_only=True):
    """All that is known about a job."""

    name: str
    pid: int
    host: str
    state: str = "running"
    cause: str = ""
    begin_s: float
    now_s: float
    glance: JobState
    runs: Sequence[Run] = ()
    """The last calls that have ended."""
    ran: int = 0
    """The number of calls that have ended."""
    actors: Listed[ActorEntry] = msgspec.field(default_factory=lambda: NO_ACTORS)
    store: StoreState | None = None
    output: Sequence[Piece] = ()
    errors: dict[str, list[ErrorEntry]] = {}
    """With tracebacks, by function. The live page asks for them on a click."""
    curves: dict[str, list[float]] = {}
    rates: dict[str, float] = {}
    """Ends a second in the last minute, by function; "": of all."""
    estimates: dict[str, Estimate] = {}
    """By function; "": of the job."""
    unknown: dict[str, int] = {}
    """Open calls by function, for those without an estimate."""
    waits: list[Waiting] = []
    """Why calls wait."""
    searches: list[Search] = []
    """The searches that the program runs."""
    measured: dict[str, Measured] = {}
    """By name of the node: what was measured there."""
    recorded: Sequence[Row] = ()
    """What the program has recorded in metrics of its own; asked for where they are written."""
    sizes: dict[tuple[str, int], int] = {}
    """By name of the node and process id: bytes in memory."""

    @property
    def is_over(self) -> bool:
        """Whether the job has ended, one way or another."""
        return self.state in ("ended", "killed")

    @property
    def end_s(self) -> float:
        """The end of the job's time, in seconds since 1970; 0: not known."""
        return self.glance.end_us / 1e6

    def open_at_end(self) -> dict[str, int]:
        """Estimates of the calls that the job's time will not suffice for, by function; "": of all."""
        if not self.end_s:
            return {}
        found = {name: one.open_at(self.end_s, self.now_s) for name, one in self.estimates.items()}
        if "" in found:  # each is rounded, and a function may end later than all calls do at their common rate
            found[""] = max(found[""], sum(number for name, number in found.items() if name))
        return {name: number for name, number in found.items() if number}

    @property
    def cpu_use(self) -> float | None:
        """The busy share of the processors of all measured nodes; None: not known."""
        known = [
            (one.cpus or 1.0, found.cpu)
            for one in self.glance.nodes
            if (found := self.measured.get(one.name)) is not None and found.cpu >= 0
        ]
        return sum(cpus * use for cpus, use in known) / sum(cpus for cpus, _ in known) if known else None

    def host_of(self, actor: ActorEntry) -> str:
        """The name of the node of an actor; empty: it has none."""
        number = int(actor.node_id, 16) if actor.node_id else -1
        nodes = self.glance.nodes
        return nodes[number].name if 0 <= number < len(nodes) else ""

    @property
    def known_s(self) -> float:
        """How long the time is in which all calls are known: that of the job, or of its last calls."""
        if len(self.runs) >= self.ran:
            return max(1e-9, self.now_s - self.begin_s)
        last_us = max(run.end_us for run in self.runs)
        first_us = min(run.start_us for run in self.runs)
        return max(1e-9, (last_us - first_us) / 1e6)


def failures_first(errors: Sequence[ErrorEntry]) -> list[ErrorEntry]:
    """Kinds of errors, those with most failed calls first, and last those of calls whose arguments have failed."""
    return sorted(errors, key=lambda one: (PASSED_ON in one.text, -one.failed, -one.retried))


def how_often(error: ErrorEntry) -> str:
    """Return how often calls had an error, and when the last one, in words for a terminal."""
    again = f", {count(error.retried)} ran again" if error.retried else ""
    return f"{count(error.failed)} failed{again}, last at {clock(error.last_us / 1e6)}"


def driver_state(driver: DriverEntry, now_s: float) -> str:
    """Return the state of a driver in words, and for how long it is away."""
    for_s = max(0.0, now_s - driver.away_ms / 1e3)
    return driver.state.lower() + (f" for {seconds(for_s)}" if driver.away_ms else "")


def time_left(facts: Facts) -> str:
    """Return when the job's time ends and what will not have ended then, in words; empty: it is not known."""
    if not facts.end_s or facts.is_over:
        return ""
    text = f"the job's time ends {clock(facts.end_s)}, in {seconds(max(0.0, facts.end_s - facts.now_s))}"
    late = facts.open_at_end()
    whole = late.pop("", 0)
    if late or whole:
        text += f"; about {count(whole or sum(late.values()))} calls will be open then"
        text += f": {', '.join(f'{count(late[name])} of {name}' for name in list(late)[:4])}" if late else ""
    return text


def on_terminal(facts: Facts) -> Facts:
    """Return the facts without characters that would move the cursor, or clear the screen."""
    shown = ("name", "cause", "glance", "actors", "errors", "rates", "estimates", "unknown", "waits", "searches")
    return msgspec.structs.replace(facts, **{field: visible(getattr(facts, field)) for field in shown})


def waits(facts: Facts) -> str:
    """Return why calls wait, in words for a terminal."""
    return "; ".join(
        f"{count(one.calls)} of {one.function}{'' if one.calls == 1 else ','} {one.reason}" for one in facts.waits
    )
