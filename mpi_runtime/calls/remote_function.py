"""Remote functions: what `@remote` makes of a function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NoReturn, ParamSpec, TypeVar, overload

from mpi_runtime.calls import options as option_rules
from mpi_runtime.calls import specs
from mpi_runtime.calls.submitter import Submitter
from mpi_runtime.client.refs import ObjectRef

if TYPE_CHECKING:
    from mpi_runtime.calls.graphs import Node
    from mpi_runtime.calls.mapping import Results
    from mpi_runtime.calls.signatures import Few, Returning
    from mpi_runtime.client.generators import ObjectRefGenerator

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class RemoteFunction(Submitter[P, R]):
    """A function whose calls run as tasks: `f.remote(...)` returns an `ObjectRef` at once."""

    def __init__(self, function: Callable[P, R], options: Mapping[str, Any]) -> None:
        if options.get("num_returns") in option_rules.RETURNS and not _may_yield(function):
            raise ValueError(
                f"num_returns={options['num_returns']!r} is for functions that yield, and {function.__name__}() does "
                "not: it returns one value, or as many as num_returns says in numbers."
            )
        super().__init__(function, options)
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

    def bind(self, *args: Any, **kwargs: Any) -> Node:
        """A call that `execute()` of what is returned makes; arguments may be such calls themselves."""
        from mpi_runtime.calls.graphs import Node

        return Node(self.remote, args, kwargs)

    def _remote(self, args: Iterable[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """`.options(**options).remote(*args, **kwargs)`, as libraries write it."""
        return (self.options(**options) if options else self).remote(*(args or ()), **(kwargs or {}))

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
            ```python
            sum(square.map(range(1_000_000)))
            ```
        """
        from mpi_runtime.calls.mapping import Results  # not at the top: who does not call this need not wait for it

        return Results(self, iterable, chunk, star=False)

    def starmap(self, iterable: Iterable[Iterable[Any]], *, chunk: int | Literal["auto"] = "auto") -> Results[R]:
        """Call the function with the arguments in each element; otherwise like `map`.

        Example:
            ```python
            power.starmap([(2, 10), (3, 5)]).get()
            ```
        """
        from mpi_runtime.calls.mapping import Results

        return Results(self, iterable, chunk, star=True)

    def __repr__(self) -> str:
        usage = f"submit a call with {self._parameters.in_words(f'{self._name}.remote')}"
        return f"<remote function {self._name}{option_rules.in_words(self._options)}: {usage}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteFunction, (self._function, specs.portable(self._options))


def _may_yield(function: Any) -> bool:
    """Whether calls of it may give a generator: of a plain function it is known."""
    return not inspect.isfunction(function) or hasattr(function, "__wrapped__") or inspect.isgeneratorfunction(function)
