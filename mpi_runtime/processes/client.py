"""The client: what driver and executors have in common. Submits calls, counts references, reads what comes.

Values that this process knows are in `values`, by id, as the messages that brought them; `store.py` reads and writes
them, `waiting.py` waits for them, `streams.py` for the items of calls that yield; `questions.py` asks. Any thread may
use the client: one of those that wait reads the socket for all (the leader), the others sleep until it has read
something.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from mpi_runtime import errors
from mpi_runtime.generators import ObjectRefGenerator
from mpi_runtime.objects.arena import ClientArena
from mpi_runtime.processes.futures import Futures
from mpi_runtime.processes.inbox import Inbox
from mpi_runtime.processes.outbox import LOST, Outbox
from mpi_runtime.processes.questions import Questions
from mpi_runtime.processes.scope import Scope, beside
from mpi_runtime.processes.store import Store
from mpi_runtime.processes.streams import Streams
from mpi_runtime.processes.waiting import Entry, Waiting
from mpi_runtime.refs import ActorRef, ObjectRef
from mpi_runtime.scheduler.effects import (
    Answer,
    Demand,
    Item,
    Ready,
)
from mpi_runtime.scheduler.events import (
    DYNAMIC,
    STREAMING,
    Blocked,
    BundleSpec,
    Call,
    GroupCreated,
    Held,
    Named,
    Spec,
    Unblocked,
    Where,
)
from mpi_runtime.transport import codec
from mpi_runtime.transport.channel import LOCAL
from mpi_runtime.transport.messages import Allocated, Exit

BLOCKED_IDS_MAX = 20
"""How many ids a `Blocked` names, for explanations."""

SHUT_DOWN = "mpi_runtime was shut down"

DROPPED_MAX = 1000
"""References to small values that may be gone without being told while nothing else is said."""


class Client:
    """One process's part in the object store and the task graph."""

    def __init__(self, end: socket.socket, arena: ClientArena, regions: dict[int, int], inline_bytes_max: int) -> None:
        """Use a connected socket.

        Args:
            end: our end of the socketpair to the rank process; blocking.
            arena: the arena of this host.
            regions: for each rank of this host the index of its region.
            inline_bytes_max: values up to this size ride in messages.
        """
        self._socket = end
        self._arena = arena
        self.counts: dict[bytes, int] = {}
        """How many references and views this process has, by object, less those in `_dropped`."""
        self._dropped: list[bytes] = []
        """References and views that are gone and not yet taken off. Appended to by `__del__`, which takes no lock."""
        self.outbox = Outbox(end, self._settle, self._dropped)
        self.values: dict[bytes, Entry] = {}
        self.store = Store(self, arena, regions, inline_bytes_max)
        self.questions = Questions(self)
        self.waiting = Waiting(self)
        self.futures = Futures(self)
        self._registered: set[int] = set()
        self._last_call = b""
        """The call that was submitted last."""
        self._inbox = Inbox(end)
        self.taken = 0
        """How many messages have come."""
        self._changed = threading.Condition()
        self._leading = 0
        """The thread that reads; 0: none."""
        self._closed = ""
        self.has_ended = False
        """Whether the job was shut down: its references are worth nothing any more."""
        self._scope = Scope(b"driver")
        self.streams = Streams(self)
        self._kept: list[ObjectRef[Any]] = []
        self.calls: deque[tuple[Call, list[Entry]]] = deque()
        """For executors: calls to run, each with the values of its arguments."""
        self.received_calls = 0
        self.specs: dict[int, Spec] = {}
        self.exiting = False
        self.lends_cpu = False
        """Whether this is an executor that gives up its CPU while its call waits."""
        self.namespace = ""
        """Where names of actors are looked up unless another namespace is given."""
        self.environment: dict[str, str] = {}
        """What calls made here find in their environment unless they say otherwise: in an executor its own, in the
        driver that of the job. It names archives besides variables: see `scratch.py`."""
        self.archives: dict[str, ObjectRef[Any]] = {}
        """Archives that are named by calls made here, by their hashes: kept for as long as they may be."""
        self.packed: dict[tuple[str, tuple[str, ...], str], str] = {}
        """The hash of what was packed here: by path, what was left out, and how."""
        self.host = min(regions)
        """The lowest rank of this host."""
        self.executor: Any = None
        """In an executor: the `Executor`, for questions about the running call."""
        self.inherited: Where | None = None
        """In an executor: where calls run that say nothing about it, if the running call captures them."""
        self.said_blocked = False
        """In an executor: whether the scheduler was told that the running call waits."""
        _clients.add(self)

    def forked(self) -> None:
        """This is a forked child of the process that the client was made for: say nothing, run nothing."""
        self._closed = "this is a forked child of a process of mpi_runtime, which cannot use its parent's connection"
        self.outbox.mute()
        self.calls.clear()
        self._changed = threading.Condition()  # another thread of the parent may have held it
        self._leading = 0
        self._socket.close()  # or the head would not notice the parent's end while the child lives

    # Ids and references

    def enter(self, scope: Scope) -> None:
        """From now on this is what runs here, but for calls that run beside it."""
        self._scope = scope

    def scope(self) -> Scope:
        """What runs here."""
        return beside.get() or self._scope

    def next_ids(self, count: int) -> bytes:
        """The first of `count` consecutive new ids."""
        return (beside.get() or self._scope).next_ids(count)

    def drop(self, id: bytes, urgent: bool = False) -> None:
        """A reference or a view is gone. Runs in `__del__`: takes no lock, raises nothing."""
        self._dropped.append(id)
        if not self.outbox.ticking and (
            urgent or len(self._dropped) > DROPPED_MAX or type(self.values.get(id)) is not Ready
        ):
            self.outbox.tick()  # it may hold much memory, here or elsewhere

    def _settle(self) -> list[bytes]:
        """Take off what was dropped; the objects of which nothing is left here. Under the outbox's lock."""
        dropped, counts = self._dropped, self.counts
        gone: list[bytes] = []
        self.streams.say_forgotten()
        if not dropped:
            return gone
        batch = dropped[:]
        del dropped[: len(batch)]
        for id in batch:
            count = counts[id]
            if count > 1:
                counts[id] = count - 1
                continue
            del counts[id]
            self.values.pop(id, None)
            gone.append(id)
        if self.waiting.borrowed:
            for id in gone:
                self.waiting.borrowed.pop(id, None)
        return gone

    def adopt(self, id: bytes) -> Client:
        """A reference came to this process inside a value, or a view of an object was made."""
        with self.outbox.interrupts, self.outbox.lock:
            count = self.counts.get(id, 0)
            self.counts[id] = count + 1
            if not count:
                self.waiting.borrowed[id] = False
                self.outbox.post_after_releases(Held([id]))
        return self

    def keep_for_ever(self, id: bytes) -> None:
        """A reference left the runtime's sight: nobody can count it any more."""
        with self.outbox.lock:
            self.counts[id] = self.counts.get(id, 0) + 1
        self._kept.append(ObjectRef(id, self))

    # Calls

    def register(self, spec: Spec) -> None:
        """Make a spec known, once."""
        if spec.id not in self._registered:
            self._registered.add(spec.id)
            self.outbox.post(spec)

    def submit(self, call: Call, spec: Spec) -> Any:
        """Send a call whose spec is registered.

        Returns:
            What the caller gets: a reference, a list of them for several return values, None for none, or a generator.
        """
        id = self._last_call = call.id
        self.counts[id] = 1
        count = spec.num_returns
        if count == 1 or count == DYNAMIC:
            self.outbox.post(call)
            return ObjectRef(id, self)
        if count == STREAMING:
            self.streams.begin(id, bool(spec.backpressure))
            self.outbox.post(call)
            return ObjectRefGenerator(ObjectRef(id, self), self, bool(spec.backpressure))
        if count == 0:
            self.outbox.post(call)
            self.drop(id)
            return None
        start = int.from_bytes(id, "big")
        ids = [(start + index).to_bytes(16, "big") for index in range(count)]
        self.counts.update(dict.fromkeys(ids, 1))
        self.outbox.post(call)
        return [ObjectRef(id, self) for id in ids]

    def submit_creation(self, call: Call) -> ActorRef:
        """Send the creation of an actor; handles count as references to the call's id."""
        self.counts[call.id] = 1
        self.outbox.post(call)
        return ActorRef(call.id, self)

    def submit_named(
        self, creation: Call, namespace: str, name: str, handle: bytes, detached: bool
    ) -> tuple[ActorRef, bytes, bytes]:
        """Send the creation of an actor with a name.

        Returns:
            The new actor, and id and handle of the one that has the name: this one, or one that was there before, and
            then the creation counts for nothing.
        """
        request = self.questions.number()
        self.counts[creation.id] = 1
        ref = ActorRef(creation.id, self)
        self.outbox.post(Named(request, namespace, name, handle, detached, creation))
        return ref, *msgspec.msgpack.decode(self.questions.answer(request), type=tuple[bytes, bytes])

    def own_ref(self, id: bytes) -> ObjectRef[Any]:
        """The first reference to an object that is about to be made under this id."""
        self.counts[id] = 1
        return ObjectRef(id, self)

    def create_group(
        self, ref: ObjectRef[Any], bundles: list[BundleSpec], strategy: str, data: bytes, name: str
    ) -> bool:
        """Ask for a placement group with the id of a new reference; False: its name is taken."""
        request = self.questions.number() if name else 0
        self.outbox.post(GroupCreated(ref.binary(), bundles, strategy, data, self.namespace, name, request))
        return not name or msgspec.msgpack.decode(self.questions.answer(request), type=bool)

    # Reading

    def wait_until(self, complete: Callable[[], bool], timeout_s: float | None, ids: list[bytes] | None) -> bool:
        """Read until `complete()` says so, or the time is over. With `ids`, an executor's CPU is given up meanwhile."""
        self.outbox.flush_or(self.lost)
        # An executor sleeps at once: others have work for its processor.
        self._inbox.patience.is_granted = not self.executor and ids == [self._last_call]
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        scope = self._scope if self.lends_cpu and ids is not None else None
        said = False
        try:
            while True:
                with self._changed:
                    if complete():
                        return True
                    self._check_open()
                    left = None if deadline is None else max(0.0, deadline - time.monotonic())
                    if scope is not None and not said:
                        said = True
                        self._say_blocked(scope, ids or [])
                    if self._leading and self._leading != threading.get_ident():
                        if left == 0.0:
                            return False
                        self._changed.wait(left)
                        continue
                    self._leading = threading.get_ident()
                try:
                    self.outbox.flush_or(self.lost)
                    self._inbox.read(left)
                finally:
                    with self.outbox.interrupts:
                        arrived = self._take_in()
                        with self._changed:
                            self._leading = 0
                            self._changed.notify_all()
                if not arrived and left == 0.0:
                    with self._changed:
                        return complete()
        finally:
            if said:
                assert scope is not None
                self._waits_no_more(scope)

    @contextmanager
    def blocked(self) -> Iterator[None]:
        """For a thread that waits for results by other means than `get` and `wait`: gives up an executor's CPU too."""
        if not self.lends_cpu:
            yield
            return
        scope = self._scope
        with self._changed:
            self._say_blocked(scope, [])
        try:
            self.outbox.flush_or(self.lost)
            yield
        finally:
            self._waits_no_more(scope)

    def _waits_no_more(self, scope: Scope) -> None:
        with self._changed:
            scope.waiting -= 1
            if not scope.waiting and scope is self._scope:
                self.say_unblocked()

    def _say_blocked(self, scope: Scope, ids: list[bytes]) -> None:
        scope.waiting += 1
        if scope.waiting == 1:
            self.said_blocked = True
            self.outbox.post(Blocked(ids[:BLOCKED_IDS_MAX]))

    def say_unblocked(self) -> None:
        """No thread of the running call waits any more, or it ends: threads that it leaves behind do not count."""
        if self.said_blocked:
            self.said_blocked = False
            self.outbox.post(Unblocked())

    def _check_open(self) -> None:
        if self._closed:
            raise errors.HeadDiedError(self._closed)

    def lost(self) -> None:
        """The other end of the connection is gone."""
        self._closed = self._closed or LOST

    def _take_in(self) -> bool:
        """Take in what was read; whether anything was."""
        frames = self._inbox.frames()
        if frames is None:
            return False
        if self._inbox.is_closed:
            self.lost()
        for count, frame in frames:
            if count == LOCAL:
                self._closed = self._closed or SHUT_DOWN
            else:
                self._take(codec.to_client.decode(frame))
        return True

    def read_calls(self) -> None:
        """For executors: read until there is a call to run or the process is to end."""
        self.wait_until(lambda: bool(self.calls) or self.exiting, None, None)

    def _take(self, messages: list[Any]) -> None:
        """Take in one frame. The values of a call's arguments come before it in the same frame."""
        arguments: dict[bytes, Entry] = {}
        values, counts, waiting = self.values, self.counts, self.waiting
        for message in messages:
            kind = type(message)
            if kind is Ready:
                if message.id in counts:
                    values[message.id] = message
                    if waiting.expected:
                        waiting.came(message)
                else:
                    arguments[message.id] = message
            elif kind is Call:
                self.received_calls += 1
                self.calls.append((message, [self._argument(id, arguments) for id in message.arguments]))
            elif kind is Spec:
                self.specs[message.id] = message
            elif kind in (Allocated, Answer):
                self.questions.take(message)
            elif kind is Exit:
                self.exiting = True
            elif kind is Item:
                counts[message.id] = 1
                self.streams.take(message)
            elif kind is Demand:
                self.streams.demand(message)
            elif message.id in counts:
                values[message.id] = message
                waiting.came(message)
            else:
                arguments[message.id] = message
        self.taken += len(messages)  # not before: whoever waits counts on it

    def _argument(self, id: bytes, arguments: dict[bytes, Entry]) -> Entry:
        found = arguments.get(id)
        return found if found is not None else self.values[id]

    def read_to_end(self, silence_s: float) -> None:
        """Read what still comes, until the head says that the job is over, or says nothing for this long."""
        seen = -1
        while not self._closed and seen != self.taken:
            seen = self.taken
            self.wait_until(lambda seen=seen: bool(self._closed) or self.taken != seen, silence_s, None)  # type: ignore[misc]

    def close(self) -> None:
        """Use the connection no more; the socket itself is its owner's."""
        self._closed = self._closed or SHUT_DOWN
        self.has_ended = True
        self.outbox.mute()
        self._arena.close()
        with self._changed:
            self._changed.notify_all()


_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for client in list(_clients):
        client.forked()


os.register_at_fork(after_in_child=_after_fork_in_child)
