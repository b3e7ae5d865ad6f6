"""Actors: what `@remote` makes of a class, and handles to instances that live in processes of their own."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, NoReturn, ParamSpec, TypeVar, overload

import msgspec

from mpi_runtime import options as option_rules
from mpi_runtime import running, specs
from mpi_runtime.arguments import Parameters, pack
from mpi_runtime.processes.client import Client
from mpi_runtime.processes.scratch import held
from mpi_runtime.refs import ActorRef, ObjectRef, WeakActorRef
from mpi_runtime.remote_function import Code
from mpi_runtime.scheduler.events import Call, Spec, Where
from mpi_runtime.specs import Method

P = ParamSpec("P")
R = TypeVar("R")
if TYPE_CHECKING:
    from typing_extensions import ParamSpec as ParamSpecWithDefault
    from typing_extensions import TypeVar as TypeVarWithDefault

    from mpi_runtime.signatures import Few, MarkedMethod, Submit

    # Those who do not care need not say what class it is.
    T = TypeVarWithDefault("T", default=Any)
    Init = ParamSpecWithDefault("Init", default=...)
else:
    T = TypeVar("T")
    Init = ParamSpec("Init")


SPECIAL_METHODS = ("__ray_call__", "__ray_ready__", "__ray_terminate__")
"""What every actor answers to, besides its own methods: call a function with the instance as first argument; tell that
it is there; end after all calls before this one."""


@overload
def method(function: Callable[Concatenate[Any, P], R], /) -> MarkedMethod[P, R, ObjectRef[R]]: ...
@overload
def method(
    *, num_returns: Literal[0], **options: Any
) -> Callable[[Callable[Concatenate[Any, P], R]], MarkedMethod[P, R, None]]: ...
@overload
def method(
    *, num_returns: Few, **options: Any
) -> Callable[[Callable[Concatenate[Any, P], R]], MarkedMethod[P, R, list[ObjectRef[Any]]]]: ...
@overload
def method(
    *, num_returns: Literal[1] = 1, **options: Any
) -> Callable[[Callable[Concatenate[Any, P], R]], MarkedMethod[P, R, ObjectRef[R]]]: ...
@overload
def method(
    *, num_returns: int | str, **options: Any
) -> Callable[[Callable[Concatenate[Any, P], R]], MarkedMethod[P, R, Any]]: ...


def method(function: Any = None, /, **options: Any) -> Any:
    """Options of one method of an actor class.

    `@method` without options changes nothing but what a type checker knows: of a handle that is said to be of the
    class, with `typing.cast`, it knows what `.remote` of marked methods takes and returns.

    Args:
        function: the method, where there are no options.
        **options: `num_returns`, how many values a call returns; `max_task_retries`, how often a call may be run again
            after its actor died and was started again (-1: without limit); `retry_exceptions`, whether it may be run
            again when it raised, or a list of the exception classes for which it may; `concurrency_group`, one of the
            names in the actor's `concurrency_groups`; `time_limit`, how many seconds a call may take: where the job's
            time ends sooner it is not started.

    Raises:
        ValueError, TypeError: there is no such option, or its value is out of bounds.
    """
    option_rules.check(options, option_rules.METHOD_OPTIONS, "method()")

    def mark(function: Any) -> Any:
        function.__mpi_runtime_options__ = options
        return function

    return mark if function is None else mark(function)


def exit_actor() -> NoReturn:
    """End this actor for good, from inside one of its methods: it is not started again.

    The running call and those that wait raise `ActorDiedError`. Functions registered with `atexit` are run.

    Raises:
        TypeError: this is no actor.
    """
    from mpi_runtime.processes.executor import ActorExit  # not at the top: it is of use in executors only

    executor = running.client().executor
    if executor is None or not executor.actor_id:
        raise TypeError("exit_actor() was called outside of an actor: it ends the actor whose method calls it.")
    raise ActorExit


class ActorClass(Generic[T, Init]):
    """A class whose instances are actors: `C.remote(...)` makes one and returns a handle at once."""

    if not TYPE_CHECKING:
        __class_getitem__ = classmethod(types.GenericAlias)  # so that ActorClass[C] is enough

    def __init__(self, cls: type[T], options: Mapping[str, Any]) -> None:
        option_rules.check(options, option_rules.ACTOR_OPTIONS, "actors")
        option_rules.check_name(options)
        self._class = cls
        self._options = dict(options)
        self._name = cls.__name__
        self._code = Code(cls, self._name)
        self._client: Client | None = None
        self._spec: Spec | None = None
        self._inherited: Where | None = None
        self._holds: list[bytes] = []
        """Objects that each creation needs for its environment."""
        functools.update_wrapper(self, cls, updated=())

    @functools.cached_property
    def _methods(self) -> dict[str, Method]:
        # Not at once: a class that refers to its own actor class arrives in an executor before it is complete.
        found = {
            name: specs.method(getattr(function, "__mpi_runtime_options__", {}), self._options, yields(function))
            for name, function in inspect.getmembers(self._class, callable)
            if not (name.startswith("__") and name.endswith("__")) or name == "__call__"
        }
        groups = {"", *(self._options.get("concurrency_groups") or {})}
        for name, method in found.items():
            if method.group not in groups:
                raise ValueError(
                    f"{self._name}.{name} is of the concurrency group {method.group!r}, which the class does not "
                    f"have: @remote(concurrency_groups={{{method.group!r}: 2}})"
                )
        return found | {name: specs.method({}, self._options) for name in SPECIAL_METHODS}

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: tells what to write instead."""
        raise TypeError(
            f"Actors cannot be instantiated directly. Instead of '{self._name}()', use '{self._name}.remote()'."
        )

    def __mro_entries__(self, _: object) -> NoReturn:
        raise TypeError(
            f"{self._name} is an actor class, and cannot be derived from. Derive from the plain class, and make the "
            "result remote."
        )

    def options(self, **options: Any) -> ActorClass[T, Init]:
        """The same class with other options for the actors made through what is returned.

        Raises:
            ValueError: there is no such option, or its value is out of bounds.
        """
        changed: ActorClass[T, Init] = ActorClass(self._class, {**self._options, **options})
        changed._code = self._code
        return changed

    if TYPE_CHECKING:

        @property
        def remote(self) -> Submit[Init, ActorHandle[T]]: ...  # noqa: D102
    else:

        def remote(self, /, *args: Any, **kwargs: Any) -> ActorHandle:
            """Make an actor. The handle can be used at once; if the constructor raises, every call gets that error.

            Raises:
                TypeError: an argument is missing, unknown, or cannot be serialised.
                ValueError: its name is taken; or no bundle of the placement group in which it is to run can hold it; or
                    its `runtime_env` names a directory that is not there, cannot be read, or is too large.
            """
            self._parameters.check(args, kwargs, self._name)
            client = running.client()
            if client is not self._client or client.inherited is not self._inherited:
                self._prepare(client)
            packed = pack(client, args, kwargs, self._name)
            holds = [*packed.holds, *self._holds]
            call = Call(client.next_ids(1), self._spec.id, packed.payload, packed.arguments, holds)
            if not self._options.get("name"):
                return ActorHandle(client.submit_creation(call), self._name, self._methods)
            return self._create_named(client, call)

    def _prepare(self, client: Client) -> None:
        """Make the class known to the job of this client."""
        environment = specs.environment(client, self._options)
        self._spec = specs.actor_spec(
            self._name, self._code.pickled(), self._options, client.inherited, is_async(self._class), environment
        )
        self._inherited, self._holds = client.inherited, held(environment)
        client.register(self._spec)
        self._client = client

    def _create_named(self, client: Client, creation: Call) -> ActorHandle[T]:
        """Create it under its name, or have a handle to the actor that has the name."""
        name, namespace = self._options["name"], self._options.get("namespace") or client.namespace
        handle = msgspec.msgpack.encode((self._name, self._methods))
        detached = self._options.get("lifetime") == "detached"
        ref, found, handle = client.submit_named(creation, namespace, name, handle, detached)
        if found == creation.id:
            return ActorHandle(ref, self._name, self._methods)
        if self._options.get("get_if_exists"):
            return _weak_handle(client, found, handle)
        raise ValueError(
            f"The name {name!r} is taken{_in(namespace)}: an actor that has it is alive. Take another, get that one "
            "with get_actor(), or either of the two with get_if_exists=True."
        )

    @functools.cached_property
    def _parameters(self) -> Parameters:
        return Parameters.of(self._class)

    def __reduce__(self) -> tuple[Any, ...]:
        return ActorClass, (self._class, specs.portable(self._options))


def get_actor(name: str, namespace: str | None = None) -> ActorHandle[Any]:
    """A handle to the actor with this name. It does not keep the actor alive.

    Args:
        name: as given in `.options(name=...)`.
        namespace: where; by default that of the job (`init(namespace=...)`).

    Raises:
        ValueError: there is no such actor, or none any more.

    Example:
        Counter.options(name="counter").remote()
        mpi_runtime.get_actor("counter").add.remote(1)
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"get_actor() needs a name, a string that is not empty, not {name!r}")
    client = running.client()
    namespace = client.namespace if namespace is None else namespace
    found = client.questions.query("named_actor", msgspec.msgpack.encode((namespace, name)))
    if found is None:
        raise ValueError(
            f"There is no actor with the name {name!r}{_in(namespace)}: none was created under it, or it has ended "
            "since (an actor ends with its last handle, unless it has lifetime='detached')."
        )
    return _weak_handle(client, *found)


def list_named_actors(all_namespaces: bool = False) -> list[Any]:
    """The names of all actors that have one and are alive.

    Returns:
        Names in the job's namespace; with `all_namespaces` dictionaries with "name" and "namespace".
    """
    client = running.client()
    found = client.questions.query("named_actors")
    if all_namespaces:
        return [{"name": name, "namespace": namespace} for namespace, name in found]
    return [name for namespace, name in found if namespace == client.namespace]


def _weak_handle(client: Client, id: bytes, handle: bytes) -> ActorHandle[Any]:
    class_name, methods = msgspec.msgpack.decode(handle, type=tuple[str, dict[str, Method]])
    return ActorHandle(WeakActorRef(id, client), class_name, methods)


def handle_of(id: bytes, cls: type) -> ActorHandle:
    """A handle to the actor with this id, which is of this class. It does not keep the actor alive."""
    return ActorHandle(WeakActorRef(id, running.client()), cls.__name__, ActorClass(cls, {})._methods)


def _in(namespace: str) -> str:
    return f" in the namespace {namespace!r}" if namespace else ""


def is_async(cls: type) -> bool:
    """Whether a class has methods that are coroutines or asynchronous generators: its calls run in an asyncio loop."""
    return any(
        inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)
        for _, member in inspect.getmembers(cls, inspect.isfunction)
    )


def yields(function: object) -> bool:
    """Whether calls of it yield values."""
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


class ActorHandle(Generic[T]):
    """Stands for an actor. Its methods are called with `handle.method.remote(...)`; it can be passed on like any value.

    The actor ends when the last handle is gone and its calls have ended.
    """

    def __init__(self, ref: ActorRef, class_name: str, methods: dict[str, Method]) -> None:
        self._mpi_runtime_ref = ref
        self._mpi_runtime_class = class_name
        self._mpi_runtime_methods = methods

    def __getattr__(self, name: str) -> ActorMethod:
        if name.startswith("_mpi_runtime"):
            raise AttributeError(name)
        known = self._mpi_runtime_methods.get(name)
        if known is None:
            raise AttributeError(
                f"actor class {self._mpi_runtime_class} has no method {name!r}. Attributes of an actor cannot "
                "be read through a handle: write a method that returns them."
            )
        found = ActorMethod(self._mpi_runtime_ref, self._mpi_runtime_class, name, known)
        self.__dict__[name] = found
        return found

    def __repr__(self) -> str:
        return f"Actor({self._mpi_runtime_class}, {self._mpi_runtime_ref.hex()})"

    def __hash__(self) -> int:
        return hash(self._mpi_runtime_ref)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorHandle) and self._mpi_runtime_ref == other._mpi_runtime_ref

    def __reduce__(self) -> tuple[Any, ...]:
        return ActorHandle, (self._mpi_runtime_ref, self._mpi_runtime_class, self._mpi_runtime_methods)


class ActorMethod:
    """One method of an actor. While it exists the actor does, as with a handle."""

    def __init__(self, ref: ActorRef, class_name: str, name: str, method: Method) -> None:
        self._ref = ref
        self._class_name = class_name
        self._name = name
        self._method = method
        self._spec = specs.method_spec(f"{class_name}.{name}", method)
        self._client: Client | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: tells what to write instead."""
        raise TypeError(
            f"Actor methods cannot be called directly. Instead of running 'object.{self._name}()', "
            f"try 'object.{self._name}.remote()'."
        )

    def options(self, **options: Any) -> ActorMethod:
        """The same method with other options: those of `method`.

        Raises:
            ValueError, TypeError: there is no such option, or its value is out of bounds.
        """
        option_rules.check(options, option_rules.METHOD_OPTIONS, "actor methods")
        changed = specs.changed(self._method, options)
        return ActorMethod(self._ref, self._class_name, self._name, changed)

    def remote(self, /, *args: Any, **kwargs: Any) -> Any:
        """Submit a call. Calls from one process run in the order in which they were submitted.

        Returns:
            An `ObjectRef`; a list of them for `num_returns` above 1; None for 0; an `ObjectRefGenerator` for
            "streaming", which is the default of generators.

        Raises:
            TypeError: an argument cannot be serialised.
        """
        self._ref.check_job()
        client, spec = running.client(), self._spec
        if client is not self._client:
            client.register(spec)
            self._client = client
        if args or kwargs:
            packed = pack(client, args, kwargs, spec.name)
            call = Call(
                client.next_ids(spec.num_returns),
                spec.id,
                packed.payload,
                packed.arguments,
                packed.holds,
                self._ref.binary(),
            )
        else:
            call = Call(client.next_ids(spec.num_returns), spec.id, b"", actor=self._ref.binary())
        return client.submit(call, spec)
