"""The client of a driver or executor. This module puts its parts together.

The parts know ids only. Users hold the objects of `object_ref.py` and `generators.py`, which `submitting.py` makes.
"""

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mpi_runtime.core.client.blocking import Blocking
from mpi_runtime.core.client.connection import Line
from mpi_runtime.core.client.executor_feed import Feed
from mpi_runtime.core.client.futures import RefFutures
from mpi_runtime.core.client.incoming import Arrivals, ReceivedItems
from mpi_runtime.core.client.outbox import Outbox
from mpi_runtime.core.client.questions import Questions, Replies
from mpi_runtime.core.client.references import References
from mpi_runtime.core.client.scope import Inherited, Scope, Scopes
from mpi_runtime.core.client.stalls import Stalls
from mpi_runtime.core.client.store import Store
from mpi_runtime.core.client.waiting import Waiting
from mpi_runtime.core.objects.arena import ClientArena
from mpi_runtime.core.transport import codec
from mpi_runtime.core.transport.unsent_frame import Draft
from mpi_runtime.scheduler.protocol.events import Call, Spec, Where, driver_of

if TYPE_CHECKING:
    from mpi_runtime.core.client.far_arena import FarArena
    from mpi_runtime.errors import HeadDiedError
    from mpi_runtime.gpu.device import Device


class Executor(Protocol):
    """The executor of this process, as a client and the code above it use it."""

    number: int
    rank: int
    hostname: str
    gpu_ids: list[int]
    """As `get_gpu_ids()` returns them."""
    devices: list[Device]
    where: Where | None
    """The requested place of the running call or the actor."""
    actor: object
    """None in an executor of tasks."""
    actor_id: bytes
    """Empty in an executor of tasks."""
    actor_attempt: int
    """How often the actor was created before."""

    def is_cancelled(self, call: Call) -> bool:
        """Whether `cancel` has reached this attempt. A retry of the call is another attempt."""

    def function_name(self) -> str | None:
        """Return the name of the running function or method with its module; None between calls."""

    def emit(self, item: object) -> bool:
        """Send an item of the running task. Return whether more are wanted."""

    def end_actor(self) -> None:
        """End the actor for good. Assigned calls do not run."""

    def save_now(self) -> bool:
        """Save the state of the actor. Return whether the journal has it."""


class Executing(NamedTuple):
    """The parts of a client that only an executor has."""

    executor: Executor
    draft: Draft | None
    """None: this is the client of a call with a scheduler of its own."""
    interrupts: AbstractContextManager[None]
    """A context in which calls are not interrupted."""
    cancels: int
    """The pipe with the ids of cancelled calls."""


class Client:
    """The connection of one process to the job: it submits calls and reads values. Any thread may use it."""

    def __init__(
        self,
        end: socket.socket,
        arena: ClientArena | FarArena,
        regions: dict[int, int],
        inline_bytes_max: int,
        *,
        inherited: Inherited | None = None,
        journal: str = "",
        scope: Scope | None = None,
        log_after_s: float = 0.0,
        why_lost: Callable[[], str | HeadDiedError] | None = None,
        executing: Executing | None = None,
    ) -> None:
        """Use a connected socket.

        Args:
            end: our end of the socketpair to the rank process; blocking.
            arena: the arena of this host; or that of the host of rank 0, which is another one.
            regions: by rank of this host, the index of its region of the arena.
            inline_bytes_max: values up to this size are sent in messages.
            inherited: settings that calls made here inherit.
            journal: the directory of the job's journal; empty: none.
            scope: of the driver's calls.
            log_after_s: seconds without progress until a line about a wait is logged; 0: none is.
            why_lost: returns the error for a lost connection, or its message; None: the client's own.
            executing: the parts of an executor; None: this is the driver.
        """
        self._arena = arena
        self.store_bytes = arena.capacity
        """Bytes of shared memory for values on the host of the rank."""
        self.number = 0
        """The number of a driver that has connected to a session."""
        self.has_ended = False
        """Whether the job was shut down. Then its references are useless."""
        self.executor = executing.executor if executing is not None else None
        """For questions about the running call; None in the driver."""
        self.is_inner = executing is not None and executing.draft is None
        """Whether a call with a scheduler of its own is the driver of this job."""
        self._registered: set[int] = set()
        self.inherited = inherited or Inherited()
        self.scopes = Scopes(scope)
        self.feed = Feed()
        self.references = References()
        draft, interrupts, cancels = executing[1:] if executing is not None else (None, None, -1)
        self.outbox = Outbox(end, self.references, draft, interrupts, why_lost)
        self.items = ReceivedItems(self.outbox)
        self.blocking = Blocking(self.outbox)
        self._replies = replies = Replies(self.outbox)
        arrivals = Arrivals(self.references, self.items, self.feed, replies.came, self.outbox.forget)
        self.line = Line(end, self.outbox, arrivals, self.scopes, self.blocking, cancels)
        self.questions = Questions(self.line, replies, min(regions))
        self.store = Store(self.outbox, self.questions, arena, regions, inline_bytes_max, journal)
        self.stalls = Stalls(self.line, arrivals, self.questions, log_after_s)
        self.waiting = Waiting(self.line, self.references, arrivals, self.items, self.store, self.stalls)
        self.futures = RefFutures(self.waiting, self.references, self.store)
        _clients.add(self)

    def register(self, spec: Spec) -> None:
        """Send a spec, once.

        Raises:
            TypeError: an option is of a wrong type or out of bounds.
        """
        if spec.id not in self._registered:
            codec.check(spec)
            self._registered.add(spec.id)
            self.outbox.post(spec)

    @property
    def driver(self) -> int:
        """The number of the driver of a session that calls made here belong to; 0: the program of rank 0."""
        return driver_of(self.inherited.environment)

    def close(self) -> None:
        """Stop using the connection. The caller closes the socket."""
        self.has_ended = True
        self.line.close()
        self._arena.close()

    def forked(self) -> None:
        """Send and run nothing any more: this process is a forked child of the client's."""
        self.line.forked()
        self._replies.spares.take_all()
        self.feed.calls.clear()
        self.feed.block.clear()


_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for client in list(_clients):
        client.forked()


os.register_at_fork(after_in_child=_after_fork_in_child)
