"""Parts of the records of calls, executors, actors and queues that most of them lack. They refer to no record."""

from __future__ import annotations

from collections import deque
from typing import Protocol, TypeVar

from msgspec import Struct

from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.events import Kept
from mpi_runtime.scheduler.records.lifecycle import ENDED


class Watch(Struct, eq=False, gc=False):
    """The unusual properties of an assigned call. The record is dropped with the call."""

    began_us: int = -1
    """With a time limit: the start of its user code; -1: not yet."""
    looked_us: int = -1
    """The time of the last look at it, since then."""
    interrupted_us: int = -1
    """The time of the interrupt; -1: it was not interrupted."""
    is_logged: bool = False
    """Whether a warning was logged that it ignores the interrupt."""
    killed_for: str = ""
    """The cause if its process is being killed to free memory; empty: it is not."""
    spares_retry: bool = False
    """Whether that kill uses no retry: other calls took the memory too."""
    ends_children: bool = False
    """Whether calls that it submits are cancelled on arrival: it was cancelled recursively."""
    by_force: bool = False
    """Whether those are cancelled with `force`."""


class Account(Struct, eq=False, gc=False):
    """The use of resources by the calls of an account: see `accounts.py`."""

    name: str
    weight: float = 1.0
    limit: int = 0
    """The largest number of its calls that run at a time; 0: no limit."""
    running: int = 0
    """The number of its calls that run and do not wait for objects."""
    cpu: int = 0
    gpu: int = 0
    cpu_in_all: int = 1
    """The CPU units of all nodes."""
    gpu_in_all: int = 1

    def is_full(self) -> bool:
        """Whether none of its calls may start."""
        return 0 < self.limit <= self.running

    def is_overdrawn(self) -> bool:
        """Whether more run than the limit allows: calls that had waited for objects continue."""
        return 0 < self.limit < self.running

    def note(self, request: Request, sign: int) -> None:
        """Add (sign 1) or remove (sign -1) what an executor was granted for a request."""
        self.running += sign
        self.cpu += sign * request.cpu
        self.gpu += sign * request.gpu

    def share_with(self, request: Request | None) -> float:
        """Its dominant share divided by its weight, with this request added."""
        cpu, gpu = (self.cpu, self.gpu) if request is None else (self.cpu + request.cpu, self.gpu + request.gpu)
        return max(cpu / self.cpu_in_all, gpu / self.gpu_in_all) / self.weight


class Charge(Struct, eq=False, gc=False):
    """What an account is charged for the grant of an executor."""

    account: Account
    request: Request


class Refusal(Struct, eq=False, gc=False):
    """How an executor broke the protocol. Then it is being killed, and its messages are dropped."""

    why: str
    ends: int
    """The number of calls that ended in dropped frames, as its agent counts."""


class Stillborn(Struct, eq=False, gc=False):
    """Executors of a queue that died before they began a call of it: see `backoff.py`."""

    count: int = 0
    """Their number, in a row."""
    next_try: int = 0
    """Executors from this number on were forked after the last of these deaths."""
    forks_from_us: int = 0
    """No executor is forked for the queue before this time."""


class Stream(Struct, eq=False, gc=False):
    """The items of a call with STREAMING."""

    yielded: int = 0
    """The number of values so far."""
    consumed: int = 0
    """The number of values that were consumed, or never will be."""
    position: int = 0
    """The number of values of its last attempt. Earlier attempts may have yielded more."""
    items: dict[int, bytes] = {}
    """The objects of its values in arenas, by index."""


class Saves(Struct, eq=False, gc=False):
    """The saved states of an actor, in a job with a journal: see `checkpoints.py`."""

    key: bytes
    """The hash of its class and arguments."""
    last: Kept | None = None
    """Its last saved state. It begins with that when it is created again."""
    number: bytes = b""
    """The id of that state."""
    base: bytes = b""
    """The id of the state with which this life began."""
    life: int = 0
    """The number of lives before this one."""
    recorded: int = 0
    """The number of recorded calls of this life."""
    is_changed: bool = False
    """Whether a call that may change it has ended since the last saved state."""
    unsaved_why: str = ""
    """Why its state is not saved any more; empty: it is saved."""
    recalls: bool = False
    """Whether it began with a state of an earlier run. That state may contain calls that this run repeats."""


class Key(Struct, frozen=True, gc=False):
    """The fixed properties of an executor. It can serve all calls with this key."""

    environment: tuple[tuple[str, str], ...]
    threads: int
    gpu_ids: tuple[int, ...]
    gang: int = 0
    """The gang of which it is a member; 0: none."""


class _Ends(Protocol):
    state: int


T = TypeVar("T", bound=_Ends)


class Line(deque[T]):
    """Calls of an actor by one caller that have not been sent, in order. The first has not ended; others may have."""

    __slots__ = ("ended",)

    def __init__(self) -> None:
        super().__init__()
        self.ended = 0
        """The number of calls that have ended since it was last without such calls. They may have left it."""

    def waiting(self) -> int:
        """The number of its calls that have not ended."""
        return sum(one.state not in ENDED for one in self) if self.ended else len(self)

    def leave(self, task: T) -> None:
        """Take out a call, or note that it has ended: then it stays until half of the line has ended."""
        if self and self[0] is task:
            self.popleft()
            self.tidy()
        elif task.state in ENDED:
            self.ended += 1
            if 2 * self.ended > len(self):
                left = [one for one in self if one.state not in ENDED]
                self.clear()
                self.extend(left)
                self.ended = 0
        elif task in self:
            self.remove(task)

    def tidy(self) -> None:
        """Drop calls at the front that have ended."""
        while self.ended and self and self[0].state in ENDED:
            self.popleft()
            self.ended -= 1
