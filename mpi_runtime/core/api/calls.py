"""The public functions `remote`, `kill`, `cancel` and `explain`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, overload

from mpi_runtime.core import published
from mpi_runtime.core.calls.actor_class import ActorClass
from mpi_runtime.core.calls.actor_handle import ActorHandle
from mpi_runtime.core.calls.remote_function import P, R, RemoteFunction
from mpi_runtime.core.client.generators import ObjectRefGenerator
from mpi_runtime.core.client.object_ref import ObjectRef
from mpi_runtime.core.driver import running
from mpi_runtime.errors import arguments as checks
from mpi_runtime.scheduler.protocol.events import CancelRequested, KillRequested
from mpi_runtime.scheduler.protocol.questions import Explain, Tasks

if TYPE_CHECKING:
    from mpi_runtime.core.calls.signatures import ClassObject, Few, Returning

T = TypeVar("T")


class MakesRemote(Protocol):
    """The type of `remote(num_cpus=2)`, for type checkers."""

    @overload
    def __call__(self, target: ClassObject[P, T], /) -> ActorClass[T, P]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, target: type[T], /) -> ActorClass[T]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, target: Callable[P, R], /) -> RemoteFunction[P, R]: ...


# Of the two for classes mypy takes the first, which knows the arguments of the constructor; pyright takes the second.
@overload
def remote(target: ClassObject[P, T], /) -> ActorClass[T, P]: ...  # type: ignore[overload-overlap]
@overload
def remote(target: type[T], /) -> ActorClass[T]: ...  # type: ignore[overload-overlap]
@overload
def remote(target: Callable[P, R], /) -> RemoteFunction[P, R]: ...
@overload
def remote(*, num_returns: Literal[1], **options: object) -> MakesRemote: ...
@overload
def remote(*, num_returns: Literal[0], **options: object) -> Callable[[Callable[P, Any]], Returning[P, None]]: ...
@overload
def remote(
    *, num_returns: Few, **options: object
) -> Callable[[Callable[P, Any]], Returning[P, list[ObjectRef[Any]]]]: ...
@overload
def remote(
    *, num_returns: Literal["streaming"], **options: object
) -> Callable[[Callable[P, Iterable[T]]], Returning[P, ObjectRefGenerator[T]]]: ...
@overload
def remote(*, num_returns: int | str, **options: object) -> Callable[[Any], Any]: ...
@overload
def remote(**options: Any) -> MakesRemote: ...


@published()
def remote(*targets: Any, **options: object) -> Any:
    """Make a function a remote function, or a class an actor class: `@remote` or `@remote(num_cpus=2)`.

    Args:
        *targets: one function or class, without options.
        **options: resources of the calls, and how they run. The guides on tasks and on actors list them.

    Returns:
        A `RemoteFunction` for a function, an `ActorClass` for a class; with options a decorator that returns one.

    Raises:
        TypeError: the target is neither a function nor a class, or options were given by position.
        ValueError: an option does not exist, or its value is out of bounds.
    """
    if len(targets) == 1 and not options and callable(targets[0]):
        return _make_remote(targets[0], {})
    if targets or not options:
        raise TypeError(
            "The @remote decorator must be applied either with no arguments and no parentheses, '@remote', or with "
            "options by keyword, '@remote(num_cpus=2, num_returns=2)'."
        )
    return lambda target: _make_remote(target, options)


def _make_remote(target: object, options: dict[str, object]) -> object:
    if isinstance(target, (RemoteFunction, ActorClass)):
        raise TypeError(f"{target!r} is remote already; use .options() to change its options")
    if inspect.isclass(target):
        return ActorClass(target, options)
    if not callable(target):
        raise TypeError(f"@remote is for functions and classes, not for {target!r}")
    return RemoteFunction(target, options)


@published()
def kill(actor: ActorHandle[Any], *, no_restart: bool = True) -> None:
    """Kill an actor at once. Calls that have not ended raise `ActorDiedError`.

    Args:
        actor: a handle of the actor.
        no_restart: True: the actor ends for good. False: it is restarted, if `max_restarts` allows it.

    Raises:
        ValueError: `actor` is not a handle.
        TypeError: `no_restart` is neither True nor False.
    """
    if not isinstance(actor, ActorHandle):
        raise ValueError(f"kill() is for actors, not for {type(actor)}. To end a task: cancel() of its reference.")
    checks.check_bool("no_restart", no_restart)
    actor._mpi_runtime_ref.check_job()
    client = running.client()
    client.outbox.request(KillRequested(actor._mpi_runtime_ref.binary(), no_restart))
    client.outbox.flush()


@published()
def cancel(ref: ObjectRef[object] | ObjectRefGenerator[object], *, force: bool = False, recursive: bool = True) -> None:
    """Cancel the call that makes a value. `get` of the value then raises `TaskCancelledError`.

    A waiting call is dropped. A running task gets a `KeyboardInterrupt`, even while it waits in `get`; in C code it
    gets it when the C code returns. A coroutine of an actor gets asyncio's `CancelledError`. Other methods that have
    started run to their end, because the actor's state would be left half changed, but their values are lost. A call
    that has ended is not changed. The function returns at once.

    Args:
        ref: the result of the call: a reference or a generator.
        force: kill the process of a running task.
        recursive: also cancel the calls that the call has submitted. Calls that it submits after it was interrupted, in
            order to clean up, run.

    Raises:
        TypeError: `ref` is neither an `ObjectRef` nor an `ObjectRefGenerator`, or `force` or `recursive` is not a bool.
        ValueError: `force` is given for a call of an actor that has not ended.
    """
    if isinstance(ref, ObjectRefGenerator):
        ref = ref.completed()
    if isinstance(ref, ActorHandle):
        raise TypeError(f"cancel() is for the calls of tasks and methods, not for {ref!r}. To end an actor: kill().")
    if not isinstance(ref, ObjectRef):
        raise TypeError(f"cancel() only supports object refs, got: {type(ref)}.")
    checks.check_bool("force", force)
    checks.check_bool("recursive", recursive)
    ref.check_job()
    client = running.client()
    if force and any(call.type == "ACTOR_TASK" for call in client.questions.ask(Tasks(ref.binary()))):
        raise ValueError(
            "force=True is not supported for actor tasks: it would end the actor, which others may use. To end an "
            "actor: kill(). Without force the call is dropped if it waits, and a coroutine is interrupted."
        )
    client.outbox.request(CancelRequested(ref.binary(), force, recursive))
    client.outbox.flush()


@published()
def explain(ref: ObjectRef[object]) -> str:
    """Explain why a value has not arrived: what its call waits for, or where it runs.

    The text also has the unusual events in the life of the call: its process died, it was stolen, its value was lost.
    For a call with large arguments it names their hosts, and whether the call waits for one. For a value that has
    arrived it says where it is, and why its arrays are read-only.

    Args:
        ref: a reference to the value.

    Returns:
        The explanation.

    Raises:
        ObjectLostError: the reference belongs to a job that has ended.
        TypeError: `ref` is not a reference.
    """
    if not isinstance(ref, ObjectRef):
        raise TypeError(f"explain() is about the value of an ObjectRef, not about {ref!r}")
    ref.check_job()
    found = running.client().questions.ask(Explain(ref.binary()))
    name = f"{found.name}: " if found.name else ""
    story = f" What has happened: {found.story}." if found.story else ""
    return f"{name}{found.state}. {found.why}{story}"
