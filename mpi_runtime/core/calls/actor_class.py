"""Actor classes: `@remote` turns a class into one."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, NoReturn, ParamSpec, TypeVar, overload

from mpi_runtime.core import published
from mpi_runtime.core.calls import options as option_rules
from mpi_runtime.core.calls import specs
from mpi_runtime.core.calls.actor_handle import ActorHandle, T, inside, pack_class, weak_handle
from mpi_runtime.core.calls.arguments import Parameters, digest_of_arguments, pack
from mpi_runtime.core.calls.code import Code
from mpi_runtime.core.calls.specs import Method
from mpi_runtime.core.calls.submitter import Registered
from mpi_runtime.core.client.object_ref import ObjectRef, weak_actor
from mpi_runtime.core.client.submitting import create_actor, create_named_actor
from mpi_runtime.core.driver import running
from mpi_runtime.errors.ray import ActorAlreadyExistsError
from mpi_runtime.scheduler.protocol.events import Call, Spec, Where

P = ParamSpec("P")
R = TypeVar("R")
if TYPE_CHECKING:
    from typing_extensions import ParamSpec as ParamSpecWithDefault

    from mpi_runtime.core.calls.graphs import ClassNode
    from mpi_runtime.core.calls.signatures import Few, MarkedMethod, Submit

    Init = ParamSpecWithDefault("Init", default=...)
else:
    Init = ParamSpec("Init")


SPECIAL_METHODS: dict[str, dict[str, object]] = {
    "__ray_call__": {},
    "__ray_ready__": {"journal": False},
    "__ray_terminate__": {},
    "__checkpoint__": {"journal": False},
}
"""Methods that every actor has besides its own, with their options: call a function with the instance as its first
argument; return when the actor is up; end the actor after all calls before this one; save its state."""
SAVE, LOAD = "save_state", "load_state"
"""Methods of classes whose instances can be saved."""


@overload
def method(function: Callable[Concatenate[Any, P], R], /) -> MarkedMethod[P, R, ObjectRef[R]]: ...
@overload
def method(
    *, num_returns: Literal[0], **options: object
) -> Callable[[Callable[Concatenate[Any, P], R]], MarkedMethod[P, R, None]]: ...
@overload
def method(
    *, num_returns: Few, **options: object
) -> Callable[[Callable[Concatenate[Any, P], R]], MarkedMethod[P, R, list[ObjectRef[Any]]]]: ...
@overload
def method(
    *, num_returns: Literal[1] = 1, **options: object
) -> Callable[[Callable[Concatenate[Any, P], R]], MarkedMethod[P, R, ObjectRef[R]]]: ...
@overload
def method(
    *, num_returns: int | str, **options: object
) -> Callable[[Callable[Concatenate[Any, P], R]], MarkedMethod[P, R, Any]]: ...


@published()
def method(function: object = None, /, **options: object) -> Any:
    """Set options of one method of an actor class: `@method(num_returns=2)`.

    `@method` without options is for type checkers: they then know the arguments and the result of `.remote` of the
    method, on a handle whose type names the class (`typing.cast`).

    Args:
        function: the method, if there are no options.
        **options: such as `num_returns`, `max_task_retries`, `retry_exceptions`, `concurrency_group` and `time_limit`.
            The guide on actors lists them.
    """
    option_rules.check(options, option_rules.METHOD_OPTIONS, "method()")

    def mark(function: Any) -> Any:
        function.__mpi_runtime_options__ = options
        return function

    return mark if function is None else mark(function)


@published("mpi_runtime.actor")
def exit_actor() -> NoReturn:
    """End this actor for good, from inside one of its methods. It is not restarted.

    The running call and waiting calls raise `ActorDiedError`. Functions registered with `atexit` run.

    Raises:
        TypeError: the caller is not an actor.
    """
    from mpi_runtime.core.executor.actor_methods import ActorExit  # not at the top: only executors need it

    executor = running.client().executor
    if executor is None or not executor.actor_id:
        raise TypeError("exit_actor() was called outside of an actor: it ends the actor whose method calls it.")
    executor.end_actor()  # first: user code may catch the exception, or run in the background
    raise ActorExit


@functools.lru_cache(1024)
def _type_for(name: str) -> type:
    """`ActorClass` with the name of a plain class in its name."""
    return type(f"ActorClass({name})", (ActorClass,), {"__module__": ActorClass.__module__})


def _is_own(name: str, function: object) -> bool:
    """Whether a special method, such as `__call__` or `__len__`, belongs to the class, not to all objects."""
    return inspect.isfunction(function) and name not in vars(object)


class ActorClassInheritanceException(TypeError):
    """A class was derived from an actor class. Ray has it in `ray.actor`."""


@published()
class ActorClass(Registered, Generic[T, Init]):
    """A class whose instances are actors. `@remote` makes it; it can be neither called nor derived from.

    `C.remote(...)` creates an actor and returns an `ActorHandle` at once.
    """

    code_attribute = "_class"
    if not TYPE_CHECKING:
        __class_getitem__ = classmethod(types.GenericAlias)  # so that ActorClass[C] is enough

    def __new__(cls, plain: type[T], options: Mapping[str, object]) -> ActorClass[T, Init]:  # noqa: D102
        # The name of the type is "ActorClass(C)", as in Ray: libraries read the name of the plain class from it.
        made: ActorClass[T, Init] = object.__new__(_type_for(plain.__name__))
        return made

    def __init__(self, cls: type[T], options: Mapping[str, object]) -> None:
        option_rules.check(options, option_rules.ACTOR_OPTIONS, "actors")
        option_rules.check_name(options)
        if options.get("num_ranks") or options.get("ranks_per_node"):
            yielding = [name for name, member in inspect.getmembers(cls, inspect.isfunction) if yields(member)]
            option_rules.check_actor_gang(options, cls.__name__, is_async(cls), yielding)
        self._class = cls
        self._name = cls.__name__
        super().__init__(Code(cls, self._name), options)
        functools.update_wrapper(self, cls, updated=())

    @functools.cached_property
    def _methods(self) -> dict[str, Method]:
        # Not in the constructor: a class that refers to its own actor class is incomplete when an executor reads it.
        has_state = self._options.get("journal") is not False and saves_state(self._class)
        found = {
            name: specs.method(
                f"{self._name}.{name}",
                getattr(function, "__mpi_runtime_options__", {}),
                self._options,
                yields(function),
                _parameters_of_method(self._class, name, function),
                has_state,
            )
            for name, function in inspect.getmembers(self._class, callable)
            if not (name.startswith("__") and name.endswith("__")) or _is_own(name, function)
        }
        groups = {"", *(self._options.get("concurrency_groups") or {})}
        for name, method in found.items():
            if method.spec.group not in groups:
                raise ValueError(
                    f"{self._name}.{name} has the concurrency group {method.spec.group!r}, which the class does not "
                    f"have: @remote(concurrency_groups={{{method.spec.group!r}: 2}})"
                )
        special = {
            name: specs.method(f"{self._name}.{name}", own, self._options) for name, own in SPECIAL_METHODS.items()
        }
        return found | special

    @property
    def __ray_actor_class__(self) -> type[T]:
        """The class itself, for libraries: Ray's name of it."""
        return self._class

    @property
    def __ray_metadata__(self) -> types.SimpleNamespace:
        """What libraries read of Ray's: the class itself and its name."""
        return types.SimpleNamespace(modified_class=self._class, class_name=self._name)

    def __getattr__(self, name: str) -> Any:
        # Class attributes and static methods need no instance.
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._class, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(name for name in dir(self._class) if not name.startswith("_"))})

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        """Raise `TypeError`, which shows the right form."""
        raise TypeError(
            f"Actors cannot be instantiated directly. Instead of '{self._name}()', use '{self._name}.remote()'."
        )

    def __mro_entries__(self, _: object) -> NoReturn:
        raise ActorClassInheritanceException(
            f"{self._name} is an actor class, and cannot be derived from. Derive from the plain class, and make the "
            "result remote."
        )

    def options(self, **options: object) -> ActorClass[T, Init]:
        """The same class with other options, those of `remote`; what is not named stays. This class is not changed."""
        changed: ActorClass[T, Init] = type(self)(self._class, {**self._options, **options})
        changed._code = self._code
        return changed

    if TYPE_CHECKING:

        @property
        def remote(self) -> Submit[Init, ActorHandle[T]]: ...  # noqa: D102
    else:

        def remote(self, /, *args: object, **kwargs: object) -> ActorHandle:
            """Create an actor. The handle can be used at once.

            The arguments are those of the constructor; an `ObjectRef` stands for its value. If the constructor raises,
            every call of the actor raises that error.

            Raises:
                TypeError: an argument is missing, unknown, or cannot be serialised.
                ValueError: the name is taken; or no bundle of the placement group can hold the actor; or a directory
                    of the `runtime_env` does not exist, cannot be read, or is too large.
            """
            self._parameters.check(args, kwargs, self._name)
            client = running.client()
            spec = self._registered_spec(client)
            packed = pack(client, args, kwargs, self._name)
            holds = (*packed.holds, *self._holds)
            call = Call(client.scopes.next_ids(1), spec.id, packed.payload, packed.arguments, holds)
            if spec.code:
                call.digest = digest_of_arguments(call, packed)
            lifetime = self._options.get("lifetime") or client.inherited.environment.get(option_rules.LIFETIME)
            if not self._options.get("name") and lifetime != option_rules.DETACHED:
                return ActorHandle(create_actor(client, call), self._name, self._methods)
            return self._create_named(call, lifetime == option_rules.DETACHED)

    def bind(self, *args: object, **kwargs: object) -> ClassNode:
        """Make a node of a graph of calls. `execute()` of the node, or of a bound call of a method, creates the actor.

        Bound calls of its methods run in the order in which they were bound. `execute()` of one submits those before it
        too, but not those after it.
        """
        from mpi_runtime.core.calls.graphs import ClassNode

        return ClassNode(self.remote, args, kwargs, self._methods, self._options, self._name)

    def _new_spec(self, where: Where | None, environment: dict[str, str]) -> Spec:
        code, uses_loop = self._code.pickled(), is_async(self._class)
        digest, full_name = self._digest_of_code(), self._class.__qualname__
        return specs.actor_spec(self._name, code, self._options, where, uses_loop, environment, digest, full_name)

    def _digest_of_code(self) -> bytes:
        """The hash of the class for the journal; empty: the states of its instances are not saved."""
        policy = [name for name in ("checkpoint_calls", "checkpoint_s") if self._options.get(name) is not None]
        if policy and not saves_state(self._class):
            raise ValueError(
                f"{self._name} has {policy[0]}, but its state cannot be saved. Add methods save_state(self), "
                "which returns the state, and load_state(self, state). Neither may be a coroutine."
            )
        saves = saves_state(self._class) and not self._options.get("num_ranks")  # each member has a state of its own
        return self._digest_of(self._class) if saves else b""

    def _create_named(self, creation: Call, detached: bool) -> ActorHandle[T]:
        """With `get_if_exists`, return a handle to the actor that has the name."""
        client = running.client()
        name, namespace = self._options.get("name") or "", self._options.get("namespace") or client.inherited.namespace
        handle = pack_class(self._name, self._methods)
        ref, found, handle = create_named_actor(client, creation, namespace, name, handle, detached)
        if found == creation.id:
            return ActorHandle(ref, self._name, self._methods)
        if self._options.get("get_if_exists"):
            return weak_handle(found, handle)
        raise ActorAlreadyExistsError(
            f"The name {name!r} is taken{inside(namespace)} by a living actor. Choose another name, get that actor "
            "with get_actor(), or pass get_if_exists=True."
        )

    @functools.cached_property
    def _parameters(self) -> Parameters:
        known = Parameters.of(self._class)
        return known.without_first(f"{self._name}.__init__") if self._options.get("num_ranks") else known

    def __repr__(self) -> str:
        usage = f"create an actor with {self._parameters.in_words(f'{self._name}.remote')}"
        return f"<actor class {self._name}{option_rules.in_words(self._options)}: {usage}>"

    def __reduce__(self) -> tuple[object, ...]:
        return ActorClass, (self._class, specs.portable(self._options))


def handle_of(id: bytes, cls: type) -> ActorHandle:
    """A handle to the actor with this id and class. It does not keep the actor alive."""
    return ActorHandle(weak_actor(id), cls.__name__, ActorClass(cls, {})._methods)


def _parameters_of_method(cls: type, name: str, function: Any) -> tuple[tuple[str, int, bool], ...] | None:
    """The parameters of a method besides the instance; None: they are not known."""
    raw = inspect.getattr_static(cls, name)
    if isinstance(raw, (staticmethod, classmethod)):
        return Parameters.of(function).portable(0)
    return Parameters.of(function).portable(1) if inspect.isfunction(raw) else None


def saves_state(cls: type) -> bool:
    """Whether instances of a class can be saved: it has `save_state(self)` and `load_state(self, state)`.

    Methods of these names with other parameters do not count.
    """
    for name, count in ((SAVE, 1), (LOAD, 2)):
        found = inspect.getattr_static(cls, name, None)
        if not inspect.isfunction(found) or inspect.iscoroutinefunction(found) or yields(found):
            return False
        try:
            inspect.signature(found).bind(*range(count))
        except TypeError:
            return False
    return True


def is_async(cls: type) -> bool:
    """Whether a class has methods that are coroutines or asynchronous generators. Its calls run in an asyncio loop."""
    return any(
        inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)
        for _, member in inspect.getmembers(cls, inspect.isfunction)
    )


def yields(function: object) -> bool:
    """Whether calls of the function return a generator, plain or asynchronous."""
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
