"""The client, which driver and executors have in common. This module puts its parts together.

`references.py`, `outgoing.py`, `received_items.py`, `feed.py`, `blocking.py` and `arrivals.py` need no socket, and the
simulator runs them too. `line.py` connects them to the process of the rank. These parts know ids only. Users hold the
objects of `refs.py` and `generators.py`, which `submitting.py` makes.
"""

from __future__ import annotations

import os
import socket
import weakref
from typing import Any

from mpi_runtime.client.arrivals import Arrivals
from mpi_runtime.client.blocking import Blocking
from mpi_runtime.client.feed import Feed
from mpi_runtime.client.inherited import Inherited
from mpi_runtime.client.line import Line
from mpi_runtime.client.outbox import Outbox
from mpi_runtime.client.questions import Questions, Replies
from mpi_runtime.client.received_items import ReceivedItems
from mpi_runtime.client.ref_futures import RefFutures
from mpi_runtime.client.references import References
from mpi_runtime.client.scope import Scopes
from mpi_runtime.client.stalls import Stalls
from mpi_runtime.client.store import Store
from mpi_runtime.client.waiting import Waiting
from mpi_runtime.objects.arena import ClientArena
from mpi_runtime.scheduler.events import Spec
from mpi_runtime.transport import codec


class Client:
    """The connection of one process to the job: it submits calls and reads values. Any thread may use it."""

    def __init__(self, end: socket.socket, arena: ClientArena, regions: dict[int, int], inline_bytes_max: int) -> None:
        """Use a connected socket.

        Args:
            end: our end of the socketpair to the rank process; blocking.
            arena: the arena of this host.
            regions: by rank of this host, the index of its region of the arena.
            inline_bytes_max: values up to this size are sent in messages.
        """
        self._arena = arena
        self.has_ended = False
        """Whether the job was shut down. Then its references are useless."""
        self.executor: Any = None
        """In an executor: the `Executor`, for questions about the running call."""
        self._registered: set[int] = set()
        self.inherited = Inherited()
        self.scopes = Scopes()
        self.feed = Feed()
        self.references = References()
        self.outbox = Outbox(end, self.references)
        self.items = ReceivedItems(self.outbox)
        self.blocking = Blocking(self.outbox)
        replies = Replies(self.outbox)
        arrivals = Arrivals(self.references, self.items, self.feed, replies.came, self.outbox.forget)
        self.line = Line(end, self.outbox, arrivals, self.scopes, self.blocking)
        self.questions = Questions(self.line, replies, min(regions))
        self.store = Store(self.outbox, self.questions, arena, regions, inline_bytes_max)
        self.stalls = Stalls(self.line, arrivals, self.questions)
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

    def close(self) -> None:
        """Stop using the connection. The caller closes the socket."""
        self.has_ended = True
        self.line.close()
        self._arena.close()

    def forked(self) -> None:
        """Send nothing and run nothing any more: this process is a forked child of that of the client."""
        self.line.forked()
        self.questions.forget_spares()
        self.feed.calls.clear()
        self.feed.block.clear()


_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for client in list(_clients):
        client.forked()


os.register_at_fork(after_in_child=_after_fork_in_child)
