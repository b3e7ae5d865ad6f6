"""Calls and their life.

The life cycle is a table: for each event the states in which it may happen and the state that follows. Cancelled and
lost are states like any other. `advance` is the only way to change a state; what is not in the table is a bug of ours
and raises with the call's story.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from mpi_runtime.scheduler.events import ACTOR, METHOD, Call, Spec, Where
from mpi_runtime.scheduler.resources import Request

if TYPE_CHECKING:
    from mpi_runtime.scheduler.actors import Actor
    from mpi_runtime.scheduler.nodes import Executor
    from mpi_runtime.scheduler.queues import Queue

WAITING, READY, STAGING, SENT, BLOCKED, LOST, FINISHED, FAILED, CANCELLED = range(9)
STATE_NAMES = ("waiting", "ready", "staging", "sent", "blocked", "lost", "finished", "failed", "cancelled")
ENDED = frozenset((FINISHED, FAILED, CANCELLED))

ARGUMENTS_READY = {WAITING: READY}
"""All arguments have values."""
STAGED = {READY: STAGING}
"""An executor was chosen; arguments are on their way to its host."""
SEND = {READY: SENT, STAGING: SENT}
"""Given to an executor, which may have others before it."""
TAKE_BACK = {SENT: READY, STAGING: READY}
"""Not started, and in the scheduler's hands again."""
BLOCK = {SENT: BLOCKED}
"""Runs and waits for objects."""
UNBLOCK = {BLOCKED: SENT}
FINISH = {SENT: FINISHED, BLOCKED: FINISHED}
"""Its value or its own error has arrived."""
LOSE = {SENT: LOST, BLOCKED: LOST}
"""Its executor died while it ran, or it raised and is to be run again."""
RETRY = {LOST: READY}
CREATE_AGAIN = {FINISHED: READY}
"""The creation of an actor whose process died."""
FAIL = {WAITING: FAILED, READY: FAILED, STAGING: FAILED, SENT: FAILED, BLOCKED: FAILED, LOST: FAILED}
"""The runtime gives it an error."""
CANCEL = dict.fromkeys((WAITING, READY, STAGING, SENT, BLOCKED, LOST), CANCELLED)

TABLES = {
    "arguments ready": ARGUMENTS_READY,
    "staged": STAGED,
    "sent": SEND,
    "taken back": TAKE_BACK,
    "blocked": BLOCK,
    "unblocked": UNBLOCK,
    "finished": FINISH,
    "lost": LOSE,
    "retried": RETRY,
    "created again": CREATE_AGAIN,
    "failed": FAIL,
    "cancelled": CANCEL,
}
"""For diagrams and tests."""


class Function(Struct, eq=False, gc=False):
    """A spec and what has been learnt about its calls."""

    spec: Spec
    request: Request
    queues: list[Queue | None]
    """By depth of the call, as far as used."""
    where: Where | None = None
    """Where its calls run, in terms of this cluster."""
    infeasible: str = ""
    """Why no node can ever run it; empty: some node can."""
    duration_us: int = -1
    """Moving mean of the measured duration; -1: not known yet."""
    is_timed: bool = False
    """Whether the end of the job's time may come before that of its calls: each is looked at when it could begin. Tasks
    have queues of their own for that; methods are not sent ahead, also as long as nobody knows how long they take."""

    @property
    def is_actor(self) -> bool:
        """Whether its calls create actors."""
        return self.spec.kind == ACTOR

    @property
    def is_method(self) -> bool:
        """Whether its calls run inside an actor."""
        return self.spec.kind == METHOD


class Task(Struct, eq=False, gc=False):
    """One call under way."""

    call: Call
    function: Function
    client: int
    """Who submitted it."""
    depth: int
    """0 for calls of the driver, one more for each level of nesting."""
    order: int
    """Position among all calls ever submitted."""
    retries: int
    """How often it may still be run again; -1: without limit."""
    submitted_us: int
    """When the head heard of it."""
    state: int = WAITING
    missing: int = 0
    """WAITING: arguments without a value. STAGING: arguments not yet on the executor's host."""
    executor: Executor | None = None
    """STAGING, SENT and BLOCKED: where."""
    estimate_us: int = 0
    """SENT: what was added to the executor's load for it."""
    actor: Actor | None = None
    """For creations and methods."""
    yielded: int = 0
    """With STREAMING: how many values."""
    consumed: int = 0
    """With STREAMING: how many of them its client has taken, or need not be waited for because nobody will."""
    is_cancelled: bool = False
    """It is to end as soon as its executor lets it."""

    @property
    def id(self) -> bytes:
        """The id of the call and of its first return value."""
        return self.call.id


class IllegalTransitionError(AssertionError):
    """A bug of the runtime: an event came in a state in which it cannot happen. Please report it with the text."""


def advance(task: Task, table: dict[int, int]) -> None:
    """Change the state of a task as the table says."""
    state = table.get(task.state)
    if state is None:
        name = next((name for name, known in TABLES.items() if known is table), "?")
        raise IllegalTransitionError(
            f"call {task.id.hex()} of {task.function.spec.name} cannot be {name!r} while it is "
            f"{STATE_NAMES[task.state]!r} (attempt {task.call.attempt}, order {task.order})"
        )
    task.state = state


def return_ids(task: Task) -> list[bytes]:
    """The ids of all return values: consecutive, starting with the id of the call itself."""
    count = task.function.spec.num_returns
    if count <= 1:
        return [task.call.id]
    start = int.from_bytes(task.call.id, "big")
    return [(start + index).to_bytes(16, "big") for index in range(count)]
