"""The records of calls, executors, nodes and queues. They decide nothing.

The records refer to each other in circles (a task to its executor, that to its queue, that to its tasks), so they are
in one module. Changes that several modules make to one record are its methods. The other tables are in `state.py`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict, deque
from operator import attrgetter

from msgspec import Struct, field

from mpi_runtime.gpu.ledger import Inventory
from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.events import (
    ActorSpec,
    Call,
    Faulted,
    MethodSpec,
    Returned,
    Spec,
    Value,
    Where,
    cut,
)
from mpi_runtime.scheduler.protocol.ids import return_ids
from mpi_runtime.scheduler.protocol.rank_events import MemoryReported
from mpi_runtime.scheduler.protocol.resources import Grant, Pool, fits, without_gpus
from mpi_runtime.scheduler.records.grant_sources import NOTHING, Claimant, Contender, Source
from mpi_runtime.scheduler.records.lifecycle import CREATING, READY, STAGING, STARTING, WAITING
from mpi_runtime.scheduler.records.parts import Account, Charge, Key, Line, Refusal, Saves, Stillborn, Stream, Watch

ANYWHERE = Where()
"""The place of calls that may run anywhere. It is compared by `is`."""
_order, _length = attrgetter("waits_at"), attrgetter("takes_us", "waits_at")


class Driver(Struct, eq=False, gc=False):
    """A driver that has joined the job, as long as anything of it is left. The program of rank 0 has no such record.

    Its functions and executors have its number in their environment. Their calls and actors are its, or detached.
    """

    number: int
    use: Account
    """What its executors are granted, for its share."""
    program: str = ""
    pid: int = 0
    joined_us: int = 0
    has_left: bool = False
    tasks: dict[bytes, Task] = {}
    """Its open calls, in the order of submission."""
    ending: dict[bytes, Task] = {}
    """Those that end with a report of their executor, since it has left."""
    detached: dict[bytes, Task] = {}
    """Open calls of its functions that belong to driver 0."""
    actors: dict[bytes, Actor] = {}
    """Its living actors."""
    detached_actors: dict[bytes, Actor] = {}
    """Living actors of its classes that belong to driver 0."""
    groups: dict[bytes, None] = {}
    """Its placement groups, without detached ones."""
    executors: dict[int, Executor] = {}
    functions: dict[int, Function] = {}
    codes: dict[bytes, bytes] = {}
    """The code of its functions: see `State.codes`."""
    accounts: dict[str, Account] = {}
    queues: dict[tuple[object, ...], Queue] = {}
    families: dict[tuple[object, ...], Family] = {}

    def begin(self, task: Task, owner: int) -> None:
        """Note that a call of a function of it was submitted by a client of this owner."""
        task.driver = owner
        (self.tasks if owner else self.detached)[task.call.id] = task

    def end(self, task: Task) -> None:
        """Note that a call of a function of it has ended."""
        id = task.call.id
        if self.tasks.pop(id, None) is None and self.ending.pop(id, None) is None:
            self.detached.pop(id, None)

    def lose(self, actor: Actor) -> None:
        """Note that an actor of a class of it has died."""
        if self.actors.pop(actor.id, None) is None:
            self.detached_actors.pop(actor.id, None)

    def is_ending(self) -> bool:
        """Whether it has left, and nothing detached needs its executors."""
        return self.has_left and not self.detached and not self.detached_actors

    def owner(self, executor: Executor) -> int:
        """The owner of a call that an executor of it submits: that of its actor, or of its running call."""
        if executor.actor is not None:
            return executor.actor.driver
        running = executor.running()
        return running.driver if running is not None else self.number


class Process(Struct, eq=False, gc=False):
    """The process of an executor. The record is kept after its end."""

    executor: int
    rank: int
    node: Node
    pid: int = 0
    actor: bytes = b""
    name: str = ""
    """For an actor: its title or its class."""
    gpu_ids: tuple[int, ...] = ()


class Executor(Struct, eq=False, gc=False):
    """A process that runs user code. It holds a grant exactly while it has assigned calls or is an actor."""

    id: int
    rank: Rank
    key: Key
    source: Source
    """The source of its grant; its node while it has no grant."""
    process: Process
    state: int = STARTING
    queue: Queue | None = None
    """The queue that it serves, while it has a grant for calls of that queue."""
    grant: Grant | None = None
    charge: Charge | None = None
    """None: no account is charged for its grant."""
    share: Charge | None = None
    """The same for its driver; None also if there was one driver when it got the grant."""
    assigned: dict[bytes, Task] = {}
    followers: dict[bytes, Task] = {}
    """Its calls that have not ended, in the order of sending, and those sent behind the makers of their arguments."""
    load_us: int = 0
    """The sum of the estimates of the assigned calls."""
    progress_us: int = 0
    """The time of its last message, or of its first call after it had none."""
    children: dict[bytes, Task] = {}
    """Calls that it has submitted and that have not ended."""
    known: set[int] = set()
    """Specs that were sent to it. Only for membership."""
    actor: Actor | None = None
    left_behind: frozenset[bytes] = frozenset()
    """Calls that its tasks had submitted before it became an actor. They do not end with the actor."""
    is_reduced: bool = False
    """Whether its actor is created. Then its grant is reduced to the part that the actor holds."""
    blocked: bool = False
    """Whether its call waits for objects. Then its CPU is lent."""
    stuck: bool = False
    """Whether it has made no progress for long. It gets no call until it does."""
    asked_back: bool = False
    """Whether a `TakeBack` is on its way."""
    waits_for: list[bytes] = []
    """While blocked: some of the objects that it waits for."""
    idle_since_us: int = 0
    is_out_of_memory: bool = False
    """Whether it was killed to free its memory."""
    killed_for: str = ""
    """The cause if it ends itself, or is being killed and its actor will be restarted; empty: it is not."""
    watched: dict[bytes, Watch] = {}
    """Unusual properties of assigned calls, by their ids."""
    kept: list[bytes] = []
    """Arguments of calls that have failed and that it may still run. They are held until it is gone."""
    fault: Faulted | None = None
    """The error after which it can no longer use its GPUs. Then it is ending."""
    refusal: Refusal | None = None
    forked_for: Queue | None = None
    """The queue for which it was forked, until one of its calls has ended."""
    gang: Gang | None = None
    """The gang of which it is a member, for life."""
    gang_rank: int = 0
    driver: Driver | None = None
    """The driver whose calls it runs; None: driver 0."""

    @property
    def pid(self) -> int:
        """Its process id; 0: not known yet."""
        return self.process.pid

    @property
    def stage(self) -> str:
        """Its process id, for messages, or that it has none yet."""
        return f"pid {self.pid}" if self.pid else "starting"

    def running(self) -> Task | None:
        """The call that it runs, or will run first."""
        for task in self.assigned.values():
            if task.state != STAGING:
                return task
        return None

    @property
    def place(self) -> str:
        """Its process and place, for messages."""
        return f"({self.stage}, rank {self.rank.number}, {self.rank.node.hostname})"

    def __str__(self) -> str:
        return f"executor {self.id} {self.place}"

    def take(self, task: Task, estimate_us: int) -> None:
        """Assign a call to it."""
        task.executor = self
        task.estimate_us = estimate_us
        self.load_us += estimate_us
        self.assigned[task.call.id] = task

    def drop(self, id: bytes) -> Task | None:
        """Remove a call from the assigned calls, if it is one of them."""
        if (task := self.assigned.pop(id, None)) is not None:
            self.load_us -= task.estimate_us
            self.watched.pop(id, None)
            self.followers.pop(id, None)
        return task

    def has_as_argument(self, id: bytes) -> bool:
        """Whether an object is an argument of a call that it runs or will run."""
        return id in self.kept or any(id in task.call.arguments for task in self.assigned.values())

    def watch(self, task: Task) -> Watch:
        """The record for unusual properties of an assigned call."""
        return self.watched.setdefault(task.id, Watch())

    def put_back(self, task: Task) -> None:
        """Put back the call that was dropped last, as the first: it has not ended after all."""
        self.assigned = {task.call.id: task, **self.assigned}
        self.load_us += task.estimate_us

    def drop_all(self) -> list[Task]:
        """Remove all assigned calls, and return them in the order of sending."""
        tasks, self.load_us = list(self.assigned.values()), 0
        for calls in (self.assigned, self.watched, self.followers):
            calls.clear()
        return tasks

    def charge_to(self, account: Account | None, request: Request, use: Account | None = None) -> None:
        """Charge what it is granted for a request to an account, if any, and with several drivers to its driver."""
        if account is not None:
            self.charge = Charge(account, request)
            account.note(request, 1)
        if use is not None:
            self.share = Charge(use, request)
            use.note(request, 1)

    def discharge(self) -> None:
        """Take its grant off the account: it has given it back."""
        if self.charge is not None:
            self.charge.account.note(self.charge.request, -1)
            self.charge = None
        if self.share is not None:
            self.share.account.note(self.share.request, -1)
            self.share = None

    def reduce_share(self, cpu: int) -> None:
        """Charge its driver with less CPU from now on: its actor is created."""
        if self.share is not None:
            use, request = self.share.account, self.share.request
            use.cpu -= request.cpu - cpu
            self.share = Charge(use, Request(cpu, request.gpu))

    def lendable_cpu(self) -> int:
        """The CPU that it lends while it is blocked: not the part that its actor holds for life."""
        if self.grant is None or self.is_reduced or self.gang is not None:  # the other members may be spinning
            return 0
        return self.grant.cpu - (self.actor.spec.held_cpu if self.actor is not None else 0)

    def lend_cpu(self) -> None:
        """Lend the CPU of its grant: it is blocked."""
        self.blocked = True
        self._note_running(-1)
        self.source.free.cpu += self.lendable_cpu()

    def reclaim_cpu(self) -> None:
        """Take the lent CPU back: it is no longer blocked. The free CPU of its source may fall below zero."""
        self.blocked = False
        self._note_running(1)
        self.source.free.cpu -= self.lendable_cpu()

    def _note_running(self, sign: int) -> None:
        for charge in (self.charge, self.share):
            if charge is not None:
                charge.account.running += sign


class Rank(Struct, eq=False, gc=False):
    """A rank process: the agent of a part of a node."""

    number: int
    node: Node
    hosts_executors: bool
    executors: dict[int, Executor] = {}
    cpus: list[int] = []
    stored: int = 0
    """The bytes of values in its part of the arena."""


class Node(Source, kw_only=True, eq=False, gc=False):
    """A host: all its ranks, and their resources as one pool. Resources of bundles are not free."""

    number: int
    """A number from 0 on, in the order in which hosts joined. It is not a rank."""
    hostname: str
    address: str = ""
    """The address by which it reaches others; empty: not known."""
    labels: dict[str, str] = field(default_factory=dict)
    bundles: list[Bundle] = field(default_factory=list)
    """Bundles on it, also removed ones that are still used."""
    ranks: list[Rank] = field(default_factory=list)
    cpus: list[int] = field(default_factory=list)
    explicit_cpu: int = -1
    """CPU units that the user stated; -1: one CPU for each processor."""
    idle: dict[Key, dict[int, Executor]] = field(default_factory=dict)
    """Executors without a grant, by key. The last key and the last entry of each became idle last."""
    clock_ahead_us: int = NOTHING
    """An upper bound of the head's clock minus this host's: see `history.py`."""
    arena: int = 0
    recorded: int = 0
    """The last level of its arena in `log/value_moves.py`."""
    is_full: bool = False
    """Whether a client waits for room in its arena."""
    gpu_problems: list[str] = field(default_factory=list)
    """Faults of its GPUs, for messages."""
    gpu_error: str = ""
    """Why one of its ranks could not look for GPUs; empty: all could."""
    cpu_limit: str = ""
    """The reason why one of its ranks may use fewer CPUs than the host has; empty: no rank has one."""
    gpu_limit: str = ""
    """The cause that hides GPUs of the host from one of its ranks, such as a variable; empty: no GPU is hidden."""
    pressure: dict[int, MemoryReported] = field(default_factory=dict)
    """The last reports of its ranks that its memory is nearly used up, by rank."""
    ending: tuple[int, bytes] | None = None
    """The executor that is being ended to free memory, with its running call, if any."""

    @property
    def id(self) -> str:
        """Its id for users."""
        return f"{self.number:032x}"

    @property
    def hosts_executors(self) -> bool:
        """Whether calls can run on it. The head's node may hold data only."""
        return any(rank.hosts_executors for rank in self.ranks)

    def is_closed(self) -> bool:
        """Whether nothing is started here: its memory is nearly used up, and a running call may free some."""
        return bool(self.pressure) and any(one.grant and not one.is_reduced for one in self.executors())

    @property
    def inventory(self) -> Inventory:
        """Its GPUs."""
        assert self.total.inventory is not None
        return self.total.inventory

    def executors(self) -> list[Executor]:
        """The executors of all its ranks."""
        return [executor for rank in self.ranks for executor in rank.executors.values()]

    def add_idle(self, executor: Executor) -> dict[int, Executor]:
        """Note that an executor is idle. Returns all idle executors with its key."""
        idle = self.idle[executor.key] = self.idle.pop(executor.key, {})
        idle[executor.id] = executor
        return idle

    def remove_idle(self, executor: Executor) -> None:
        """Note that an executor is no longer idle."""
        idle = self.idle.get(executor.key)
        if idle is not None:
            idle.pop(executor.id, None)
            if not idle:
                del self.idle[executor.key]

    def all_idle(self) -> list[Executor]:
        """Its executors without a grant."""
        return [executor for idle in self.idle.values() for executor in idle.values()]


class Bundle(Source, kw_only=True, eq=False, gc=False):
    """Resources of one node that belong to a placement group."""

    group: bytes
    index: int
    node: Node
    grant: Grant
    """The grant of the node."""
    removed: bool = False
    """Whether its group was removed. Its resources return to the node with the end of its last executor."""

    def is_closed(self) -> bool:
        """Whether its node is closed."""
        return self.node.is_closed()


def node_of(source: Source) -> Node:
    """The node that a source is, or to which it belongs."""
    node = source.node if isinstance(source, Bundle) else source
    assert isinstance(node, Node)
    return node


def granted(source: Source) -> list[Executor]:
    """The executors with a grant of a source."""
    return [x for rank in node_of(source).ranks for x in rank.executors.values() if x.grant and x.source is source]


class Function(Struct, eq=False, gc=False):
    """A spec with measurements of its calls."""

    spec: Spec
    queues: list[Queue | None]
    """Its queues, by depth of the call."""
    where: Where = ANYWHERE
    infeasible: str = ""
    """Why no node can ever run it; empty: a node can."""
    submitted: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0  # these count as failed, too
    duration_us: int = -1
    is_plain: bool = False
    """The moving mean of the measured duration, -1: not known; and whether the last call ended with one small value."""
    is_timed: bool = False
    """Whether the duration of its calls matters: for the end of the job's time, and for backfilling. Such tasks have
    queues of their own. Such methods are not sent ahead, even while their duration is not known."""
    account: Account | None = None
    choice: list[Function] = []
    """All alternatives of its calls, itself among them, in the stated order; empty: there is one request."""
    driver: Driver | None = None
    """The driver whose function it is; None: driver 0."""

    @property
    def limit_us(self) -> int:
        """The time limit of a call; 0: no limit."""
        return self.spec.time.limit_us if self.spec.time is not None else 0

    @property
    def is_expected(self) -> bool:
        """Whether a duration was stated that is not a limit."""
        return self.spec.time is not None and self.spec.time.expect_us > 0

    @property
    def may_take_us(self) -> int:
        """The limit of a call, or its measured mean; -1: neither is known. Another `expect_us` replaces the limit."""
        time = self.spec.time
        if time is None or time.expect_us in (0, time.limit_us):
            return self.limit_us or self.duration_us
        return self.duration_us if self.duration_us >= 0 else time.expect_us

    @property
    def likely_us(self) -> int:
        """As `may_take_us`, but the measured mean replaces a limit that is also expected."""
        return self.duration_us if self.is_expected and self.duration_us >= 0 else self.may_take_us

    @property
    def has_fixed_length(self) -> bool:
        """Whether `may_take_us` is a limit, and never changes."""
        time = self.spec.time
        return time is not None and time.limit_us > 0 and time.expect_us in (0, time.limit_us) and not self.choice

    @property
    def quickest_us(self) -> int:
        """The shortest likely time among its alternatives; -1: that of one is not known."""
        usable = [one for one in self.choice if not one.infeasible]
        return min((one.likely_us for one in usable), default=self.likely_us)

    def requests(self) -> str:
        """Its request, or those of all alternatives, in words."""
        return " or ".join(str(one.spec.asks) for one in self.choice or [self])

    @property
    def is_actor(self) -> bool:
        """Whether its calls create actors."""
        return type(self.spec.kind) is ActorSpec

    @property
    def is_method(self) -> bool:
        """Whether its calls are calls of an actor."""
        return type(self.spec.kind) is MethodSpec


class Journaled(Struct, eq=False, gc=False):
    """The properties of a call that decide whether the journal records it: see `journaling.py`."""

    key: bytes = b""
    """The hash of its code and of the values of its arguments; empty: no hash, or not yet."""
    is_asked: bool = False
    """Whether the journal was asked for its values, and has not answered."""
    parent: Task | None = None
    """The task that submitted it, while neither has ended."""
    open_children: int = 0
    """The number of tasks that it submitted and that have not ended."""
    is_partial: bool = False
    """Whether it changed an actor, or left calls behind. So its values are not its whole effect."""

    @property
    def is_whole(self) -> bool:
        """Whether its values are its whole effect."""
        return not self.is_partial and not self.open_children


class Task(Struct, eq=False, gc=False):
    """A call that has not ended."""

    call: Call
    function: Function
    client: int
    """The client that submitted it."""
    depth: int
    """The depth: 0 for calls of the driver, one more for each level of nesting."""
    order: int
    """Its position among all calls of the job."""
    retries: int
    """The number of retries left; -1: without limit."""
    submitted_us: int
    """When the head received it."""
    state: int = WAITING
    missing: int = 0
    """WAITING: arguments without a value. STAGING: arguments not yet on the executor's host."""
    queue: Queue | None = None
    """Its present or last queue. None: it calls a method, or was never ready."""
    executor: Executor | None = None
    estimate_us: int = 0
    actor: Actor | None = None
    stream: Stream | None = None
    """None: it does not yield to its caller."""
    crashes: int = 0
    """The number of quick deaths of its process in a row: see `backoff.py`."""
    has_followed: bool = False
    is_cancelled: bool = False
    """Whether it was sent, once, behind the makers of its arguments; was cancelled, and ends when its executor says."""
    overdue: str = ""
    """The message if it was interrupted because of its time limit; empty: it was not."""
    journaled: Journaled | None = None
    """None: nothing about it matters to the journal, so far."""
    parent: bytes = b""
    """The call that submitted it, as far as is known; empty: none."""
    leader: Task | None = None
    """In a gang, for ranks above 0: the call of rank 0, of which this is a part; None: it is a call of its own."""
    driver: int = 0
    """Its owner: the driver with whose end it is cancelled; 0: none."""

    @property
    def id(self) -> bytes:
        """The id of the call and of its first return value."""
        return self.call.id

    def __str__(self) -> str:
        return f"call {self.id.hex()} of {self.function.spec.name} (attempt {self.call.attempt}, order {self.order})"

    @property
    def needs(self) -> tuple[bytes, ...]:
        """The arguments that its executor needs: not those of other ranks of a gang."""
        call = self.call
        return cut(call, self.function.spec.ranks, 0) if call.scattered else call.arguments

    @property
    def is_asked(self) -> bool:
        """WAITING: whether the journal was asked for its values."""
        return self.journaled is not None and self.journaled.is_asked

    def return_ids(self) -> list[bytes]:
        """The ids of all return values: consecutive, starting with the id of the call."""
        return return_ids(self.call.id, self.function.spec.num_returns)


class Actor(Struct, eq=False, gc=False):
    """An actor."""

    id: bytes
    creation: Task
    spec: ActorSpec
    state: int = CREATING
    executor: Executor | None = None
    callers: dict[tuple[int, str, int], Line[Task]] = {}
    """Calls not sent, in order, by client, concurrency group and spec; 0 if they run as they were submitted."""
    cause: str = ""
    """Why it died, for messages."""
    restarts: int = 0
    kept: list[bytes] = []
    """Objects that its creation needs. They are held while it may be restarted."""
    name: tuple[str, str] | None = None
    """Its namespace and name, also when it has died and the name is free."""
    is_detached: bool = False
    """Whether it lives on without handles."""
    error: Value | None = None
    """The error of its constructor. Every call gets it."""
    title: str = ""
    """The `repr` of its instance, if its class defines one."""
    process: Process | None = None
    """Its last process."""
    saves: Saves | None = None
    """None: its state is never saved."""
    driver: int = 0
    """Its owner: the driver with whose end it is killed; 0: none, since it is detached."""

    def __str__(self) -> str:
        where = f" ({self.executor.stage}, {self.executor.rank.node.hostname})" if self.executor is not None else ""
        return f"actor {self.title or self.creation.function.spec.name} {self.id.hex()}{where}"


class Gang(Struct, eq=False, gc=False):
    """A group of executors with an MPI world of their own: see `gangs/`."""

    number: int
    key: tuple[object, ...]
    """The fixed properties of a gang. It can serve all calls with this key."""
    members: list[Executor]
    """By rank."""
    sources: list[Source]
    """The source of the grant of each member, also while it is idle and has none."""
    grants: list[Grant]
    living: int
    """The number of members that are not known to be gone."""
    task: Task | None = None
    """The call that it runs, which is assigned to rank 0; None: it is idle, or ends."""
    for_actor: bool = False
    """Whether it is an actor, for life."""
    ended: dict[int, Returned] = {}
    """The ends of the call that members have reported, by rank."""
    due_us: int = NOTHING
    """When it is killed if nothing happens: it idles, or its call has raised or was cancelled."""
    cause: str = ""
    """Why it ends, in words; empty: it does not."""
    nodes: int = 1


class Queue(Contender, kw_only=True, eq=False, gc=False):
    """Calls that can run on the same executors, in order of submission."""

    family: Family
    function: Function
    """One of the functions of its calls: they have equal requests, kinds, priorities, paths, accounts and gangs."""
    is_timed: bool
    """Whether the duration of its calls matters. Then there is no other function."""
    request: Request
    environment: tuple[tuple[str, str], ...]
    threads: int
    depth: int
    where: Where
    use: Account
    """What the driver of its calls uses."""
    near: int
    """The node with most bytes of their large arguments; -1: none."""
    near_from_us: int = -1
    """When calls began to wait for room there, with room elsewhere; -1: they do not wait."""
    ready: deque[Task]
    """Its calls, in order. The first is ready; some of the others may have ended."""
    withdrawn: int = 0
    """The number of these that have ended."""
    executors: dict[int, Executor] = field(default_factory=dict)
    """Executors with a grant for this queue."""
    hungry: OrderedDict[int, Executor] = field(default_factory=OrderedDict)
    """Executors with room for more calls, the idle ones first. A dict gets slow when its first items are removed."""
    loaded: OrderedDict[int, Executor] = field(default_factory=OrderedDict)
    """Executors that are not blocked and have calls behind the running one, in the order of their last messages."""
    progress_us: int = 0
    """The last time at which one of its executors reported an end or got its grant."""
    dirty: bool = False
    """Whether the next decision serves it."""
    waits_at: int = -1
    """The position of its first call while it waits in its family; -1: it does not wait."""
    awaited: list[list[Executor]] = field(default_factory=list)
    """Executors that must end so that calls can have their devices: one list for each call."""
    is_late: bool = False
    """Whether its calls cannot finish before the job's time ends. Then they are not started."""
    is_deferring: bool = False
    """With alternatives: whether its calls wait for a faster one, although this one may have room."""
    stillborn: Stillborn | None = None
    """None: no executor died before it began a call of it."""
    denied_us: int = 0
    """The backlog of all calls since the last fork for which none was made: see `note_denied`."""
    denied_order: int = 0
    """The calls up to this order are in it."""

    @property
    def forks_from_us(self) -> int:
        """No executor is forked for it before this time."""
        return self.stillborn.forks_from_us if self.stillborn is not None else 0

    def tidy(self) -> None:
        """Drop calls at the front that have ended."""
        while self.withdrawn and self.ready[0].state != READY:
            self.ready.popleft()
            self.withdrawn -= 1

    def is_shut(self) -> bool:
        """Whether none of its calls starts any more, because its driver has left."""
        driver = self.function.driver
        return driver is not None and driver.is_ending()

    def may_begin(self) -> bool:
        """Whether it has calls that may start when there is room."""
        account = self.function.account
        return bool(self.ready) and not self.is_deferring and (account is None or not account.is_full())

    def precedence(self, with_one_more: bool = True) -> tuple[int, int, float, int, int]:
        """The order of service: lower is served first. `with_one_more`: as if it had one more grant."""
        account, spec = self.function.account, self.function.spec
        share = 0.0 if account is None else account.share_with(self.request if with_one_more else None)
        return (-self.depth, -spec.priority, share, -spec.path_us, self.ready[0].order if self.ready else 0)

    def turn(self) -> tuple[float, int, int, float, int, int]:
        """The order of service with several drivers: the one that uses least goes first."""
        return (self.use.share_with(None), *self.precedence())

    def may_overtake(self, other: Queue) -> bool:
        """Whether a queue of another driver has to wait for this one: that driver uses more than this with one more."""
        return self.use.share_with(self.request) < other.use.share_with(None)

    def note_load(self, executor: Executor) -> None:
        """Update the list of executors from which calls can be stolen."""
        if len(executor.assigned) > 1 and not executor.blocked:
            self.loaded[executor.id] = executor
            self.loaded.move_to_end(executor.id)
        elif self.loaded:
            self.loaded.pop(executor.id, None)

    def note_room(self, executor: Executor) -> None:
        """Note that the executor has room for more calls."""
        self.hungry[executor.id] = executor
        if not executor.assigned:
            self.hungry.move_to_end(executor.id, last=False)

    def forget(self, executor: Executor) -> None:
        """Remove an executor that the queue can no longer use."""
        self.executors.pop(executor.id, None)
        self.hungry.pop(executor.id, None)
        self.note_load(executor)


class Family(Claimant, kw_only=True, eq=False, gc=False):
    """Queues that differ only in the time limit of their calls. The waiting ones are listed here.

    There may be thousands of them. Where one call finds no room, no longer call of the same request finds any: a
    reservation only lets shorter calls past. So a decision tries the first queue of each family, and then queues with
    calls that are short enough for the rest. A family reserves one source, for its first call, not one for each limit.
    """

    request: Request
    where: Where
    has_limits: bool
    """Whether the functions of its queues have a time limit. Else the family has one queue."""
    ranks: int
    """The number of members of the gangs that run its calls; 0: executors run them."""
    by_order: list[Queue] = field(default_factory=list)
    """The waiting queues, in order of their first calls."""
    by_length: list[Queue] = field(default_factory=list)
    """With limits: the waiting queues, shortest calls first."""

    def add(self, queue: Queue) -> None:
        """Add a queue that waits, or begins with another call than before."""
        order = queue.ready[0].order
        if queue.waits_at == order:
            return
        if self.has_limits:
            self.remove(queue)
            queue.waits_at = order
            insort(self.by_order, queue, key=_order)
            insort(self.by_length, queue, key=_length)
        else:
            self.by_order[:] = [queue]
            queue.waits_at = order

    def remove(self, queue: Queue) -> None:
        """Remove a queue that does not wait any more."""
        if queue.waits_at < 0:
            return
        if not self.has_limits:
            self.by_order.clear()
        else:
            del self.by_order[self.by_order.index(queue, bisect_left(self.by_order, queue.waits_at, key=_order))]
            del self.by_length[self.by_length.index(queue, bisect_left(self.by_length, _length(queue), key=_length))]
        queue.waits_at = -1

    def first(self) -> Queue | None:
        """The waiting queue with the first call."""
        if self.by_order and self.by_order[0].ready:  # most often so
            return self.by_order[0]
        return next((queue for queue in self.by_order if queue.ready), None)

    def position(self) -> int:
        """The position of its first waiting call."""
        first = self.first()
        return first.ready[0].order if first is not None else NOTHING

    def spares(self, request: Request, free: Pool) -> bool:
        """Whether others may take a request: the family waits for GPUs, and there is enough of the rest for both."""
        if self.ranks:
            return False
        return self.request.needs_gpu and not request.needs_gpu and fits(without_gpus(self.request, request), free)

    def after(self, order: int, longest_us: int) -> Queue | None:
        """With limits: the first waiting queue behind a position with calls that take at most this long."""
        short = bisect_right(self.by_length, (longest_us, NOTHING), key=_length)
        if short * short <= len(self.by_length):  # else one of them is met sooner in the order of calls
            behind = (queue for queue in self.by_length[:short] if queue.waits_at > order)
            return min(behind, key=_order, default=None)
        for place in range(bisect_right(self.by_order, order, key=_order), len(self.by_order)):
            queue = self.by_order[place]
            if queue.takes_us <= longest_us:
                return queue
        return None
