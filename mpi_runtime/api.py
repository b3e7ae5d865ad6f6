"""The functions that a program calls: those for jobs and calls, and those of `values.py`.

They are thin: the client of this process does the work.
"""

from __future__ import annotations

import inspect
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, overload

from mpi_runtime import checks, log, session
from mpi_runtime import config as configuration
from mpi_runtime.calls import options as option_rules
from mpi_runtime.calls import running, specs
from mpi_runtime.calls.actor_class import ActorClass
from mpi_runtime.calls.actor_handle import ActorHandle
from mpi_runtime.calls.remote_function import P, R, RemoteFunction
from mpi_runtime.client import current
from mpi_runtime.client.generators import ObjectRefGenerator
from mpi_runtime.client.refs import ObjectRef
from mpi_runtime.errors import MpiRuntimeError
from mpi_runtime.scheduler.events import CancelRequested, KillRequested
from mpi_runtime.values import get, put, wait

if TYPE_CHECKING:
    from mpi_runtime.calls.signatures import ClassObject, Few, Returning

T = TypeVar("T")

_WITHOUT_MEANING = frozenset((
    "include_dashboard", "dashboard_host", "dashboard_port", "configure_logging", "logging_format", "logging_config",
    "job_config", "local_mode", "allow_multiple", "enable_resource_isolation", "system_reserved_cpu",
    "system_reserved_memory", "_driver_object_store_memory", "_memory", "_metrics_export_port", "_node_ip_address",
    "_node_name", "_plasma_directory", "_redis_password", "_redis_username", "_system_config", "_temp_dir",
    "_tracing_startup_hook",
))  # fmt: skip
"""Arguments of Ray's `init()` for processes, directories and ports that do not exist here."""


LEVEL_MAX = 1_000_000
"""The largest level of logging."""


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

        if not isinstance(level, str):
            checks.check_whole("logging_level", level, 0, LEVEL_MAX)
        logging.getLogger(log.NAME).setLevel(level.upper() if isinstance(level, str) else level)
    config = configuration.from_init(
        **{name: value for name, value in arguments.items() if name not in _WITHOUT_MEANING}
    )
    if runtime_env is not None:
        option_rules.check({"runtime_env": runtime_env}, ("runtime_env",), "init()")
    client = current.client_or_none()
    if client is None:
        inherited = session.start(config).client.inherited
        try:
            inherited.environment = specs.environment(inherited, {"runtime_env": runtime_env})
        except BaseException:
            session.stop()
            raise
    elif not ignore_reinit_error:
        raise RuntimeError(
            "init() was called, but the job is running already. Call shutdown() first, or pass "
            "ignore_reinit_error=True."
        )
    questions = running.client().questions
    ranks = sum(len(node["ranks"]) for node in questions.query("nodes"))
    return Context({"address": "local", "ranks": ranks, "node_id": questions.node_id()})


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
    if force and any(call["type"] == "ACTOR_TASK" for call in client.questions.query("tasks", ref.binary())):
        raise ValueError(
            "force=True is not supported for actor tasks: it would end the actor, which others may use. To end an "
            "actor: kill(). Without force the call is dropped if it waits, and a coroutine is interrupted."
        )
    client.outbox.request(CancelRequested(ref.binary(), force, recursive))
    client.outbox.flush()


def explain(ref: ObjectRef[Any]) -> str:
    """Say in words why a value is not there yet: what its call waits for, or where it runs.

    The text also has the unusual events in the life of the call: its process died, it was stolen, its value was lost.
    Of a call with large arguments it says on which hosts they lie, and whether the call waits for that host. Of a value
    that is there it says where it is, and why its arrays are read-only.

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
