"""Effects, the output of the scheduler. Each is for one client or one rank.

Effects are messages, like events. `Call` and `Spec` (in `events.py`) are effects too: a spec describes a function to an
executor, a call starts it. The values of its arguments are sent before the call.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Annotated

from msgspec import Meta, Struct, field

from mpi_runtime.scheduler.protocol.amounts import Number
from mpi_runtime.scheduler.protocol.events import Id, JournalFailed, Kept


class Ready(Struct, array_like=True, tag=60, gc=False):
    """To a client: the value of a small object."""

    id: bytes
    data: bytes


class ReadyStored(Struct, array_like=True, tag=61, gc=False):
    """To a client: an object is in the arena of its host, in the part of `rank`."""

    id: bytes
    rank: int
    offset: int
    size: int
    is_error: bool = False
    file: str = ""
    """The path of the scratch file in which the object is, at `offset`; empty: it is in the arena."""


class ReadyError(Struct, array_like=True, tag=62, gc=False):
    """To a client: an object is the pickled exception of user code."""

    id: bytes
    data: bytes


class ReadyFailed(Struct, array_like=True, tag=63, gc=False):
    """To a client: the runtime could not make the object. `code` is a class name of `errors.py`."""

    id: bytes
    code: str
    message: str


class ReadyElsewhere(Struct, array_like=True, tag=64, gc=False):
    """To a client: an object is ready, without its value. Subscribe with `fetch` to get it."""

    id: bytes


class Forget(Struct, array_like=True, tag=68, gc=False):
    """To a client: stop using the places of these objects, unless there are views of them. `Forgotten` answers it."""

    request: int
    ids: list[bytes]


class SaveRequested(Struct, array_like=True, tag=74, gc=False):
    """To an executor: save the state of its actor as soon as no call runs."""


Entry = Ready | ReadyStored | ReadyError | ReadyFailed | ReadyElsewhere
"""The message by which a client knows a value."""


class Answer(Struct, array_like=True, tag=65, gc=False):
    """To a client: the answer to a question, as msgpack."""

    request: int
    data: bytes


class Item(Struct, array_like=True, tag=66, gc=False):
    """To a client: its call has yielded a value. The client then holds the object, whose value follows."""

    call: bytes
    id: bytes


class Demand(Struct, array_like=True, tag=67, gc=False):
    """To an executor: this many items of a call have been consumed."""

    call: bytes
    count: int


CRASH, RESTARTED, REFUSED, UNHANDLED, JOURNAL = "crash", "restart", "refused", "unhandled", "journal"
GPU, QUARANTINE, LATE, IGNORED, MEMORY, RANK_LOST = "gpu", "quarantine", "late", "cancel", "memory", "rank_lost"
"""The subjects of notes."""


class Note(Struct, array_like=True, gc=False):
    """A log line for the user."""

    level: int
    """The level, as in `logging`."""
    event: str
    """The subject: CRASH, for instance."""
    text: str
    rank: int = 0
    host: str = ""
    """The rank that the note is about, and its host; empty: it is about the whole job."""


ClientEffect = Entry | Answer | Item | Demand | Forget | SaveRequested


class Membership(Struct, array_like=True, gc=False):
    """The place of an executor in a gang."""

    gang: Number
    """The number of the gang, unique in the job."""
    rank: Number
    hosts: list[Number]
    """For each rank the index of its node in `names` and `agents`. Ranks of one node are consecutive."""
    names: list[str]
    """The host name of each node."""
    agents: list[Number]
    """For each node the rank whose agent has all members of that node."""
    starts_mpi: bool = True
    """As in `Spec`. If not, calls get no communicator."""
    processors: Number = 0
    """The number of processors to which each member is bound; 0: it is not bound."""

    @property
    def size(self) -> int:
        """The number of members."""
        return len(self.hosts)

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.size}"


class StartExecutor(Struct, array_like=True, tag=80, gc=False):
    """To a rank: fork an executor. Messages for it may follow at once."""

    executor: int
    environment: dict[str, str]
    gpu_ids: list[int]
    threads: int
    """The number of threads for numerical libraries."""
    cpus: list[int]
    """Processor numbers to run on; empty: those of the rank."""
    uuids: list[str] = []
    """The UUIDs of these GPUs, in their order."""
    imports: list[str] = []
    """Modules that its first function uses. They are loaded before the fork if that is known to be safe."""
    member: Membership | None = None
    """Its place in a gang; None: it belongs to none."""


class StopExecutor(Struct, array_like=True, tag=81, gc=False):
    """To a rank: end an executor. `force`: do not let it finish its assigned calls."""

    executor: int
    force: bool


class TakeBack(Struct, array_like=True, tag=82, gc=False):
    """To a rank: steal up to `count` unstarted calls from an executor, the last sent first."""

    executor: int
    count: Number


class Cancel(Struct, array_like=True, tag=85, gc=False):
    """To a rank: cancel a call that was sent to an executor. `force`: kill the executor if it runs the call."""

    executor: int
    id: Id
    force: bool
    attempt: Annotated[int, Meta(ge=0, lt=1 << 32)] = 0
    """The attempt of the call: the executor may get the next attempt before it reads this."""


class Free(Struct, array_like=True, tag=83, gc=False):
    """To a rank: free these extents of its part of the arena."""

    offsets: list[int]
    executor: int = 0
    """Not 0: the answer to the death of this executor, about the extents that it still had. An earlier `Free` may have
    been on its way then, and the memory may have a new owner."""


class Fetch(Struct, array_like=True, tag=84, gc=False):
    """To a rank: copy an object from another rank's arena into its own part. `Fetched` answers it.

    If it has a part already, from a rank that is lost, it continues from there.
    """

    id: bytes
    rank: Number
    offset: Number
    size: Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
    order: Number = 0


class StopFetch(Struct, array_like=True, tag=71, gc=False):
    """To a rank: nothing needs this copy any more. Its memory is free. Nothing answers it."""

    id: Id


class Spill(Struct, array_like=True, tag=69, gc=False):
    """To a rank: write an object from its part of the arena into its scratch file. `Spilled` answers it."""

    id: Id
    offset: Number
    size: Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
    for_copies: bool = False
    """Whether only copies need the room. A part of the disk is kept for that; new values may not use it."""


class Restore(Struct, array_like=True, tag=70, gc=False):
    """To a rank: read an object from its scratch file into its part of the arena. `Fetched` answers it."""

    id: Id
    offset: Number
    """In the file."""
    size: Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
    order: Number = 0
    """As in `Fetch`."""


class Erase(Struct, array_like=True, tag=88, gc=False):
    """To a rank: free these parts of its scratch file."""

    offsets: list[Number]


class RoomAnswer(Struct, array_like=True, tag=89, gc=False):
    """To a rank: the answer to `RoomWanted`."""

    is_coming: bool
    """Whether waiting is worth it."""
    reason: str = ""


RankEffect = (
    StartExecutor | StopExecutor | TakeBack | Cancel | Free | Fetch | StopFetch | Spill | Restore | Erase | RoomAnswer
)


class Recall(Struct, array_like=True, tag=86, gc=False):
    """To the journal: asks for the values of a call in an earlier run. `Recalled` answers it."""

    id: bytes
    key: bytes
    """The hash of its code and of the values of its arguments."""
    code: bytes
    name: str
    actor: bytes = b""
    """For a method: the actor, restored from a saved state. Asks whether that state includes the call."""
    is_actor: bool = False
    """Whether it creates an actor. Asks for the last saved state of the actor."""


class Record(Struct, array_like=True, tag=87, gc=False):
    """To the journal: record the values of a call."""

    id: Id
    key: bytes
    code: bytes
    name: str
    duration_us: Number
    values: list[Kept]
    life: bytes = b""
    """For a method: the life of its actor, from one creation to the next."""


class Checkpoint(Struct, array_like=True, tag=72, gc=False):
    """To the journal: the state of an actor, after all recorded calls of this life."""

    id: Id
    key: bytes
    """The hash of its class and of the values of its constructor's arguments."""
    name: str
    number: bytes
    """The id of this state."""
    life: bytes
    base: bytes
    """The state with which this life began; empty: it began from scratch."""
    calls: Number
    """The number of recorded calls of this life."""
    state: Kept


class Fresh(Struct, array_like=True, tag=100, gc=False):
    """To the journal: an actor that saves its state begins without one."""

    id: Id
    key: bytes
    """As in `Checkpoint`."""


class Discard(Struct, array_like=True, tag=73, gc=False):
    """To the journal: nothing needs this file of a value any more."""

    file: str


JournalEffect = Recall | Record | Checkpoint | Fresh | Discard | JournalFailed


class Effects(Struct, gc=False):
    """Everything to be done. Effects for ranks come before messages for clients."""

    ranks: dict[int, list[RankEffect]] = {}
    clients: defaultdict[int, list[object]] = field(default_factory=lambda: defaultdict(list))
    """Messages by client. For executors they include calls to run and their specs."""
    refusal: str = ""
    """Why the job cannot begin, in words."""
    notes: list[Note] = []
    ended_gangs: list[int] = []
    """Gangs on several nodes without a living member: nothing is sent between these nodes any more."""
    journal: list[JournalEffect] = []
    """In the order in which they happened. Each `Recall` is answered before the next event."""
