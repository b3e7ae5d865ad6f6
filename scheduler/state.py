"""All tables of the scheduler in one place, and the effects gathered so far. No behaviour beyond look-ups."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec import Struct

from mpi_runtime.scheduler.actors import Actor
from mpi_runtime.scheduler.effects import Free, RankEffect
from mpi_runtime.scheduler.history import Run
from mpi_runtime.scheduler.limits import HISTORY_CALLS_MAX
from mpi_runtime.scheduler.names import Name
from mpi_runtime.scheduler.nodes import Executor, Index, Node, Rank
from mpi_runtime.scheduler.objects import Object, Waiter
from mpi_runtime.scheduler.queues import Queue
from mpi_runtime.scheduler.resources import Request
from mpi_runtime.scheduler.tasks import Function, Task
from mpi_runtime.scheduler.timers import Alarms

if TYPE_CHECKING:
    from mpi_runtime.scheduler.groups import Group

DRIVER = 0


class Client(Struct, eq=False, gc=False):
    """A process that submits calls and holds references: the driver or an executor."""

    id: int
    node: Node
    executor: Executor | None
    held: dict[bytes, None] = {}
    """Objects to which its process has references."""


class Effects(Struct, gc=False):
    """What is to be done. Effects for ranks come before messages for clients."""

    ranks: dict[int, list[RankEffect]] = {}
    clients: dict[int, list[object]] = {}
    """For executors also the calls to run and the specs that they need."""
    notes: list[str] = []
    """What the user is to be told, each in one line."""


class State:
    """The whole knowledge of the scheduler."""

    def __init__(self) -> None:
        self.functions: dict[int, Function] = {}
        self.objects: dict[bytes, Object] = {}
        self.actors: dict[bytes, Actor] = {}
        self.names: dict[tuple[str, str], Name] = {}
        """Names of actors, by namespace and name."""
        self.groups: dict[bytes, Group] = {}
        """Placement groups, by their objects' ids."""
        self.group_names: dict[tuple[str, str], bytes] = {}
        """Ids of groups, by namespace and name."""
        self.waiting_groups: dict[bytes, Group] = {}
        """Those that are not placed, in order of creation."""
        self.clients: dict[int, Client] = {}
        self.nodes: dict[int, Node] = {}
        self.ranks: dict[int, Rank] = {}
        self.executors: dict[int, Executor] = {}
        self.index = Index()
        self.device_nodes: dict[str, int] = {}
        """The node to which each GPU is counted, by its UUID: containers may show one GPU on two hosts."""
        self.queues: dict[tuple[object, ...], Queue] = {}
        self.dirty: list[Queue] = []
        """Queues with new calls or with executors that have room: to be served by the next decision."""
        self.waiting: dict[Queue, None] = {}
        """Queues whose calls found no room: to be served when something comes free."""
        self.freed: bool = False
        """Whether anything came free since the last decision."""
        self.woken: list[Task] = []
        """Tasks whose last missing argument became ready."""
        self.withdrawn: dict[Request, None] = {}
        """Requests of calls that are to be dropped from their queues."""
        self.unreferenced_actors: list[Actor] = []
        """Actors whose last handle is gone."""
        self.called: dict[Actor, None] = {}
        """Actors to which calls may have to be sent."""
        self.extents: dict[tuple[int, int], bytes] = {}
        """Which object lies at (rank, offset). An error of several return values lies there once."""
        self.frees: dict[int, list[int]] = {}
        """Extents to be freed, by rank."""
        self.alarms = Alarms()
        """Queues with calls behind busy executors, or such that may become too late, as functions of methods may;
        nodes with a reservation or with too many idle executors."""
        self.effects = Effects()
        self.submitted = 0
        self.next_executor = 1
        self.last_spread = -1
        """The node that was last given a call that is to be spread."""
        self.fetching: dict[tuple[bytes, int], list[Waiter]] = {}
        """Copies under way, by object and node, with those that wait for them."""
        self.history: deque[Run] = deque(maxlen=HISTORY_CALLS_MAX)
        """What has run last."""
        self.ran = 0
        """How many attempts of calls have ended."""
        self.wall_us = 0
        """The time since 1970 less the head's clock."""
        self.end_us: int | None = None
        """When the job's time ends, by the head's clock; None: nobody says."""
        self.told: set[str] = set()
        """Names of functions of which calls were not started since the time was too short. Only for membership."""
        self.finished = 0
        self.failed = 0
        self.retried = 0
        self.restarted = 0

    def add_client(self, number: int, node: Node, executor: Executor | None) -> None:
        """A process will submit calls and hold references."""
        self.clients[number] = Client(number, node, executor)

    def to_client(self, client: int, message: object) -> None:
        """Add a message for a client."""
        messages = self.effects.clients.get(client)
        if messages is None:
            self.effects.clients[client] = [message]
        else:
            messages.append(message)

    def to_rank(self, rank: int, effect: RankEffect) -> None:
        """Add an effect for a rank."""
        self.effects.ranks.setdefault(rank, []).append(effect)

    def send_frees(self, rank: int) -> None:
        """Add the effect that frees what a rank may free."""
        offsets = self.frees.pop(rank, None)
        if offsets:
            self.to_rank(rank, Free(offsets))

    def take_effects(self) -> Effects:
        """All effects since the last call."""
        for rank in list(self.frees):
            self.send_frees(rank)
        effects, self.effects = self.effects, Effects()
        return effects
