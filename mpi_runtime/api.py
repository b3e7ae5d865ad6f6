"""The functions a program calls: thin, on the client of this process."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, overload

from mpi_runtime import config as configuration
from mpi_runtime import current, running, session, specs
from mpi_runtime import options as option_rules
from mpi_runtime.actors import ActorClass, ActorHandle
from mpi_runtime.errors import MpiRuntimeError
from mpi_runtime.generators import ObjectRefGenerator
from mpi_runtime.objects import serialize
from mpi_runtime.refs import ObjectRef
from mpi_runtime.remote_function import P, R, RemoteFunction
from mpi_runtime.scheduler.events import Cancelled, Killed

if TYPE_CHECKING:
    from mpi_runtime.signatures import ClassObject, Few, Returning

T = TypeVar("T")
Waitable = TypeVar("Waitable", bound="ObjectRef[Any] | ObjectRefGenerator[Any]")

_WITHOUT_MEANING = frozenset(
    ("include_dashboard", "dashboard_host", "dashboard_port", "configure_logging", "logging_level", "logging_format")
)


class Context(Mapping[str, Any]):
    """What `init()` returns: a mapping with facts about the job, and a context manager that ends it."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.address_info = facts

    def __getitem__(self, name: str) -> Any:
        return self.address_info[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.address_info)

    def __len__(self) -> int:
        return len(self.address_info)

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        shutdown()

    def disconnect(self) -> None:
        """End the job, like `shutdown()`."""
        shutdown()


def init(
    address: str | None = None,
    *,
    ignore_reinit_error: bool = False,
    runtime_env: dict[str, Any] | None = None,
    **arguments: Any,
) -> Context:
    """Start the job. On ranks above 0 it does not return: they become workers.

    Args:
        address: must be None or "local": MPI jobs cannot be joined from outside.
        ignore_reinit_error: return quietly if the job is running already.
        runtime_env: what all calls find in their environment, unless they say otherwise: variables, a copy of a
            directory to start in, modules. See `mpi_runtime.runtime_env`. The driver itself stays as it is.
        **arguments: the fields of `Config`: `num_cpus`, `num_gpus`, `resources` (amounts of each node, believed
            as stated), `memory`, `object_store_memory`, `log_to_driver`, `start_timeout_s` and others. Ray's arguments
            for its dashboard and its own logging are accepted: there is neither here.

    Returns:
        A mapping with facts about the job, which as a context manager ends it.

    Raises:
        RuntimeError: the job is running already.
        LaunchError: the ranks were started in a way that cannot work; names the cure.
        TypeError, ValueError: an argument is not allowed; says which and why.

    Example:
        ray.init(num_cpus=4, runtime_env={"working_dir": ".", "env_vars": {"MODE": "fast"}})
    """
    if address not in (None, "local", "auto"):
        raise ValueError(
            f"init(address={address!r}): a job of MPI ranks cannot be joined by address. Start the program with "
            "`mpirun -n N python app.py` and call init() without an address."
        )
    config = configuration.from_init(
        **{name: value for name, value in arguments.items() if name not in _WITHOUT_MEANING}
    )
    if runtime_env is not None:
        option_rules.check({"runtime_env": runtime_env}, ("runtime_env",), "init()")
    client = current.client_or_none()
    running_session = session.session()
    if client is None:
        running_session = session.start(config)
        try:
            running_session.client.environment = specs.environment(running_session.client, {"runtime_env": runtime_env})
        except BaseException:
            session.stop()
            raise
    elif not ignore_reinit_error:
        raise RuntimeError(
            "init() was called, but the job is running already. Call shutdown() first, or pass "
            "ignore_reinit_error=True."
        )
    return Context({"address": "local", "ranks": running_session.size if running_session is not None else 0})


def shutdown() -> None:
    """End the job: all tasks and actors with it. Does nothing if none is running."""
    session.stop()


def is_initialized() -> bool:
    """Whether the job is running, seen from this process."""
    return current.client_or_none() is not None


class MakesRemote(Protocol):
    """What `remote(num_cpus=2)` returns, for type checkers."""

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
def remote(*, num_returns: Literal[1], **options: Any) -> MakesRemote: ...
@overload
def remote(*, num_returns: Literal[0], **options: Any) -> Callable[[Callable[P, Any]], Returning[P, None]]: ...
@overload
def remote(*, num_returns: Few, **options: Any) -> Callable[[Callable[P, Any]], Returning[P, list[ObjectRef[Any]]]]: ...
@overload
def remote(
    *, num_returns: Literal["streaming"], **options: Any
) -> Callable[[Callable[P, Iterable[T]]], Returning[P, ObjectRefGenerator[T]]]: ...
@overload
def remote(*, num_returns: int | str, **options: Any) -> Callable[[Any], Any]: ...
@overload
def remote(**options: Any) -> MakesRemote: ...


def remote(*targets: Any, **options: Any) -> Any:
    """Make a function a remote function, or a class an actor class: `@remote` or `@remote(num_cpus=2)`.

    Args:
        *targets: one function or class; none where options are given.
        **options: what the calls need and how they are treated; docs/api lists them.

    Raises:
        TypeError: it is neither a function nor a class, or options were given by position.
        ValueError: there is no such option, or its value is out of bounds.
    """
    if len(targets) == 1 and not options and callable(targets[0]):
        return _make_remote(targets[0], {})
    if targets or not options:
        raise TypeError(
            "The @remote decorator must be applied either with no arguments and no parentheses, '@remote', or with "
            "options by keyword, '@remote(num_cpus=2, num_returns=2)'."
        )
    return lambda target: _make_remote(target, options)


def _make_remote(target: Any, options: dict[str, Any]) -> Any:
    if isinstance(target, (RemoteFunction, ActorClass)):
        raise TypeError(f"{target!r} is remote already; use .options() to change its options")
    if inspect.isclass(target):
        return ActorClass(target, options)
    if not callable(target):
        raise TypeError(f"@remote is for functions and classes, not for {target!r}")
    return RemoteFunction(target, options)


@overload
def get(refs: ObjectRef[T], *, timeout: float | None = None, device: None = None) -> T: ...
@overload
def get(refs: Sequence[ObjectRef[T]], *, timeout: float | None = None, device: None = None) -> list[T]: ...
@overload
def get(refs: ObjectRef[Any], *, timeout: float | None = None, device: Literal["cpu"] | None) -> Any: ...
@overload
def get(
    refs: Sequence[ObjectRef[Any]], *, timeout: float | None = None, device: Literal["cpu"] | None
) -> list[Any]: ...


def get(refs: Any, *, timeout: float | None = None, device: Literal["cpu"] | None = None) -> Any:
    """Wait for values and return them: one for a reference, a list for a list.

    Args:
        refs: an `ObjectRef` or a list of them.
        timeout: seconds to wait at most; None for as long as it takes.
        device: where arrays of cupy and torch that were on a GPU are to be. None: on this process's current GPU, as
            arrays of their library again. "cpu": in memory, as read-only numpy arrays; needs neither GPU nor library.

    Raises:
        GetTimeoutError: not all values were there in time.
        TaskError: a task raised; also an instance of the class that it raised.
        DeviceUnavailableError: an array that was on a GPU, and this process can use none; see `device`.
        MpiRuntimeError: another reason why there is no value: a crash, a dead actor, no room.
        TypeError: with `device="cpu"`, a type of elements that numpy does not have.
        ValueError: something that is not a reference was given, or another device.
    """
    if device is not None and device != "cpu":
        raise ValueError(f'get(device={device!r}): it must be None or "cpu"')
    read = pickle.loads if device is None else serialize.loads_on_host
    if type(refs) is ObjectRef:
        refs.check_job()
        return running.client().waiting.get((refs.binary(),), timeout, read)[0]
    if not isinstance(refs, (list, tuple)):
        raise ValueError(
            f"Invalid type of object refs, {type(refs)}, is given. 'refs' must either be an ObjectRef or a list of "
            "ObjectRefs."
        )
    for ref in refs:
        if type(ref) is not ObjectRef:
            raise ValueError(
                f"Invalid type of object refs, {type(ref)}, is given in a list. Each element must be an ObjectRef."
            )
        ref.check_job()
    return running.client().waiting.get([ref.binary() for ref in refs], timeout, read)


def put(value: T) -> ObjectRef[T]:
    """Store a value, so that many calls can use it without passing it each time.

    Raises:
        TypeError: it cannot be serialised, or is an `ObjectRef`.
        ObjectStoreFullError: there is no room for it.
    """
    if isinstance(value, ObjectRef):
        raise TypeError(
            "Calling 'put' on an ObjectRef is not allowed: it names a stored value already. To store the reference "
            "itself, put it into a list and store that."
        )
    return running.client().store.put(value)


def wait(
    refs: Sequence[Waitable], *, num_returns: int = 1, timeout: float | None = None, fetch_local: bool = True
) -> tuple[list[Waitable], list[Waitable]]:
    """Wait until some objects are ready or have failed.

    Args:
        refs: different references. A generator may stand among them: it is ready when `next` would not wait, because
            an item has come or none will come any more.
        num_returns: how many to wait for.
        timeout: seconds to wait at most; None for as long as it takes, 0 to look only.
        fetch_local: accepted for Ray's sake: values are brought here by `get`.

    Returns:
        Two lists in the order of `refs`: at most `num_returns` that are ready, and the rest.

    Raises:
        TypeError, ValueError: not a list of different references, or `num_returns` out of bounds.
    """
    del fetch_local
    ids, streams = _what_to_wait_for(refs)
    if timeout is not None and timeout < 0:
        raise ValueError(f"The 'timeout' argument must be nonnegative. Received {timeout}")
    if not refs:
        return [], []
    if num_returns <= 0:
        raise ValueError(f"Invalid number of objects to return {num_returns}.")
    if num_returns > len(refs):
        raise ValueError(f"num_returns cannot be greater than the number of objects: {num_returns} > {len(refs)}")
    flags = running.client().waiting.wait(ids, num_returns, timeout, streams)
    of_refs, of_generators = iter(flags), iter(flags[len(ids) :])
    ready: list[Waitable] = []
    rest: list[Waitable] = []
    for ref in refs:
        flag = next(of_refs if type(ref) is ObjectRef else of_generators)
        (ready if flag and len(ready) < num_returns else rest).append(ref)
    return ready, rest


def _what_to_wait_for(refs: Any) -> tuple[list[bytes], list[bytes]]:
    """The ids of references, and of the calls of generators.

    Raises:
        TypeError, ValueError: not a list of different ones.
    """
    if isinstance(refs, (ObjectRef, ObjectRefGenerator)):
        raise TypeError(f"wait() expected a list of ObjectRef, got a single {type(refs).__name__}")
    if not isinstance(refs, (list, tuple)):
        raise TypeError(f"wait() expected a list of ObjectRef, got {type(refs)}")
    ids: list[bytes] = []
    streams: list[bytes] = []
    for ref in refs:
        if type(ref) is ObjectRef:
            ref.check_job()
            ids.append(ref.binary())
        elif type(ref) is ObjectRefGenerator:
            ref.completed().check_job()
            streams.append(ref.completed().binary())
        else:
            raise TypeError(f"wait() expected a list of ObjectRef, got a list that contains {type(ref)}")
    if len(set(ids)) + len(set(streams)) != len(refs):
        raise ValueError("Wait requires a list of unique object refs.")
    return ids, streams


def kill(actor: ActorHandle[Any], *, no_restart: bool = True) -> None:
    """Kill an actor at once. Calls that have not ended raise `ActorDiedError`.

    Args:
        actor: a handle of it.
        no_restart: end it for good; False: it is started again, if `max_restarts` allows that.

    Raises:
        ValueError: not a handle of an actor.
    """
    if not isinstance(actor, ActorHandle):
        raise ValueError(f"kill() only supports actors. For tasks, let them end. Got: {type(actor)}.")
    actor._mpi_runtime_ref.check_job()
    client = running.client()
    client.outbox.post(Killed(actor._mpi_runtime_ref.binary(), no_restart))
    client.outbox.flush()


def cancel(ref: ObjectRef[Any] | ObjectRefGenerator[Any], *, force: bool = False, recursive: bool = True) -> None:
    """Have the call that makes a value not run, or not run on. `get` of it then raises `TaskCancelledError`.

    A call that waits is dropped. A task that runs gets a `KeyboardInterrupt`, even where it waits in `get`; one that
    is deep in C code gets it when that returns. A coroutine of an actor gets asyncio's `CancelledError`; other methods
    run on once they have started, since the actor's state would be left half changed. Of a call that has ended
    nothing changes. Returns at once.

    Args:
        ref: what a call returned: a reference or a generator.
        force: kill the process of a task that runs.
        recursive: cancel too what the call has submitted.

    Raises:
        TypeError: neither an `ObjectRef` nor an `ObjectRefGenerator`.
        ValueError: `force` for a call of an actor that has not ended.
    """
    if isinstance(ref, ObjectRefGenerator):
        ref = ref.completed()
    if isinstance(ref, ActorHandle):
        raise TypeError(f"cancel() is for the calls of tasks and methods, not for {ref!r}. To end an actor: kill().")
    if not isinstance(ref, ObjectRef):
        raise TypeError(f"cancel() only supports object refs, got: {type(ref)}.")
    ref.check_job()
    client = running.client()
    if force and any(call["type"] == "ACTOR_TASK" for call in client.questions.query("tasks", ref.binary())):
        raise ValueError(
            "force=True is not supported for actor tasks: it would end the actor, which others may use. To end an "
            "actor: kill(). Without force the call is dropped if it waits, and a coroutine is interrupted."
        )
    client.outbox.post(Cancelled(ref.binary(), force, recursive))
    client.outbox.flush()


def explain(ref: ObjectRef[Any]) -> str:
    """Why the value of a reference is not there yet, in words: what its call waits for, or where it runs.

    Raises:
        ObjectLostError: the reference belongs to a job that has ended.
    """
    ref.check_job()
    found: dict[str, str] = running.client().questions.query("explain", ref.binary())
    name = f"{found['name']}: " if "name" in found else ""
    return f"{name}{found['state']}. {found['why']}"


__all__ = [
    "Context",
    "MpiRuntimeError",
    "cancel",
    "explain",
    "get",
    "init",
    "is_initialized",
    "kill",
    "put",
    "remote",
    "shutdown",
    "wait",
]
