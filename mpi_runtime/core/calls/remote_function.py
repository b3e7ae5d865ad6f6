"""Remote functions: `@remote` turns a function into one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NoReturn, ParamSpec, TypeVar, overload

from mpi_runtime.core import published
from mpi_runtime.core.calls import options as option_rules
from mpi_runtime.core.calls import specs
from mpi_runtime.core.calls.submitter import Submitter
from mpi_runtime.core.client.object_ref import ObjectRef

if TYPE_CHECKING:
    from mpi_runtime.core.calls.chunks import Chunked
    from mpi_runtime.core.calls.code import Code
    from mpi_runtime.core.calls.graphs import FunctionNode
    from mpi_runtime.core.calls.mapping import Results
    from mpi_runtime.core.calls.signatures import Few, Returning
    from mpi_runtime.core.client.generators import ObjectRefGenerator

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


@published()
class RemoteFunction(Submitter[P, R]):
    """A function whose calls run as tasks. `@remote` makes it; it cannot be called directly.

    `f.remote(...)` submits a call and returns an `ObjectRef` at once.
    """

    _in_chunks: Chunked | None = None
    """Made by the first `map`."""

    def __init__(self, function: Callable[P, R], options: Mapping[str, object], pickled: Code | None = None) -> None:
        super().__init__(function, options, pickled)  # it checks the options
        if options.get("num_returns") in option_rules.RETURNS and not _may_yield(function):
            raise ValueError(
                f"num_returns={options['num_returns']!r} is for functions that yield, which {self._name}() does "
                "not. Use a number of return values."
            )
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> NoReturn:
        """Raise `TypeError`, which shows the right form."""
        raise TypeError(
            f"Remote functions cannot be called directly. Instead of running '{self._name}()', "
            f"write '{self._name}.remote()'."
        )

    @overload
    def options(self, *, num_returns: Literal[1], **options: object) -> RemoteFunction[P, R]: ...
    @overload
    def options(self, *, num_returns: Literal[0], **options: object) -> Returning[P, None]: ...
    @overload
    def options(self, *, num_returns: Few, **options: object) -> Returning[P, list[ObjectRef[Any]]]: ...
    @overload
    def options(
        self: RemoteFunction[P, Iterator[T]], *, num_returns: Literal["streaming"], **options: object
    ) -> Returning[P, ObjectRefGenerator[T]]: ...
    @overload
    def options(self, *, num_returns: int | str, **options: object) -> Any: ...
    @overload
    def options(self, **options: Any) -> RemoteFunction[P, R]: ...

    def options(self, **options: object) -> Any:
        """The same function with other options, those of `remote`; what is not named stays. This one is not changed."""
        changed = RemoteFunction(self._function, {**self._options, **options})
        if changed._own is self._own:
            changed._code = self._code
        return changed

    def bind(self, *args: object, **kwargs: object) -> FunctionNode:
        """Make a node of a graph of calls. Its method `execute()` submits the call.

        Arguments may be nodes themselves. Each node is submitted once.
        """
        from mpi_runtime.core.calls.graphs import FunctionNode

        return FunctionNode(self.remote, args, kwargs, self._options)

    def map(self, iterable: Iterable[object], *, chunk: int | Literal["auto"] = "auto") -> Results[R]:
        """Call the function once for each element. Many calls make one task, a chunk.

        Each call has its own error and its own retries, as with `.remote`. Calls of one chunk run one after another in
        one process, and must not wait for each other. An element that is an `ObjectRef` stands for its value.

        Args:
            iterable: the arguments. An iterable without a length is read as the results are read, some thousand calls
                ahead.
            chunk: number of calls in one task. "auto" chooses it by the number of calls, the size of their arguments
                and their duration; with `max_retries=0` it is 1. With a number of your own and `max_retries=0` the
                calls of a chunk are lost together if their process dies. `time_limit` is for one call: a chunk of n
                calls may take n times as long.

        Returns:
            A sequence of the values. Reading waits: `[index]`, `for`, `.get(timeout=)`, `.as_completed()`.

        Raises:
            TypeError: the function does not take one argument, or an element cannot be serialised.
            ValueError: `chunk` is below 1, or above 1 with the option `num_ranks`; or the function has the option
                `num_returns`.

        Example:
            ```python
            sum(square.map(range(1_000_000)))
            ```
        """
        return self._results(iterable, chunk, star=False)

    def starmap(self, iterable: Iterable[Iterable[object]], *, chunk: int | Literal["auto"] = "auto") -> Results[R]:
        """Call the function once for each element, which holds all arguments of the call. Otherwise like `map`.

        Example:
            ```python
            power.starmap([(2, 10), (3, 5)]).get()
            ```
        """
        return self._results(iterable, chunk, star=True)

    def _results(self, iterable: Iterable[object], chunk: int | Literal["auto"], star: bool) -> Results[R]:
        from mpi_runtime.core.calls.chunks import Chunked  # not at the top: most programs do not use them
        from mpi_runtime.core.calls.mapping import Results

        if self._in_chunks is None:
            self._in_chunks = Chunked(self, self._function, self._name, self._options, self._code)
        return Results(self._in_chunks, self._parameters, iterable, chunk, star)

    def __repr__(self) -> str:
        usage = f"submit a call with {self._parameters.in_words(f'{self._name}.remote')}"
        return f"<remote function {self._name}{option_rules.in_words(self._options)}: {usage}>"

    def __reduce__(self) -> tuple[object, ...]:
        return RemoteFunction, (self._function, specs.portable(self._options))


def _may_yield(function: object) -> bool:
    """Whether calls may return a generator. Only plain functions show this before the call."""
    return not inspect.isfunction(function) or hasattr(function, "__wrapped__") or inspect.isgeneratorfunction(function)
