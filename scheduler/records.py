"""The records of calls, executors, nodes and queues. They decide nothing.

The records refer to each other in circles (a task to its executor, that to its queue, that to its tasks), so they are
in one module. Changes that several modules make to one record are its methods. The other tables are in `state.py`.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from msgspec import Struct, field

from mpi_runtime.scheduler.events import ACTOR, METHOD, Call, Faulted, Kept, Spec, Value, Where
from mpi_runtime.scheduler.lifecycle import CREATING, READY, STAGING, STARTING, WAITING
from mpi_runtime.scheduler.rank_events import MemoryReported
from mpi_runtime.scheduler.resources import Grant, Pool, Request, fits, without_devices
from mpi_runtime.scheduler.sources import NOTHING, Claimant, Source


class Key(Struct, frozen=True, gc=False):
    """The fixed properties of an executor. Calls with equal keys may use the same executor."""

    environment: tuple[tuple[str, str], ...]
    threads: int
    devices: tuple[int, ...]


class Process(Struct, eq=False, gc=False):
    """Facts about an executor's process that are kept when it is gone."""

    executor: int
    rank: int
    node: Node
    pid: int = 0
    actor: bytes = b""
    name: str = ""
    """For an actor: its title or its class."""


class Watch(Struct, eq=False, gc=False):
    """What is out of the ordinary with a call that an executor has in hand, until it is in its hand no more."""

    began_us: int = -1
    """When its user code began, if its time limit is enforced; -1: not yet."""
    interrupted_us: int = -1
    """When its executor was told to give it up; -1: it was not."""
    is_told: bool = False
    """Whether the user was told that it goes on all the same."""
    killed_for: str = ""
    """Why its process is killed if it runs it still, in words: memory."""
    spares_retry: bool = False
    """Whether it is run again then at no cost: others took the memory too."""
    ends_children: bool = False
    """Calls that it has yet to submit are cancelled when they come: it was cancelled with all that it submits."""
    by_force: bool = False
    """How those are cancelled."""


class Account(Struct, eq=False, gc=False):
    """What the calls of an account use: see `accounts.py`."""

    name: str
    weight: float = 1.0
    limit: int = 0
    """How many of its calls run at a time at most; 0: no limit."""
    running: int = 0
    """How many of its calls run that do not wait for objects."""
    cpu: int = 0
    """What its executors have been granted."""
    gpu: int = 0
    cpu_in_all: int = 1
    """What all nodes have."""
    gpu_in_all: int = 1

    def is_full(self) -> bool:
        """Whether none of its calls may start."""
        return 0 < self.limit <= self.running

    def is_overdrawn(self) -> bool:
        """Whether more run than may: calls that had waited for objects go on."""
        return 0 < self.limit < self.running

    def note(self, request: Request, sign: int) -> None:
        """An executor gets (1) or gives back (-1) what a request asks for."""
        self.running += sign
        self.cpu += sign * request.cpu
        self.gpu += sign * request.gpu

    def share_with(self, request: Request | None) -> float:
        """Its dominant share for its weight, if it got this besides."""
        cpu, gpu = (self.cpu, self.gpu) if request is None else (self.cpu + request.cpu, self.gpu + request.gpu)
        return max(cpu / self.cpu_in_all, gpu / self.gpu_in_all) / self.weight


class Executor(Struct, eq=False, gc=False):
    """A process that runs user code. It holds a grant exactly while it has calls in hand or is an actor."""

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
    account: Account | None = None
    """On whose account it has the grant, as a request of the queue."""
    charged: Request | None = None
    """With an account: the request that was noted there."""
    in_hand: dict[bytes, Task] = {}
    """Calls that it was given and that have not ended, in the order of sending. The first may be running."""
    load_us: int = 0
    """The sum of the estimates of the calls in hand."""
    progress_us: int = 0
    """When it last sent anything, or was given work while it had none."""
    children: dict[bytes, Task] = {}
    """Calls that it has submitted and that have not ended."""
    known: set[int] = set()
    """Specs that it has been sent. Only for membership."""
    actor: Actor | None = None
    left_behind: frozenset[bytes] = frozenset()
    """Calls that its tasks had submitted before it was given its actor. They do not end with the actor."""
    is_reduced: bool = False
    """Whether its actor has been created, so that the grant is reduced to what the actor keeps."""
    blocked: bool = False
    """Whether its call waits for objects, so that its CPU is lent."""
    stuck: bool = False
    """Whether it has shown no progress for long. Nothing more is sent to it until it does."""
    asked_back: bool = False
    """Whether a `TakeBack` is on its way."""
    waits_for: list[bytes] = []
    """While blocked: some of the objects that it waits for."""
    idle_since_us: int = 0
    is_out_of_memory: bool = False
    """It was killed to have its memory."""
    killed_for: str = ""
    """Why it is being killed although its actor is to live on, in words."""
    watched: dict[bytes, Watch] = {}
    """Calls in hand with which something is out of the ordinary."""
    kept: list[bytes] = []
    """Needs of calls that were given up, and that it may still run until it is gone."""
    fault: Faulted | None = None
    """Why it can no longer use its GPUs. It is ending."""
    refusal: str = ""
    """What it sent against the protocol, in words. It is being killed, and what it sends is dropped."""
    forked_for: Queue | None = None
    """The queue for whose calls it was forked, until one of its calls has ended."""
    refused_ends: int = 0
    """How many calls have ended, by the books of its agent, in dropped frames."""

    @property
    def pid(self) -> int:
        """Its process id; 0: not known yet."""
        return self.process.pid

    def running(self) -> Task | None:
        """The call that it runs, or will run first."""
        for task in self.in_hand.values():
            if task.state != STAGING:
                return task
        return None

    def __str__(self) -> str:
        """Its process and place, in words."""
        return f"executor {self.id} (pid {self.pid}, rank {self.rank.number}, {self.rank.node.hostname})"

    def take(self, task: Task, estimate_us: int) -> None:
        """Add a call to the calls in hand."""
        task.executor = self
        task.estimate_us = estimate_us
        self.load_us += estimate_us
        self.in_hand[task.call.id] = task

    def drop(self, id: bytes) -> Task | None:
        """Remove a call from the calls in hand, if it is there."""
        task = self.in_hand.pop(id, None)
        if task is not None:
            self.load_us -= task.estimate_us
            if self.watched:
                self.watched.pop(id, None)
        return task

    def has_as_argument(self, id: bytes) -> bool:
        """Whether it has been sent an object as an argument of what it runs or will run."""
        return id in self.kept or any(id in task.call.arguments for task in self.in_hand.values())

    def watch(self, task: Task) -> Watch:
        """What is out of the ordinary with a call in its hand: to be filled in."""
        return self.watched.setdefault(task.id, Watch())

    def put_back(self, task: Task) -> None:
        """Put a call back as the first in hand. It was removed by mistake."""
        self.in_hand = {task.call.id: task, **self.in_hand}
        self.load_us += task.estimate_us

    def drop_all(self) -> list[Task]:
        """Remove all calls in hand, and return them in the order of sending."""
        tasks = list(self.in_hand.values())
        self.in_hand.clear()
        self.watched.clear()
        self.load_us = 0
        return tasks

    def charge(self, account: Account, request: Request) -> None:
        """Note on an account what it has been granted."""
        self.account, self.charged = account, request
        account.note(request, 1)

    def discharge(self) -> None:
        """It has given its grant back."""
        if self.account is not None and self.charged is not None:
            self.account.note(self.charged, -1)
        self.account = self.charged = None

    def lendable_cpu(self) -> int:
        """The CPU that it lends while it is blocked: that of a task, not that which an actor holds for life."""
        if self.grant is None or self.is_reduced:
            return 0
        return self.grant.cpu - (self.actor.creation.function.spec.held_cpu if self.actor is not None else 0)

    def lend_cpu(self) -> None:
        """Lend the CPU of its grant: it is blocked."""
        self.blocked = True
        if self.account is not None:
            self.account.running -= 1
        self.source.free.cpu += self.lendable_cpu()

    def reclaim_cpu(self) -> None:
        """Take the lent CPU back: it is no longer blocked. The free CPU of its source may fall below zero."""
        self.blocked = False
        if self.account is not None:
            self.account.running += 1
        self.source.free.cpu -= self.lendable_cpu()


class Rank(Struct, eq=False, gc=False):
    """A rank process: the agent of a part of a node."""

    number: int
    node: Node
    hosts_executors: bool
    executors: dict[int, Executor] = {}
    cpus: list[int] = []
    """Processor numbers that it may use."""


class Node(Source, kw_only=True, eq=False, gc=False):
    """A host: all its ranks, and their resources as one pool. Resources of bundles are not free."""

    number: int
    """A number from 0 on, in the order in which hosts joined. It is not a rank."""
    hostname: str
    labels: dict[str, str] = field(default_factory=dict)
    bundles: list[Bundle] = field(default_factory=list)
    """Bundles that are reserved on it, or removed and still used."""
    ranks: list[Rank] = field(default_factory=list)
    cpus: list[int] = field(default_factory=list)
    """Processor numbers that may be used."""
    explicit_cpu: int = -1
    """CPU units that the user stated; -1: as many as processors."""
    idle: dict[Key, dict[int, Executor]] = field(default_factory=dict)
    """Executors without a grant, by key. In each the last entry became idle last."""
    clock_ahead_us: int = NOTHING
    """An upper bound of how far the head's clock is ahead of this host's: see `history.py`."""
    arena: int = 0
    is_full: bool = False
    """Whether somebody waits for room in it."""
    gpu_problems: list[str] = field(default_factory=list)
    """Faults of its GPUs, in words."""
    gpu_error: str = ""
    """Why one of its ranks could not find out whether there are GPUs."""
    gpu_limit: str = ""
    """What leaves one of its ranks fewer than were stated and are there."""
    pressure: dict[int, MemoryReported] = field(default_factory=dict)
    """What those of its ranks have said last that find its memory nearly used up."""
    ending: tuple[int, bytes] | None = None
    """What was told to end for that, until it is known to have: an executor, and the call that it runs, if any."""

    @property
    def id(self) -> str:
        """The id that users see."""
        return f"{self.number:032x}"

    @property
    def hosts_executors(self) -> bool:
        """Whether calls can run on it. The head's node may hold data only."""
        return any(rank.hosts_executors for rank in self.ranks)

    def is_closed(self) -> bool:
        """Whether nothing is started: its memory is nearly used up, and something runs that may give some back."""
        return bool(self.pressure) and any(
            executor.grant is not None and not executor.is_reduced
            for rank in self.ranks
            for executor in rank.executors.values()
        )

    def add_idle(self, executor: Executor) -> dict[int, Executor]:
        """Note that an executor is idle. Returns all idle ones with the same key."""
        idle = self.idle.setdefault(executor.key, {})
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
    """Resources that a placement group has reserved of one node."""

    group: bytes
    index: int
    node: Node
    grant: Grant
    """The grant of the node."""
    removed: bool = False
    """Whether its group was removed. Its resources return to the node with its last executor."""

    def is_closed(self) -> bool:
        """As its node is."""
        return self.node.is_closed()

    def device_ids(self) -> list[int]:
        """The GPUs that it has, or has a share of."""
        return [id for id, _, _ in self.grant.devices]


def node_of(source: Source) -> Node:
    """The node that a source is, or is a part of."""
    if isinstance(source, Bundle):
        return source.node
    assert isinstance(source, Node)
    return source


class Function(Struct, eq=False, gc=False):
    """A spec, and what was measured of its calls."""

    spec: Spec
    request: Request
    queues: list[Queue | None]
    """Its queues, by depth of the call; None where not used."""
    where: Where | None = None
    """The resolved place of its calls."""
    infeasible: str = ""
    """Why no node can ever run it; empty: some node can."""
    duration_us: int = -1
    """The moving mean of the measured duration; -1: not known yet."""
    is_timed: bool = False
    """Whether it matters how long its calls may take: for the end of the job's time, and for gaps before reservations.
    Such tasks have queues of their own; such methods are not sent ahead, also while their duration is not known."""

    account: Account | None = None

    @property
    def may_take_us(self) -> int:
        """How long a call may take, as far as anybody knows; -1: nobody knows."""
        return self.spec.time_limit_us or self.duration_us

    @property
    def is_actor(self) -> bool:
        """Whether its calls create actors."""
        return self.spec.kind == ACTOR

    @property
    def is_method(self) -> bool:
        """Whether its calls are calls of an actor."""
        return self.spec.kind == METHOD


class Task(Struct, eq=False, gc=False):
    """A call that has not ended."""

    call: Call
    function: Function
    client: int
    """The client that submitted it."""
    depth: int
    """The depth: 0 for calls of the driver, one more for each level of nesting."""
    order: int
    """Its position among all calls ever submitted."""
    retries: int
    """Number of retries left; -1: without limit."""
    submitted_us: int
    """When the head received it."""
    state: int = WAITING
    missing: int = 0
    """WAITING: arguments without a value. STAGING: arguments not yet on the executor's host."""
    queue: Queue | None = None
    """The queue in which it is, or was last. None: it is a method's, or was never ready."""
    executor: Executor | None = None
    """STAGING, SENT and BLOCKED: its executor."""
    estimate_us: int = 0
    """SENT: the part of the executor's load for it."""
    actor: Actor | None = None
    """For creations and methods: the actor."""
    yielded: int = 0
    """With STREAMING: the number of values so far."""
    consumed: int = 0
    """With STREAMING: the number of values that its client has consumed, or that will never be consumed."""
    crashes: int = 0
    """How often in a row its process died at once: see `backoff.py`."""
    is_cancelled: bool = False
    """It is to end as soon as its executor lets it."""
    overdue: str = ""
    """Why it was interrupted, in words: it runs longer than its time limit. Empty: it was not."""
    key: bytes = b""
    """With a journal: the hash of its code and of the values of its arguments, when it has them."""
    recalling: bool = False
    """WAITING: the journal was asked for its values."""
    parent: Task | None = None
    """With a journal: the call that has submitted it, while neither has ended."""
    open_children: int = 0
    """With a journal: how many calls it has submitted that have not ended."""
    is_partial: bool = False
    """With a journal: it has changed an actor, or left calls behind. Its values do not stand for all that it did."""

    @property
    def id(self) -> bytes:
        """The id of the call and of its first return value."""
        return self.call.id

    def __str__(self) -> str:
        return f"call {self.id.hex()} of {self.function.spec.name} (attempt {self.call.attempt}, order {self.order})"

    def return_ids(self) -> list[bytes]:
        """The ids of all return values: consecutive, starting with the id of the call."""
        count = self.function.spec.num_returns
        if count <= 1:
            return [self.call.id]
        start = int.from_bytes(self.call.id, "big")
        return [(start + index).to_bytes(16, "big") for index in range(count)]


class Actor(Struct, eq=False, gc=False):
    """An actor."""

    id: bytes
    creation: Task
    state: int = CREATING
    executor: Executor | None = None
    callers: dict[tuple[int, str, int], deque[Task]] = {}
    """Calls that have not been sent, in order, for each caller and concurrency group; without an order of calls for
    each function too, which is otherwise 0."""
    cause: str = ""
    """Why it died, in words."""
    restarts: int = 0
    """How often it was restarted."""
    kept: list[bytes] = []
    """Needs of its creation, while it may be restarted."""
    name: tuple[str, str] | None = None
    """Namespace and name, while it has them."""
    error: Value | None = None
    """The error of its constructor, if that raised. Every call gets it."""
    title: str = ""
    """Its title: the `repr` of its instance, if its class defines one."""
    key: bytes = b""
    """With a journal: the hash of its class and arguments, if its state is saved: see `checkpoints.py`."""
    saved: Kept | None = None
    """The last state that was saved: it begins with that when it is created again."""
    number: bytes = b""
    """The name of that state."""
    base: bytes = b""
    """The name of the state with which this life of it has begun."""
    life: int = 0
    """How often it was created before."""
    recorded: int = 0
    """How many calls of this life were recorded."""
    is_changed: bool = False
    """Whether a call has ended since its state was saved last."""
    unsaved_why: str = ""
    """Why its state is not saved any more, in words."""
    recalls: bool = False
    """Whether it has begun with a state of an earlier run, which has had calls that this run makes again."""

    def __str__(self) -> str:
        """Its class and place, in words."""
        where = f" (pid {self.executor.pid}, {self.executor.rank.node.hostname})" if self.executor is not None else ""
        return f"actor {self.title or self.creation.function.spec.name} {self.id.hex()}{where}"


class Queue(Claimant, kw_only=True, eq=False, gc=False):
    """Calls that can run on the same executors, in order of submission."""

    request: Request
    environment: tuple[tuple[str, str], ...]
    threads: int
    depth: int
    for_actors: bool
    where: Where | None
    group: bytes
    """The placement group of its calls, or empty."""
    near: int
    """The node that has most of their large arguments; -1: none."""
    near_from_us: int = -1
    """Since when calls wait for room there, while there is room elsewhere; -1: they do not."""
    ready: deque[Task]
    """In order. The first is ready; of the others some may have ended."""
    withdrawn: int = 0
    """How many of them."""
    executors: dict[int, Executor] = field(default_factory=dict)
    """Executors with a grant for this queue."""
    hungry: OrderedDict[int, Executor] = field(default_factory=OrderedDict)
    """Executors with room for more calls; those with nothing in hand come first. Not a dict, which gets slow at its
    front."""
    loaded: OrderedDict[int, Executor] = field(default_factory=OrderedDict)
    """Executors that are not blocked and have calls behind the running one; those without news for longest come
    first."""
    progress_us: int = 0
    """When one of its executors last reported an end, or was hired."""
    dirty: bool = False
    awaited: list[list[Executor]] = field(default_factory=list)
    """Executors that were told to end, so that calls of the queue can have their devices; some for each call."""
    path_us: int = 0
    """How long its calls and the longest chain of calls after each take, as their submitter says."""
    account: Account | None = None
    timed: Function | None = None
    """The only function of its calls, if it is known how long they may take."""
    is_late: bool = False
    """Whether they cannot finish in time. Then none is started."""
    stillborn: int = 0
    """How often in a row executors for it died before they began a call: see `backoff.py`."""
    next_try: int = 0
    """Executors from this number on were forked after the last of them had died."""
    forks_from_us: int = 0
    """No executor is forked for it before this time."""

    def tidy(self) -> None:
        """Drop calls at the front that have ended."""
        while self.withdrawn and self.ready[0].state != READY:
            self.ready.popleft()
            self.withdrawn -= 1

    def position(self) -> int:
        """The position of its first call."""
        return self.ready[0].order if self.ready else NOTHING

    def spares(self, request: Request, free: Pool) -> bool:
        """Whether others may take this: the queue waits for GPUs, and of the rest there is enough for both."""
        return (
            self.request.needs_device
            and not request.needs_device
            and fits(without_devices(self.request, request), free)
        )

    def may_begin(self) -> bool:
        """Whether it has calls that may start where there is room."""
        return bool(self.ready) and (self.account is None or not self.account.is_full())

    def precedence(self, with_one_more: bool = True) -> tuple[int, int, float, int, int]:
        """The order of service: lower is served first.

        Args:
            with_one_more: whether its account is looked at as if it had one more executor, or as it is.
        """
        share = 0.0 if self.account is None else self.account.share_with(self.request if with_one_more else None)
        return (-self.depth, -self.priority, share, -self.path_us, self.ready[0].order if self.ready else 0)

    def note_load(self, executor: Executor) -> None:
        """Update the list of executors from which calls can be stolen."""
        if len(executor.in_hand) > 1 and not executor.blocked:
            self.loaded[executor.id] = executor
            self.loaded.move_to_end(executor.id)
        elif self.loaded:
            self.loaded.pop(executor.id, None)

    def note_room(self, executor: Executor) -> None:
        """Note that the executor has room for more calls."""
        self.hungry[executor.id] = executor
        if not executor.in_hand:
            self.hungry.move_to_end(executor.id, last=False)

    def forget(self, executor: Executor) -> None:
        """Remove an executor that the queue can no longer use."""
        self.executors.pop(executor.id, None)
        self.hungry.pop(executor.id, None)
        self.note_load(executor)
