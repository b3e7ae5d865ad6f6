"""All tables of the scheduler, and the effects so far."""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from msgspec import Struct, field

from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.effects import Effects, Erase, Free, RankEffect, StopExecutor
from mpi_runtime.scheduler.protocol.events import BundleSpec, Label, OnDisk, Place, RefusedError, Stored
from mpi_runtime.scheduler.protocol.limits import HISTORY_CALLS_MAX
from mpi_runtime.scheduler.protocol.resources import give_back
from mpi_runtime.scheduler.records.grant_sources import NOTHING, Claimant
from mpi_runtime.scheduler.records.index import Index
from mpi_runtime.scheduler.records.lifecycle import PENDING, STOP, Stories, advance
from mpi_runtime.scheduler.records.parts import Account
from mpi_runtime.scheduler.records.records import (
    Actor,
    Bundle,
    Driver,
    Executor,
    Family,
    Function,
    Gang,
    Node,
    Queue,
    Rank,
    Task,
)
from mpi_runtime.scheduler.records.statistics import ErrorSeen, Logs, Run, Totals
from mpi_runtime.scheduler.records.timers import Alarms

Waiter: TypeAlias = "int | tuple[Task, Executor]"
"""A waiter for a copy on a node: a client, or a call and its executor there."""


class Fetching(Struct, eq=False, gc=False):
    """A fetch of an object for a node: see `spreading.py`. It holds the object."""

    id: bytes
    node: int
    rank: int
    size: int
    source: Place | None = None
    """Its source; None: no source is open yet."""
    source_node: int = -1
    """The node of the source, which has a copy or fetches one; -1: a file, or none."""
    waiting: list[Waiter] = []
    is_ahead: bool = False
    offset: int = -1
    """Its place in the arena, once its parts can be passed on; -1: not yet."""
    order: int = 0
    """The number of the last order to that rank."""
    since: int = 0
    """The number of the order with which the present transfer began."""
    began_us: int = 0
    """The time of that order."""
    tried: list[int] = []
    """Ranks that could not send it."""
    reason: str = ""
    """Why its source failed. It fails for that when it is clear whether that rank is lost."""


class Lineage(Struct, eq=False, gc=False):
    """The lineage of values in arenas, which makes them again: see `lineage.py`."""

    task: Task
    inputs: dict[bytes, Lineage]
    """The lineage of its large arguments, by their ids. It does not hold these arguments."""
    held: list[bytes]
    """The objects that it holds: its small arguments."""
    size: int
    """Its counted size in bytes."""
    uses: int = 0
    """The number of objects and other lineages that need it."""
    is_dropped: bool = False
    """Whether it was dropped because there was too much lineage."""


class Failure(Struct, eq=False, gc=False):
    """The error of a call, as long as a client may read it."""

    name: str
    text: str
    rank: Rank | None
    is_read: bool = False
    objects: int = 0
    """The number of objects of it: one for each return value."""


class Object(Struct, eq=False, gc=False):
    """An object of the object store."""

    id: bytes
    owner: int
    """The client that submitted the call or put the value. It gets a message without a subscription."""
    references: int
    state: int = PENDING
    data: bytes = b""
    """INLINE: the value. ERROR: the pickled exception. RUNTIME_ERROR: the message."""
    code: str = ""
    """RUNTIME_ERROR: the class of the error."""
    copies: dict[int, Stored] | None = None
    """STORED: its places in arenas, by node. The first is the primary copy."""
    disk: OnDisk | None = None
    """STORED: its place in a file, if any. Then there may be no copy in an arena."""
    known_by: dict[int, int] | None = None
    """STORED: the clients that know its place in the arena of their node, each with the number of the last `Forget` for
    that place; 0: none. See `spilling.py`."""
    is_error: bool = False
    """STORED: whether it is a pickled exception."""
    is_for_all: bool = False
    """Whether all nodes get a copy ahead of use."""
    holds: list[bytes] | None = None
    """References inside the value."""
    subscribers: dict[int, bool] | None = None
    """PENDING: clients that subscribed, each with whether it wants the value. One without references has left."""
    waiters: list[Task] | None = None
    """PENDING: calls that have it as an argument."""
    task: Task | None = None
    """The call that makes it, until the call ends."""
    actor: Actor | None = None
    """The actor with handles that are counted here."""
    failure: Failure | None = None
    """The error to log if no client reads it."""
    lineage: Lineage | None = None
    digest: bytes = b""
    """With a journal: see `Value`."""
    made_by: str = ""
    """STORED: see `Value`."""

    def __str__(self) -> str:
        return f"object {self.id.hex()}"

    def is_on(self, number: int) -> bool:
        """Whether the arena of a node has a copy."""
        return self.copies is not None and number in self.copies

    def places(self) -> list[Place]:
        """The places of all its copies."""
        places: list[Place] = list((self.copies or {}).values())
        return places if self.disk is None else [*places, self.disk]


class Writing(Struct, eq=False, gc=False):
    """A value that is being written to disk."""

    place: Stored
    began_us: int
    for_copies: bool
    """Whether it may use the part of the disk that is kept for copies."""


class Room(Struct, eq=False, gc=False):
    """State of a node with an arena that was full at some time: see `spilling.py`."""

    wanted: dict[int, int] = {}
    """The bytes for which its clients wait, by rank."""
    writing: dict[bytes, Writing] = {}
    """Objects that are being written to disk. Each holds the object."""
    problem: str = ""
    """Why nothing can be written to disk; empty: something can."""
    last_problem: str = ""
    """The same, including the part of the disk that is kept for copies."""
    waiting: dict[int, list[int]] = {}
    asked: int = 0
    """The number of the last `Forget` before the latest attempt to make room."""
    stuck_us: int = -1
    """The time since which nothing can leave; -1: something can."""


class Spilling(Struct, eq=False, gc=False):
    """Values that have left full arenas, or will: see `spilling.py`."""

    on_disk: dict[tuple[int, int], bytes] = {}
    """The object at (rank, offset) of the rank's file."""
    files: dict[int, str] = {}
    """The path of the file of each rank that has one."""
    erasures: dict[int, list[int]] = {}
    """Parts of files to free, by rank."""
    rooms: dict[int, Room] = {}
    """By node."""
    forgets: int = 0
    """The number of `Forget` messages so far."""


class Name(Struct, eq=False, gc=False):
    """The name of an actor."""

    actor: bytes
    handle: bytes
    """The data of a handle; opaque."""


class Group(Claimant, kw_only=True, eq=False, gc=False):
    """A placement group that has not been removed."""

    id: bytes
    requests: list[Request]
    strategy: str
    data: bytes
    """The value of its object."""
    order: int
    """The number of calls submitted before it."""
    name: tuple[str, str] | None
    """Namespace and name."""
    specs: list[BundleSpec]
    bundles: dict[int, Bundle] = field(default_factory=dict)
    """Its placed bundles, by index. Bundles of a lost node are missing until they are placed again."""
    functions: list[Function] = field(default_factory=list)
    """Those with calls in it."""
    is_feasible: bool = True
    """Whether it would fit into an empty job. If not, it is not tried."""
    driver: int = 0  # its owner, with whose end it is removed; 0: none

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


class Client(Struct, eq=False, gc=False):
    """A process that submits calls and holds references: a driver or an executor."""

    id: int
    node: Node
    executor: Executor | None
    held: dict[bytes, None] = {}
    """Objects with references in its process."""
    driver: Driver | None = None
    """The driver that it is, or whose calls it runs; None: driver 0."""
    is_silent: bool = False
    """Whether it is a driver that has left, and only releases the values that it still uses."""

    def as_executor(self) -> Executor:
        """Return its executor.

        Raises:
            RefusedError: it is a driver.
        """
        if self.executor is None:
            raise RefusedError("the driver sent what only executors may send")
        return self.executor


class State:
    """The complete state of the scheduler."""

    def __init__(self) -> None:
        self.functions: dict[int, Function] = {}
        self.codes: dict[bytes, bytes] = {}
        """The code of functions. Specs of a function that differ in options share it."""
        self.objects: dict[bytes, Object] = {}
        self.actors: dict[bytes, Actor] = {}
        self.names: dict[tuple[str, str], Name] = {}
        """Names of actors, by namespace and name."""
        self.groups: dict[bytes, Group] = {}
        self.group_names: dict[tuple[str, str], bytes] = {}
        self.waiting_groups: dict[bytes, Group] = {}
        """Groups that are not placed, in order of creation."""
        self.clients: dict[int, Client] = {}
        self._begin_drivers()
        self._begin_nodes()
        self.queues: dict[tuple[object, ...], Queue] = {}
        self.dirty: list[Queue] = []
        """Queues that the next decision serves."""
        self.families: dict[tuple[object, ...], Family] = {}
        self.waiting: dict[Family, None] = {}
        """Families with waiting queues."""
        self.freed: bool = False
        """Whether resources became free since the last decision."""
        self.woken, self.leads = list[Task](), list[Task]()
        """Calls that have got their last missing argument; and those that may follow others or be followed."""
        self.unreferenced_actors: list[Actor] = []
        """Actors that have lost their last handle."""
        self.called: dict[Actor, None] = {}
        """Actors that may get calls."""
        self.extents: dict[tuple[int, int], bytes] = {}
        """The object at (rank, offset). An error of several return values is there once."""
        self.frees: dict[int, list[int]] = {}
        """Extents to free, by rank."""
        self.spilling = Spilling()
        self.alarms = Alarms()
        self.effects = Effects()
        self.stories = Stories()
        self.next_executor = self.next_gang = 1
        self.idle_gangs: dict[tuple[object, ...], dict[int, Gang]] = {}
        """Gangs without a call, by key and number. The last entry of each became idle last."""
        self.last_spread = -1
        """The node that got the last call with SPREAD."""
        self.fetching: dict[bytes, dict[int, Fetching]] = {}
        """By object and node."""
        self.sending: dict[int, int] = {}
        """The number of copies that each rank sends."""
        self.lineages: dict[bytes, Lineage] = {}
        """By the ids of their calls, the oldest first."""
        self.history: deque[Run] = deque(maxlen=HISTORY_CALLS_MAX)
        """The last attempts that have ended."""
        self.fetch_orders = self.lineage_bytes = self.ran = 0
        self.wall_us = 0
        """The time since 1970 minus the head's clock."""
        self.end_us: int | None = None
        """The end of the job's time, by the head's clock; None: not known."""
        self.logs, self.totals = Logs(), Totals()
        self.submitted = self.finished = self.failed = self.cancelled = self.retried = self.restarted = 0
        self.has_journal = self.recalls = self.survives_losses = self.is_ending = False
        """As in `JobBegan`, and whether the job is about to end."""
        self.errors: dict[tuple[str, str], ErrorSeen] = {}
        """Kinds of errors, by function and text."""

    def _begin_nodes(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.hosts: dict[int, Node] = {}
        """Nodes, by the lowest rank of each host."""
        self.ranks: dict[int, Rank] = {}
        self.lost: dict[int, str] = {}
        """Lost ranks, with the cause in words."""
        self.executors: dict[int, Executor] = {}
        self.index = Index()
        self.able: dict[tuple[Label, ...], list[Node]] = {}
        """The nodes that run calls, by the labels that they match; cleared when nodes change: see `constraints.py`."""
        self.device_nodes: dict[str, int] = {}
        """The node of each GPU, by UUID: containers may show one GPU on two hosts."""

    def _begin_drivers(self) -> None:
        self.accounts: dict[str, Account] = {}
        self.drivers: dict[int, Driver] = {}
        """Drivers that have joined, as long as anything of them is left."""
        self.leaving: dict[int, Client] = {}  # drivers that have left, until their references are released
        self.use = Account("driver 0")  # what that uses, while there are others
        self.is_divided = self.by_turns = False
        """Whether calls of several drivers wait, and whether these or accounts get one executor at a time."""

    def to_client(self, client: int, message: object) -> None:
        """Add a message for a client."""
        self.effects.clients[client].append(message)

    def to_rank(self, rank: int, effect: RankEffect) -> None:
        """Add an effect for a rank, unless it is gone."""
        if rank not in self.lost:
            self.effects.ranks.setdefault(rank, []).append(effect)

    def return_grant(self, executor: Executor) -> None:
        """Return the grant of an executor to its source, and take it off its account."""
        assert executor.grant is not None
        give_back(executor.grant, executor.source.free)
        executor.grant = None
        executor.discharge()
        self.index.update(executor.rank.node)
        self.freed = True

    def stop(self, executor: Executor, cause: str, force: bool) -> None:
        """Have the rank of an executor end it; of a member of a gang all members."""
        if executor.gang is not None:
            self.stop_gang(executor.gang, cause)
            return
        advance(self.stories, executor, STOP, cause)
        self.to_rank(executor.rank.number, StopExecutor(executor.id, force))

    def stop_gang(self, gang: Gang, cause: str) -> None:
        """Have all members of a gang killed for this cause, if they are not being killed already."""
        if gang.cause:
            return
        gang.cause = cause
        self.forget_idle(gang)
        for executor in gang.members:
            if executor.id in self.executors:
                executor.rank.node.remove_idle(executor)
                executor.killed_for = executor.killed_for or cause
                advance(self.stories, executor, STOP, cause)
                self.to_rank(executor.rank.number, StopExecutor(executor.id, force=True))

    def forget_idle(self, gang: Gang) -> None:
        """Note that a gang is not idle any more."""
        same = self.idle_gangs.get(gang.key, {})
        if same.pop(gang.number, None) is not None and not same:
            del self.idle_gangs[gang.key]

    def send_frees(self, rank: int) -> None:
        """Add the effect that frees the extents of a rank."""
        offsets = self.frees.pop(rank, None)
        if offsets:
            self.to_rank(rank, Free(offsets))

    def take_effects(self) -> Effects:
        """Return all effects since the last call."""
        for rank in list(self.frees):
            self.send_frees(rank)
        for rank, offsets in self.spilling.erasures.items():
            self.to_rank(rank, Erase(offsets))
        self.spilling.erasures.clear()
        effects, self.effects = self.effects, Effects()
        return effects
