"""Nodes, their ranks, bundles and executors, and the index that finds a node with room without looking at all.

What executors are granted comes from a node or from a bundle, which is a part of a node that a placement group has
reserved: both are sources. Either may be kept for a claimant that has waited for long.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from mpi_runtime.scheduler.resources import Grant, Pool, Request, fits
from mpi_runtime.scheduler.tasks import STAGING, Task

if TYPE_CHECKING:
    from mpi_runtime.scheduler.actors import Actor
    from mpi_runtime.scheduler.events import Faulted
    from mpi_runtime.scheduler.queues import Queue

NOTHING: Final = 1 << 62
"""The position of a claimant that waits for nothing."""

STARTING, RUNNING, STOPPING = range(3)
EXECUTOR_STATE_NAMES = ("starting", "running", "stopping")


class Key(Struct, frozen=True, gc=False):
    """What is fixed for the life of an executor: calls with equal keys may use the same one."""

    environment: tuple[tuple[str, str], ...]
    threads: int
    devices: tuple[int, ...]


class Claimant(Struct, eq=False, gc=False):
    """Who may have nodes or bundles kept for itself while it waits: a queue or a placement group."""

    reserved: list[Source] = []
    """What is kept for it."""
    priority: int = 0
    no_reservation_until_us: int = 0
    """It had a reservation that lapsed: others go first until then."""

    def position(self) -> int:
        """Of what it waits for, among all that was ever submitted; NOTHING if it does not wait."""
        raise NotImplementedError

    def spares(self, request: Request, free: Pool) -> bool:
        """Whether others may take this of what is kept for it: it waits for something else."""
        return False


class Source(Struct, eq=False, gc=False):
    """What grants are taken from, and go back to: a node or a bundle."""

    total: Pool
    free: Pool
    actor_cpu: int = 0
    """CPU units held by actors: they do not come free by waiting."""
    reserved_for: Claimant | None = None
    reserved_until_us: int = 0


class Process(Struct, eq=False, gc=False):
    """What is remembered of an executor's process when it is gone."""

    executor: int
    rank: int
    node: Node
    pid: int = 0
    actor: bytes = b""
    name: str = ""
    """Of an actor: what it calls itself, or its class."""


class Executor(Struct, eq=False, gc=False):
    """A process that runs user code. It holds a grant exactly while it has calls in hand or is an actor."""

    id: int
    rank: Rank
    key: Key
    source: Source
    """What its grant was taken from; its node while it has none."""
    process: Process
    state: int = STARTING
    queue: Queue | None = None
    """The queue that it serves, while it has a grant for calls of that queue."""
    grant: Grant | None = None
    in_hand: dict[bytes, Task] = {}
    """Calls it was given and that have not ended, in the order they were sent; the first may be running."""
    load_us: int = 0
    """Sum of the estimates of what is in hand."""
    progress_us: int = 0
    """When it last sent anything, or was given work while it had none."""
    children: dict[bytes, Task] = {}
    """Calls that it has submitted and that have not ended."""
    known: set[int] = set()
    """Specs that it has been sent. Only for membership."""
    actor: Actor | None = None
    is_reduced: bool = False
    """Its actor has been created, and its grant is only what the actor keeps."""
    blocked: bool = False
    """Its call waits for objects, and its CPU was given back."""
    stuck: bool = False
    """It has shown no progress for long: nothing more is sent to it until it does."""
    asked_back: bool = False
    """A `TakeBack` is on its way."""
    waits_for: list[bytes] = []
    """While blocked: some of the objects."""
    idle_since_us: int = 0
    expected_death: str = ""
    """Why it was told to stop."""
    kept: list[bytes] = []
    """What calls need that have been given up and that it may run nevertheless until it is gone."""
    fault: Faulted | None = None
    """Why it can use its GPUs no more: it ends."""

    @property
    def pid(self) -> int:
        """Its process number; 0: not known yet."""
        return self.process.pid

    def running(self) -> Task | None:
        """The call that it runs, or will run first."""
        for task in self.in_hand.values():
            if task.state != STAGING:
                return task
        return None


class Rank(Struct, eq=False, gc=False):
    """A rank process: the agent of its share of a node."""

    number: int
    node: Node
    hosts_executors: bool
    executors: dict[int, Executor] = {}
    cpus: list[int] = []
    """Processor numbers that it was given."""


class Node(Source, kw_only=True, eq=False, gc=False):
    """A host: all ranks that share it, and their resources as one pool. What bundles have of it is not free."""

    host: int
    """The lowest rank on it: its number."""
    hostname: str
    labels: dict[str, str] = {}
    bundles: list[Bundle] = []
    """Reserved on it, or removed and still used."""
    ranks: list[Rank] = []
    cpus: list[int] = []
    """Processor numbers that may be used."""
    explicit_cpu: int = -1
    """CPU units that the user stated; -1: as many as processors."""
    idle: dict[Key, dict[int, Executor]] = {}
    """Executors without a grant, by key; in each the last to become idle is the last entry."""
    clock_ahead_us: int = NOTHING
    """How much the head's clock is ahead of this host's, at most: see `history.py`."""
    arena: int = 0
    gpu_problems: list[str] = []
    """What is wrong with its GPUs, in words."""
    gpu_error: str = ""
    """Why a rank of it could not find out whether there are any."""
    gpu_limit: str = ""
    """What leaves one of its ranks fewer than were stated and are there."""

    @property
    def id(self) -> str:
        """As people see it."""
        return f"{self.host:032x}"

    @property
    def hosts_executors(self) -> bool:
        """Whether calls can run on it: the head's node may hold data only."""
        return any(rank.hosts_executors for rank in self.ranks)


class Bundle(Source, kw_only=True, eq=False, gc=False):
    """What a placement group has reserved of one node."""

    group: bytes
    index: int
    node: Node
    grant: Grant
    """Of the node."""
    removed: bool = False
    """Its group is gone: what it has goes back to the node with its last executor."""

    def device_ids(self) -> list[int]:
        """The GPUs that it has, or has a share of."""
        return [id for id, _, _ in self.grant.devices]


def may_take(source: Source, request: Request, claimant: Claimant | None) -> bool:
    """Whether somebody's request can be served there now, and it is not kept for others."""
    kept_for = source.reserved_for
    is_open = kept_for is None or kept_for is claimant or kept_for.spares(request, source.free)
    return is_open and fits(request, source.free)


def node_of(source: Source) -> Node:
    """The node that a source is or lies on."""
    if isinstance(source, Bundle):
        return source.node
    assert isinstance(source, Node)
    return source


class Index:
    """Nodes ordered by how much of each resource is free: the one with the most is found in constant time."""

    def __init__(self) -> None:
        self._levels: dict[str, list[int]] = {}
        self._nodes: dict[str, dict[int, dict[int, Node]]] = {}
        self._places: dict[int, dict[str, int]] = {}

    def update(self, node: Node) -> None:
        """Put the node where its free resources say. To be called after each change of them."""
        places = self._places.setdefault(node.host, {})
        free = node.free
        self._move(node, "CPU", free.cpu, places)
        if free.devices:
            self._move(node, "GPU", sum(free.devices), places)
        for name, units in free.custom.items():
            self._move(node, name, units, places)

    def remove(self, node: Node) -> None:
        """Forget a node."""
        for name, level in self._places.pop(node.host, {}).items():
            self._leave(node, name, level)

    def _move(self, node: Node, name: str, level: int, places: dict[str, int]) -> None:
        old = places.get(name)
        if old == level:
            return
        if old is not None:
            self._leave(node, name, old)
        nodes = self._nodes.setdefault(name, {})
        if level not in nodes:
            nodes[level] = {}
            insort(self._levels.setdefault(name, []), level)
        nodes[level][node.host] = node
        places[name] = level

    def _leave(self, node: Node, name: str, level: int) -> None:
        nodes = self._nodes[name]
        del nodes[level][node.host]
        if not nodes[level]:
            del nodes[level]
            levels = self._levels[name]
            del levels[bisect_left(levels, level)]

    def candidates(self, request: Request) -> Iterator[Node]:
        """Nodes that may have room, those with the most of the rarest requested resource first."""
        name, least = rarest(request)
        nodes = self._nodes.get(name, {})
        for level in reversed(self._levels.get(name, ())):
            if level < least:
                return
            yield from nodes[level].values()

    def find(self, request: Request, allowed: Claimant | None) -> Node | None:
        """A node with room that is not kept for anybody but `allowed`."""
        for node in self.candidates(request):
            kept_for = node.reserved_for  # as in `may_take`, but this is asked for every call that is placed
            is_open = kept_for is None or kept_for is allowed or kept_for.spares(request, node.free)
            if is_open and fits(request, node.free):
                return node
        return None


def rarest(request: Request) -> tuple[str, int]:
    """The requested resource that fewest nodes will have, and how much of it."""
    if request.custom:
        return request.custom[0]
    if request.needs_device:
        return "GPU", request.gpu
    return "CPU", request.cpu if request.cpu else -(1 << 62)
