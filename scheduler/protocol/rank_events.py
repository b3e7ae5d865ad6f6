"""Events of ranks, the other input of the scheduler. Units and ids are those of `events.py`."""

from __future__ import annotations

from msgspec import Struct

from mpi_runtime.gpu.device import Device, Link
from mpi_runtime.scheduler.protocol.amounts import Number
from mpi_runtime.scheduler.protocol.events import Id, Kept, Limit


class RankJoined(Struct, array_like=True, tag=40, gc=False):
    """A rank is ready, with these resources."""

    rank: Number
    host: Number
    """The lowest rank of the same host."""
    hostname: str
    cpus: list[Number]
    """Processor numbers that it may use."""
    cpu: Limit
    """CPU units that it adds to the node: ranks of one host that may use the same processors add them once."""
    gpu: Number
    """GPU units that were stated, where no GPU was found. It does not count on a host with `devices`."""
    memory: Number
    custom: dict[str, Number]
    arena: Number
    """Capacity of the host's arena in bytes."""
    labels: dict[str, str] = {}
    wall_us: int = 0
    """The time since 1970 less the monotonic clock of its host."""
    devices: list[Device] = []
    """GPUs that it can use. Ranks of one host may name the same."""
    links: list[Link] = []
    gpu_problems: list[str] = []
    """The faults of GPUs of this host, in words."""
    gpu_error: str = ""
    """Why it could not find out whether there are GPUs, in words."""
    gpu_limit: str = ""
    """The reason why it may use fewer GPUs than the host has, in words."""
    end_us: int = 0
    """For rank 0: the end of the job's time, by its monotonic clock; 0: not known."""
    cpu_limit: str = ""
    """The reason why it may use fewer CPUs than the host has, in words, with the cure."""
    address: str = ""
    """The address by which its host reaches others."""
    spill_problem: str = ""
    """Why values cannot leave the memory of its host for a disk, in words, if one of its ranks has found out."""


class TakenBack(Struct, array_like=True, tag=41, gc=False):
    """Calls that an executor had not started are taken from it."""

    executor: int
    ids: list[Id]


class ExecutorDied(Struct, array_like=True, tag=42, gc=False):
    """An executor's process is known to be gone."""

    executor: int
    running: bytes
    """The running call; empty: no call ran."""
    cause: str
    """The signal or the exit code, in words."""
    out_of_memory: bool = False
    extents: list[Number] = []
    """Arena offsets that it had been given and that are not free. Those without an object are freed."""
    is_unwatched: bool = False
    """Its agent is lost too, so nobody knows what it has started: `running` is the first of its calls, and each of the
    others may have run."""
    with_forkserver: bool = False
    """It died with its forkserver. This says nothing about the calls for which it was forked."""
    keeper: Number = 0
    """The rank whose agent had given it the extents: its own, or the head's, which may outlive its own."""


class Fetched(Struct, array_like=True, tag=43, gc=False):
    """A copy of an object has arrived in the arena of a rank; offset -1: the fetch has failed."""

    rank: Number
    id: Id
    offset: Limit
    reason: str = ""
    is_lost: bool = False
    """With offset -1: the rank with the object cannot be reached. Else there is no room for a copy."""
    order: Limit = -1
    """The number of the order that it answers; -1: the last one."""


class Arriving(Struct, array_like=True, tag=55, gc=False):
    """A rank has memory for a large object that it fetches: others may fetch from it the parts that have arrived."""

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
    """An executor sent a frame that cannot be read or breaks the protocol. What it sends later is dropped."""

    executor: int
    problem: str
    ended: Number = 0
    """The number of calls that end in dropped frames, as its agent counts."""


class RankLost(Struct, array_like=True, tag=45, gc=False):
    """A rank is known to be gone, with all processes that ran on it."""

    rank: int
    cause: str = "is gone"
    """The cause, in words that follow its name."""


class MemoryReported(Struct, array_like=True, tag=48, gc=False):
    """The memory of a rank's host is nearly used up, or not any more. Repeated while it is."""

    rank: Number
    is_tight: bool
    used: Number = 0
    limit: Number = 0
    where: str = ""
    """The owner of the limit: the host or a control group."""
    threshold: float = 0.0
    """The share of the limit above which memory is tight."""
    executors: list[tuple[int, Number]] = []
    """The executors of the rank, with the private memory of each."""
    largest: list[tuple[int, str, Number]] = []
    """The largest processes of the host: number, name, private memory."""


class RoomWanted(Struct, array_like=True, tag=53, gc=False):
    """Clients of a rank, or copies on their way to it, wait for room in the arena. Repeated while they wait."""

    rank: Number
    size: Number
    """The missing bytes; 0: nothing waits any more."""
    clients: list[int] = []


class Spilled(Struct, array_like=True, tag=54, gc=False):
    """An object has been written to the scratch file of a rank; offset -1: that has failed."""

    rank: Number
    id: Id
    offset: Limit
    reason: str = ""
    file: str = ""
    """The path by which other processes of the host can read the file."""


class JobBegan(Struct, array_like=True, tag=46, gc=False):
    """All ranks of the job have joined. The head makes this event itself."""

    num_gpus: float | None = None
    """The number of GPUs of each node that `init()` states; None: all that were found."""
    has_journal: bool = False
    """Whether calls that end are recorded."""
    recalls: bool = False
    """Whether the journal has calls of earlier runs."""
    survives_losses: bool = False
    """Whether the job continues without ranks that die."""


class Recalled(Struct, array_like=True, tag=49, gc=False):
    """The answer to a `Recall`, from the head. Without values: the journal has none."""

    id: Id
    values: list[Kept] = []
    """For the creation of an actor: the state to begin with."""
    number: bytes = b""
    """The id of that state."""


class DriverJoined(Struct, array_like=True, tag=75, gc=False):
    """A further driver has connected, on the host of rank 0."""

    number: Number
    """Its client number: `Scheduler.next_client()`. No client gets it again."""
    program: str = ""
    """Its name, for people."""
    pid: int = 0


class DriverLeft(Struct, array_like=True, tag=76, gc=False):
    """A driver is gone. What belongs to it ends; detached actors and groups, and values that others hold, stay."""

    number: Number
    extents: list[Number] = []
    """Offsets in rank 0's part of the arena that it had been given and that are not free. Those without an object are
    freed."""
    has_views: bool = False
    """Whether its line stays open to release the values that it still uses. A further `DriverLeft` follows when that is
    closed. Until then only `Released` and `Forgotten` of it count."""


MemoryEvent = Fetched | Arriving | MemoryReported | RoomWanted | Spilled
RankEvent = RankJoined | RankLost | ExecutorStarted | ExecutorDied | TakenBack | FrameRefused | MemoryEvent

HeadEvent = JobBegan | Recalled | DriverJoined | DriverLeft
"""Events that the head makes itself."""
