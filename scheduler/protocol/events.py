"""Events of clients, the input of the scheduler, and the parts of calls.

Facts are named in the past tense (`Done`, `Released`), requests as requests (`KillRequested`). Events are messages
(`mpi_runtime.core.transport.messages` has those that the scheduler does not see), so a frame is decoded directly into
events. Ids of tasks and objects are 16 opaque bytes; a task's id is the id of its first return value. Clients are
integers: 0 is the program of rank 0, other drivers and executors share one series of numbers. Times are integer
microseconds. Amounts are those of `amounts.py`. Payloads are opaque: nothing here looks inside. Events of ranks are in
`rank_events.py`.

Limits of numbers and lengths are part of the types, so a frame outside them is not decoded. Handlers check the other
rules of the protocol: see `calls/refusals.py`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from mpi_runtime.scheduler.protocol.amounts import Number, Request
from mpi_runtime.scheduler.protocol.questions import ClientQuestion

Id = Annotated[bytes, Meta(min_length=16, max_length=16)]
Limit = Annotated[int, Meta(ge=-1, le=(1 << 63) - 1)]
"""-1: no limit."""
RETURNS_MAX = 100_000
"""The largest number of values of a call, and of ranks of a gang, which may have one each. The head makes an entry for
each at once: a million keep all others waiting for half a minute."""
BUNDLES_MAX = 100_000
"""The largest number of bundles of a placement group."""

DRIVER = 0
"""The program of rank 0. It alone may end the job. Other drivers join it and leave it."""

STREAMING, DYNAMIC = -1, -2
"""For `num_returns`: references to items one by one while the call runs; or all of them when it has ended."""
NODE_ID, HOSTNAME = "ray.io/node-id", "hostname"
"""Labels that every node has."""
IN, NOT_IN, EXISTS, ABSENT = range(4)
PACK, SPREAD, STRICT_PACK, STRICT_SPREAD = STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
"""Where the bundles of a placement group are placed: on few or many nodes if possible; on one, or each on its own,
always."""


class Label(Struct, array_like=True, frozen=True, gc=False):
    """A condition on one label of a node."""

    key: str
    operator: Annotated[int, Meta(ge=IN, le=ABSENT)]
    """IN, NOT_IN (or the node lacks the label), EXISTS or ABSENT."""
    values: tuple[str, ...] = ()


class Where(Struct, array_like=True, frozen=True, gc=False):
    """Where calls may run, besides their request. Hashable, because calls are queued by it."""

    spread: bool = False
    """Whether calls go to all nodes in turn."""
    node: str = ""
    """The id of the node on which they run."""
    soft: bool = False
    """With `node`: any node will do if that node does not exist or is too small."""
    group: bytes = b""
    bundle: Limit = -1
    """With `group`: the index of the bundle; -1: any."""
    captures: bool = False
    """With `group`: calls that these calls make run in it too, unless they state a place."""
    labels: tuple[Label, ...] = ()
    """Conditions that must hold."""
    preferred: tuple[Label, ...] = ()
    """Conditions that nodes with room now should meet."""


class AccountSpec(Struct, array_like=True, frozen=True, gc=False):
    """An account for calls: see `accounts.py`."""

    name: str
    weight: Annotated[float, Meta(gt=0, le=1e9)] = 1.0
    """Accounts get shares in proportion to their weights."""
    limit: Number = 0
    """The largest number of its calls that run at a time; 0: no limit."""


OWN_SCHEDULER = "=own_scheduler"
"""The entry in the environment of calls that bring their own scheduler, and of calls inside. It is not a variable."""
BRINGS = "call"
"""The value of that entry for calls that bring a scheduler."""
OF_DRIVER = "=driver"
"""The entry in the environment of all specs of a driver that has joined, and of its executors: the number of the
driver, and behind a space what its executors need to know of it. It is not a variable."""


def driver_of(environment: dict[str, str]) -> int:
    """The number of the driver to which executors with this environment belong.

    Raises:
        RefusedError: the entry does not begin with a number.
    """
    entry = environment.get(OF_DRIVER)
    if entry is None:
        return DRIVER
    number = entry.partition(" ")[0]
    if not (number.isascii() and number.isdecimal()):
        raise RefusedError(f"an environment belongs to driver {number[:20]!r}, which must be a number")
    return int(number)


class TaskSpec(Struct, array_like=True, tag=0, frozen=True, gc=False):
    """The calls are tasks."""

    number: ClassVar[int] = 0
    max_calls: Number = 0
    """The executor ends after this many calls; 0: never."""
    alternatives: tuple[Request, ...] = ()
    """Further requests, one of which a call may have instead. Only without `where` and `gang`."""


class ActorSpec(Struct, array_like=True, tag=1, frozen=True, gc=False):
    """The calls create actors."""

    number: ClassVar[int] = 1
    held_cpu: Number = 0
    """The part of the requested CPU that an actor keeps once it has been placed."""
    max_restarts: Limit = 0
    """The largest number of restarts; -1: without limit."""
    concurrency: dict[str, Number] = {}
    """The largest number of concurrent calls of each concurrency group; "" is the default group. Empty: one call after
    the other."""
    is_async: bool = False
    """Whether its calls run in an asyncio loop, not in threads."""
    out_of_order: bool = False
    """Whether a call with its arguments need not wait for earlier ones of the same caller."""
    save_calls: Number = 0
    """The number of calls after which its state is saved; 0: no such number."""
    save_us: Number = 0
    """The time after which its state is saved; 0: executors choose."""


class MethodSpec(Struct, array_like=True, tag=2, frozen=True, gc=False):
    """The calls are calls of actors."""

    number: ClassVar[int] = 2
    group: str = ""
    """Their concurrency group."""
    keeps_state: bool = False
    """Whether they leave the saved state unchanged. Then the next run runs them again."""


class GangSpec(Struct, array_like=True, frozen=True, gc=False):
    """The gang that runs each call. The request is for one member."""

    ranks: Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
    """The number of members."""
    ranks_per_node: Number = 0
    """The number of members on each node but the last; 0: as many as fit."""
    by_rank: bool = False
    """Whether each rank has a value, and `num_returns` counts them. Else the value is that of rank 0."""
    reuse: bool = True
    """Whether the gang may run a further call."""
    starts_mpi: bool = True
    """Whether members start MPI themselves. Else a program that they start may do so, once."""
    pins: bool = False
    """Whether each member is bound to processors of its own."""
    grace_us: Number = 1_000_000
    """How long the other members have when one has raised an error, or the call was cancelled."""

    @property
    def shape(self) -> tuple[object, ...]:
        """The properties of a gang that runs such calls: gangs of one shape may run each other's."""
        return self.ranks, self.ranks_per_node, self.reuse, self.starts_mpi, self.pins


class TimeSpec(Struct, array_like=True, frozen=True, gc=False):
    """How long a call takes, as stated. Actors state nothing."""

    limit_us: Number = 0
    """How long it may take. It is not started if the job's time ends sooner; 0: not known."""
    is_enforced: bool = False
    """Whether a call that runs longer than `limit_us` is ended."""
    expect_us: Number = 0
    """How long it takes, as assumed until calls have ended; 0: `limit_us`, if that is known. With it, the measured mean
    counts and not the limit."""


class RetrySpec(Struct, array_like=True, frozen=True, gc=False):
    """The errors after which a call is retried, up to `max_retries` times."""

    only: bytes = b""
    """For executors: the pickled classes of these errors; empty: all."""
    timeouts: bool = False
    """Whether it is also retried after it was ended for its time limit."""


class Spec(Struct, array_like=True, tag=1, gc=False):
    """The common part of all calls of one function or class with the same options. Each client sends it once.

    What holds only for some functions is in a record of its own, so a call cannot have a property without a meaning.
    """

    id: Number
    """The hash of the content, 63 bits."""
    kind: TaskSpec | ActorSpec | MethodSpec
    name: str
    function: bytes
    """The pickled function or class; empty for methods: `name` is the name of the method."""
    asks: Request = Request()
    """The resources that a call needs. Methods need none: their actor has them."""
    num_returns: Annotated[int, Meta(ge=DYNAMIC, le=RETURNS_MAX)] = 1
    """The number of values; or STREAMING, or DYNAMIC."""
    max_retries: Limit = 0
    """The largest number of retries after its executor died; -1: without limit."""
    retry: RetrySpec | None = None
    """The errors after which it is retried too; None: no error."""
    environment: dict[str, str] = {}
    where: Where | None = None
    priority: int = 0
    """Calls with a higher priority start first."""
    gang: GangSpec | None = None
    """None: an executor runs each call."""
    time: TimeSpec | None = None
    """None: nothing is known, and there is no limit."""
    account: AccountSpec | None = None
    backpressure: Number = 0
    """With STREAMING: the largest number of items that are yielded and not consumed; 0: no limit."""
    code: bytes = b""
    """The hash of the code and of all that it refers to, by which a journal finds calls; empty: its calls are not
    recorded. For an actor: its state is saved. For a method: a hash of the name and the number of values."""
    path_us: Number = 0
    """The estimated duration of a call and of the longest chain of calls after it; 0: not known. Of calls of one
    priority those with the longest path start first. Like `gather_us` it is read for each call, so it is not in a
    record of its own."""
    gather_us: Number = 0
    """How long its executors may hold back ends of calls while they have more calls, to report several at once. Its
    calls are sent further ahead."""
    imports: list[str] = []
    """Modules that its executors should find loaded. They are not part of `id`."""
    code_name: str = ""
    """The name of its function or method, if `name` is another. For an actor: the name of its class with what surrounds
    it, if that is another."""

    @property
    def ranks(self) -> int:
        """The number of members of the gang that runs each call; 0: an executor runs it."""
        return self.gang.ranks if self.gang is not None else 0

    @property
    def by_rank(self) -> bool:
        """Whether each rank of its gang has a value."""
        return self.gang is not None and self.gang.by_rank

    @property
    def group(self) -> str:
        """The concurrency group of methods; empty: the default group."""
        return self.kind.group if isinstance(self.kind, MethodSpec) else ""

    @property
    def keeps_state(self) -> bool:
        """Whether its calls are methods that leave the saved state unchanged."""
        return isinstance(self.kind, MethodSpec) and self.kind.keeps_state


class Kept(Struct, array_like=True, gc=False):
    """A value in a journal: the data, or the name of a file with its size and hash."""

    data: bytes
    file: str = ""
    size: Number = 0
    digest: bytes = b""
    is_error: bool = False
    """Whether the data is a pickled exception. Only errors of methods are kept."""


class Call(Struct, array_like=True, tag=2, gc=False):
    """A call was submitted. The same record starts it on its executor."""

    id: Id
    spec: Number
    payload: bytes
    """Pickled arguments; empty when there are none."""
    arguments: tuple[Id, ...] = ()
    """Objects that replace slots of the arguments by their values. A tuple: an empty one costs nothing to decode. To an
    executor: their values are in the same frame, or calls before this one make them there."""
    holds: tuple[Id, ...] = ()
    """References inside the arguments. They are kept until the call ends."""
    actor: Annotated[bytes, Meta(max_length=16)] = b""
    """For METHOD: the id of the actor's creation."""
    attempt: Annotated[int, Meta(ge=0, lt=1 << 32)] = 0
    """The number of earlier attempts. A client sets it for a call that an earlier attempt of its task has made."""
    digest: Annotated[bytes, Meta(max_length=16)] = b""
    """With a journal: the hash of the payload. Empty: the call is not recorded."""
    kept: tuple[Kept, ...] = ()
    """To an executor: recorded values to load. The call runs only if that fails."""
    scattered: Number = 0
    """For gangs: the last `arguments` are this many lists, each with an object for each rank."""
    wanted: bool = False
    """To an executor: whether other calls wait for its end, so that it is not held back for a common frame."""


def cut(call: Call, ranks: int, rank: int) -> tuple[bytes, ...]:
    """The arguments of a call for one rank of its gang: the common ones, and one object of each scattered argument."""
    if not call.scattered:
        return call.arguments
    common = len(call.arguments) - call.scattered * ranks
    return (*call.arguments[:common], *call.arguments[common + rank :: ranks])


class Done(Struct, array_like=True, tag=3, gc=False):
    """A call ended with one small value without references: the frequent case."""

    id: Id
    data: bytes
    duration_us: Number
    start_us: Number = 0
    """When it began, by the monotonic clock of its host."""


FOLLOWED_BYTES_MAX = 4096
"""Values up to this size are kept by their executor for the calls behind."""


class Unfilled(Struct, array_like=True, tag=38, gc=False):
    """A call was not begun: calls before it on its executor have not made the arguments that it was sent without."""

    id: Id


class Began(Struct, array_like=True, tag=26, gc=False):
    """User code of a call with an enforced time limit has begun: its time counts from here."""

    id: Id


class Place(Struct, array_like=True, gc=False):
    """Where a copy of a large value is."""

    rank: Number
    offset: Number
    size: Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]


class Stored(Place, array_like=True, gc=False):
    """An extent of the arena of a rank's host."""


class OnDisk(Place, array_like=True, gc=False):
    """A part of the scratch file of a rank."""


class Value(Struct, array_like=True, gc=False):
    """A value of any size, inline or in an arena, with the references inside it."""

    data: bytes
    stored: Stored | None = None
    holds: list[Id] = []
    is_error: bool = False
    """Whether the data is a pickled exception."""
    digest: bytes = b""
    """With a journal: the hash of a stored value, or of a small one with code of the program."""
    file: str = ""
    """With a journal: the name of the file that has a stored value too."""
    made_by: str = ""
    """Of a stored value: the line of user code that put it, or the function that returned it."""


class Returned(Struct, array_like=True, tag=4, gc=False):
    """A call ended with its values, one for each of `num_returns`, or with the same error for each."""

    id: Id
    values: Annotated[list[Value], Meta(min_length=1)]
    duration_us: Number
    raised: bool = False
    may_retry: bool = True
    """Whether it raised an error for which it may be retried."""
    start_us: Number = 0
    """As in `Done`."""
    said: str = ""
    """The error in one line. It is logged if no client reads it."""
    has_errors: bool = False
    """Whether the values hold errors of calls. Those may not occur again, so the journal does not record them."""
    ends_gang: bool = False
    """From a member of a gang: whether the gang must not run another call."""
    trace: str = ""
    """The end of the traceback, for people who look at the job; empty: they have enough of the same kind."""


class ErrorRead(Struct, array_like=True, tag=27, gc=False):
    """A client has raised these errors in user code, or passes them on as its own."""

    ids: list[bytes]


class Put(Struct, array_like=True, tag=5, gc=False):
    """A client put a value."""

    id: Id
    value: Value


class SubscriptionRequested(Struct, array_like=True, tag=6, gc=False):
    """A client asks for a message when objects are ready; with `fetch`, for their values."""

    ids: list[Id]
    fetch: bool = True


class Released(Struct, array_like=True, tag=7, gc=False):
    """The last reference to each of these in the client's process is gone."""

    ids: list[Id]


class Held(Struct, array_like=True, tag=8, gc=False):
    """The client's process now has references that it did not make itself."""

    ids: list[Id]


class Forgotten(Struct, array_like=True, tag=29, gc=False):
    """The answer to a `Forget`."""

    request: Number
    asked: list[Id]
    """All objects of the `Forget`."""
    ids: list[Id]
    """Those that the client does not use in their places any more."""


class BroadcastRequested(Struct, array_like=True, tag=33, gc=False):
    """A client asks for copies of these values on all nodes, ahead of use. Nothing answers it."""

    ids: list[Id]


BLOCKED_IDS_MAX = 20
"""The largest number of objects that a `Blocked` names."""


class Blocked(Struct, array_like=True, tag=9, gc=False):
    """The client's task waits for objects and uses no CPU."""

    ids: list[Id]
    """The objects that it waits for, or the first BLOCKED_IDS_MAX of them; empty: not known."""


class Unblocked(Struct, array_like=True, tag=10, gc=False):
    """The client's task continues."""


class KillRequested(Struct, array_like=True, tag=11, gc=False):
    """A client asks to kill an actor."""

    actor: Id
    no_restart: bool = True


CANCELLED_TEXT = "{} was cancelled by cancel()."
"""The message of a cancelled call: from the scheduler if it did not run, else from its executor."""


class CancelRequested(Struct, array_like=True, tag=15, gc=False):
    """A client asks to cancel the call that makes an object."""

    id: Id
    force: bool
    """Whether to kill the process of a running task."""
    recursive: bool
    """Whether to cancel the calls that it has submitted too, and so on."""


class Yielded(Struct, array_like=True, tag=16, gc=False):
    """A call with STREAMING has yielded a value."""

    call: Id
    index: Annotated[int, Meta(ge=0, lt=1 << 62)]
    """From 0 on, in each attempt."""
    id: Id
    value: Value


class Consumed(Struct, array_like=True, tag=17, gc=False):
    """The client of a call with STREAMING and backpressure has consumed this many items."""

    call: Id
    count: Annotated[int, Meta(ge=0, le=1 << 62)]


class Left(Struct, array_like=True, tag=14, gc=False):
    """An actor ends itself: its process runs no further call."""

    actor: Id


class Dying(Struct, array_like=True, tag=37, gc=False):
    """An executor ends itself, and so the call that it runs."""

    cause: str
    """In words that follow its name."""


class JournalFailed(Struct, array_like=True, tag=28, gc=False):
    """An executor could not write a value for the journal, or read one."""

    problem: str
    unreadable: str = ""
    """The file that could not be read. Empty: nothing more can be recorded."""


class Saved(Struct, array_like=True, tag=36, gc=False):
    """The saved state of an actor. It contains exactly the calls with an end that was reported before."""

    id: Id
    """A random number: the id of this state."""
    state: Kept


class StateLost(Struct, array_like=True, tag=34, gc=False):
    """The saved state for an actor cannot be read: it has begun without. Sent before `Done`."""

    problem: str


class EndAnnounced(Struct, array_like=True, tag=35, gc=False):
    """The job is about to end and to be continued later: actors run their assigned calls, and save their states."""


class EndMoved(Struct, array_like=True, tag=39, gc=False):
    """The job's time ends at another moment than was known, by the head's clock."""

    end_us: Number


class Titled(Struct, array_like=True, tag=24, gc=False):
    """The title of a new actor: the `repr` of its instance."""

    title: str


class Faulted(Struct, array_like=True, tag=25, gc=False):
    """An executor can no longer use its GPUs, and ends: its context or a device is dead."""

    name: str
    fault: str
    """The name that CUDA gives the error."""
    blame: str
    """The possible culprit: see `gpu/device.py`."""
    is_fresh: bool
    """Whether no call had succeeded in this process before."""
    text: str
    """The traceback."""


class Query(Struct, array_like=True, tag=12, gc=False):
    """A client asks about the state."""

    request: Number
    question: ClientQuestion


class NamedActorRequested(Struct, array_like=True, tag=13, gc=False):
    """A client asks to create an actor that has a name, or is detached.

    The answer is the actor that has the name then: this or an earlier one.
    """

    request: Number
    namespace: str
    name: str
    """Empty: none."""
    handle: bytes
    """The data of a handle; opaque."""
    detached: bool
    """Whether the actor lives on without handles."""
    creation: Call


class BundleSpec(Struct, array_like=True, gc=False):
    """One bundle of a placement group."""

    asks: Request
    """The resources to reserve: GPUs with all their memory."""
    labels: tuple[Label, ...] = ()
    """Conditions that the node must meet."""


class GroupRequested(Struct, array_like=True, tag=18, gc=False):
    """A client asks for a placement group. The object of this id gets its value when all bundles are reserved."""

    id: Id
    bundles: Annotated[list[BundleSpec], Meta(min_length=1, max_length=BUNDLES_MAX)]
    strategy: str
    """One of STRATEGIES."""
    data: bytes
    """The value of its object; opaque."""
    namespace: str = ""
    name: str = ""
    """The name; empty: it has no name, and gets no answer."""
    request: Number = 0
    """With a name: the answer to this request says whether the name was free. If not, the group is not created."""
    detached: bool = False
    """Whether the group outlives its driver."""


class GroupRemovalRequested(Struct, array_like=True, tag=19, gc=False):
    """A client asks to remove a placement group."""

    id: Id


CallEvent = Spec | Call | Began | Done | Returned | Unfilled | Yielded | Consumed | CancelRequested
ObjectEvent = Put | SubscriptionRequested | Held | Released | ErrorRead | Forgotten | BroadcastRequested
ActorEvent = NamedActorRequested | KillRequested | Left | Titled | Saved | StateLost
ClientEvent = (
    CallEvent | ObjectEvent | ActorEvent
    | Blocked | Unblocked
    | GroupRequested | GroupRemovalRequested | Query | Faulted | Dying | JournalFailed | EndAnnounced
    | EndMoved
)  # fmt: skip


class RefusedError(Exception):
    """An event that breaks the protocol. It has changed nothing; the events before it in its frame have."""
