"""Handles of actors, their methods, and the names of actors."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import msgspec

from mpi_runtime.core import published
from mpi_runtime.core.calls import options as option_rules
from mpi_runtime.core.calls import specs
from mpi_runtime.core.calls.arguments import NOTHING, digest_of_arguments, pack, parameters_of
from mpi_runtime.core.calls.specs import Method
from mpi_runtime.core.client import current
from mpi_runtime.core.client.client import Client
from mpi_runtime.core.client.object_ref import ActorRef, ObjectRef, weak_actor
from mpi_runtime.core.client.submitting import submit
from mpi_runtime.core.client.typed_ids import ActorID
from mpi_runtime.core.driver import running
from mpi_runtime.errors import PendingCallsLimitExceeded
from mpi_runtime.errors.arguments import check_text
from mpi_runtime.scheduler.protocol.events import DYNAMIC, STREAMING, Call, KillRequested
from mpi_runtime.scheduler.protocol.questions import Actors, NamedActor, NamedActors

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    T = TypeVarWithDefault("T", default=Any)
    """The default, so that `ActorHandle` needs no parameter."""
else:
    T = TypeVar("T")

_METHODS_NAMED_MAX = 8


@published()
class ActorHandle(Generic[T]):
    """A handle of an actor. `handle.method.remote(...)` submits a call. A handle can be an argument or part of a value.

    Calls from one process run in the order in which they were submitted. `handle.method.options(...)` takes the options
    of methods. The actor ends when its last handle is gone and its calls have ended; if it has
    not been created by then, it is not created. Attributes cannot be read through a handle.

    Besides its own methods each actor has `__ray_ready__`, which returns when the actor is up; `__ray_call__`, which
    calls a function with the instance as its first argument; and `__ray_terminate__`, which ends the actor after all
    calls before it.
    """

    def __init__(self, ref: ActorRef, class_name: str, methods: dict[str, Method], packed: bytes = b"") -> None:
        self._mpi_runtime_ref = ref
        self._mpi_runtime_class = class_name
        self._mpi_runtime_methods = methods
        self._mpi_runtime_packed = packed
        """Class and methods as they are sent; empty: not packed yet."""

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
        return sorted({*super().__dir__(), *self._mpi_runtime_methods})

    @property
    def _actor_id(self) -> ActorID:
        """The actor's id, under Ray's name."""
        return ActorID(self._mpi_runtime_ref.binary())

    def __repr__(self) -> str:
        own = [name for name in self._mpi_runtime_methods if not name.startswith("_")]
        named = ", ".join(own[:_METHODS_NAMED_MAX]) + (", ..." if len(own) > _METHODS_NAMED_MAX else "")
        usage = f": call a method with .{own[0]}.remote(...); methods: {named}" if own else ""
        return f"Actor({self._mpi_runtime_class}, {self._mpi_runtime_ref.hex()}{usage})"

    def _repr_html_(self) -> str:
        from mpi_runtime.show.tables import html_table, in_html

        ref = self._mpi_runtime_ref
        found = [] if ref._client.has_ended else ref._client.questions.ask(Actors(ref.binary()))
        if not found:
            return f"<p>{in_html(repr(self))}: it has ended</p>"
        names = ("name", "state", "pid", "num_restarts", "pending_calls", "death_cause")
        (actor,) = found
        rows = [(name.replace("_", " "), value) for name in names if (value := getattr(actor, name)) not in (None, "")]
        own = [name for name in self._mpi_runtime_methods if not name.startswith("_")]
        return html_table((f"actor {self._mpi_runtime_class}", ""), [*rows, ("methods", own)])

    def __hash__(self) -> int:
        return hash(self._mpi_runtime_ref)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorHandle) and self._mpi_runtime_ref == other._mpi_runtime_ref

    def __reduce__(self) -> tuple[object, ...]:
        if not self._mpi_runtime_packed:
            self._mpi_runtime_packed = pack_class(self._mpi_runtime_class, self._mpi_runtime_methods)
        return handle_of_pickle, (self._mpi_runtime_ref, self._mpi_runtime_packed)


@published()
class ActorMethod:
    """One method of an actor. Like a handle, it keeps the actor alive."""

    def __init__(self, ref: ActorRef, class_name: str, name: str, method: Method) -> None:
        self._ref = ref
        self._class_name = class_name
        self._name = name
        self._method = method
        self._spec = method.spec
        self._client: object = None
        """The client that registered the spec."""
        self._parameters = parameters_of(method.parameters)
        self._pending: list[ObjectRef[object]] = []
        """Calls of one handle that may be unfinished. Only used with `max_pending_calls`."""

    def __repr__(self) -> str:
        what = f"method {self._class_name}.{self._name} of actor {self._ref.hex()}"
        return f"<{what}: submit a call with .{self._name}.remote(...)>"

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        """Raise `TypeError`, which shows the right form."""
        raise TypeError(
            f"Actor methods cannot be called directly. Instead of running 'object.{self._name}()', "
            f"try 'object.{self._name}.remote()'."
        )

    @property
    def _num_returns(self) -> int | str:
        """The number of values, by the private name that Ray has for it: libraries read it."""
        number = self._spec.num_returns
        return {STREAMING: "streaming", DYNAMIC: "dynamic"}.get(number, number)

    def options(self, **options: object) -> ActorMethod:
        """The same method with other options, those of `method`."""
        option_rules.check(options, option_rules.METHOD_OPTIONS, "actor methods")
        method = specs.changed(f"{self._class_name}.{self._name}", self._method, options)
        changed = ActorMethod(self._ref, self._class_name, self._name, method)
        changed._pending = self._pending
        return changed

    def remote(self, /, *args: object, **kwargs: object) -> Any:
        """Submit a call. Calls from one process run in the order in which they were submitted.

        Returns:
            An `ObjectRef`; a list of them for `num_returns` above 1; None for 0; an `ObjectRefGenerator` for
            "streaming", the default of generators.

        Raises:
            TypeError: an argument is missing, unknown, or cannot be serialised.
            PendingCallsLimitExceeded: this handle has `max_pending_calls` unfinished calls.
        """
        spec, parameters, ref = self._spec, self._parameters, self._ref
        if kwargs or not parameters.least <= len(args) <= parameters.most:
            parameters.check(args, kwargs, spec.name)
        if ref._client.has_ended:
            ref.check_job()
        client = current._client or running.client()
        if self._method.max_pending:
            self._check_pending(client)
        if client is not self._client:
            spec = self._spec = specs.of_driver(client.inherited, self._method.spec)
            client.register(spec)
            self._client = client
        if args or kwargs:
            packed = pack(client, args, kwargs, spec.name)
            call = Call(
                client.scopes.next_ids(spec.num_returns),
                spec.id,
                packed.payload,
                packed.arguments,
                packed.holds,
                ref._id,
            )
        else:
            packed = NOTHING
            call = Call(client.scopes.next_ids(spec.num_returns), spec.id, b"", (), (), ref._id)
        if spec.code and client.store.journal:
            call.digest = digest_of_arguments(call, packed)
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
                f"{len(self._pending)} calls of this handle of {self._class_name} are running, and max_pending_calls "
                f"is {self._method.max_pending}: wait for some of them first."
            )

    def bind(self, *args: object, **kwargs: object) -> Any:
        """Make a node of a graph of calls; with `num_returns=2` a node for each value. `execute()` submits the call.

        Raises:
            TypeError: an argument is missing or unknown.
        """
        from mpi_runtime.core.calls.graphs import bound

        self._parameters.check(args, kwargs, self._spec.name, "bind")
        return bound(self.remote, args, kwargs, self._method.spec.num_returns, self._end)

    def _end(self) -> None:
        """End the actor of this method for good."""
        client = running.client()
        client.outbox.request(KillRequested(self._ref.binary(), True))
        client.outbox.flush()

    def _remote(self, args: Any = (), kwargs: Mapping[str, object] | None = None, **options: object) -> object:
        """Call `.options(**options).remote(*args, **kwargs)`. Libraries use this form."""
        return (self.options(**options) if options else self).remote(*(args or ()), **(kwargs or {}))

    def __reduce__(self) -> tuple[object, ...]:
        return getattr, (ActorHandle(self._ref, self._class_name, {self._name: self._method}), self._name)


@published()
def checkpoint(actor: ActorHandle[Any]) -> ObjectRef[bool]:
    """Have an actor save its state, after the calls that this process has made before.

    With a journal the next run of the program loads it: see the guide on journals. States are also saved now and then
    without this call.

    Args:
        actor: a handle. Its class has `save_state(self)` and `load_state(self, state)`.

    Returns:
        A reference to True; to False if other calls of the actor run: then it is saved as soon as they have ended.
        `get` raises `JournalError` if the state of the actor cannot be saved, and any error of `save_state`.

    Raises:
        ValueError: `actor` is not a handle of an actor.

    Example:
        ```python
        ray.get(ray.checkpoint(server))
        ```
    """
    if not isinstance(actor, ActorHandle):
        raise ValueError(f"checkpoint() needs a handle of an actor, not {type(actor)}")
    saved: ObjectRef[bool] = actor.__getattr__("__checkpoint__").remote()
    return saved


@published()
def get_actor(name: str, namespace: str | None = None) -> ActorHandle[Any]:
    """Find an actor by its name, and return a handle. It does not keep the actor alive.

    Args:
        name: the name given in `.options(name=...)`.
        namespace: the namespace of the name; None: that of the job (`init(namespace=...)`).

    Raises:
        ValueError: no living actor has this name.
        TypeError: `namespace` is not a string.

    Example:
        ```python
        Counter.options(name="counter").remote()
        mpi_runtime.get_actor("counter").add.remote(1)
        ```
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"get_actor() needs a name, a string that is not empty, not {name!r}")
    check_text("name", name)
    if namespace is not None:
        check_text("namespace", namespace)
    client = running.client()
    namespace = client.inherited.namespace if namespace is None else namespace
    found = client.questions.ask(NamedActor(namespace, name))
    if found is None:
        raise ValueError(
            f"There is no actor with the name {name!r}{inside(namespace)}: it was never created, or it has ended "
            "since (an actor ends with its last handle, unless it has lifetime='detached')."
        )
    return weak_handle(found.id, found.handle)


@published("mpi_runtime.util")
def list_named_actors(all_namespaces: bool = False) -> list[Any]:
    """List the names of living actors, of the job's namespace or of all.

    Returns:
        A list of names; with `all_namespaces` a list of dictionaries with "name" and "namespace".
    """
    client = running.client()
    found = client.questions.ask(NamedActors())
    if all_namespaces:
        return [{"name": one.name, "namespace": one.namespace} for one in found]
    return [one.name for one in found if one.namespace == client.inherited.namespace]


def weak_handle(id: bytes, handle: bytes) -> ActorHandle[Any]:
    """A handle from the data that was stored with the name. It does not keep the actor alive."""
    return handle_of_pickle(weak_actor(id), handle)


def pack_class(class_name: str, methods: dict[str, Method]) -> bytes:
    """The name of a class and its methods as bytes, which go with each handle and with the name of an actor."""
    return msgspec.msgpack.encode((class_name, methods))


@functools.lru_cache(maxsize=256)
def _unpacked(packed: bytes) -> tuple[str, dict[str, Method]]:
    return msgspec.msgpack.decode(packed, type=tuple[str, dict[str, Method]])


@published()
def handle_of_pickle(ref: ActorRef, packed: bytes) -> ActorHandle[Any]:
    """Return a handle to the actor, with the class that `pack_class` has packed."""
    return ActorHandle(ref, *_unpacked(packed), packed)


def inside(namespace: str) -> str:
    """The words that name a namespace in messages; empty for the default namespace."""
    return f" in the namespace {namespace!r}" if namespace else ""
