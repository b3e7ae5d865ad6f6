"""The functions that a program calls. They are thin: the client of this process does the work."""

from __future__ import annotations

import inspect
import operator
import pickle
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, overload

from mpi_runtime import config as configuration
from mpi_runtime import log, session
from mpi_runtime.calls import options as option_rules
from mpi_runtime.calls import running, specs
from mpi_runtime.calls.actor_class import ActorClass
from mpi_runtime.calls.actor_handle import ActorHandle
from mpi_runtime.calls.remote_function import P, R, RemoteFunction
from mpi_runtime.client import current
from mpi_runtime.client.generators import ObjectRefGenerator
from mpi_runtime.client.refs import ObjectRef
from mpi_runtime.client.submitting import put as put_serialized
from mpi_runtime.errors import MpiRuntimeError, bare
from mpi_runtime.objects import serialize
from mpi_runtime.scheduler.events import CancelRequested, KillRequested

if TYPE_CHECKING:
    from mpi_runtime.calls.signatures import ClassObject, Few, Returning

T = TypeVar("T")
Waitable = TypeVar("Waitable", bound="ObjectRef[Any] | ObjectRefGenerator[Any]")

_READERS: Mapping[str | None, Callable[..., Any]] = {
    None: pickle.loads, "cpu": serialize.loads_on_host, "gpu": serialize.loads_on_device,
}  # fmt: skip
"""The function by which `get` reads a pickled value, by `device`."""
_WITHOUT_MEANING = frozenset((
    "include_dashboard", "dashboard_host", "dashboard_port", "configure_logging", "logging_format", "logging_config",
    "job_config", "local_mode", "allow_multiple", "enable_resource_isolation", "system_reserved_cpu",
    "system_reserved_memory", "_driver_object_store_memory", "_memory", "_metrics_export_port", "_node_ip_address",
    "_node_name", "_plasma_directory", "_redis_password", "_redis_username", "_system_config", "_temp_dir",
    "_tracing_startup_hook",
))  # fmt: skip
"""Arguments of Ray's `init()` for processes, directories and ports that do not exist here."""


class Context(Mapping[str, Any]):
    """The result of `init()`: a mapping with facts about the job, and a context manager that ends it.

    The keys are "address" (always "local"), "ranks" (the number of MPI ranks) and "node_id".
    """

    dashboard_url = ""
    """Always empty: there is no dashboard. Libraries print it."""
    python_version = platform.python_version()

    def __init__(self, facts: dict[str, Any]) -> None:
        self.address_info = facts

    def __getitem__(self, name: str) -> Any:
        return self.address_info[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.address_info)

    def __len__(self) -> int:
        return len(self.address_info)

    def __repr__(self) -> str:
        ranks = self.address_info["ranks"]
        ranks = "1 rank" if ranks == 1 else f"{ranks} ranks"
        return f"<job of {ranks}: it ends with shutdown(), with the block of `with`, or with the program>"

    def _repr_html_(self) -> str:
        from mpi_runtime.context import nodes
        from mpi_runtime.tables import in_html

        running = current.client_or_none() is not None
        return f"<p>{in_html(repr(self))}</p>" + (nodes()._repr_html_() if running else "<p>It has ended.</p>")

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

    Functions that need a job call `init()` without arguments if there is none.

    Args:
        address: None, or "local" or "auto" as in Ray. MPI jobs cannot be joined from outside.
        ignore_reinit_error: return quietly if the job is running already.
        runtime_env: environment of all calls, unless they state their own: variables, a directory to start in,
            modules. The keys are those of `RuntimeEnv`. The driver itself is not changed.
        **arguments: the fields of `Config`, such as `num_cpus`, `num_gpus` and `resources`. `logging_level` is the
            level of the logger `mpi_runtime`. Ray's other arguments for its dashboard and its logging are accepted,
            without effect.

    Returns:
        A mapping with facts about the job. As a context manager it ends the job.

    Raises:
        RuntimeError: the job is running already.
        LaunchError: the ranks were started in a way that cannot work. The message names the cure.
        TypeError, ValueError: an argument is not allowed. The message says which and why.

    Example:
        ```python
        ray.init(num_cpus=4, runtime_env={"working_dir": ".", "env_vars": {"MODE": "fast"}})
        ```
    """
    if address not in (None, "local", "auto"):
        raise ValueError(
            f"init(address={address!r}): a job of MPI ranks cannot be joined by address. Start the program with "
            "`mpirun -n N python app.py` and call init() without an address."
        )
    if (level := arguments.pop("logging_level", None)) is not None:
        import logging  # not at the top: a program that has not loaded it needs none of it

        logging.getLogger(log.NAME).setLevel(level.upper() if isinstance(level, str) else level)
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
            inherited = running_session.client.inherited
            inherited.environment = specs.environment(inherited, {"runtime_env": runtime_env})
        except BaseException:
            session.stop()
            raise
    elif not ignore_reinit_error:
        raise RuntimeError(
            "init() was called, but the job is running already. Call shutdown() first, or pass "
            "ignore_reinit_error=True."
        )
    size = running_session.size if running_session is not None else 0
    return Context({"address": "local", "ranks": size, "node_id": running.client().questions.node_id()})


def shutdown() -> None:
    """End the job, with all its tasks and actors. Without a job it does nothing.

    The end of the program ends the job too. `init()` may be called again.
    """
    session.stop()


def is_initialized() -> bool:
    """Whether the job is running, seen from this process."""
    return current.client_or_none() is not None


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
        *targets: one function or class; none if options are given.
        **options: what the calls need, and how they are run. The guides on tasks and on actors list them.

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


def _make_remote(target: Any, options: dict[str, Any]) -> Any:
    if isinstance(target, (RemoteFunction, ActorClass)):
        raise TypeError(f"{target!r} is remote already; use .options() to change its options")
    if inspect.isclass(target):
        return ActorClass(target, options)
    if not callable(target):
        raise TypeError(f"@remote is for functions and classes, not for {target!r}")
    return RemoteFunction(target, options)


@overload
def get(refs: ObjectRef[T], *, timeout: float | None = None, device: None = None, copy: bool = False) -> T: ...
@overload
def get(
    refs: Sequence[ObjectRef[T]], *, timeout: float | None = None, device: None = None, copy: bool = False
) -> list[T]: ...
@overload
def get(
    refs: ObjectRef[Any], *, timeout: float | None = None, device: Literal["cpu", "gpu"] | None, copy: bool = False
) -> Any: ...
@overload
def get(
    refs: Sequence[ObjectRef[Any]],
    *,
    timeout: float | None = None,
    device: Literal["cpu", "gpu"] | None,
    copy: bool = False,
) -> list[Any]: ...


def get(
    refs: Any, *, timeout: float | None = None, device: Literal["cpu", "gpu"] | None = None, copy: bool = False
) -> Any:
    """Wait for values and return them: one value for a reference, a list of values for a list of references.

    Arrays are read-only: large ones are views of shared memory, where other processes read the same bytes. Of several
    references the first error that is known is raised at once.

    Args:
        refs: an `ObjectRef` or a list of them.
        timeout: the most seconds to wait; None waits without a limit, 0 does not wait.
        device: where to place arrays of cupy and torch that were on a GPU. "gpu": on this process's current GPU, as
            arrays of their library. "cpu": in host memory, as read-only numpy arrays; this needs neither a GPU nor the
            library. None: "gpu" in tasks and actors, and in a driver that already uses a GPU; else "cpu".
        copy: whether arrays are copies that may be written into.

    Returns:
        The value, or the list of values.

    Raises:
        GetTimeoutError: not all values were there in time.
        TaskError: a task raised. The error is also an instance of the class that the task raised.
        DeviceUnavailableError: the value holds an array of a GPU, and this process can use no GPU; see `device`.
        MpiRuntimeError: there is no value for another reason: a crash, a dead actor, a full object store.
        TypeError: with `device="cpu"`, numpy does not have the element type of an array.
        ValueError: `refs` is not a reference or a list of references, or `device` is not one of the above.
    """
    timeout = _seconds(timeout)
    if device not in _READERS:
        raise ValueError(f'get(device={device!r}): it must be None, "cpu" or "gpu"')
    try:
        read = _READERS[device]
        return _get(refs, timeout, serialize.copying(read) if copy else read)
    except MpiRuntimeError as error:
        raise bare(error)


def _get(refs: Any, timeout: float | None, read: Callable[..., Any]) -> Any:
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
            raise TypeError(
                f"Invalid type of object refs, {type(ref)}, is given in a list. Each element must be an ObjectRef."
            )
        ref.check_job()
    return running.client().waiting.get([ref.binary() for ref in refs], timeout, read)


def _seconds(timeout: float | None) -> float | None:
    """The timeout; None if it is longer than any program runs.

    Raises:
        TypeError: it is not a number.
        ValueError: it is nan.
    """
    if timeout is None or 0 <= timeout < _FOREVER_S:
        return timeout
    if timeout != timeout:
        raise ValueError("timeout must be a number of seconds or None, not nan")
    return None if timeout > 0 else timeout


_FOREVER_S = 1e8


def put(value: T) -> ObjectRef[T]:
    """Store a value in the object store, so that many calls can use it.

    Args:
        value: any value that can be serialised.

    Returns:
        A reference to the value.

    Raises:
        TypeError: the value cannot be serialised, or is an `ObjectRef`.
        ObjectStoreFullError: the object store has no room for it.
    """
    if isinstance(value, ObjectRef):
        raise TypeError(
            "Calling 'put' on an ObjectRef is not allowed: it names a stored value already. To store the reference "
            "itself, put it into a list and store that."
        )
    return put_serialized(running.client(), serialize.dumps(value))


def wait(
    refs: Sequence[Waitable], *, num_returns: int = 1, timeout: float | None = None, fetch_local: bool = True
) -> tuple[list[Waitable], list[Waitable]]:
    """Wait until some values are ready. A value that is an error is ready.

    Args:
        refs: different references. They may include generators: a generator is ready if `next` would not wait.
        num_returns: how many to wait for.
        timeout: the most seconds to wait; None waits without a limit, 0 does not wait.
        fetch_local: accepted as in Ray, without effect: `get` brings values here.

    Returns:
        Two lists in the order of `refs`: at most `num_returns` references that are ready, and the rest.

    Raises:
        TypeError: `refs` is not a list of references.
        ValueError: a reference is in the list twice, or `num_returns` or `timeout` is out of bounds.
    """
    del fetch_local
    ids, streams = _what_to_wait_for(refs)
    timeout = _seconds(timeout)
    if not isinstance(num_returns, int):
        raise TypeError(f"num_returns must be a whole number, not {num_returns!r}")
    if timeout is not None and timeout < 0:
        raise ValueError(f"The 'timeout' argument must be nonnegative. Received {timeout}")
    if not refs:
        return [], []
    if num_returns <= 0:
        raise ValueError(f"Invalid number of objects to return {num_returns}.")
    if num_returns > len(refs):
        raise ValueError(f"num_returns cannot be greater than the number of objects: {num_returns} > {len(refs)}")
    waiting = running.client().waiting
    places = waiting.first_ready(ids, num_returns) if not streams else []
    if len(places) == num_returns:  # the frequent case of a loop that takes one after the other
        return _parted(refs, places)
    flags = waiting.wait(ids, num_returns, timeout, streams)
    of_refs, of_generators = iter(flags), iter(flags[len(ids) :])
    ready: list[Waitable] = []
    rest: list[Waitable] = []
    for ref in refs:
        flag = next(of_refs if type(ref) is ObjectRef else of_generators)
        (ready if flag and len(ready) < num_returns else rest).append(ref)
    return ready, rest


def _parted(refs: Sequence[Waitable], places: list[int]) -> tuple[list[Waitable], list[Waitable]]:
    """Those in these places, and the rest."""
    rest: list[Waitable] = []
    begin = 0
    for place in places:
        rest += refs[begin:place]
        begin = place + 1
    rest += refs[begin:]
    return [refs[place] for place in places], rest


def _what_to_wait_for(refs: Any) -> tuple[list[bytes], list[bytes]]:
    """The ids of the references, and the ids of the generators' calls.

    Raises:
        TypeError: `refs` is not a list of references.
        ValueError: a reference is in the list twice.
    """
    if isinstance(refs, (ObjectRef, ObjectRefGenerator)):
        raise TypeError(f"wait() expected a list of ObjectRef, got a single {type(refs).__name__}")
    if not isinstance(refs, (list, tuple)):
        raise TypeError(f"wait() expected a list of ObjectRef, got {type(refs)}")
    ids: list[bytes] = []
    streams: list[bytes] = []
    if set(map(type, refs)) == {ObjectRef}:  # there may be many: nothing here is done for each in Python
        ids, clients = list(map(_ID_OF, refs)), set(map(_CLIENT_OF, refs))
        if len(set(ids)) == len(ids) and not any(client.has_ended for client in clients):
            return ids, streams
        ids.clear()
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


_ID_OF, _CLIENT_OF = operator.attrgetter("_id"), operator.attrgetter("_client")


def kill(actor: ActorHandle[Any], *, no_restart: bool = True) -> None:
    """Kill an actor at once. Calls that have not ended raise `ActorDiedError`.

    Args:
        actor: a handle of the actor.
        no_restart: True: the actor ends for good. False: it is restarted, if `max_restarts` allows it.

    Raises:
        ValueError: `actor` is not a handle.
    """
    if not isinstance(actor, ActorHandle):
        raise ValueError(f"kill() only supports actors. For tasks, let them end. Got: {type(actor)}.")
    actor._mpi_runtime_ref.check_job()
    client = running.client()
    client.outbox.post(KillRequested(actor._mpi_runtime_ref.binary(), no_restart))
    client.outbox.flush()


def cancel(ref: ObjectRef[Any] | ObjectRefGenerator[Any], *, force: bool = False, recursive: bool = True) -> None:
    """Cancel the call that makes a value. `get` of the value then raises `TaskCancelledError`.

    A call that waits is dropped. A running task gets a `KeyboardInterrupt`, even while it waits in `get`; in C code it
    gets it when the C code returns. A coroutine of an actor gets asyncio's `CancelledError`. Other methods that have
    started run to their end, because the actor's state would be left half changed. A call that has ended is not
    changed. The function returns at once.

    Args:
        ref: the result of the call: a reference or a generator.
        force: kill the process of a running task.
        recursive: also cancel the calls that the call has submitted.

    Raises:
        TypeError: `ref` is neither an `ObjectRef` nor an `ObjectRefGenerator`.
        ValueError: `force` is given for a call of an actor that has not ended.
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
    client.outbox.post(CancelRequested(ref.binary(), force, recursive))
    client.outbox.flush()


def explain(ref: ObjectRef[Any]) -> str:
    """Say in words why a value is not there yet: what its call waits for, or where it runs.

    The text also has the unusual events in the life of the call: its process died, it was stolen, its value was lost.

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
    found: dict[str, str] = running.client().questions.query("explain", ref.binary())
    name = f"{found['name']}: " if "name" in found else ""
    story = f" What has happened: {found['story']}." if "story" in found else ""
    return f"{name}{found['state']}. {found['why']}{story}"


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
