"""Actors: what `@remote` makes of a class, and handles to instances that live in processes of their own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Generic, NoReturn, TypeVar

import msgspec

from mpi_runtime import options as option_rules
from mpi_runtime import running
from mpi_runtime.arguments import Parameters, pack
from mpi_runtime.processes.client import Client
from mpi_runtime.refs import ActorRef, ObjectRef, WeakActorRef
from mpi_runtime.remote_function import dump_code
from mpi_runtime.scheduler.events import Call, Spec

T = TypeVar("T")


def method(*, num_returns: int = 1) -> Callable[[T], T]:
    """Options of one method of an actor class: how many values a call of it returns."""
    option_rules.check({"num_returns": num_returns}, ("num_returns",), "method()")

    def mark(function: T) -> T:
        function.__mpi_runtime_num_returns__ = num_returns  # type: ignore[attr-defined]
        return function

    return mark


class ActorClass(Generic[T]):
    """A class whose instances are actors: `C.remote(...)` makes one and returns a handle at once."""

    def __init__(self, cls: type[T], options: Mapping[str, Any]) -> None:
        option_rules.check(options, option_rules.ACTOR_OPTIONS, "actors")
        option_rules.check_name(options)
        self._class = cls
        self._options = dict(options)
        self._name = cls.__name__
        self._spec: Spec | None = None
        functools.update_wrapper(self, cls, updated=())

    @functools.cached_property
    def _methods(self) -> dict[str, int]:
        # Not at once: a class that refers to its own actor class arrives in an executor before it is complete.
        return {
            name: getattr(function, "__mpi_runtime_num_returns__", 1)
            for name, function in inspect.getmembers(self._class, callable)
            if not (name.startswith("__") and name.endswith("__")) or name == "__call__"
        }

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

    def options(self, **options: Any) -> ActorClass[T]:
        """The same class with other options for the actors made through what is returned.

        Raises:
            ValueError: there is no such option, or its value is out of bounds.
        """
        changed = ActorClass(self._class, {**self._options, **options})
        if "_pickled" in self.__dict__:
            changed._pickled = self._pickled
        return changed

    def remote(self, /, *args: Any, **kwargs: Any) -> ActorHandle:
        """Make an actor. The handle can be used at once; if the constructor raises, every call gets that error.

        Raises:
            TypeError: an argument is missing, unknown, or cannot be serialised.
        """
        self._parameters.check(args, kwargs, self._name)
        client = running.client()
        if self._spec is None:
            self._spec = option_rules.actor_spec(self._name, self._pickled, self._options)
        client.register(self._spec)
        packed = pack(client, args, kwargs, self._name)
        call = Call(client.next_ids(1), self._spec.id, packed.payload, packed.arguments, packed.holds)
        if self._options.get("name"):
            other = self._claim_name(client, call.id)
            if other is not None:
                return other
        return ActorHandle(client.submit_creation(call), self._name, self._methods)

    def _claim_name(self, client: Client, id: bytes) -> ActorHandle | None:
        """Have the name, or else a handle to the actor that has it."""
        name, namespace = self._options["name"], self._options.get("namespace") or client.namespace
        handle = msgspec.msgpack.encode((self._name, self._methods))
        detached = self._options.get("lifetime") == "detached"
        found, handle = client.claim_name(namespace, name, id, handle, detached)
        if found == id:
            return None
        if self._options.get("get_if_exists"):
            return _weak_handle(client, found, handle)
        raise ValueError(
            f"The name {name!r} is taken{_in(namespace)}: an actor that has it is alive. Take another, get that one "
            "with get_actor(), or either of the two with get_if_exists=True."
        )

    @functools.cached_property
    def _parameters(self) -> Parameters:
        return Parameters.of(self._class)

    @functools.cached_property
    def _pickled(self) -> bytes:
        return dump_code(self._class, self._name)

    def __reduce__(self) -> tuple[Any, ...]:
        return ActorClass, (self._class, self._options)


def get_actor(name: str, namespace: str | None = None) -> ActorHandle:
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
    found = client.query("named_actor", msgspec.msgpack.encode((namespace, name)))
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
    found = client.query("named_actors")
    if all_namespaces:
        return [{"name": name, "namespace": namespace} for namespace, name in found]
    return [name for namespace, name in found if namespace == client.namespace]


def _weak_handle(client: Client, id: bytes, handle: bytes) -> ActorHandle:
    class_name, methods = msgspec.msgpack.decode(handle, type=tuple[str, dict[str, int]])
    return ActorHandle(WeakActorRef(id, client), class_name, methods)


def _in(namespace: str) -> str:
    return f" in the namespace {namespace!r}" if namespace else ""


class ActorHandle:
    """Stands for an actor. Its methods are called with `handle.method.remote(...)`; it can be passed on like any value.

    The actor ends when the last handle is gone and its calls have ended.
    """

    def __init__(self, ref: ActorRef, class_name: str, methods: dict[str, int]) -> None:
        self._mpi_runtime_ref = ref
        self._mpi_runtime_class = class_name
        self._mpi_runtime_methods = methods

    def __getattr__(self, name: str) -> ActorMethod:
        if name.startswith("_mpi_runtime"):
            raise AttributeError(name)
        num_returns = self._mpi_runtime_methods.get(name)
        if num_returns is None:
            raise AttributeError(
                f"actor class {self._mpi_runtime_class} has no method {name!r}. Attributes of an actor cannot "
                "be read through a handle: write a method that returns them."
            )
        found = ActorMethod(self._mpi_runtime_ref, self._mpi_runtime_class, name, num_returns)
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

    def __init__(self, ref: ActorRef, class_name: str, name: str, num_returns: int) -> None:
        self._ref = ref
        self._class_name = class_name
        self._name = name
        self._spec = option_rules.method_spec(f"{class_name}.{name}", num_returns)
        self._client: Client | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: tells what to write instead."""
        raise TypeError(
            f"Actor methods cannot be called directly. Instead of running 'object.{self._name}()', "
            f"try 'object.{self._name}.remote()'."
        )

    def options(self, *, num_returns: int = 1) -> ActorMethod:
        """The same method with another number of return values."""
        option_rules.check({"num_returns": num_returns}, ("num_returns",), "actor methods")
        return ActorMethod(self._ref, self._class_name, self._name, num_returns)

    def remote(self, /, *args: Any, **kwargs: Any) -> Any:
        """Submit a call. Calls from one process run in the order in which they were submitted.

        Returns:
            An `ObjectRef`; a list of them for `num_returns` above 1; None for 0.

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
        refs: list[ObjectRef[Any]] = client.submit(call, spec.num_returns)
        if spec.num_returns == 1:
            return refs[0]
        return refs or None
