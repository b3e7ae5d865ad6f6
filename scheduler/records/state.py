"""All tables of the scheduler, and the effects gathered so far. Only look-ups, no behaviour."""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from msgspec import Struct, field

from mpi_runtime.scheduler.protocol.effects import Effects, Erase, Free, RankEffect
from mpi_runtime.scheduler.protocol.events import BundleSpec, OnDisk, Place, RefusedError, Stored
from mpi_runtime.scheduler.protocol.limits import HISTORY_CALLS_MAX, REFUSALS_TELL_US
from mpi_runtime.scheduler.protocol.resources import Request
from mpi_runtime.scheduler.records.index import Index
from mpi_runtime.scheduler.records.lifecycle import PENDING, Stories
from mpi_runtime.scheduler.records.records import (
    Account,
    Actor,
    Bundle,
    Executor,
    Family,
    Function,
    Node,
    Process,
    Queue,
    Rank,
    Task,
)
from mpi_runtime.scheduler.records.sources import NOTHING, Claimant
from mpi_runtime.scheduler.records.timers import Alarms

Waiter: TypeAlias = "int | tuple[Task, Executor]"
"""Who waits for a copy on a node: a client, or a call and its executor there."""


class Fetching(Struct, eq=False, gc=False):
    """A copy of an object that a node wants or is getting: see `spreading.py`. It holds the object."""

    id: bytes
    node: int
    rank: int
    """The rank of that node that fetches it."""
    size: int
    source: Place | None = None
    """Where it comes from; None: no source is open yet."""
    source_node: int = -1
    """The node of that place; -1: a file, or none. It has a copy, or one is on its way there."""
    waiting: list[Waiter] = []
    is_ahead: bool = False
    """Whether it was asked for ahead of use."""
    offset: int = -1
    """Its place in the arena, once parts of it can be passed on; -1: not yet."""
    order: int = 0
    """The number of the last order to that rank."""
    since: int = 0
    """The number of the order with which the present transfer began."""
    tried: list[int] = []
    """Ranks that could not send it."""
    reason: str = ""
    """Why its source failed. It is acted upon when it is clear whether that rank is lost."""


class Copying(Struct, eq=False, gc=False):
    """Counts of copies on their way."""

    sending: dict[int, int] = {}
    """The number of copies that each rank sends."""
    orders: int = 0
    """The number of orders so far."""


class Lineage(Struct, eq=False, gc=False):
    """How values of an arena are made again: see `lineage.py`."""

    task: Task
    """The call that made them."""
    inputs: dict[bytes, Lineage]
    """The lineage of its large arguments, by their ids. It does not hold these arguments."""
    held: list[bytes]
    """The objects that it holds: its small arguments."""
    size: int
    """Its size in bytes, as it is counted."""
    uses: int = 0
    """How many objects and other lineages need it."""
    is_dropped: bool = False
    """Whether it was dropped because there was too much lineage."""


class Lineages(Struct, eq=False, gc=False):
    """All lineages."""

    by_call: dict[bytes, Lineage] = {}
    """By the ids of their calls, the oldest first."""
    size: int = 0
    """The sum of their sizes."""


class Failure(Struct, eq=False, gc=False):
    """The error of a call, as long as a client may read it."""

    name: str
    """The name of the function."""
    text: str
    rank: Rank | None
    is_read: bool = False
    objects: int = 0
    """The number of objects of it: one for each return value."""


class Object(Struct, eq=False, gc=False):
    """An object of the object store."""

    id: bytes
    owner: int
    """The client that submitted the call or put the value. It is told without a subscription."""
    references: int
    state: int = PENDING
    data: bytes = b""
    """INLINE: the value. ERROR: the pickled exception. RUNTIME_ERROR: the message."""
    code: str = ""
    """RUNTIME_ERROR: the class of the error."""
    copies: dict[int, Stored] | None = None
    """STORED: the place in the arena of each node. The first is the primary copy."""
    disk: OnDisk | None = None
    """STORED: the place in a file, if it was written to one. Then there may be no copy in an arena."""
    told: dict[int, int] | None = None
    """STORED: the clients that know its place in the arena of their node, each with the number of the `Forget` that
    asked it to forget the place; 0: none did. See `spilling.py`."""
    is_error: bool = False
    """STORED: whether it is a pickled exception."""
    is_for_all: bool = False
    """Whether all nodes get a copy ahead of use."""
    holds: list[bytes] | None = None
    """References inside the value."""
    subscribers: list[tuple[int, bool]] | None = None
    """PENDING: clients to be told, each with whether it wants the value."""
    waiters: list[Task] | None = None
    """PENDING: calls that have it as an argument."""
    task: Task | None = None
    """The call that makes it, until the call ends."""
    actor: Actor | None = None
    """The actor whose handles are counted here."""
    failure: Failure | None = None
    """The error to report if no client reads it."""
    lineage: Lineage | None = None
    """How it can be made again, if it can."""
    digest: bytes = b""
    """STORED, with a journal: the hash of the value."""
    made_by: str = ""
    """STORED: see `Value`."""

    def __str__(self) -> str:
        return f"object {self.id.hex()}"

    def places(self) -> list[Place]:
        """Where all its copies are."""
        places: list[Place] = list((self.copies or {}).values())
        return places if self.disk is None else [*places, self.disk]


class Room(Struct, eq=False, gc=False):
    """A node whose arena was full at some time: see `spilling.py`."""

    wanted: dict[int, int] = {}
    """Bytes for which clients of its ranks wait, by rank."""
    writing: dict[bytes, Stored] = {}
    """Objects that are being written to disk. Each holds the object."""
    problem: str = ""
    """Why nothing more can be written to disk. Empty: something can."""
    last_problem: str = ""
    """The same, with what is kept of the disk for copies."""
    for_copies: dict[bytes, None] = {}
    """Those of `writing` that may use that part."""
    waiting: dict[int, list[int]] = {}
    """The clients that wait, by rank."""
    asked: int = 0
    """The number of the last `Forget` before the latest attempt to make room."""
    stuck_us: int = -1
    """Since when nothing can leave; -1: something can."""


class Spilling(Struct, eq=False, gc=False):
    """What has left full arenas, and what will: see `spilling.py`."""

    on_disk: dict[tuple[int, int], bytes] = {}
    """The object at (rank, offset) of the rank's file."""
    files: dict[int, str] = {}
    """The path of the file of each rank that has one."""
    erasures: dict[int, list[int]] = {}
    """Parts of files to free, by rank."""
    rooms: dict[int, Room] = {}
    """Nodes whose arena was full at some time, by number."""
    forgets: int = 0
    """The number of `Forget` messages so far."""


class Name(Struct, eq=False, gc=False):
    """A name that is taken."""

    actor: bytes
    handle: bytes
    """The data of a handle, for lookups of the name; opaque."""
    detached: bool
    """Whether the actor lives until it is killed or the job ends, also without handles."""


class Group(Claimant, kw_only=True, eq=False, gc=False):
    """A placement group that has not been removed."""

    id: bytes
    requests: list[Request]
    """The requests of its bundles."""
    strategy: str
    data: bytes
    """The value of its object."""
    order: int
    """The number of calls that had been submitted when it was created."""
    name: tuple[str, str] | None
    """Namespace and name, or None."""
    specs: list[BundleSpec]
    bundles: dict[int, Bundle] = field(default_factory=dict)
    """Its bundles by index; empty until it is placed. Those on a lost node are missing until they are placed again."""
    is_feasible: bool = True
    """Whether an arrangement was found for an empty job. If not, the group is not tried."""

    def position(self) -> int:
        """The position of its creation among calls, while it waits."""
        return NOTHING if self.is_placed else self.order

    @property
    def is_placed(self) -> bool:
        """Whether all its bundles are reserved."""
        return len(self.bundles) == len(self.requests)

    def missing(self) -> list[int]:
        """The indices of bundles that are not reserved."""
        return [index for index in range(len(self.requests)) if index not in self.bundles]


class Run(Struct, eq=False, gc=False):
    """One attempt of a call that has ended."""

    id: bytes
    function: Function
    process: Process
    attempt: int
    submitted_us: int
    """By the head's clock."""
    start_us: int
    """By the clock of its host; of DIED by the head's, and not exact."""
    duration_us: int
    outcome: int


class Client(Struct, eq=False, gc=False):
    """A process that submits calls and holds references: the driver or an executor."""

    id: int
    node: Node
    executor: Executor | None
    held: dict[bytes, None] = {}
    """Objects to which its process has references."""

    def as_executor(self) -> Executor:
        """Return its executor.

        Raises:
            RefusedError: it is the driver.
        """
        if self.executor is None:
            raise RefusedError("the driver sent what only executors may send")
        return self.executor


class Refused(Struct):
    """Executors that broke the protocol, or sent unreadable frames."""

    count: int = 0
    told: int = 0
    """How many of them were reported, and when."""
    told_us: int = -REFUSALS_TELL_US


class Totals(Struct, eq=False, gc=False):
    """Totals for the end of the job, besides those of `statistics`."""

    abandoned: int = 0
    """Calls that were cancelled because the attempt that submitted them died."""
    actors: int = 0
    """Actors created."""
    put_bytes: int = 0
    """Bytes of all values that clients have put."""
    busy_us: int = 0
    """The sum of the durations of calls."""
    recorded: int = 0
    """Calls of tasks and states of actors given to the journal."""


class State:
    """The complete state of the scheduler."""

    def __init__(self) -> None:
        self.functions: dict[int, Function] = {}
        self.accounts: dict[str, Account] = {}
        self.objects: dict[bytes, Object] = {}
        self.actors: dict[bytes, Actor] = {}
        self.names: dict[tuple[str, str], Name] = {}
        """Of actors, by namespace and name."""
        self.groups: dict[bytes, Group] = {}
        """By the ids of their objects."""
        self.group_names: dict[tuple[str, str], bytes] = {}
        self.waiting_groups: dict[bytes, Group] = {}
        """Groups that are not placed, in order of creation."""
        self.clients: dict[int, Client] = {}
        self.nodes: dict[int, Node] = {}
        """Nodes, by number."""
        self.hosts: dict[int, Node] = {}
        """Nodes, by the lowest rank of each host."""
        self.ranks: dict[int, Rank] = {}
        self.lost: dict[int, str] = {}
        """Ranks that are lost, with the cause in words."""
        self.executors: dict[int, Executor] = {}
        self.index = Index()
        self.device_nodes: dict[str, int] = {}
        """The node of each GPU, by UUID: containers may show one GPU on two hosts."""
        self.queues: dict[tuple[object, ...], Queue] = {}
        self.dirty: list[Queue] = []
        """Queues with new calls or with executors that have room. The next decision serves them."""
        self.families: dict[tuple[object, ...], Family] = {}
        self.waiting: dict[Family, None] = {}  # with queues that wait for something to become free
        self.freed: bool = False
        """Something became free since the last decision."""
        self.woken: list[Task] = []
        """Tasks whose last missing argument became ready."""
        self.unreferenced_actors: list[Actor] = []
        """Actors whose last handle is gone."""
        self.called: dict[Actor, None] = {}
        """Actors to which calls may have to be sent."""
        self.extents: dict[tuple[int, int], bytes] = {}
        """The object at (rank, offset). An error of several return values is there once."""
        self.frees: dict[int, list[int]] = {}
        """Extents to free, by rank."""
        self.spilling = Spilling()
        self.alarms = Alarms()
        """Of queues (calls wait behind busy executors, or may end too late), executors, nodes, bundles and calls."""
        self.effects = Effects()
        self.stories = Stories()
        self.next_executor = 1
        self.last_spread = -1
        """The node that got the last call with SPREAD."""
        self.fetching: dict[bytes, dict[int, Fetching]] = {}
        """Copies under way, by object and node."""
        self.copying = Copying()
        self.lineages = Lineages()
        self.history: deque[Run] = deque(maxlen=HISTORY_CALLS_MAX)
        """The last attempts that have ended."""
        self.ran = 0
        """The number of attempts that have ended."""
        self.wall_us = 0
        """The time since 1970 minus the head's clock."""
        self.end_us: int | None = None
        """The end of the job's time, by the head's clock; None: not known."""
        self.told: set[str] = set()
        """What was told once and is not repeated. Only for membership."""
        self.submitted = self.finished = self.failed = self.retried = self.restarted = 0
        self.refused = Refused()
        self.has_journal = self.recalls = self.is_ending = False
        """Whether calls are recorded, whether earlier runs have left records, and whether the job is about to end."""
        self.totals = Totals()
        self.times_told: dict[tuple[str, str], int] = {}
        """How often frequent events have happened, by event and name."""

    def add_client(self, number: int, node: Node, executor: Executor | None) -> None:
        """Add a process that submits calls and holds references."""
        self.clients[number] = Client(number, node, executor)

    def to_client(self, client: int, message: object) -> None:
        """Add a message for a client."""
        self.effects.clients[client].append(message)

    def to_rank(self, rank: int, effect: RankEffect) -> None:
        """Add an effect for a rank, unless it is gone."""
        if rank not in self.lost:
            self.effects.ranks.setdefault(rank, []).append(effect)

    def send_frees(self, rank: int) -> None:
        """Add the effect that frees the extents of a rank."""
        offsets = self.frees.pop(rank, None)
        if offsets:
            self.to_rank(rank, Free(offsets))

    def take_effects(self) -> Effects:
        """All effects since the last call."""
        for rank in list(self.frees):
            self.send_frees(rank)
        for rank, offsets in self.spilling.erasures.items():
            self.to_rank(rank, Erase(offsets))
        self.spilling.erasures.clear()
        effects, self.effects = self.effects, Effects()
        return effects
