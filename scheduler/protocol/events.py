"""Events of clients, the input of the scheduler, and the parts of calls.

Facts are named in the past tense (`Done`, `Released`), requests as requests (`KillRequested`). Events are messages
(`mpi_runtime.transport.messages` has those that the scheduler does not see), so a frame is decoded directly into
events. Ids of tasks and objects are 16 opaque bytes; a task's id is the id of its first return value. Clients are
integers: 0 is the driver, an executor's client number is its executor number. Times are integer microseconds. Amounts
of CPU, GPU and custom resources are integers, 10 000 to one; memory is in bytes. Payloads are opaque: nothing here
looks inside. Events of ranks are in `rank_events.py`.

Limits of numbers and lengths are part of the types: a frame outside them is not decoded. The other rules of the
protocol are in `refusals.py`.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Id = Annotated[bytes, Meta(min_length=16, max_length=16)]
Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Limit = Annotated[int, Meta(ge=-1, le=(1 << 63) - 1)]
"""-1: there is none."""
RETURNS_MAX = 1 << 20
"""The largest number of values of a call."""

DRIVER = 0

TASK, ACTOR, METHOD = 0, 1, 2
STREAMING, DYNAMIC = -1, -2
"""For `num_returns`: references to items one by one while the call runs; or all of them when it has ended."""
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
    """The placement group in which they run."""
    bundle: Limit = -1
    """With `group`: the index of the bundle; -1: any."""
    captures: bool = False
    """With `group`: calls that these calls make run in it too, unless they state a place."""
    labels: tuple[Label, ...] = ()
    """Conditions that must hold."""
    preferred: tuple[Label, ...] = ()
    """Conditions that nodes with room now should meet."""


class AccountSpec(Struct, array_like=True, frozen=True, gc=False):
    """On whose account calls run: see `accounts.py`."""

    name: str
    weight: Annotated[float, Meta(gt=0, le=1e9)] = 1.0
    """Two accounts get shares in proportion to their weights."""
    limit: Number = 0
    """How many of its calls run at a time at most; 0: no limit."""


class Spec(Struct, array_like=True, tag=1, gc=False):
    """The common part of all calls of one function or class with the same options. Each client sends it once."""

    id: Number
    """The hash of the content, 63 bits."""
    kind: Annotated[int, Meta(ge=TASK, le=METHOD)]
    """TASK, ACTOR (creation) or METHOD."""
    name: str
    function: bytes
    """The pickled function or class; empty for METHOD, whose name says which method."""
    cpu: Number = 0
    gpu: Number = 0
    memory: Number = 0
    custom: dict[str, Number] = {}
    num_returns: Annotated[int, Meta(ge=DYNAMIC, le=RETURNS_MAX)] = 1
    """The number of values; or STREAMING, or DYNAMIC."""
    max_retries: Limit = 0
    """The largest number of retries after its executor died; -1: without limit."""
    retry_exceptions: bool = False
    """Whether it is also retried when it raised an error of `retry_only`."""
    held_cpu: Number = 0
    """For ACTOR: the part of `cpu` that it keeps once it has been placed."""
    environment: dict[str, str] = {}
    """Variables to set before the first user instruction."""
    max_restarts: Limit = 0
    """The largest number of restarts; -1: without limit."""
    retry_only: bytes = b""
    """For executors: the pickled classes of errors for which it is retried; empty: all."""
    concurrency: dict[str, Number] = {}
    """For ACTOR: the largest number of concurrent calls of each concurrency group; "" is the default group. Empty: one
    call after the other."""
    is_async: bool = False
    """For ACTOR: whether its calls run in an asyncio loop, not in threads."""
    group: str = ""
    """For METHOD: its concurrency group."""
    backpressure: Number = 0
    """With STREAMING: the largest number of items that are yielded and not consumed; 0: no limit."""
    priority: int = 0
    """Calls with a higher priority start first."""
    max_calls: Number = 0
    """For TASK: the executor ends after this many calls; 0: never."""
    out_of_order: bool = False
    """For ACTOR: a call with its arguments need not wait for earlier ones of the same caller."""
    where: Where | None = None
    """The place; None: any node."""
    gpu_memory: Number = 0
    """Bytes of each of its GPUs; without `gpu` bytes of one GPU."""
    time_limit_us: Number = 0
    """For TASK and METHOD: not started if the job's time ends sooner than so long after; 0: nothing is said."""
    enforces_limit: bool = False
    """Whether a call that runs longer than `time_limit_us` is ended."""
    retries_timeouts: bool = False
    """Whether it is run again then, as often as `max_retries` says."""
    imports: list[str] = []
    """Modules that its executors should find loaded. No part of `id`: not only the function tells which."""
    code: bytes = b""
    """With a journal: the hash of the code and of all that it refers to. Empty: its calls are not recorded. For ACTOR:
    its state is saved; for METHOD, whose class is hashed, a hash of its name and number of values."""
    keeps_state: bool = False
    """For METHOD: it does not change the state that is saved, so it is run again in the next run."""
    save_calls: Number = 0
    """For ACTOR: its state is saved after so many calls; 0: not by number."""
    save_us: Number = 0
    """For ACTOR: its state is saved after so much time; 0: as executors choose."""
    account: AccountSpec | None = None
    """For TASK: on whose account its calls run."""
    path_us: Number = 0
    """How long a call of it and the longest chain of calls after it take; 0: nothing is said. Of calls of one priority
    those with the longest path start first."""
    gather_us: Number = 0
    """How long its executors may keep ends of its calls back, to tell several at once, while they have more in hand.
    Its calls are sent further ahead."""


class Kept(Struct, array_like=True, gc=False):
    """A value in a journal: the data, or the name of a file with its size and hash."""

    data: bytes
    file: str = ""
    size: Number = 0
    digest: bytes = b""
    is_error: bool = False
    """Whether the data is a pickled exception. Only of methods: what they raised belongs to their actor's story."""


class Call(Struct, array_like=True, tag=2, gc=False):
    """A call was submitted. The same record starts it on its executor."""

    id: Id
    spec: Number
    payload: bytes
    """Pickled arguments; empty when there are none."""
    arguments: tuple[Id, ...] = ()
    """Objects whose values replace slots of the arguments. Tuples, because an empty one costs nothing to be decoded."""
    holds: tuple[Id, ...] = ()
    """References inside the arguments. They are kept until the call ends."""
    actor: Annotated[bytes, Meta(max_length=16)] = b""
    """For METHOD: the id of the actor's creation."""
    attempt: Annotated[int, Meta(ge=0, lt=1 << 32)] = 0
    """The number of earlier attempts. A client states it for a call that another task has tried to make."""
    digest: Annotated[bytes, Meta(max_length=16)] = b""
    """With a journal: the hash of the payload. Empty: the call is not recorded."""
    kept: tuple[Kept, ...] = ()
    """To an executor: its values, which are to be loaded. Only if that fails it is run."""


class Done(Struct, array_like=True, tag=3, gc=False):
    """A call ended with one small value without references: the frequent case."""

    id: Id
    data: bytes
    duration_us: Number
    start_us: Number = 0
    """When it began, by the monotonic clock of its host."""


class Began(Struct, array_like=True, tag=26, gc=False):
    """User code of a call has begun. Said of calls with `enforces_limit` only: their time counts from here."""

    id: Id


class Stored(Struct, array_like=True, gc=False):
    """The place of a large value: an extent of the arena of a rank's host."""

    rank: Number
    offset: Number
    size: Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]


class OnDisk(Struct, array_like=True, gc=False):
    """The place of a large value in the scratch file of a rank."""

    rank: Number
    offset: Number
    size: Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]


Place = Stored | OnDisk
"""Where a copy of a large value is."""


class Value(Struct, array_like=True, gc=False):
    """A value of any size, inline or in an arena, with the references inside it."""

    data: bytes
    stored: Stored | None = None
    holds: list[Id] = []
    is_error: bool = False
    """Whether the data is a pickled exception."""
    digest: bytes = b""
    """With a journal: the hash of a stored value."""
    file: str = ""
    """With a journal: the name of the file that has a stored value too."""
    made_by: str = ""
    """Of a stored value: the line of user code that has put it, or the function that has returned it."""


class Returned(Struct, array_like=True, tag=4, gc=False):
    """A call ended with its values, one for each of `num_returns`, or with the same error for each."""

    id: Id
    values: Annotated[list[Value], Meta(min_length=1)]
    duration_us: Number
    raised: bool = False
    """Whether user code raised."""
    may_retry: bool = True
    """Whether it raised an error for which it may be retried."""
    start_us: Number = 0
    """As in `Done`."""
    said: str = ""
    """The error in one line, to be reported if no client reads it."""
    has_errors: bool = False
    """Whether the values hold errors of calls, which may not come again: the journal does not take them."""


class ErrorRead(Struct, array_like=True, tag=27, gc=False):
    """A client has raised these errors to code that asked for the values, or passes them on as its own."""

    ids: list[bytes]


class Put(Struct, array_like=True, tag=5, gc=False):
    """A client put a value."""

    id: Id
    value: Value


class SubscriptionRequested(Struct, array_like=True, tag=6, gc=False):
    """A client wants to be told when objects are ready; with `fetch`, to get their values."""

    ids: list[Id]
    fetch: bool = True


class Released(Struct, array_like=True, tag=7, gc=False):
    """The last reference to each of these in the client's process is gone."""

    ids: list[Id]


class Held(Struct, array_like=True, tag=8, gc=False):
    """The client's process now has references that it did not make itself."""

    ids: list[Id]


class Forgotten(Struct, array_like=True, tag=29, gc=False):
    """The answer to a `Forget`: of which of these objects the client will not use the place any more."""

    request: Number
    asked: list[Id]
    """All that it was asked about."""
    ids: list[Id]


class BroadcastRequested(Struct, array_like=True, tag=33, gc=False):
    """These values are wanted on all nodes, ahead of use. Nothing answers it."""

    ids: list[Id]


BLOCKED_IDS_MAX = 20
"""The largest number of objects that a `Blocked` names."""


class Blocked(Struct, array_like=True, tag=9, gc=False):
    """The client's task waits for objects and uses no CPU."""

    ids: list[Id]
    """The objects it waits for, or the first BLOCKED_IDS_MAX of them; empty: not known."""


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
    """Whether to cancel the calls that it has submitted, and theirs."""


class Yielded(Struct, array_like=True, tag=16, gc=False):
    """A call with STREAMING has yielded a value."""

    call: Id
    index: Annotated[int, Meta(ge=0, lt=1 << 62)]
    """From 0 on, in each attempt."""
    id: Id
    """The id of the item's object."""
    value: Value


class Consumed(Struct, array_like=True, tag=17, gc=False):
    """The client of a call with STREAMING and backpressure has consumed this many items."""

    call: Id
    count: Annotated[int, Meta(ge=0, le=1 << 62)]


class Left(Struct, array_like=True, tag=14, gc=False):
    """An actor ends itself: its process runs no further call."""

    actor: Id


class JournalFailed(Struct, array_like=True, tag=28, gc=False):
    """An executor could not write a value for the journal, or read one."""

    problem: str
    unreadable: str = ""
    """The file that could not be read: its call runs again. Empty: nothing more can be recorded."""


class Saved(Struct, array_like=True, tag=36, gc=False):
    """The state of an actor, with all calls whose ends it has told of before, and no others."""

    id: Id
    """A random number: the name of this state."""
    state: Kept


class StateLost(Struct, array_like=True, tag=34, gc=False):
    """The saved state that an actor was to begin with cannot be read: it has begun without. Said before `Done`."""

    problem: str


class EndAnnounced(Struct, array_like=True, tag=35, gc=False):
    """The job is about to end, so that it can go on later: actors run what they have in hand, and save their states."""


class Titled(Struct, array_like=True, tag=24, gc=False):
    """The title of a new actor: the `repr` of its instance."""

    title: str


class Faulted(Struct, array_like=True, tag=25, gc=False):
    """An executor can no longer use its GPUs, and ends: its context or a device is dead."""

    name: str
    """The name of the function that it ran."""
    fault: str
    """CUDA's name of the error."""
    blame: str
    """The possible culprit: see `gpu/device.py`."""
    is_fresh: bool
    """Whether no call had ended well in this process before."""
    text: str
    """The traceback."""


UNREADABLE = "unreadable"


class Query(Struct, array_like=True, tag=12, gc=False):
    """A client asks about the state: `what` names a function of `explain.py`.

    Or `what` is UNREADABLE: the head could not read a question, and `id` says why.
    """

    request: Number
    what: str
    id: bytes = b""


class NamedActorRequested(Struct, array_like=True, tag=13, gc=False):
    """A client asks to create an actor with a name.

    The answer is the actor that has the name then: this or an earlier one.
    """

    request: Number
    namespace: str
    name: str
    handle: bytes
    """The data of a handle; opaque."""
    detached: bool
    """Whether the actor lives on without handles."""
    creation: Call


class BundleSpec(Struct, array_like=True, gc=False):
    """What one bundle of a placement group reserves on one node. The fields have their meaning in `Spec`."""

    cpu: Number = 0
    gpu: Number = 0
    memory: Number = 0
    custom: dict[str, Number] = {}


class GroupRequested(Struct, array_like=True, tag=18, gc=False):
    """A client asks for a placement group. The object of this id gets its value when all bundles are reserved."""

    id: Id
    bundles: Annotated[list[BundleSpec], Meta(min_length=1)]
    strategy: str
    """One of STRATEGIES."""
    data: bytes
    """The value of its object; opaque."""
    namespace: str = ""
    name: str = ""
    """The name; empty: it has none, and no answer is awaited."""
    request: Number = 0
    """With a name: the request whose answer says whether the name was free. If not, the group is not made."""


class GroupRemovalRequested(Struct, array_like=True, tag=19, gc=False):
    """A client asks to remove a placement group."""

    id: Id


ClientEvent = (
    GroupRequested
    | GroupRemovalRequested
    | NamedActorRequested
    | Yielded
    | Consumed
    | CancelRequested
    | Left
    | Titled
    | ErrorRead
    | JournalFailed
    | Saved
    | StateLost
    | EndAnnounced
    | Faulted
    | Spec
    | Call
    | Began
    | Done
    | Returned
    | Put
    | SubscriptionRequested
    | Released
    | Held
    | Forgotten
    | BroadcastRequested
    | Blocked
    | Unblocked
    | KillRequested
    | Query
)


class RefusedError(Exception):
    """An event that breaks the protocol. It has changed nothing; the events before it in its frame have."""
