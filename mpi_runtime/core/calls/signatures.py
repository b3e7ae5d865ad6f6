"""Types of `.remote`, `.options` and `@method` for type checkers. A running program never loads this."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, overload

from mpi_runtime.core.client.object_ref import ObjectRef

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
S_co = TypeVar("S_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)

Few = Literal[2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
"""Numbers of return values for which a list of references is promised."""


class Submit(Protocol[P, S_co]):
    """The type of `.remote`: it takes the function's arguments, or references for any of the first six.

    A reference as a keyword argument works, but checkers refuse it: the type system cannot express it and still check
    the others.
    """

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> S_co: ...
    @overload
    def __call__(self, ref: ObjectRef[object], /, *args: object, **kwargs: object) -> S_co: ...
    @overload
    def __call__(self, a: object, ref: ObjectRef[object], /, *args: object, **kwargs: object) -> S_co: ...
    @overload
    def __call__(self, a: object, b: object, ref: ObjectRef[object], /, *args: object, **kwargs: object) -> S_co: ...
    @overload
    def __call__(
        self, a: object, b: object, c: object, ref: ObjectRef[object], /, *args: object, **kwargs: object
    ) -> S_co: ...
    @overload
    def __call__(
        self, a: object, b: object, c: object, d: object, ref: ObjectRef[object], /, *args: object, **kwargs: object
    ) -> S_co: ...
    @overload
    def __call__(
        self,
        a: object,
        b: object,
        c: object,
        d: object,
        e: object,
        ref: ObjectRef[object],
        /,
        *args: object,
        **kwargs: object,
    ) -> S_co: ...


class Returning(Protocol[P, S_co]):
    """A remote function with another number of return values than one."""

    @property
    def remote(self) -> Submit[P, S_co]:
        """Submit a call."""

    def options(self, **options: object) -> Any:
        """The same function with other options."""


class ClassObject(Protocol[P, T_co]):
    """A class: its instances, and the arguments of its constructor."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T_co: ...  # noqa: D102
    @property
    def __mro__(self) -> tuple[type, ...]: ...


class BoundMethod(Protocol[P, R_co, S_co]):
    """A method that is marked with `@method`, on an object: a plain call in the actor, `.remote` on a handle."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...  # noqa: D102

    @property
    def remote(self) -> Submit[P, S_co]:
        """Submit a call."""

    def options(self, **options: object) -> Any:
        """The same method with other options."""


class MarkedMethod(Protocol[P, R_co, S_co]):
    """A method that is marked with `@method`, in its class."""

    @overload
    def __get__(self, instance: None, owner: object) -> Callable[Concatenate[Any, P], R_co]: ...
    @overload
    def __get__(self, instance: object, owner: object) -> BoundMethod[P, R_co, S_co]: ...
