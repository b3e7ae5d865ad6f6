"""What random programs are made of: functions, calls, and the steps of the driver and of each call. Data, no behaviour.

A program is a list of steps over numbered slots; a slot holds a reference. The same steps are interpreted twice: by
virtual processes that talk to the scheduler (`processes.py`), and by an oracle that knows no scheduler (`oracle.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from mpi_runtime.scheduler.protocol.amounts import Request
from tests.simulation.options import UNIT

TASK, ACTOR, METHOD = 0, 1, 2
STREAMING = -1
"""For `num_returns`: the call yields."""
CURSED = (("MODE", "dies"),)
"""The environment of functions whose executors die before they begin a call."""
GATHER_US = 10_000
"""How late the ends of calls of some functions may be told, where there are accounts."""


@dataclass(frozen=True)
class Function:
    """What calls have in common."""

    number: int
    kind: int = TASK
    cpu: int = UNIT
    gpu: int = 0
    gpu_memory: int = 0
    memory: int = 0
    custom: tuple[tuple[str, int], ...] = ()
    held_cpu: int = 0
    num_returns: int = 1
    """How many values, or STREAMING."""
    max_retries: int = 3
    retry_exceptions: bool = False
    environment: tuple[tuple[str, str], ...] = ()
    duration_us: int = 100
    feasible: bool = True
    max_restarts: int = 0
    priority: int = 0
    path_us: int = 0
    gather_us: int = 0
    alternatives: tuple[Request, ...] = ()
    """For tasks: what they may have in place of the above."""
    account: str = ""
    """On whose account tasks run; empty: nobody's."""
    weight: float = 1.0
    account_limit: int = 0
    """How many tasks of the account run at a time; 0: any number."""
    spread: bool = False
    node: str = ""
    """The id of the node on which calls run."""
    zone: str = ""
    """The label of the nodes on which calls run."""
    time_limit_us: int = 0
    expect_us: int = 0
    enforces_limit: bool = False
    retries_timeouts: bool = False
    backpressure: int = 0
    """With STREAMING: how many items may be yielded and not taken; 0: any number."""
    concurrency: tuple[tuple[str, int], ...] = ()
    """For creations: how many calls of each concurrency group run at a time. Empty: one call after the other."""
    is_async: bool = False
    """For creations, with `concurrency`: calls can be interrupted where they wait."""
    out_of_order: bool = False
    """For creations: a call whose arguments are there need not wait for earlier ones."""
    group: str = ""
    """For methods: the concurrency group."""


def alternative(function: Function, index: int) -> Function:
    """The function with the request of one of its alternatives; 0: its own."""
    if not index:
        return function
    one = function.alternatives[index - 1]
    return replace(function, cpu=one.cpu, gpu=one.gpu, memory=one.memory, custom=one.custom, gpu_memory=one.gpu_memory)


@dataclass(frozen=True)
class Bundle:
    """What a bundle of a placement group reserves."""

    cpu: int = 0
    gpu: int = 0
    memory: int = 0
    custom: tuple[tuple[str, int], ...] = ()
    zone: str = ""
    """The label of its node; empty: any node."""


@dataclass(frozen=True)
class Compute:
    duration_us: int


@dataclass(frozen=True)
class Submit:
    """Call a job; its return values come into slots from `slot` on."""

    job: int
    slot: int
    arguments: tuple[int, ...] = ()
    holds: tuple[int, ...] = ()
    actor: int = -1
    """The slot of the actor that is called."""
    name: str = ""
    """For creations: the name that the actor is to have, and no other one."""
    group: int = -1
    """The slot of the placement group in which it is to run."""
    bundle: int = -1
    """In which of its bundles; -1: in any."""


@dataclass(frozen=True)
class Put:
    """Make a value an object."""

    key: int
    slot: int
    size: int
    holds: tuple[int, ...] = ()


@dataclass(frozen=True)
class Get:
    slots: tuple[int, ...]


@dataclass(frozen=True)
class Wait:
    slots: tuple[int, ...]
    count: int


@dataclass(frozen=True)
class Open:
    """Read a value, and take the references that are inside into slots from `into` on."""

    slot: int
    into: int
    count: int


@dataclass(frozen=True)
class Drop:
    slots: tuple[int, ...]


@dataclass(frozen=True)
class Broadcast:
    """Have a value brought to all nodes."""

    slot: int


@dataclass(frozen=True)
class Kill:
    slot: int
    no_restart: bool = True


@dataclass(frozen=True)
class MakeGroup:
    """Ask for a placement group."""

    key: int
    slot: int
    bundles: tuple[Bundle, ...]
    strategy: str
    feasible: bool = True


@dataclass(frozen=True)
class RemoveGroup:
    """End a placement group."""

    slot: int
    is_early: bool = False
    """Whether something may still run or wait in it."""


@dataclass(frozen=True)
class Cancel:
    """Have a call not run, or not run on."""

    slot: int
    force: bool = False
    recursive: bool = False


@dataclass(frozen=True)
class Yield:
    """In a call with STREAMING: give the next item."""

    size: int = 8
    holds: tuple[int, ...] = ()


@dataclass(frozen=True)
class Take:
    """Take up to so many items of a stream into slots from `into` on; fewer if it ends before."""

    slot: int
    into: int
    count: int


@dataclass(frozen=True)
class Forget:
    """Take no more items of a stream. Its slot goes on to be that of what the call itself returns."""

    slot: int
    cancel: bool = False
    """Have the call end."""


@dataclass(frozen=True)
class Signal:
    """In an actor: let those go on that wait for it."""

    key: int


@dataclass(frozen=True)
class Await:
    """In an actor that runs several calls at a time: wait for what another call does."""

    key: int


Step: TypeAlias = (
    "Compute | Submit | Put | Get | Wait | Open | Drop | Kill | MakeGroup | RemoveGroup"
    " | Broadcast | Cancel | Yield | Take | Forget | Signal | Await"
)


@dataclass(frozen=True)
class Job:
    """One call: which function, and what it does. It finds the references in its arguments in slots from 0 on."""

    key: int
    function: int
    steps: tuple[Step, ...] = ()
    sizes: tuple[int, ...] = (8,)
    """The size of each return value."""
    holds: tuple[int, ...] = ()
    """Slots whose references are inside the first return value."""
    raises: int = 0
    """How many attempts raise; -1: all."""
    raises_at: int = 0
    """After how many of its steps."""
    kills: bool = False
    """Whether it ends its process, each time as it begins."""
    is_fragile: bool = False
    """Its process dies in the middle of it five times as often as others."""
    keeps: bool = False
    """For creations: the actor keeps the references that it was given."""
    is_dropped: bool = False
    """For creations: nobody calls the actor, and the one handle may be gone before it is created."""


@dataclass
class Workload:
    """One program."""

    functions: list[Function] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    """Of the driver."""
