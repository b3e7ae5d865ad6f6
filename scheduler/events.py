"""What the scheduler is told: records made by clients and rank processes, in the past tense.

They are also what goes over the wire (`mpi_runtime.transport.messages` adds what the scheduler does not see), so a
frame is decoded straight into events. Ids of tasks and objects are 16 opaque bytes; a task's id is the id of its first
return value. Clients are integers: 0 is the driver, an executor's client number is its executor number. Times are
integer microseconds. Amounts of CPU and GPU are integers, 10 000 to one; memory is in bytes; custom resources
are 10 000 to one. Payloads are opaque: nothing here looks inside them.
"""

from msgspec import Struct

from mpi_runtime.gpu.device import Device, Link

TASK, ACTOR, METHOD = 0, 1, 2
STREAMING, DYNAMIC = -1, -2
"""For `num_returns`: items are given one by one while the call runs; or their references, when it has ended."""
IN, NOT_IN, EXISTS, ABSENT = range(4)
PACK, SPREAD, STRICT_PACK, STRICT_SPREAD = STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
"""How the bundles of a placement group lie on nodes: on few or on many if possible, on one or on as many for sure."""


class Label(Struct, array_like=True, frozen=True, gc=False):
    """What one label of a node must be."""

    key: str
    operator: int
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
    bundle: int = -1
    """With `group`: in this one of its bundles; -1: in any."""
    captures: bool = False
    """With `group`: calls that these calls make run in it too, unless they say where."""
    labels: tuple[Label, ...] = ()
    """On nodes with these."""
    preferred: tuple[Label, ...] = ()
    """On nodes with these too, where there is room now."""


class Spec(Struct, array_like=True, tag=1, gc=False):
    """What all calls of one function or class with the same options have in common; sent once by each client."""

    id: int
    """Hash of the content, 63 bits."""
    kind: int
    """TASK, ACTOR (creation) or METHOD."""
    name: str
    function: bytes
    """The pickled function or class; empty for METHOD, whose name says which."""
    cpu: int = 0
    gpu: int = 0
    memory: int = 0
    custom: dict[str, int] = {}
    num_returns: int = 1
    """How many values; or STREAMING, or DYNAMIC."""
    max_retries: int = 0
    """How often a call may be run again after its executor died; -1: without limit."""
    retry_exceptions: bool = False
    """Whether it may be run again too when it raised what it may be run again for."""
    held_cpu: int = 0
    """For ACTOR: how much of `cpu` it keeps once it has been placed."""
    environment: dict[str, str] = {}
    """Variables set before the first user instruction."""
    max_restarts: int = 0
    """For ACTOR: how often it may be created again after its process died; -1: without limit."""
    retry_only: bytes = b""
    """For executors: the pickled classes of exceptions that it may be run again for; empty: all."""
    concurrency: dict[str, int] = {}
    """For ACTOR: how many calls of each concurrency group it takes at a time, "" being the default group. Empty: one
    call after the other."""
    is_async: bool = False
    """For ACTOR: whether its calls run in an asyncio loop, not in threads."""
    group: str = ""
    """For METHOD: its concurrency group."""
    backpressure: int = 0
    """With STREAMING: how many items may be yielded and not taken; 0: any number."""
    priority: int = 0
    """Calls with a higher one are started first."""
    max_calls: int = 0
    """For TASK: after so many calls of it the executor ends, and with it what they have left behind; 0: never."""
    out_of_order: bool = False
    """For ACTOR: a call whose arguments are there need not wait for earlier ones of the same caller."""
    where: Where | None = None
    """None: on any node."""
    gpu_memory: int = 0
    """Bytes of each of its GPUs, or without `gpu` of one."""
    time_limit_us: int = 0
    """For TASK and METHOD: not started if the job's time ends sooner than so long after; 0: nothing is said."""


class Call(Struct, array_like=True, tag=2, gc=False):
    """One call was submitted. The same record starts it on its executor."""

    id: bytes
    spec: int
    payload: bytes
    """Pickled arguments; empty when there are none."""
    arguments: list[bytes] = []
    """Objects whose values stand in for slots of the arguments."""
    holds: list[bytes] = []
    """References inside the arguments: kept alive until the call ends."""
    actor: bytes = b""
    """For METHOD: the id of the actor's creation call."""
    attempt: int = 0
    """How many times it was run before. A client says so of a call that another task has tried to make."""


class Done(Struct, array_like=True, tag=3, gc=False):
    """A call ended with one small value that holds no references: the frequent case."""

    id: bytes
    data: bytes
    duration_us: int
    start_us: int = 0
    """When it began, by the monotonic clock of its host."""


class Stored(Struct, array_like=True, gc=False):
    """Where a large value lies: an extent of the arena of a rank's host."""

    rank: int
    offset: int
    size: int


class Value(Struct, array_like=True, gc=False):
    """A value of any size: inline, or in an arena; with the references inside it."""

    data: bytes
    stored: Stored | None = None
    holds: list[bytes] = []
    is_error: bool = False
    """Whether the data is a pickled exception."""


class Returned(Struct, array_like=True, tag=4, gc=False):
    """A call ended with its values, one for each of `num_returns`, or with the same error for each."""

    id: bytes
    values: list[Value]
    duration_us: int
    raised: bool = False
    """Whether user code raised."""
    may_retry: bool = True
    """Whether it raised what it may be run again for."""
    start_us: int = 0
    """As of `Done`."""


class Put(Struct, array_like=True, tag=5, gc=False):
    """A client made an object of its own."""

    id: bytes
    value: Value


class Subscribed(Struct, array_like=True, tag=6, gc=False):
    """A client wants to be told when objects are ready, and, with `fetch`, to have them within its reach."""

    ids: list[bytes]
    fetch: bool = True


class Released(Struct, array_like=True, tag=7, gc=False):
    """The last reference to each of these is gone from the client's process."""

    ids: list[bytes]


class Held(Struct, array_like=True, tag=8, gc=False):
    """The client's process now has references that it did not make itself."""

    ids: list[bytes]


class Blocked(Struct, array_like=True, tag=9, gc=False):
    """The client's task waits for objects and uses no CPU meanwhile."""

    ids: list[bytes]
    """Some of what it waits for, for explanations."""


class Unblocked(Struct, array_like=True, tag=10, gc=False):
    """The client's task goes on."""


class Killed(Struct, array_like=True, tag=11, gc=False):
    """A client asked that an actor be killed."""

    actor: bytes
    no_restart: bool = True


CANCELLED_TEXT = "{} was cancelled by cancel()."
"""What is said of a call: by the scheduler if it did not run, else by its executor."""


class Cancelled(Struct, array_like=True, tag=15, gc=False):
    """A client wants the call that makes an object not to run, or not to run on."""

    id: bytes
    force: bool
    """Kill the process of a task that runs."""
    recursive: bool
    """The calls that it has submitted too, and theirs."""


class Yielded(Struct, array_like=True, tag=16, gc=False):
    """A call with STREAMING has yielded a value."""

    call: bytes
    index: int
    """From 0 on, in each attempt."""
    id: bytes
    """The object that it is to be."""
    value: Value


class Consumed(Struct, array_like=True, tag=17, gc=False):
    """The client of a call with STREAMING and backpressure has taken so many items."""

    call: bytes
    count: int


class Left(Struct, array_like=True, tag=14, gc=False):
    """An actor ends itself: its process runs no further call."""

    actor: bytes


class Titled(Struct, array_like=True, tag=24, gc=False):
    """An actor that has just been made says what it calls itself: its own `repr`."""

    title: str


class Faulted(Struct, array_like=True, tag=25, gc=False):
    """An executor cannot use its GPUs any more, and ends: its context is dead, or a device is."""

    name: str
    """Of the function that it ran."""
    fault: str
    """As CUDA calls it."""
    by_program: bool
    """Whether a mistake in a program does it too."""
    is_fresh: bool
    """Whether no call had ended well in this process before."""
    text: str
    """The traceback."""


class Query(Struct, array_like=True, tag=12, gc=False):
    """A client asks about the state: `what` names one of the functions of `explain.py`."""

    request: int
    what: str
    id: bytes = b""


class Named(Struct, array_like=True, tag=13, gc=False):
    """A client wants to create an actor with a name. It is told who has the name then: this one, or the one before."""

    request: int
    namespace: str
    name: str
    handle: bytes
    """What a handle is made of; opaque."""
    detached: bool
    """Whether the actor is to live on without handles."""
    creation: Call


class BundleSpec(Struct, array_like=True, gc=False):
    """What one bundle of a placement group reserves on one node. The fields mean what they mean in `Spec`."""

    cpu: int = 0
    gpu: int = 0
    memory: int = 0
    custom: dict[str, int] = {}


class GroupCreated(Struct, array_like=True, tag=18, gc=False):
    """A client asks for a placement group: an object of this id gets its value when all bundles are reserved."""

    id: bytes
    bundles: list[BundleSpec]
    strategy: str
    """One of STRATEGIES."""
    data: bytes
    """The value of its object; opaque."""
    namespace: str = ""
    name: str = ""
    """Empty: it has none, and nobody waits for an answer."""
    request: int = 0
    """With a name: the answer to this says whether the name was free. If it was not, there is no such group."""


class GroupRemoved(Struct, array_like=True, tag=19, gc=False):
    """A client asks that a placement group, and all that runs in it, be ended."""

    id: bytes


ClientEvent = (
    GroupCreated
    | GroupRemoved
    | Named
    | Yielded
    | Consumed
    | Cancelled
    | Left
    | Titled
    | Faulted
    | Spec
    | Call
    | Done
    | Returned
    | Put
    | Subscribed
    | Released
    | Held
    | Blocked
    | Unblocked
    | Killed
    | Query
)


class RankJoined(Struct, array_like=True, tag=40, gc=False):
    """A rank is ready and says what it may use."""

    rank: int
    host: int
    """The lowest rank of the same host."""
    hostname: str
    cpus: list[int]
    """Processor numbers that it may use."""
    cpu: int
    """CPU units that it adds to the node: ranks of one host that may use the same processors add them once."""
    gpu: int
    """GPU units that it was told to believe in: nothing was found. Together with `devices` for one host it is void."""
    memory: int
    custom: dict[str, int]
    arena: int
    """Capacity of the host's arena in bytes."""
    pid: int = 0
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
    ids: list[bytes]


class ExecutorDied(Struct, array_like=True, tag=42, gc=False):
    """An executor's process is known to be gone."""

    executor: int
    running: bytes
    """The call that it was running, or empty."""
    unstarted: list[bytes]
    cause: str
    """In words: which signal or exit code."""
    out_of_memory: bool = False
    extents: list[int] = []
    """Arena offsets that were given to it and not yet freed: those that no object has are freed."""


class Fetched(Struct, array_like=True, tag=43, gc=False):
    """A copy of an object has arrived in the arena of a rank; offset -1: it could not be had."""

    rank: int
    id: bytes
    offset: int
    reason: str = ""


class ExecutorStarted(Struct, array_like=True, tag=44, gc=False):
    """An executor has been forked."""

    executor: int
    pid: int


class RankLost(Struct, array_like=True, tag=45, gc=False):
    """A rank is known to be gone, and all that ran on it."""

    rank: int


RankEvent = RankJoined | TakenBack | ExecutorDied | Fetched | ExecutorStarted | RankLost
