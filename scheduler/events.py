"""What clients tell the scheduler, and what calls are made of.

Facts are named in the past tense (`Done`, `Released`), wishes as requests (`KillRequested`). They are also what goes
over the wire (`mpi_runtime.transport.messages` adds what the scheduler does not see), so a frame is decoded straight
into events. Ids of tasks and objects are 16 opaque bytes; a task's id is the id of its first return value. Clients are
integers: 0 is the driver, an executor's client number is its executor number. Times are integer microseconds. Amounts
of CPU and GPU are integers, 10 000 to one; memory is in bytes; custom resources are 10 000 to one. Payloads are opaque:
nothing here looks inside them. What ranks tell is in `rank_events.py`.

Bounds of numbers and lengths are part of the types: what does not keep them is not decoded. What else a frame may not
say is in `refusals.py`.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Id = Annotated[bytes, Meta(min_length=16, max_length=16)]
Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Limit = Annotated[int, Meta(ge=-1, le=(1 << 63) - 1)]
"""-1: there is none."""
RETURNS_MAX = 1 << 20
"""How many values a call may have."""

DRIVER = 0

TASK, ACTOR, METHOD = 0, 1, 2
STREAMING, DYNAMIC = -1, -2
"""For `num_returns`: items are given one by one while the call runs; or their references, when it has ended."""
IN, NOT_IN, EXISTS, ABSENT = range(4)
PACK, SPREAD, STRICT_PACK, STRICT_SPREAD = STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
"""How the bundles of a placement group lie on nodes: on few or on many if possible, on one or on as many for sure."""


class Label(Struct, array_like=True, frozen=True, gc=False):
    """What one label of a node must be."""

    key: str
    operator: Annotated[int, Meta(ge=IN, le=ABSENT)]
    """IN, NOT_IN (a node without the label will do), EXISTS or ABSENT."""
    values: tuple[str, ...] = ()


class Where(Struct, array_like=True, frozen=True, gc=False):
    """Where calls may run, beyond what they need of a node. Hashable: calls are queued by it."""

    spread: bool = False
    """On all nodes in turn."""
    node: str = ""
    """On the node with this id."""
    soft: bool = False
    """With `node`: anywhere, if there is no such node or it is too small."""
    group: bytes = b""
    """In this placement group."""
    bundle: Limit = -1
    """With `group`: in this one of its bundles; -1: in any."""
    captures: bool = False
    """With `group`: calls that these calls make run in it too, unless they say where."""
    labels: tuple[Label, ...] = ()
    """On nodes with these."""
    preferred: tuple[Label, ...] = ()
    """On nodes with these too, where there is room now."""


class Spec(Struct, array_like=True, tag=1, gc=False):
    """What all calls of one function or class with the same options have in common; sent once by each client."""

    id: Number
    """Hash of the content, 63 bits."""
    kind: Annotated[int, Meta(ge=TASK, le=METHOD)]
    """TASK, ACTOR (creation) or METHOD."""
    name: str
    function: bytes
    """The pickled function or class; empty for METHOD, whose name says which."""
    cpu: Number = 0
    gpu: Number = 0
    memory: Number = 0
    custom: dict[str, Number] = {}
    num_returns: Annotated[int, Meta(ge=DYNAMIC, le=RETURNS_MAX)] = 1
    """How many values; or STREAMING, or DYNAMIC."""
    max_retries: Limit = 0
    """How often a call may be run again after its executor died; -1: without limit."""
    retry_exceptions: bool = False
    """Whether it may be run again too when it raised what it may be run again for."""
    held_cpu: Number = 0
    """For ACTOR: how much of `cpu` it keeps once it has been placed."""
    environment: dict[str, str] = {}
    """Variables set before the first user instruction."""
    max_restarts: Limit = 0
    """For ACTOR: how often it may be created again after its process died; -1: without limit."""
    retry_only: bytes = b""
    """For executors: the pickled classes of exceptions that it may be run again for; empty: all."""
    concurrency: dict[str, Number] = {}
    """For ACTOR: how many calls of each concurrency group it takes at a time, "" being the default group. Empty: one
    call after the other."""
    is_async: bool = False
    """For ACTOR: whether its calls run in an asyncio loop, not in threads."""
    group: str = ""
    """For METHOD: its concurrency group."""
    backpressure: Number = 0
    """With STREAMING: how many items may be yielded and not taken; 0: any number."""
    priority: int = 0
    """Calls with a higher one are started first."""
    max_calls: Number = 0
    """For TASK: after so many calls of it the executor ends, and with it what they have left behind; 0: never."""
    out_of_order: bool = False
    """For ACTOR: a call whose arguments are there need not wait for earlier ones of the same caller."""
    where: Where | None = None
    """None: on any node."""
    gpu_memory: Number = 0
    """Bytes of each of its GPUs, or without `gpu` of one."""
    time_limit_us: Number = 0
    """For TASK and METHOD: not started if the job's time ends sooner than so long after; 0: nothing is said."""
    enforces_limit: bool = False
    """Whether a call that runs longer than `time_limit_us` is ended."""
    retries_timeouts: bool = False
    """Whether it is run again then, as often as `max_retries` says."""


class Call(Struct, array_like=True, tag=2, gc=False):
    """One call was submitted. The same record starts it on its executor."""

    id: Id
    spec: Number
    payload: bytes
    """Pickled arguments; empty when there are none."""
    arguments: list[Id] = []
    """Objects whose values stand in for slots of the arguments."""
    holds: list[Id] = []
    """References inside the arguments: kept alive until the call ends."""
    actor: Annotated[bytes, Meta(max_length=16)] = b""
    """For METHOD: the id of the actor's creation call."""
    attempt: Annotated[int, Meta(ge=0, lt=1 << 32)] = 0
    """How many times it was run before. A client says so of a call that another task has tried to make."""


class Done(Struct, array_like=True, tag=3, gc=False):
    """A call ended with one small value that holds no references: the frequent case."""

    id: Id
    data: bytes
    duration_us: Number
    start_us: Number = 0
    """When it began, by the monotonic clock of its host."""


class Began(Struct, array_like=True, tag=26, gc=False):
    """User code of a call has begun. Said of calls with `enforces_limit` only: their time counts from here."""

    id: Id


class Stored(Struct, array_like=True, gc=False):
    """Where a large value lies: an extent of the arena of a rank's host."""

    rank: Number
    offset: Number
    size: Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]


class Value(Struct, array_like=True, gc=False):
    """A value of any size: inline, or in an arena; with the references inside it."""

    data: bytes
    stored: Stored | None = None
    holds: list[Id] = []
    is_error: bool = False
    """Whether the data is a pickled exception."""


class Returned(Struct, array_like=True, tag=4, gc=False):
    """A call ended with its values, one for each of `num_returns`, or with the same error for each."""

    id: Id
    values: Annotated[list[Value], Meta(min_length=1)]
    duration_us: Number
    raised: bool = False
    """Whether user code raised."""
    may_retry: bool = True
    """Whether it raised what it may be run again for."""
    start_us: Number = 0
    """As of `Done`."""
    said: str = ""
    """The error in one line, where the user is to be told if nobody reads it."""


class ErrorRead(Struct, array_like=True, tag=27, gc=False):
    """A client has raised these errors where somebody had asked for the values, or passes them on as its own."""

    ids: list[bytes]


class Put(Struct, array_like=True, tag=5, gc=False):
    """A client made an object of its own."""

    id: Id
    value: Value


class SubscriptionRequested(Struct, array_like=True, tag=6, gc=False):
    """A client wants to be told when objects are ready, and, with `fetch`, to have them within its reach."""

    ids: list[Id]
    fetch: bool = True


class Released(Struct, array_like=True, tag=7, gc=False):
    """The last reference to each of these is gone from the client's process."""

    ids: list[Id]


class Held(Struct, array_like=True, tag=8, gc=False):
    """The client's process now has references that it did not make itself."""

    ids: list[Id]


BLOCKED_IDS_MAX = 20
"""How many objects a call names that waits for some."""


class Blocked(Struct, array_like=True, tag=9, gc=False):
    """The client's task waits for objects and uses no CPU meanwhile."""

    ids: list[Id]
    """What it waits for, or the first BLOCKED_IDS_MAX of that; empty: what that is cannot be said."""


class Unblocked(Struct, array_like=True, tag=10, gc=False):
    """The client's task goes on."""


class KillRequested(Struct, array_like=True, tag=11, gc=False):
    """A client asked that an actor be killed."""

    actor: Id
    no_restart: bool = True


CANCELLED_TEXT = "{} was cancelled by cancel()."
"""What is said of a call: by the scheduler if it did not run, else by its executor."""


class CancelRequested(Struct, array_like=True, tag=15, gc=False):
    """A client wants the call that makes an object not to run, or not to run on."""

    id: Id
    force: bool
    """Kill the process of a task that runs."""
    recursive: bool
    """The calls that it has submitted too, and theirs."""


class Yielded(Struct, array_like=True, tag=16, gc=False):
    """A call with STREAMING has yielded a value."""

    call: Id
    index: Annotated[int, Meta(ge=0, lt=1 << 62)]
    """From 0 on, in each attempt."""
    id: Id
    """The object that it is to be."""
    value: Value


class Consumed(Struct, array_like=True, tag=17, gc=False):
    """The client of a call with STREAMING and backpressure has taken so many items."""

    call: Id
    count: Annotated[int, Meta(ge=0, le=1 << 62)]


class Left(Struct, array_like=True, tag=14, gc=False):
    """An actor ends itself: its process runs no further call."""

    actor: Id


class Titled(Struct, array_like=True, tag=24, gc=False):
    """An actor that has just been made says what it calls itself: its own `repr`."""

    title: str


class Faulted(Struct, array_like=True, tag=25, gc=False):
    """An executor cannot use its GPUs any more, and ends: its context is dead, or a device is."""

    name: str
    """Of the function that it ran."""
    fault: str
    """As CUDA calls it."""
    blame: str
    """Who may be the cause: see `gpu/device.py`."""
    is_fresh: bool
    """Whether no call had ended well in this process before."""
    text: str
    """The traceback."""


class Query(Struct, array_like=True, tag=12, gc=False):
    """A client asks about the state: `what` names one of the functions of `explain.py`."""

    request: Number
    what: str
    id: bytes = b""


class NamedActorRequested(Struct, array_like=True, tag=13, gc=False):
    """A client wants to create an actor with a name. It is told who has the name then: this one, or the one before."""

    request: Number
    namespace: str
    name: str
    handle: bytes
    """What a handle is made of; opaque."""
    detached: bool
    """Whether the actor is to live on without handles."""
    creation: Call


class BundleSpec(Struct, array_like=True, gc=False):
    """What one bundle of a placement group reserves on one node. The fields mean what they mean in `Spec`."""

    cpu: Number = 0
    gpu: Number = 0
    memory: Number = 0
    custom: dict[str, Number] = {}


class GroupRequested(Struct, array_like=True, tag=18, gc=False):
    """A client asks for a placement group: an object of this id gets its value when all bundles are reserved."""

    id: Id
    bundles: Annotated[list[BundleSpec], Meta(min_length=1)]
    strategy: str
    """One of STRATEGIES."""
    data: bytes
    """The value of its object; opaque."""
    namespace: str = ""
    name: str = ""
    """Empty: it has none, and nobody waits for an answer."""
    request: Number = 0
    """With a name: the answer to this says whether the name was free. If it was not, there is no such group."""


class GroupRemovalRequested(Struct, array_like=True, tag=19, gc=False):
    """A client asks that a placement group, and all that runs in it, be ended."""

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
    | Blocked
    | Unblocked
    | KillRequested
    | Query
)


class RefusedError(Exception):
    """An event that its sender may not send. It has changed nothing; what came before it in its frame has."""
