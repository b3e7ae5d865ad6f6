"""Remote functions: what `@remote` makes of a function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Generic, NoReturn, ParamSpec, TypeVar, overload

from mpi_runtime import options as option_rules
from mpi_runtime import running
from mpi_runtime.arguments import Parameters, pack
from mpi_runtime.processes.client import Client
from mpi_runtime.refs import ObjectRef
from mpi_runtime.scheduler.events import Call, Spec

P = ParamSpec("P")
R = TypeVar("R")


class RemoteFunction(Generic[P, R]):
    """A function whose calls run as tasks: `f.remote(...)` returns an `ObjectRef` at once."""

    def __init__(self, function: Callable[P, R], options: Mapping[str, Any]) -> None:
        option_rules.check(options, option_rules.TASK_OPTIONS, "remote functions")
        if inspect.iscoroutinefunction(function):
            raise ValueError(
                "'async def' should not be used for remote functions: make a plain function that calls asyncio.run()."
            )
        self._function = function
        self._options = dict(options)
        self._name = getattr(function, "__name__", type(function).__name__)
        self._client: Client | None = None
        self._spec: Spec | None = None
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> NoReturn:
        """Refused: tells what to write instead."""
        raise TypeError(
            f"Remote functions cannot be called directly. Instead of running '{self._name}()', "
            f"write '{self._name}.remote()'."
        )

    @overload
    def options(self, *, num_returns: int, **options: Any) -> Any: ...
    @overload
    def options(self, **options: Any) -> RemoteFunction[P, R]: ...

    def options(self, **options: Any) -> Any:
        """The same function with other options for the calls made through what is returned.

        Raises:
            ValueError: there is no such option, or its value is out of bounds.
        """
        changed = RemoteFunction(self._function, {**self._options, **options})
        if "_pickled" in self.__dict__:
            changed._pickled = self._pickled
        return changed

    def remote(self, /, *args: Any, **kwargs: Any) -> ObjectRef[R]:
        """Submit a call.

        Returns:
            An `ObjectRef`; a list of them for `num_returns` above 1; None for 0.

        Raises:
            TypeError: an argument is missing, unknown, or cannot be serialised.
        """
        self._parameters.check(args, kwargs, self._name)
        client = running.client()
        if client is not self._client:
            self._prepare(client)
        spec = self._spec
        assert spec is not None
        if args or kwargs:
            packed = pack(client, args, kwargs, self._name)
            call = Call(client.next_ids(spec.num_returns), spec.id, packed.payload, packed.arguments, packed.holds)
        else:
            call = Call(client.next_ids(spec.num_returns), spec.id, b"")
        refs: Any = client.submit(call, spec.num_returns)
        if spec.num_returns == 1:
            return refs[0]  # type: ignore[no-any-return]
        return refs or None  # type: ignore[return-value]  # with such options the type of the remote function is Any

    @functools.cached_property
    def _parameters(self) -> Parameters:
        return Parameters.of(self._function)

    @functools.cached_property
    def _pickled(self) -> bytes:
        return dump_code(self._function, self._name)

    def _prepare(self, client: Client) -> None:
        """Make the function known to the job of this client."""
        if self._spec is None:
            self._spec = option_rules.task_spec(self._name, self._pickled, self._options)
        client.register(self._spec)
        self._client = client

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteFunction, (self._function, self._options)


def dump_code(code: object, name: str) -> bytes:
    """A function or class as bytes.

    Raises:
        TypeError: it refers to something that cannot be serialised.
    """
    import cloudpickle

    try:
        pickled: bytes = cloudpickle.dumps(code, protocol=5)
    except Exception as error:
        raise TypeError(
            f"cannot serialise {name}: {error}. It refers to something that belongs to this process (a lock, an open "
            "file, a connection); make it inside, or pass it as an argument in a form that can be serialised."
        ) from error
    return pickled
