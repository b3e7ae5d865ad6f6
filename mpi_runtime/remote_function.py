"""Remote functions: what `@remote` makes of a function."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, ParamSpec, TypeVar, overload

from mpi_runtime import current, running, specs
from mpi_runtime import options as option_rules
from mpi_runtime.arguments import Packed, Parameters, pack
from mpi_runtime.processes.client import Client
from mpi_runtime.processes.scratch import held
from mpi_runtime.refs import ObjectRef
from mpi_runtime.scheduler.events import Call, Spec, Where

if TYPE_CHECKING:
    from mpi_runtime.generators import ObjectRefGenerator
    from mpi_runtime.mapping import Results
    from mpi_runtime.signatures import Few, Returning, Submit

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

CODE_BYTES_WARN = 10_000_000
"""Code that takes more has probably caught data."""
CODE_BYTES_MAX = 100_000_000
"""The head keeps all code for as long as the job lives, and each process that runs it has its own copy."""


class RemoteFunction(Generic[P, R]):
    """A function whose calls run as tasks: `f.remote(...)` returns an `ObjectRef` at once."""

    def __init__(self, function: Callable[P, R], options: Mapping[str, Any]) -> None:
        option_rules.check(options, option_rules.TASK_OPTIONS, "remote functions")
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise ValueError(
                "'async def' should not be used for remote functions: make a plain function that calls asyncio.run()."
            )
        self._function = function
        self._options = dict(options)
        self._name = getattr(function, "__name__", type(function).__name__)
        self._code = Code(function, self._name)
        self._client: Client | None = None
        self._spec: Spec | None = None
        self._inherited: Where | None = None
        self._holds: list[bytes] = []
        """Objects that each call needs for its environment."""
        self._chunks: dict[int, RemoteFunction[Any, Any]] = {}
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> NoReturn:
        """Refused: tells what to write instead."""
        raise TypeError(
            f"Remote functions cannot be called directly. Instead of running '{self._name}()', "
            f"write '{self._name}.remote()'."
        )

    @overload
    def options(self, *, num_returns: Literal[1], **options: Any) -> RemoteFunction[P, R]: ...
    @overload
    def options(self, *, num_returns: Literal[0], **options: Any) -> Returning[P, None]: ...
    @overload
    def options(self, *, num_returns: Few, **options: Any) -> Returning[P, list[ObjectRef[Any]]]: ...
    @overload
    def options(
        self: RemoteFunction[P, Iterator[T]], *, num_returns: Literal["streaming"], **options: Any
    ) -> Returning[P, ObjectRefGenerator[T]]: ...
    @overload
    def options(self, *, num_returns: int | str, **options: Any) -> Any: ...
    @overload
    def options(self, **options: Any) -> RemoteFunction[P, R]: ...

    def options(self, **options: Any) -> Any:
        """The same function with other options for the calls made through what is returned.

        Raises:
            ValueError: there is no such option, or its value is out of bounds.
        """
        changed = RemoteFunction(self._function, {**self._options, **options})
        changed._code = self._code
        return changed

    if TYPE_CHECKING:

        @property
        def remote(self) -> Submit[P, ObjectRef[R]]: ...  # noqa: D102
    else:

        def remote(self, /, *args: Any, **kwargs: Any) -> Any:
            """Submit a call.

            Returns:
                An `ObjectRef`; a list of them for `num_returns` above 1; None for 0; an `ObjectRefGenerator` for
                "streaming", which is the default of generator functions.

            Raises:
                TypeError: an argument is missing, unknown, or cannot be serialised.
                ValueError: no bundle of the placement group in which it is to run can hold the call; or its
                    `runtime_env` names a directory that is not there, cannot be read, or is too large.
            """
            self._parameters.check(args, kwargs, self._name)
            client = running.client()
            if client is not self._client or client.inherited is not self._inherited:
                self._prepare(client)
            spec = self._spec
            assert spec is not None
            count = spec.num_returns
            if args or kwargs:
                packed = pack(client, args, kwargs, self._name)
                call = Call(client.next_ids(count), spec.id, packed.payload, packed.arguments, packed.holds)
            else:
                call = Call(client.next_ids(count), spec.id, b"")
            if self._holds:
                call.holds = [*call.holds, *self._holds]
            return client.submit(call, spec)

    def _submit(self, client: Client, packed: Packed, attempt: int = 0) -> ObjectRef[R]:
        """Submit a call with one return value of which so many attempts have been made already."""
        if client is not self._client or client.inherited is not self._inherited:
            self._prepare(client)
        assert self._spec is not None
        holds = [*packed.holds, *self._holds]
        call = Call(client.next_ids(1), self._spec.id, packed.payload, packed.arguments, holds, b"", attempt)
        ref: ObjectRef[R] = client.submit(call, self._spec)
        return ref

    def map(self, iterable: Iterable[Any], *, chunk: int | Literal["auto"] = "auto") -> Results[R]:
        """Call the function with each element: many calls in few messages.

        Each call has its own error and its own retries, as with `.remote`. Calls of one chunk run one after another in
        one process, and must not wait for each other. An element that is an `ObjectRef` stands for its value.

        Args:
            iterable: the arguments. Without a length it is read as the results are, some thousand calls ahead.
            chunk: how many calls make one task. By default the runtime decides, by their number, the size of their
                arguments, and how long they take; with `max_retries=0` it is 1. With a number of your own each
                task makes so many, and with `max_retries=0` besides they are lost together if their process dies. The
                `time_limit` is that of one call: such a task may take as many times that.

        Returns:
            A sequence of the values that waits where it is read: `[index]`, `for`, `.get(timeout=)`, `.as_completed()`.

        Raises:
            TypeError: the function does not take one argument, or an element cannot be serialised.
            ValueError: `chunk` is below 1, or the function has `num_returns`.

        Example:
            sum(square.map(range(1_000_000)))
        """
        from mpi_runtime.mapping import Results  # not at the top: who does not call this need not wait for it

        return Results(self, iterable, chunk, star=False)

    def starmap(self, iterable: Iterable[Iterable[Any]], *, chunk: int | Literal["auto"] = "auto") -> Results[R]:
        """Call the function with the arguments in each element; otherwise like `map`.

        Example:
            power.starmap([(2, 10), (3, 5)]).get()
        """
        from mpi_runtime.mapping import Results

        return Results(self, iterable, chunk, star=True)

    def _of_chunks(self, calls: int) -> RemoteFunction[Any, Any]:
        """What makes so many calls of this function in one task; 0: as many as it has time for.

        Each is a function of its own for the scheduler, which learns how long its tasks take.
        """
        from mpi_runtime.chunks import Runner, time_limit

        known = self._chunks.get(calls)
        if known is None:
            options = {**self._options, "num_returns": 1, "retry_exceptions": False}
            options["time_limit"] = time_limit(self._options.get("time_limit"), calls)
            known = self._chunks[calls] = RemoteFunction(Runner(self, calls), options)
        return known

    @functools.cached_property
    def _parameters(self) -> Parameters:
        return Parameters.of(self._function)

    def _prepare(self, client: Client) -> None:
        """Make the function known to the job of this client."""
        environment = specs.environment(client, self._options)
        self._spec = specs.task_spec(
            self._name,
            self._code.pickled(),
            self._options,
            client.inherited,
            inspect.isgeneratorfunction(self._function),
            environment,
        )
        self._inherited, self._holds = client.inherited, held(environment)
        client.register(self._spec)
        self._client = client

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteFunction, (self._function, specs.portable(self._options))


class Code:
    """A function or class as bytes: made once in a job, since what it refers to may belong to the job."""

    def __init__(self, code: object, name: str) -> None:
        self._code = code
        self._name = name
        self._pickled = b""
        self._client: Client | None = None
        """With whose job it was made."""

    def pickled(self) -> bytes:
        """The bytes; see `dump_code` for what it raises."""
        client = current.client_or_none()
        if not self._pickled or client is not self._client:
            self.know(dump_code(self._code, self._name))
        return self._pickled

    def know(self, pickled: bytes) -> None:
        """It came as these bytes: others would be another function elsewhere."""
        self._pickled, self._client = pickled, current.client_or_none()


def dump_code(code: object, name: str) -> bytes:
    """A function or class as bytes. Warns if there are many: what it refers to travels with it.

    Raises:
        TypeError: it refers to something that cannot be serialised.
        ValueError: it is far too large.
    """
    import cloudpickle

    try:
        pickled: bytes = cloudpickle.dumps(code, protocol=5)
    except Exception as error:
        raise TypeError(
            f"cannot serialise {name}: {error}. It refers to something that belongs to this process (a lock, an open "
            "file, a connection); make it inside, or pass it as an argument in a form that can be serialised. "
            f"mpi_runtime.util.inspect_serializability({name}) shows which it is."
        ) from error
    if len(pickled) > CODE_BYTES_WARN:
        message = (
            f"{name} takes {len(pickled) / 1e6:.0f} MB, which go to every process that runs it. It refers to something "
            "large, a global variable or one of an enclosing function: put() that once, and pass the reference as an "
            "argument."
        )
        if len(pickled) > CODE_BYTES_MAX:
            raise ValueError(f"{message} The limit is {CODE_BYTES_MAX / 1e6:.0f} MB.")
        warnings.warn(message, stacklevel=_depth_of_user_code())
    return pickled


def _depth_of_user_code() -> int:
    """For a warning by the caller: how many frames up the first one is that is not of this package."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("mpi_runtime.", "functools")):
        depth, frame = depth + 1, frame.f_back
    return depth
