"""What the scheduler wants done: records in the imperative, each for one client or one rank.

Like events they are what goes over the wire. `Call` and `Spec` (in `events.py`) are effects too: sent to an executor, a
spec tells it a function, and a call tells it to run; what the call's arguments stand for has been sent before it.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from mpi_runtime.scheduler.events import Id, Number


class Ready(Struct, array_like=True, tag=60, gc=False):
    """To a client: an object's small value."""

    id: bytes
    data: bytes


class ReadyStored(Struct, array_like=True, tag=61, gc=False):
    """To a client: an object lies in the arena of its host, in the part of `rank`."""

    id: bytes
    rank: int
    offset: int
    size: int
    is_error: bool = False


class ReadyError(Struct, array_like=True, tag=62, gc=False):
    """To a client: an object is the pickled exception of user code."""

    id: bytes
    data: bytes


class ReadyFailed(Struct, array_like=True, tag=63, gc=False):
    """To a client: the runtime could not make the object; `code` names the class of `errors.py`."""

    id: bytes
    code: str
    message: str


class ReadyElsewhere(Struct, array_like=True, tag=64, gc=False):
    """To a client: an object is ready, but its value was not sent along; subscribe with `fetch` to have it."""

    id: bytes


Entry = Ready | ReadyStored | ReadyError | ReadyFailed | ReadyElsewhere
"""What a client knows of a value: the message that brought it."""


class Answer(Struct, array_like=True, tag=65, gc=False):
    """To a client: the answer to a query, as msgpack."""

    request: int
    data: bytes


class Item(Struct, array_like=True, tag=66, gc=False):
    """To a client: a call of its has yielded a value. It holds the object, which follows."""

    call: bytes
    id: bytes


class Demand(Struct, array_like=True, tag=67, gc=False):
    """To an executor: so many of the items of a call have been taken."""

    call: bytes
    count: int


CRASH, RESTARTED, REFUSED, UNHANDLED = "crash", "restart", "refused", "unhandled"
GPU, QUARANTINE, LATE, RANK_LOST = "gpu", "quarantine", "late", "rank_lost"
"""What notes are about."""


class Note(Struct, array_like=True, gc=False):
    """The user is to be told this, in one line."""

    level: int
    """As in `logging`."""
    event: str
    """What it is about: CRASH or another of these."""
    text: str
    rank: int = 0
    host: str = ""
    """Of which rank it tells, and its host; empty: of the whole job."""


ClientEffect = Entry | Answer | Item | Demand


class StartExecutor(Struct, array_like=True, tag=80, gc=False):
    """To a rank: fork an executor; messages for it may follow at once."""

    executor: int
    environment: dict[str, str]
    """Variables to set before its first user instruction."""
    gpus: list[int]
    """Device ids of its node that it may use."""
    threads: int
    """How many threads numerical libraries should use."""
    cpus: list[int]
    """Processor numbers to run on; empty: those of the rank."""
    devices: list[str] = []
    """UUIDs of the devices, in the order of `gpus`."""


class StopExecutor(Struct, array_like=True, tag=81, gc=False):
    """To a rank: end an executor; `force`: without letting it finish what it has in hand."""

    executor: int
    force: bool


class TakeBack(Struct, array_like=True, tag=82, gc=False):
    """To a rank: take up to `count` unstarted calls back from an executor, the last sent first."""

    executor: int
    count: Number


class Cancel(Struct, array_like=True, tag=85, gc=False):
    """To a rank: have an executor give up a call that it was sent; `force`: kill it if it runs the call."""

    executor: int
    id: Id
    force: bool


class Free(Struct, array_like=True, tag=83, gc=False):
    """To a rank: these extents of its part of the arena are no longer used by anybody."""

    offsets: list[int]
    executor: int = 0
    """Not 0: the answer to the death of this executor, for those of the offsets that it still has.

    A `Free` may have been on its way when it died, and the memory may have a new owner.
    """


class Fetch(Struct, array_like=True, tag=84, gc=False):
    """To a rank: bring a copy of an object from another rank's arena into your own part."""

    id: bytes
    rank: Number
    offset: Number
    size: Annotated[int, Meta(ge=1)]


RankEffect = StartExecutor | StopExecutor | TakeBack | Cancel | Free | Fetch


class Effects(Struct, gc=False):
    """What is to be done. Effects for ranks come before messages for clients."""

    ranks: dict[int, list[RankEffect]] = {}
    clients: dict[int, list[object]] = {}
    """For executors also the calls to run and the specs that they need."""
    refusal: str = ""
    """Why the job cannot begin, in words."""
    notes: list[Note] = []
    """What the user is to be told."""
