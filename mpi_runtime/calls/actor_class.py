"""Actor classes, which `@remote` makes of classes, and handles to actors: instances in processes of their own."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, NoReturn, ParamSpec, TypeVar, overload

import msgspec

from mpi_runtime.calls import options as option_rules
from mpi_runtime.calls import running, specs
from mpi_runtime.calls.arguments import Parameters, pack, parameters_of
from mpi_runtime.calls.code import Code
from mpi_runtime.calls.specs import Method
from mpi_runtime.client.client import Client
from mpi_runtime.client.inherited import Inherited
from mpi_runtime.client.refs import ActorRef, ObjectRef, weak_actor
from mpi_runtime.client.submitting import create_actor, create_named_actor, submit
from mpi_runtime.client.typed_ids import ActorID
from mpi_runtime.errors import PendingCallsLimitExceeded
from mpi_runtime.executor.scratch import held
from mpi_runtime.scheduler.events import Call, Spec, Where

P = ParamSpec("P")
R = TypeVar("R")
if TYPE_CHECKING:
    from typing_extensions import ParamSpec as ParamSpecWithDefault
    from typing_extensions import TypeVar as TypeVarWithDefault

    from mpi_runtime.calls.graphs import ActorNode, Node
    from mpi_runtime.calls.signatures import Few, MarkedMethod, Submit

    # With defaults `ActorHandle` needs no parameters.
    T = TypeVarWithDefault("T", default=Any)
    Init = ParamSpecWithDefault("Init", default=...)
else:
    T = TypeVar("T")
    Init = ParamSpec("Init")


_METHODS_NAMED_MAX = 8
SPECIAL_METHODS = ("__ray_call__", "__ray_ready__", "__ray_terminate__")
"""Methods that every actor has besides its own: call a function with the instance as its first argument; return when
the actor is up; end the actor after all calls before this one."""


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
    """State options of one method of an actor class: `@method(num_returns=2)`.

    `@method` without options is for type checkers. They then know the arguments and the result of `.remote` of the
    method, on a handle whose type names the class (`typing.cast`).

    Args:
        function: the method, if there are no options.
        **options: such as `num_returns`, `max_task_retries`, `retry_exceptions`, `concurrency_group` and `time_limit`.
            The guide on actors lists them.

    Raises:
        ValueError, TypeError: an option does not exist, or its value is out of bounds.
    """
    option_rules.check(options, option_rules.METHOD_OPTIONS, "method()")

    def mark(function: Any) -> Any:
        function.__mpi_runtime_options__ = options
        return function

    return mark if function is None else mark(function)


def exit_actor() -> NoReturn:
    """End this actor for good, from inside one of its methods. It is not restarted.

    The running call and waiting calls raise `ActorDiedError`. Functions registered with `atexit` run.

    Raises:
        TypeError: the caller is not an actor.
    """
    from mpi_runtime.executor.executor import ActorExit  # not at the top: it is of use in executors only

    executor = running.client().executor
    if executor is None or not executor.actor_id:
        raise TypeError("exit_actor() was called outside of an actor: it ends the actor whose method calls it.")
    executor.end_actor()  # first: user code may catch what is raised here, or run in the background
    raise ActorExit


class ActorClass(Generic[T, Init]):
    """A class whose instances are actors. `@remote` makes it; it can be neither called nor derived from.

    `C.remote(...)` creates an actor and returns an `ActorHandle` at once.
    """

    if not TYPE_CHECKING:
        __class_getitem__ = classmethod(types.GenericAlias)  # so that ActorClass[C] is enough

    def __init__(self, cls: type[T], options: Mapping[str, Any]) -> None:
        option_rules.check(options, option_rules.ACTOR_OPTIONS, "actors")
        option_rules.check_name(options)
        self._class = cls
        self._options = dict(options)
        self._name = cls.__name__
        self._code = Code(cls, self._name)
        self._spec: Spec | None = None
        self._inherited: Inherited | None = None
        """For which job, and which call that runs, the spec was made."""
        self._where: Where | None = None
        self._holds: list[bytes] = []
        """Ids of objects that each creation needs for its environment."""
        functools.update_wrapper(self, cls, updated=())

    @functools.cached_property
    def _methods(self) -> dict[str, Method]:
        # Not in the constructor: a class that refers to its own actor class is incomplete when an executor reads it.
        found = {
            name: specs.method(
                getattr(function, "__mpi_runtime_options__", {}),
                self._options,
                yields(function),
                _parameters_of_method(self._class, name, function),
            )
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

    def __getattr__(self, name: str) -> Any:
        # Class attributes and static methods belong to no instance, and are read here.
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._class, name)

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise `TypeError`, with what to write instead."""
        raise TypeError(
            f"Actors cannot be instantiated directly. Instead of '{self._name}()', use '{self._name}.remote()'."
        )

    def __mro_entries__(self, _: object) -> NoReturn:
        raise TypeError(
            f"{self._name} is an actor class, and cannot be derived from. Derive from the plain class, and make the "
            "result remote."
        )

    def options(self, **options: Any) -> ActorClass[T, Init]:
        """The same class with other options.

        Args:
            **options: as for `remote`. Options that are not named stay as they are.

        Returns:
            An actor class. This one is not changed.

        Raises:
            ValueError: an option does not exist, or its value is out of bounds.
        """
        changed: ActorClass[T, Init] = ActorClass(self._class, {**self._options, **options})
        changed._code = self._code
        return changed

    if TYPE_CHECKING:

        @property
        def remote(self) -> Submit[Init, ActorHandle[T]]: ...  # noqa: D102
    else:

        def remote(self, /, *args: Any, **kwargs: Any) -> ActorHandle:
            """Create an actor. The handle can be used at once.

            If the constructor raises, every call of the actor raises that error.

            Args:
                *args: positional arguments of the constructor. An `ObjectRef` stands for its value.
                **kwargs: keyword arguments of the constructor.

            Returns:
                A handle of the actor.

            Raises:
                TypeError: an argument is missing, unknown, or cannot be serialised.
                ValueError: the name is taken; or no bundle of the placement group can hold the actor; or a directory
                    of the `runtime_env` does not exist, cannot be read, or is too large.
            """
            self._parameters.check(args, kwargs, self._name)
            client = running.client()
            if client.inherited is not self._inherited or client.inherited.where is not self._where:
                self._prepare()
            packed = pack(args, kwargs, self._name)
            holds = [*packed.holds, *self._holds]
            call = Call(client.scopes.next_ids(1), self._spec.id, packed.payload, packed.arguments, holds)
            if not self._options.get("name"):
                return ActorHandle(create_actor(client, call), self._name, self._methods)
            return self._create_named(call)

    def bind(self, *args: Any, **kwargs: Any) -> ActorNode:
        """A node of a graph of calls. `execute()` of the node, or of a bound call of a method, creates the actor."""
        from mpi_runtime.calls.graphs import ActorNode

        return ActorNode(self.remote, args, kwargs)

    def _remote(self, args: Any = (), kwargs: Mapping[str, Any] | None = None, **options: Any) -> ActorHandle[T]:
        """Call `.options(**options).remote(*args, **kwargs)`. Libraries use this form."""
        chosen: Any = self.options(**options) if options else self
        made: ActorHandle[T] = chosen.remote(*(args or ()), **(kwargs or {}))
        return made

    def _prepare(self) -> None:
        """Register the class with the job."""
        client = running.client()
        inherited = client.inherited
        environment = specs.environment(inherited, self._options)
        self._spec = specs.actor_spec(
            self._name, self._code.pickled(), self._options, inherited.where, is_async(self._class), environment
        )
        self._holds = held(environment)
        client.register(self._spec)
        self._inherited, self._where = inherited, inherited.where

    def _create_named(self, creation: Call) -> ActorHandle[T]:
        """Create the actor under its name, or return a handle to the actor that has the name."""
        client = running.client()
        name, namespace = self._options["name"], self._options.get("namespace") or client.inherited.namespace
        handle = msgspec.msgpack.encode((self._name, self._methods))
        detached = self._options.get("lifetime") == "detached"
        ref, found, handle = create_named_actor(client, creation, namespace, name, handle, detached)
        if found == creation.id:
            return ActorHandle(ref, self._name, self._methods)
        if self._options.get("get_if_exists"):
            return _weak_handle(found, handle)
        raise ValueError(
            f"The name {name!r} is taken{_in(namespace)}: an actor that has it is alive. Take another, get that one "
            "with get_actor(), or either of the two with get_if_exists=True."
        )

    @functools.cached_property
    def _parameters(self) -> Parameters:
        return Parameters.of(self._class)

    def __repr__(self) -> str:
        usage = f"create an actor with {self._parameters.in_words(f'{self._name}.remote')}"
        return f"<actor class {self._name}{option_rules.in_words(self._options)}: {usage}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return ActorClass, (self._class, specs.portable(self._options))


def get_actor(name: str, namespace: str | None = None) -> ActorHandle[Any]:
    """Find an actor by its name. The handle does not keep the actor alive.

    Args:
        name: the name given in `.options(name=...)`.
        namespace: the namespace of the name; None: that of the job (`init(namespace=...)`).

    Returns:
        A handle of the actor.

    Raises:
        ValueError: no living actor has this name.

    Example:
        ```python
        Counter.options(name="counter").remote()
        mpi_runtime.get_actor("counter").add.remote(1)
        ```
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"get_actor() needs a name, a string that is not empty, not {name!r}")
    client = running.client()
    namespace = client.inherited.namespace if namespace is None else namespace
    found = client.questions.query("named_actor", msgspec.msgpack.encode((namespace, name)))
    if found is None:
        raise ValueError(
            f"There is no actor with the name {name!r}{_in(namespace)}: none was created under it, or it has ended "
            "since (an actor ends with its last handle, unless it has lifetime='detached')."
        )
    return _weak_handle(*found)


def list_named_actors(all_namespaces: bool = False) -> list[Any]:
    """List the names of living actors.

    Args:
        all_namespaces: list the names of all namespaces, not only those of the job's.

    Returns:
        A list of names; with `all_namespaces` a list of dictionaries with "name" and "namespace".
    """
    client = running.client()
    found = client.questions.query("named_actors")
    if all_namespaces:
        return [{"name": name, "namespace": namespace} for namespace, name in found]
    return [name for namespace, name in found if namespace == client.inherited.namespace]


def _weak_handle(id: bytes, handle: bytes) -> ActorHandle[Any]:
    class_name, methods = msgspec.msgpack.decode(handle, type=tuple[str, dict[str, Method]])
    return ActorHandle(weak_actor(id), class_name, methods)


def handle_of(id: bytes, cls: type) -> ActorHandle:
    """A handle to the actor with this id and class. It does not keep the actor alive."""
    return ActorHandle(weak_actor(id), cls.__name__, ActorClass(cls, {})._methods)


def _in(namespace: str) -> str:
    return f" in the namespace {namespace!r}" if namespace else ""


def _parameters_of_method(cls: type, name: str, function: Any) -> tuple[tuple[str, int, bool], ...] | None:
    """The parameters of a method besides the instance; None: they are not known."""
    raw = inspect.getattr_static(cls, name)
    if isinstance(raw, (staticmethod, classmethod)):
        return Parameters.of(function).portable(0)
    return Parameters.of(function).portable(1) if inspect.isfunction(raw) else None


def is_async(cls: type) -> bool:
    """Whether a class has methods that are coroutines or asynchronous generators. Its calls run in an asyncio loop."""
    return any(
        inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)
        for _, member in inspect.getmembers(cls, inspect.isfunction)
    )


def yields(function: object) -> bool:
    """Whether the function is a generator function."""
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


class ActorHandle(Generic[T]):
    """A handle of an actor. `handle.method.remote(...)` submits a call; the handle can be passed on like any value.

    Calls from one process run in the order in which they were submitted. `handle.method.options(...)` takes the options
    of methods. The actor ends when its last handle is gone and its calls have ended. An actor that waits to be created
    is given up when the last process that had a handle has died. Attributes cannot be read through a handle.

    Besides its own methods each actor has `__ray_ready__`, which returns when the actor is up; `__ray_call__`, which
    calls a function with the instance as its first argument; and `__ray_terminate__`, which ends the actor after all
    calls before it.
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
        if known.max_pending:
            found._pending = self.__dict__.setdefault("_mpi_runtime_pending", [])
        self.__dict__[name] = found
        return found

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._mpi_runtime_methods]

    @property
    def _actor_id(self) -> ActorID:
        """The actor's id, under the name that programs written for Ray use."""
        return ActorID(self._mpi_runtime_ref.binary())

    def __repr__(self) -> str:
        own = [name for name in self._mpi_runtime_methods if not name.startswith("_")]
        named = ", ".join(own[:_METHODS_NAMED_MAX]) + (", ..." if len(own) > _METHODS_NAMED_MAX else "")
        usage = f": call a method with .{own[0]}.remote(...); methods: {named}" if own else ""
        return f"Actor({self._mpi_runtime_class}, {self._mpi_runtime_ref.hex()}{usage})"

    def __hash__(self) -> int:
        return hash(self._mpi_runtime_ref)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorHandle) and self._mpi_runtime_ref == other._mpi_runtime_ref

    def __reduce__(self) -> tuple[Any, ...]:
        return ActorHandle, (self._mpi_runtime_ref, self._mpi_runtime_class, self._mpi_runtime_methods)


class ActorMethod:
    """One method of an actor. Like a handle, it keeps the actor alive."""

    def __init__(self, ref: ActorRef, class_name: str, name: str, method: Method) -> None:
        self._ref = ref
        self._class_name = class_name
        self._name = name
        self._method = method
        self._spec = specs.method_spec(f"{class_name}.{name}", method)
        self._client: object = None
        """The client that registered the spec."""
        self._parameters = parameters_of(method.parameters)
        self._pending: list[ObjectRef[Any]] = []
        """Calls of one handle that may be unfinished. Only used with `max_pending_calls`."""

    def __repr__(self) -> str:
        what = f"method {self._class_name}.{self._name} of actor {self._ref.hex()}"
        return f"<{what}: submit a call with .{self._name}.remote(...)>"

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise `TypeError`, with what to write instead."""
        raise TypeError(
            f"Actor methods cannot be called directly. Instead of running 'object.{self._name}()', "
            f"try 'object.{self._name}.remote()'."
        )

    def options(self, **options: Any) -> ActorMethod:
        """The same method with other options, those of `method`.

        Raises:
            ValueError, TypeError: an option does not exist, or its value is out of bounds.
        """
        option_rules.check(options, option_rules.METHOD_OPTIONS, "actor methods")
        changed = ActorMethod(self._ref, self._class_name, self._name, specs.changed(self._method, options))
        changed._pending = self._pending
        return changed

    def remote(self, /, *args: Any, **kwargs: Any) -> Any:
        """Submit a call. Calls from one process run in the order in which they were submitted.

        Returns:
            An `ObjectRef`; a list of them for `num_returns` above 1; None for 0; an `ObjectRefGenerator` for
            "streaming", the default of generators.

        Raises:
            TypeError: an argument is missing, unknown, or cannot be serialised.
            PendingCallsLimitExceeded: this handle has `max_pending_calls` unfinished calls.
        """
        self._parameters.check(args, kwargs, self._spec.name)
        self._ref.check_job()
        client, spec = running.client(), self._spec
        if self._method.max_pending:
            self._check_pending(client)
        if client is not self._client:
            client.register(spec)
            self._client = client
        if args or kwargs:
            packed = pack(args, kwargs, spec.name)
            call = Call(
                client.scopes.next_ids(spec.num_returns),
                spec.id,
                packed.payload,
                packed.arguments,
                packed.holds,
                self._ref.binary(),
            )
        else:
            call = Call(client.scopes.next_ids(spec.num_returns), spec.id, b"", actor=self._ref.binary())
        submitted = submit(client, call, spec)
        if self._method.max_pending:
            first = submitted[0] if isinstance(submitted, list) else submitted
            if isinstance(first, ObjectRef):
                self._pending.append(first)
        return submitted

    def _check_pending(self, client: Client) -> None:
        if len(self._pending) < self._method.max_pending:
            return
        ready = client.waiting.wait([ref.binary() for ref in self._pending], len(self._pending), 0)
        self._pending[:] = [ref for ref, is_ready in zip(self._pending, ready, strict=True) if not is_ready]
        if len(self._pending) >= self._method.max_pending:
            raise PendingCallsLimitExceeded(
                f"{len(self._pending)} calls of this handle of {self._class_name} are under way, and max_pending_calls "
                f"is {self._method.max_pending}: wait for some of them first."
            )

    def bind(self, *args: Any, **kwargs: Any) -> Node:
        """A node of a graph of calls. Its method `execute()` submits the call."""
        from mpi_runtime.calls.graphs import Node

        return Node(self.remote, args, kwargs)

    def _remote(self, args: Any = (), kwargs: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """Call `.options(**options).remote(*args, **kwargs)`. Libraries use this form."""
        return (self.options(**options) if options else self).remote(*(args or ()), **(kwargs or {}))

    def __reduce__(self) -> tuple[Any, ...]:
        return ActorMethod, (self._ref, self._class_name, self._name, self._method)
