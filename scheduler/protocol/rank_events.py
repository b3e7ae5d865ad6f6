"""Events of ranks, the other input of the scheduler. Units and ids are those of `events.py`."""

from __future__ import annotations

from msgspec import Struct

from mpi_runtime.gpu.device import Device, Link
from mpi_runtime.scheduler.protocol.events import Id, Kept, Limit, Number


class RankJoined(Struct, array_like=True, tag=40, gc=False):
    """A rank is ready and says what it may use."""

    rank: Number
    host: Number
    """The lowest rank of the same host."""
    hostname: str
    cpus: list[Number]
    """Processor numbers that it may use."""
    cpu: Limit
    """CPU units that it adds to the node: ranks of one host that may use the same processors add them once."""
    gpu: Number
    """GPU units that it was told to believe in: nothing was found. Together with `devices` for one host it is void."""
    memory: Number
    custom: dict[str, Number]
    arena: Number
    """Capacity of the host's arena in bytes."""
    labels: dict[str, str] = {}
    """Of its node."""
    wall_us: int = 0
    """The time since 1970 less the monotonic clock of its host."""
    devices: list[Device] = []
    """GPUs that it can use. Ranks of one host may name the same."""
    links: list[Link] = []
    """How they are connected."""
    gpu_problems: list[str] = []
    """What is wrong with GPUs of this host, in words."""
    gpu_error: str = ""
    """Why it could not find out whether there are GPUs, in words."""
    gpu_limit: str = ""
    """What leaves it fewer than were stated and are there, in words."""
    end_us: int = 0
    """Of rank 0: when the job's time ends, by its monotonic clock; 0: nobody says."""


class TakenBack(Struct, array_like=True, tag=41, gc=False):
    """Calls that an executor had not started are in the scheduler's hands again."""

    executor: int
    ids: list[Id]


class ExecutorDied(Struct, array_like=True, tag=42, gc=False):
    """An executor's process is known to be gone."""

    executor: int
    running: bytes
    """The call that it was running, or empty."""
    cause: str
    """In words: which signal or exit code."""
    out_of_memory: bool = False
    extents: list[Number] = []
    """Arena offsets that were given to it and not yet freed: those that no object has are freed."""
    is_unwatched: bool = False
    """Its agent is gone too, who would know what it has started: `running` is the first of its calls, and each other
    one may have run."""
    with_forkserver: bool = False
    """Somebody has killed its forkserver, and it with that: it says nothing of the calls for which it was forked."""


class Fetched(Struct, array_like=True, tag=43, gc=False):
    """A copy of an object has arrived in the arena of a rank; offset -1: it could not be had."""

    rank: Number
    id: Id
    offset: Limit
    reason: str = ""
    is_lost: bool = False
    """With offset -1: the rank that has the object cannot be reached. Else there is no room for a copy."""
    order: Limit = -1
    """The number of the order that it answers; -1: the last one."""


class Arriving(Struct, array_like=True, tag=55, gc=False):
    """A rank has memory for a large object that it fetches: others may ask it for the parts that it has."""

    rank: Number
    id: Id
    offset: Number
    order: Limit = -1
    """As in `Fetched`."""


class ExecutorStarted(Struct, array_like=True, tag=44, gc=False):
    """An executor has been forked."""

    executor: int
    pid: int


class FrameRefused(Struct, array_like=True, tag=47, gc=False):
    """An executor sent a frame that cannot be read, or may not be sent. Nothing that it sends later counts."""

    executor: int
    problem: str
    """What is wrong, in words."""
    ended: Number = 0
    """How many calls, by the books of its agent, end in what was dropped."""


class RankLost(Struct, array_like=True, tag=45, gc=False):
    """A rank is known to be gone, and all that ran on it."""

    rank: int
    cause: str = "is gone"
    """How that is known, in words that follow its name."""


class MemoryReported(Struct, array_like=True, tag=48, gc=False):
    """The memory of a rank's host is nearly used up, or was and is not any more. Said again and again while it is."""

    rank: Number
    is_tight: bool
    used: Number = 0
    limit: Number = 0
    where: str = ""
    """What has the limit: the host, a control group."""
    threshold: float = 0.0
    """The share of the limit from which on it is tight."""
    executors: list[tuple[int, Number]] = []
    """The executors of the rank, with what each has for itself."""
    largest: list[tuple[int, str, Number]] = []
    """The largest processes of the host: number, name, and what each has for itself."""


class RoomWanted(Struct, array_like=True, tag=53, gc=False):
    """Clients of a rank, or copies on their way to it, wait for room in the arena. Said again while they do."""

    rank: Number
    size: Number
    """Bytes that are missing; 0: nobody waits any more."""
    clients: list[int] = []
    """Clients that wait."""


class Spilled(Struct, array_like=True, tag=54, gc=False):
    """An object has been written to the scratch file of a rank; offset -1: it could not be."""

    rank: Number
    id: Id
    offset: Limit
    reason: str = ""
    file: str = ""
    """The path by which other processes of the host can read the file."""


class JobBegan(Struct, array_like=True, tag=46, gc=False):
    """All ranks of the job have joined. The head tells this itself: it is no message of a rank."""

    num_gpus: float | None = None
    """How many GPUs each node is to have, as `init()` was told; None: those that were found."""
    has_journal: bool = False
    """Whether calls that end are recorded."""
    recalls: bool = False
    """Whether the journal has calls of earlier runs."""


class Recalled(Struct, array_like=True, tag=49, gc=False):
    """The answer to a `Recall`, told by the head. Without values: the journal has none."""

    id: Id
    values: list[Kept] = []
    """Of the creation of an actor: the state to begin with."""
    number: bytes = b""
    """The name of that state."""


RankEvent = (
    RankJoined
    | TakenBack
    | ExecutorDied
    | Fetched
    | Arriving
    | ExecutorStarted
    | FrameRefused
    | MemoryReported
    | RoomWanted
    | Spilled
    | RankLost
)

HeadEvent = JobBegan | Recalled
"""What the head tells itself."""
