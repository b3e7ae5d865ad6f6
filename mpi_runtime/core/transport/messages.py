"""Every message of the runtime, by sender and receiver.

Events and effects of the scheduler are declared in `scheduler/protocol/`: `events.py`, `rank_events.py`, `effects.py`.
This module has all others, and the unions that the codec decodes. A frame is a list of messages of one of these unions.
"""

from typing import Annotated

from msgspec import Meta, Struct

from mpi_runtime.config import Config
from mpi_runtime.scheduler.protocol.amounts import Number
from mpi_runtime.scheduler.protocol.effects import ClientEffect, RankEffect, StartExecutor
from mpi_runtime.scheduler.protocol.entries import HostUse
from mpi_runtime.scheduler.protocol.events import Call, ClientEvent, Id, Spec
from mpi_runtime.scheduler.protocol.rank_events import RankEvent
from mpi_runtime.scheduler.protocol.series import Series

BULK_TAGS = 1 << 14
"""The number of different tags of transfers between two ranks."""


def text_to_bytes(text: str) -> bytes:
    """Encode a path or an argument for `bytes_to_text`, even if it is not valid UTF-8."""
    return text.encode("utf-8", "surrogatepass")


def bytes_to_text(data: bytes) -> str:
    """Decode the result of `text_to_bytes`."""
    return data.decode("utf-8", "surrogatepass")


# Client to the node agent of its own rank.


class Allocate(Struct, array_like=True, tag=20, gc=False):
    """Ask for `size` bytes of the arena."""

    request: Number
    size: Number
    ahead: Number = 0
    """The number of further extents of this size that the client could use soon."""


class Drained(Struct, array_like=True, tag=21, gc=False):
    """The executor could not claim a call. It has dropped all calls that it had received and not started."""

    received: Number
    """How many calls it has received in its life."""


class Shutdown(Struct, array_like=True, tag=22, gc=False):
    """From the driver: end the job. From one that has connected to a session: end what belongs to it."""


class Abandon(Struct, array_like=True, tag=23, gc=False):
    """Give back an extent that was allocated and will not become an object."""

    offset: Number


class Recorded(Struct, array_like=True, tag=24, gc=False):
    """Values of metrics of the program that have changed. The agent adds the client, and forwards it to the head."""

    series: list[Series]
    client: Number = 0


# Client of a driver on another host to its attendant.


class ReadPart(Struct, array_like=True, tag=77, gc=False):
    """Ask for a part of a large value, which this client keeps in its place meanwhile."""

    request: Number
    region: Number
    offset: Number
    """In the region, or in the file."""
    size: Annotated[int, Meta(ge=0, le=4 << 20)]
    file: str = ""
    """The spill file that has it; empty: it is in the arena."""
    is_passed: bool = False
    """Whether the answer has its bytes in a file, see `passed_files`."""


class WritePart(Struct, array_like=True, tag=78, gc=False):
    """Write a part of a large value into an extent that was allocated for it."""

    request: Number
    region: Number
    offset: Number
    data: bytes
    passed: Annotated[int, Meta(ge=0, le=4 << 20)] = 0
    """The bytes in a file in place of `data`, see `passed_files`; 0: there is no file."""


class Part(Struct, array_like=True, tag=39, gc=False):
    """The answer to both."""

    request: int
    data: bytes = b""
    problem: str = ""
    """Why the part could not be moved; empty: it was."""


# Attendant to head.


class Away(Struct, array_like=True, tag=25, gc=False):
    """The line of a driver on another host has ended, or is back."""

    is_away: bool


# Node agent to a client of its own rank.


class Allocated(Struct, array_like=True, tag=30, gc=False):
    """The answer to `Allocate`: an extent of the arena. Offset -1: refused, for this reason."""

    request: int
    rank: int
    offset: int
    reason: str = ""


class Ahead(Struct, array_like=True, tag=37, gc=False):
    """With the answer to `Allocate`, or later: further extents, for future values of this size."""

    rank: int
    size: int
    offsets: list[int]


class GiveBack(Struct, array_like=True, tag=38, gc=False):
    """To a client: abandon all extents that it was given ahead and has not used."""


class Exit(Struct, array_like=True, tag=31, gc=False):
    """To an executor: end when all calls before this message are done."""


class ForCalls(Struct, array_like=True, tag=32, gc=False):
    """To an executor, before values: they are arguments of calls in this frame, and were sent as values before."""


class Welcome(Struct):
    """From the head to the driver, before all frames: the job has started. Comes with the arena's descriptor.

    Before the last one there may be others, which report what the job `waits` for.
    """

    problem: str = ""
    """Why the job could not start; empty if it has."""
    regions: dict[int, int] = {}
    """For each rank of the driver's host the index of its region in the arena."""
    error: str = "LaunchError"
    """The class of the problem."""
    waits: str = ""
    """The ranks that have not joined, in words; empty: the job has started, or there is a problem."""
    driver: Number = 0
    """The number of a driver that has connected to a session."""
    inline_bytes_max: Number = 0
    """For such a driver: see `Config`."""
    store_bytes: Number = 0
    """For such a driver on another host: the bytes of shared memory for values on the host of rank 0."""
    files: str = ""
    """For such a driver: the directory for `passed_files`; empty: its line is fast, or the hosts share none."""


# Worker to head.


class FromExecutor(Struct, array_like=True, tag=50, gc=False):
    """A frame of client events, forwarded without decoding."""

    executor: int
    frame: bytes
    ended: Number = 0
    """How many calls end in the frame, from its header."""


class Log(Struct, array_like=True, tag=51, gc=False):
    """Whole lines that a process wrote to its standard output (1) or error (2)."""

    executor: int
    stream: int
    data: bytes
    writer: bytes = b""
    """The function or actor that wrote them; empty: unknown."""


class GangBytes(Struct, array_like=True, tag=57, gc=False):
    """What members of a gang on several nodes exchange when they start, from an agent to the head or back. Opaque."""

    gang: Number
    node: Number
    """The index of the sender's or the receiver's node."""
    agents: list[Number]
    """For each node of the gang the rank of its agent."""
    data: bytes


class Measured(Struct, array_like=True, tag=58, gc=False):
    """The answer to `Measure`."""

    rank: Number
    host: HostUse | None
    """None: another rank of the host measures it."""
    sizes: list[tuple[Number, Number]]
    """The executors of the rank with most memory: process ids, with their bytes in memory."""


class StackRead(Struct, array_like=True, tag=59, gc=False):
    """The answer to `StackWanted`, from the rank that has the executor."""

    rank: Number
    pid: Number
    text: str


class Idle(Struct, array_like=True, tag=52, gc=False):
    """No executor of the job is left on this rank, and none of its transfers is in progress."""

    rank: int


class Ended(Struct, array_like=True, tag=56, gc=False):
    """The process of an executor is gone. From its agent to the custodian of its line: see `agent/custody.py`."""

    executor: int
    cause: str
    """The signal or the exit code, in words."""
    said: str = ""
    """The end of its output, to follow the cause if it has begun no call."""
    out_of_memory: bool = False
    with_forkserver: bool = False
    draft: bytes = b""
    """What it had sealed: see `transport/unsent_frame.py`."""


# Head to worker.


class Measure(Struct, array_like=True, tag=98, gc=False):
    """Somebody looks at the job: report what is used now."""

    host: bool
    """Of the host too, and not only of the executors."""


class StackWanted(Struct, array_like=True, tag=99, gc=False):
    """Somebody wants to see the stacks of a process. Other ranks than that of the executor do not answer."""

    pid: Number


class StartDirect(Struct, array_like=True, tag=97, gc=False):
    """Start an executor with a direct line. The head has handed the rank its ends before, under this key."""

    start: StartExecutor
    key: bytes


class ToExecutor(Struct, array_like=True, tag=90, gc=False):
    """A frame of client effects and calls, to be forwarded without decoding. `ids`: the calls in it, in order."""

    executor: int
    ids: list[Id]
    frame: bytes


class Stop(Struct, array_like=True, tag=91, gc=False):
    """End this rank."""


class EndJob(Struct, array_like=True, tag=94, gc=False):
    """The driver has called `shutdown()`: end the executors, send `Idle`, and wait for the next job."""

    all_idle: bool = False
    """True in a second message, when all ranks are idle: this rank's objects can go."""


class PauseLogs(Struct, array_like=True, tag=92, gc=False):
    """Pause or resume reading the output of executors, because the job's own output is read too slowly."""

    paused: bool


class Job(Struct, array_like=True, tag=93, gc=False):
    """A job, at each `init()`. The driver sends it to its head, and the head to all workers."""

    config: Config
    directory: bytes
    """Working directory of the driver. Directory, path and arguments are encoded by `text_to_bytes`."""
    path: list[bytes]
    """Module path of the driver."""
    argv: list[bytes]
    """Arguments of the driver."""
    descriptors: int
    """How many descriptors the driver may have open."""
    preload: list[str]
    """Modules that executors load at their start."""
    token: str
    """A part of the names of the job's files on hosts. It is different for each job."""
    lost: list[int] = []
    """Ranks that had died when the head started the job. Others may not have noticed."""


# Worker to worker.


class Pull(Struct, array_like=True, tag=95, gc=False):
    """Request of a rank: send me this extent of your part of the arena under this tag."""

    tag: Annotated[int, Meta(ge=0, lt=BULK_TAGS)]
    offset: Number
    size: Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
    start: Number
    """The first byte that is missing: those before it have arrived."""
    chunk: Annotated[int, Meta(ge=1 << 12, le=1 << 30)]
    """The size of each message."""


class Unpull(Struct, array_like=True, tag=96, gc=False):
    """A rank cancels its `Pull`: send empty messages in place of the next ones."""

    tag: Annotated[int, Meta(ge=0, lt=BULK_TAGS)]


ToAgent = Allocate | Drained | Shutdown | Abandon | Recorded
ToAttendant = ToAgent | ReadPart | WritePart
ThroughDoor = ToAgent | Away
ToClient = ClientEffect | Call | Spec | Allocated | Ahead | GiveBack | Exit | ForCalls | Part
WorkerToHead = RankEvent | FromExecutor | Log | Idle | Ended | GangBytes | Measured | StackRead | Recorded
ForAgent = GangBytes | PauseLogs | Measure | StackWanted
"""What the head sends the agent of any rank, its own included, besides effects."""
ToWorker = RankEffect | ToExecutor | StartDirect | Stop | EndJob | Job | Pull | Unpull | ForAgent
BetweenRanks = WorkerToHead | ToWorker
FromClient = ClientEvent
