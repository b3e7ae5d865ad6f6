"""`ObjectRef`: the name of a value that exists or will exist.

Each process counts its own references (`Client.counts`): a new `ObjectRef` or a view into the arena adds one, its end
takes one off. Only the first and the last are told to the scheduler.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mpi_runtime import current
from mpi_runtime.errors import ActorDiedError, ObjectLostError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from mpi_runtime.processes.client import Client

T_co = TypeVar("T_co", covariant=True)

_serialising = threading.local()


class ObjectRef(Generic[T_co]):
    """A reference to a value in the global store. Values are fetched with `get`.

    As an argument of a remote call it stands for the value; inside a container it stays a reference. The value is
    kept as long as a reference to it exists anywhere.
    """

    __slots__ = ("__weakref__", "_client", "_id")

    def __init__(self, id: bytes, client: Client) -> None:
        self._id = id
        self._client = client

    def binary(self) -> bytes:
        """The 16 bytes of the id."""
        return self._id

    def hex(self) -> str:
        """The id as 32 hexadecimal digits."""
        return self._id.hex()

    def future(self) -> Future[T_co]:
        """A `concurrent.futures.Future` that gets the value, or the error that `get` would raise.

        Cancelling it does nothing to the call.
        """
        self.check_job()
        return self._client.futures.add(self)

    def __await__(self) -> Generator[Any, None, T_co]:
        """`await ref` in a coroutine is `get(ref)` without holding up the others."""
        import asyncio

        return asyncio.wrap_future(self.future()).__await__()

    def __repr__(self) -> str:
        return f"ObjectRef({self._id.hex()})"

    def __hash__(self) -> int:
        return hash(self._id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectRef) and self._id == other._id

    def __del__(self) -> None:
        self._client.drop(self._id)

    def __copy__(self) -> ObjectRef[T_co]:
        return self

    def __deepcopy__(self, _: object) -> ObjectRef[T_co]:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        self.check_job()
        note(self._id, self._client)
        return adopt, (self._id,)

    def check_job(self) -> None:
        """Raise `ObjectLostError` if the job that this belongs to has ended."""
        if self._client.has_ended:
            raise ObjectLostError(_ENDED.format(self))


_ENDED = "{} belongs to a job that has ended: shutdown() was called since, and everything in that job went with it."


class ActorRef(ObjectRef[Any]):
    """Counts as a handle of an actor. Its end is told at once: a process and its resources may depend on it."""

    __slots__ = ()

    def check_job(self) -> None:
        """Raise `ActorDiedError` if the job that this belongs to has ended."""
        if self._client.has_ended:
            raise ActorDiedError(_ENDED.format(f"Actor {self.hex()}"))

    def __del__(self) -> None:
        self._client.drop(self._id, urgent=True)

    def __reduce__(self) -> tuple[Any, ...]:
        self.check_job()
        note(self._id, self._client)
        return adopt_actor, (self._id,)


class WeakActorRef(ActorRef):
    """Names an actor without keeping it: what a name was looked up for."""

    __slots__ = ()

    def __del__(self) -> None:
        """Nothing was counted."""

    def __reduce__(self) -> tuple[Any, ...]:
        self.check_job()
        return weak_actor, (self._id,)


def weak_actor(id: bytes) -> WeakActorRef:
    """A reference to an actor that does not count."""
    return WeakActorRef(id, current.client())


def adopt(id: bytes) -> ObjectRef[Any]:
    """A reference to an object that this process learnt of by reading a value."""
    return ObjectRef(id, current.client().adopt(id))


def adopt_actor(id: bytes) -> ActorRef:
    """The same for an actor."""
    return ActorRef(id, current.client().adopt(id))


def note(id: bytes, client: Client) -> None:
    """A reference is being serialised: into a value of ours, which will hold it, or elsewhere, and then for ever."""
    found: list[bytes] | None = getattr(_serialising, "found", None)
    if found is None:
        client.keep_for_ever(id)
    else:
        found.append(id)


class Collecting:
    """While entered, references that this thread serialises are gathered in `found`."""

    __slots__ = ("_before", "found")

    def __init__(self) -> None:
        self.found: list[bytes] = []

    def __enter__(self) -> list[bytes]:
        self._before = getattr(_serialising, "found", None)
        _serialising.found = self.found
        return self.found

    def __exit__(self, *_: object) -> None:
        _serialising.found = self._before
