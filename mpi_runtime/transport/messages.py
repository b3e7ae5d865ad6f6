"""Every message of the runtime, by who says it to whom.

Those that the scheduler takes or gives are declared in `scheduler/events.py` and `scheduler/effects.py`; here are the
rest, and the unions that the codec decodes. A frame is a list of messages of one of these unions.
"""

from typing import Annotated

from msgspec import Meta, Struct

from mpi_runtime.scheduler.effects import ClientEffect, RankEffect
from mpi_runtime.scheduler.events import Call, ClientEvent, Id, Number, Spec
from mpi_runtime.scheduler.rank_events import RankEvent


def text_to_bytes(text: str) -> bytes:
    """A path or an argument as bytes that `bytes_to_text` makes the same text of, also where it is no UTF-8."""
    return text.encode("utf-8", "surrogatepass")


def bytes_to_text(data: bytes) -> str:
    """See `text_to_bytes`."""
    return data.decode("utf-8", "surrogatepass")


# Client to the node agent of its own rank.


class Allocate(Struct, array_like=True, tag=20, gc=False):
    """Ask for `size` bytes of the arena."""

    request: Number
    size: Number


class Drained(Struct, array_like=True, tag=21, gc=False):
    """The executor could not claim a call, and has dropped all that it had received and not started."""

    received: Number
    """How many calls it has ever received."""


class Shutdown(Struct, array_like=True, tag=22, gc=False):
    """From the driver: end the job."""


class Abandon(Struct, array_like=True, tag=23, gc=False):
    """Give back an extent that was allocated and will not become an object."""

    offset: Number


# Node agent to a client of its own rank.


class Allocated(Struct, array_like=True, tag=30, gc=False):
    """The extent asked for; offset -1: it cannot be had, for the reason given."""

    request: int
    rank: int
    offset: int
    reason: str = ""


class Exit(Struct, array_like=True, tag=31, gc=False):
    """To an executor: end when everything before this message is done."""


class ForCalls(Struct, array_like=True, tag=32, gc=False):
    """To an executor, before values: they are arguments of calls in this frame, and were told as values before."""


class Welcome(Struct):
    """From the head to the driver, once, before all frames: the job is up. With it comes the arena's descriptor."""

    problem: str = ""
    """Not empty: the job is not up, and why."""
    regions: dict[int, int] = {}
    """For each rank of the driver's host the index of its region in the arena."""
    size: int = 1
    """Number of ranks."""
    is_about_gpus: bool = False
    """Whether the problem is that GPUs which were asked for are not there."""


# Worker to head.


class FromExecutor(Struct, array_like=True, tag=50, gc=False):
    """A frame of client events, relayed unread."""

    executor: int
    frame: bytes
    ended: Number = 0
    """How many calls end in it, as its header says."""


class Log(Struct, array_like=True, tag=51, gc=False):
    """Whole lines that a process wrote to its standard output (1) or error (2)."""

    executor: int
    stream: int
    data: bytes


class Idle(Struct, array_like=True, tag=52, gc=False):
    """No executor of the job is left on this rank, and nothing is on its way to it."""

    rank: int


# Head to worker.


class ToExecutor(Struct, array_like=True, tag=90, gc=False):
    """A frame of client effects and calls, to be passed on unread; `ids` are the calls in it, in order."""

    executor: int
    ids: list[Id]
    frame: bytes


class Stop(Struct, array_like=True, tag=91, gc=False):
    """End this rank."""


class EndJob(Struct, array_like=True, tag=94, gc=False):
    """The driver has called `shutdown()`: end the executors, say `Idle`, and wait for the next job."""

    all_idle: bool = False
    """Said a second time, when all ranks are: nothing more is asked of this one, so its objects can go."""


class PauseLogs(Struct, array_like=True, tag=92, gc=False):
    """Stop reading what executors write, or go on: the job's own output is taken too slowly."""

    paused: bool


class Job(Struct, array_like=True, tag=93, gc=False):
    """What the driver tells its head, and the head all workers, at each `init()`."""

    config: bytes
    directory: bytes
    """Working directory of the driver. This, the path and the arguments by `text_to_bytes`."""
    path: list[bytes]
    """Its module path."""
    argv: list[bytes]
    descriptors: int
    """How many descriptors it may have open."""
    preload: list[str]
    """Modules that executors are to find loaded."""
    token: str
    """Names its files on hosts; no other job has the same."""
    lost: list[int] = []
    """Ranks that have died, as the head knows when it begins the job: others may not have noticed yet."""


# Worker to worker.


class Pull(Struct, array_like=True, tag=95, gc=False):
    """Start sending this extent of your part of the arena to me under this tag."""

    tag: Number
    offset: Number
    size: Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]


ToAgent = Allocate | Drained | Shutdown | Abandon
ToClient = ClientEffect | Call | Spec | Allocated | Exit | ForCalls
WorkerToHead = RankEvent | FromExecutor | Log | Idle
ToWorker = RankEffect | ToExecutor | Stop | EndJob | Job | Pull | PauseLogs
BetweenRanks = WorkerToHead | ToWorker
FromClient = ClientEvent
