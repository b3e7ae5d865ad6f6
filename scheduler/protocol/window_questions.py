"""Questions of programs that look at a job through its window, `core/head/inspection.py`: `top`, `view`, `list`.

They are like those of clients, see `questions.py`, but each answer is bounded, whatever the job's size: it has to fit
the buffer of a Unix socket. The scheduler answers most of them, the head those of `HeadQuestion`. To add one: as there,
but in `WindowQuestion`.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from mpi_runtime.scheduler.protocol.entries import (
    ActorEntry,
    Amounts,
    Counts,
    DriverEntry,
    GroupEntry,
    HostUse,
    NodeEntry,
    NodeStore,
    ObjectEntry,
    TaskEntry,
)
from mpi_runtime.scheduler.protocol.past import PastMoves, PastRuns, Runs, titled
from mpi_runtime.scheduler.protocol.questions import A, Explanation, Question, decoded
from mpi_runtime.scheduler.protocol.series import Row

E = TypeVar("E")


# The job at a glance


class JobCounts(Counts):
    """Counts of everything. Calls that were cancelled do not count as failed."""

    running: int
    waiting: int
    ran: int
    """Attempts that have ended."""
    cancelled: int = 0

    @property
    def ended(self) -> int:
        """The calls that have ended."""
        return self.finished + self.failed + self.cancelled


class FunctionEntry(Struct, kw_only=True):
    """The calls of all functions of one name."""

    name: str
    kind: str
    needs: str
    """The request of a call, in words."""
    submitted: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    running: int = 0
    mean_us: int = -1
    """The moving mean of the durations; -1: not known."""
    waiting: int = 0

    @property
    def ended(self) -> int:
        """The calls that have ended."""
        return self.done + self.failed + self.cancelled


class BusyProcess(Struct, array_like=True):
    """A process that runs a call."""

    name: str
    """Of the function, with the size of a gang."""
    kind: str
    is_blocked: bool
    host: str
    rank: int
    pid: int
    for_us: int
    id: str
    actor: str
    """The title of the actor of the process; empty: none."""
    driver: int = 0
    """The driver of a session that the call belongs to; 0: none."""

    @property
    def doing(self) -> str:
        """Its state, in a word."""
        return "waits" if self.is_blocked else "runs"

    @property
    def title(self) -> str:
        """The name of the call, with that of its actor."""
        return titled(self.actor, self.name)


class ErrorEntry(Struct):
    """Equal errors of a function: see `log/errors.py`."""

    function: str
    text: str
    failed: int
    retried: int
    last_us: int
    """The time of the last one, since 1970."""
    rank: int
    host: str
    trace: str
    """The last traceback; empty if it is not shown here, or the error has none."""


class NodeLoad(Struct):
    """What a node has, and what calls and actors hold of it."""

    name: str
    cpus: float
    cpus_used: float
    gpus: float
    gpus_used: float
    memory: int
    memory_used: int
    arena: int
    executors: int
    is_closed: bool
    """Whether its memory is so full that no call starts there."""
    problems: list[str]


class JobState(Struct):
    """Resources, functions, running calls, kinds of errors, and the load of nodes."""

    job_us: int
    """The time of the answer, since 1970."""
    end_us: int
    """The end of the job's time, since 1970; 0: not known."""
    counts: JobCounts
    total: Amounts
    free: Amounts
    functions: list[FunctionEntry]
    functions_in_all: int
    running: list[BusyProcess]
    """Those that run longest, first."""
    errors: list[ErrorEntry]
    nodes: list[NodeLoad]
    nodes_in_all: int
    drivers: list[DriverEntry] = []
    """Of a session."""
    drivers_in_all: int = 0


class Glance(Question[JobState]):
    """The state of the job."""


class Watch(Question[JobState]):
    """The final state, when the program ends its job. A job that is killed sends none."""


class RunsSince(Question[Runs]):
    """Attempts that have ended after this number of them: the last ones."""

    ran: int


class Errors(Question[list[ErrorEntry]]):
    """The kinds of errors, the most frequent first; with tracebacks, if they are those of one function."""

    function: str | None = None


class OldestCall(Explanation):
    """Why a call waits."""

    id: str


class Oldest(Question[OldestCall]):
    """Why the oldest waiting call of a function waits."""

    function: str


# Lists


class Listed(Struct, Generic[E]):
    """The first entries of a list."""

    count: int
    """The number of all."""
    rows: list[E]


class FirstTasks(Question[Listed[TaskEntry]]):
    """Calls that run, then the first of each queue."""


class FirstActors(Question[Listed[ActorEntry]]):
    """The first actors."""


class FirstObjects(Question[Listed[ObjectEntry]]):
    """The first objects."""


class FirstNodes(Question[Listed[NodeEntry]]):
    """The first nodes."""


class FirstDrivers(Question[Listed[DriverEntry]]):
    """The first drivers of a session."""


class FirstGroups(Question[Listed[GroupEntry]]):
    """The first placement groups."""


class LargeValue(Struct):
    """A large value of the store."""

    object_id: str
    size: int
    in_memory: bool
    on_disk: bool
    made_by: str
    held_by: str
    hostname: str


class StoreState(Struct):
    """The object store of the job."""

    count: int
    nodes: list[NodeStore]
    """Those with the most bytes in memory first."""
    used: int
    on_disk: int
    capacity: int
    by_function: dict[str, int]
    """The bytes of the largest values, by what made them."""
    largest: list[LargeValue]


class WholeStore(Question[StoreState]):
    """The object store by node, the largest values, and what made them."""


# What has run


class RunsFrom(Question[PastRuns]):
    """A part of the history, from this number on."""

    first: int


class MovesFrom(Question[PastMoves]):
    """A part of the moves of large values, from this number on."""

    first: int


# Answers of the head


class Piece(Struct, array_like=True):
    """A piece of output."""

    number: int
    time_s: float
    level: int
    """1 or 2: the stream; above: the level of a line of the log."""
    writer: str
    text: str


class Pieces(Struct):
    """The last pieces of output."""

    count: int
    """The number of all."""
    pieces: list[Piece]


class Output(Question[Pieces]):
    """The output after this number of pieces."""

    since: int


class ProcessSize(Struct, array_like=True):
    """The memory of an executor, in bytes."""

    node: str
    pid: int
    size: int


class HostsUse(Struct):
    """The last measures of all hosts."""

    period_s: float
    """The time between two measurements."""
    nodes: dict[str, HostUse]
    sizes: list[ProcessSize]


class MeasuredHosts(Question[HostsUse]):
    """What is used on each host. The question has them measure again if it is time."""


class Stack(Question[str]):
    """The stacks of a process; empty: not yet."""

    host: str
    pid: int


class RecordedFrom(Question[list[Row]]):
    """A part of what the program counts in metrics of its own, from this number on. The first part is a new state."""

    first: int


SchedulerQuestion = (
    Glance | RunsSince | Errors | Oldest
    | FirstTasks | FirstActors | FirstObjects | FirstNodes | FirstGroups | FirstDrivers
    | WholeStore
    | RunsFrom | MovesFrom
)  # fmt: skip
HeadQuestion = Output | MeasuredHosts | Stack | RecordedFrom
SingleQuestion = SchedulerQuestion | HeadQuestion


class Reply(Struct, array_like=True):
    """What the window sends: an answer, or why it has no answer."""

    problem: str
    value: msgspec.Raw

    def to(self, question: Question[A]) -> A:
        """The answer.

        Raises:
            LookupError: the job has no answer, or the answer cannot be read.
        """
        if self.problem:
            raise LookupError(self.problem)
        try:
            return decoded(question, self.value)
        except msgspec.ValidationError as error:
            raise LookupError(f"the answer cannot be read ({error}): is the job one of another version?") from error


class Several(Question[list[Reply]]):
    """Several questions at once, which costs the head less."""

    questions: list[SingleQuestion]


WindowQuestion = SingleQuestion | Several | Watch
