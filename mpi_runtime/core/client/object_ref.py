"""`ObjectRef`: a reference to a value that exists or will exist.

Each process counts its own references (`References.counts`): a new `ObjectRef` or a view into the arena adds one, its
end removes one. Only the first and the last reference of a process are reported to the scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mpi_runtime.core import published
from mpi_runtime.core.client import current
from mpi_runtime.core.client.client import Client
from mpi_runtime.core.client.futures import Outcome
from mpi_runtime.core.client.typed_ids import JobID, TaskID, job_id
from mpi_runtime.core.objects import collecting
from mpi_runtime.errors import ObjectLostError
from mpi_runtime.errors.ray import ActorHandleNotFoundError
from mpi_runtime.scheduler.protocol.ids import ID_BYTES, first_of
from mpi_runtime.scheduler.protocol.questions import Explain

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

    from mpi_runtime.core.client.scope import Scope

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@published()
class ObjectRef(Generic[T_co]):
    """A reference to a value that exists or will exist. `get` returns the value; `await ref` does so in a coroutine.

    As an argument of a remote call it stands for the value. Inside a container it stays a reference. The value lives as
    long as a reference to it exists anywhere in the job. References can be compared and hashed.
    """

    __slots__ = ("__weakref__", "_client", "_id")

    def __init__(self, id: bytes, client: Client | None = None) -> None:
        if client is None:
            raise TypeError(
                "an ObjectRef cannot be made from an id: the value may be freed before, since nothing counts an id as "
                "a reference. Pass the reference itself, in a list or a dictionary if it is to stay a reference."
            )
        self._id = id
        self._client = client

    def binary(self) -> bytes:
        """The 16 bytes of the id."""
        return self._id

    def hex(self) -> str:
        """The id as 32 hexadecimal digits, as in the lists of `util.state`."""
        return self._id.hex()

    def task_id(self) -> TaskID:
        """The id of the call that makes the value: the same for all of its values."""
        return TaskID(first_of(self._id))

    def job_id(self) -> JobID:
        """The id of the job, as in `get_runtime_context()`."""
        client = current.client_or_none()
        return job_id(client.driver if client is not None else 0)

    def is_nil(self) -> bool:
        """Whether the reference refers to nothing, like `ObjectRef.nil()`."""
        return self._id == _NIL

    @classmethod
    def nil(cls) -> ObjectRef[Any]:
        """Return a reference that refers to nothing."""
        return ObjectRef(_NIL, _GONE)  # type: ignore[arg-type]

    def as_future(self, _internal: bool = False) -> asyncio.Future[T_co]:
        """A future of the value, for the running asyncio loop."""
        import asyncio

        done = self.future()
        waiting: asyncio.Future[T_co] = asyncio.wrap_future(done)
        client, scope = self._client, None
        if client.blocking.lends_cpu and not client.waiting.first_ready([self._id], 1):
            scope = client.line.begin_wait([self._id])
        waiting.add_done_callback(partial(self._stop_waiting, done, scope))
        return waiting

    def _stop_waiting(self, done: Future[Any], scope: Scope | None, waiting: asyncio.Future[object]) -> None:
        if scope is not None:
            self._client.line.end_wait(scope)
        if waiting.cancelled():
            self._client.futures.drop(self._id, done)

    def future(self) -> Future[T_co]:
        """A `concurrent.futures.Future` of the value, or of the error that `get` would raise.

        Cancelling the future does not cancel the call.
        """
        self.check_job()
        return future_of(self)

    def __await__(self) -> Generator[object, None, T_co]:
        """Wait for the value, as `get` does, while other coroutines run."""
        check_loop()
        return self.as_future().__await__()

    def __repr__(self) -> str:
        return f"ObjectRef({self._id.hex()})"

    def _repr_html_(self) -> str:
        from mpi_runtime.show.tables import html_table, in_html

        if self._client.has_ended:
            return f"<p>{in_html(repr(self))}: its job has ended</p>"
        found = self._client.questions.ask(Explain(self._id))
        # "ready" is the word of the scheduler for a call that has its arguments: the value is not there.
        state = "waits" if found.state in ("waiting", "ready", "staging", "lost", "sent") else found.state
        rows = [("state", state), ("of", found.name), ("why", found.why)]
        return html_table((repr(self), ""), [row for row in rows if row[1]])

    def __hash__(self) -> int:
        return hash(self._id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectRef) and self._id == other._id

    def __del__(self) -> None:
        try:
            client, self._client = self._client, _GONE  # type: ignore[assignment]
        except AttributeError:
            return  # Ctrl-C interrupted its constructor
        client.outbox.drop(self._id)

    def __copy__(self) -> ObjectRef[T_co]:
        return self

    def __deepcopy__(self, _: object) -> ObjectRef[T_co]:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        self.check_job()
        note(self._id, self._client)
        return adopt, (self._id,)

    def check_job(self) -> None:
        """Raise `ObjectLostError` if the job of this reference has ended, or is not the one of the caller."""
        if _is_foreign(self._client):
            raise ObjectLostError((_RELEASED if isinstance(self._client, _Gone) else _why(self._client)).format(self))


class _Gone:
    """Replaces the client of a released reference. Members of a garbage cycle can meet such references."""

    has_ended = True

    @property
    def outbox(self) -> _Gone:
        """Like the attribute of a client."""
        return self

    def drop(self, id: bytes, urgent: bool = False) -> None:
        """Do nothing: the reference was released before."""


_GONE = _Gone()
_NIL = b"\xff" * ID_BYTES
_RELEASED = "{} was released already: it is used in a destructor, after its own, or refers to nothing."
_INSIDE = (
    "{} belongs to a call with own_scheduler=True and works only inside it: references and handles do not leave the "
    "call, in its result, its error or a thread. Return the values: get() them inside."
)
_ENDED = "{} belongs to a job that has ended: shutdown() was called since, and ended everything in that job."


_NO_LOOP = (
    "await and async for work on references only in a running loop of asyncio, and this thread has none. With other "
    "libraries, wait in a thread: await trio.to_thread.run_sync(get, ref), or await anyio.to_thread.run_sync(get, ref)."
)


def check_loop() -> None:
    """Raise `RuntimeError` unless a loop of asyncio runs in this thread."""
    import asyncio

    if asyncio._get_running_loop() is None:
        raise RuntimeError(_NO_LOOP)


def _is_foreign(client: Client) -> bool:
    """Whether the caller cannot use references of this client. Forked children have an error of their own."""
    return client.has_ended or (client is not current._client and not current.is_disowned())


def _why(client: Client) -> str:
    """Why a reference of this client cannot be used here."""
    return _INSIDE if client.is_inner else _ENDED


@published()
class ActorRef(ObjectRef[object]):
    """A reference to an actor. Its release is sent at once: a process and its resources may depend on it."""

    __slots__ = ()

    def check_job(self) -> None:
        """Raise `ActorHandleNotFoundError` if the job of this actor has ended, or is not the one of the caller."""
        if _is_foreign(self._client):
            raise ActorHandleNotFoundError(_why(self._client).format(f"Actor {self.hex()}"))

    def __del__(self) -> None:
        try:
            client, self._client = self._client, _GONE  # type: ignore[assignment]
        except AttributeError:
            return
        client.outbox.drop(self._id, urgent=True)

    def __reduce__(self) -> tuple[object, ...]:
        self.check_job()
        note(self._id, self._client)
        return adopt, (self._id, ActorRef)


class WeakActorRef(ActorRef):
    """A reference to an actor that is not counted, and so does not keep the actor alive."""

    __slots__ = ()

    def __del__(self) -> None:
        """Do nothing: this reference was not counted."""

    def __reduce__(self) -> tuple[object, ...]:
        self.check_job()
        return weak_actor, (self._id,)


@published()
def weak_actor(id: bytes) -> WeakActorRef:
    """Return a reference to an actor that is not counted."""
    return WeakActorRef(id, current.client())


@published()
def adopt(id: bytes, kind: type[ObjectRef[object]] = ObjectRef) -> ObjectRef[Any]:
    """Return a reference to an object, or an `ActorRef`, that this process found in a value."""
    client = current.client()
    with client.outbox.interrupts:  # or a counted reference might never be dropped
        client.outbox.adopt(id)
        return kind(id, client)


def keep(ref: ObjectRef[object]) -> None:
    """Add a reference to the same object that lasts until this process ends."""
    ref._client.outbox.keep(ref.binary())


def note(id: bytes, client: Client) -> None:
    """Note that a reference is serialised: the value that holds it keeps it, or this process until its end."""
    if not collecting.note(id):
        client.outbox.keep(id)


def future_of(ref: ObjectRef[T], then: Callable[[Future[T]], None] | None = None) -> Future[T]:
    """Return a future of the value of a reference. `then` is called when it is done, never in the caller's thread."""
    # Not at the top: the module is slow to load, and most programs use no futures.
    from mpi_runtime.core.client.blocking_future import BlockingFuture

    future: BlockingFuture[T] = BlockingFuture()
    if then is not None:
        future.add_done_callback(then)
    ref._client.futures.add(ref.binary(), ref, future)
    return future


def when_done(ref: ObjectRef[T], then: Callable[[Outcome[T]], None]) -> None:
    """Call `then` with the outcome of a reference's call, never in the caller's thread. It must not raise."""
    ref._client.futures.add(ref.binary(), ref, Outcome(then))
