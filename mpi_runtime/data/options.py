"""The arguments of transformations: functions, classes, and what each task or actor of them has."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from mpi_runtime.core import published
from mpi_runtime.data.plan import Concurrency, Needs
from mpi_runtime.data.steps import Step, is_async
from mpi_runtime.extend import check_resources, size_in_bytes

OPTIONS = frozenset({"label_selector", "max_retries", "runtime_env", "scheduling_strategy"})
"""Options of calls that are passed on."""


@published("mpi_runtime.data")
class ActorPoolStrategy(Struct, frozen=True):
    """The number of actors of a class: `size`, or from `min_size` to `max_size`."""

    size: int | None = None
    """Their number."""
    min_size: int | None = None
    """The least of them."""
    max_size: int | None = None
    """The most of them."""
    initial_size: int | None = None
    """Ray's, without effect."""
    max_tasks_in_flight_per_actor: int | None = None
    """Ray's, without effect: an actor has one call ahead."""

    def __post_init__(self) -> None:
        """ValueError: a number is not above 0."""
        for name in self.__struct_fields__:
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"ActorPoolStrategy({name}={value!r}): it must be 1 or more")
        if self.size is not None and (self.min_size or self.max_size):
            raise ValueError("ActorPoolStrategy takes either size, or min_size and max_size")
        if self.min_size and self.max_size and self.min_size > self.max_size:
            raise ValueError(f"ActorPoolStrategy(min_size={self.min_size}) is above max_size={self.max_size}")


@published("mpi_runtime.data")
class TaskPoolStrategy(Struct, frozen=True):
    """The most tasks of a function at a time."""

    size: int | None = None
    """Their number."""

    def __post_init__(self) -> None:
        """ValueError: it is not above 0."""
        if self.size is not None and self.size < 1:
            raise ValueError(f"TaskPoolStrategy(size={self.size!r}): it must be 1 or more")


def needs(
    caller: str,
    is_class: bool,
    *,
    compute: object = None,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    memory: float | None = None,
    concurrency: object = None,
    resources: Mapping[str, float] | None = None,
    max_concurrency: int | None = None,
    ray_remote_args_fn: Callable[[], Mapping[str, object]] | None = None,
    **options: object,
) -> Needs:
    """Check what each task or actor of a function has.

    `max_concurrency` is Ray's, and has no effect, as there: a function runs once at a time in each process, and an
    asynchronous one a fixed number of times.

    Raises:
        TypeError: there is no such option.
        ValueError: an amount or a number is out of bounds.
    """
    unknown = sorted(options.keys() - OPTIONS)
    if unknown:
        raise TypeError(
            f"{caller}() has no argument {', '.join(unknown)}: it takes num_cpus, num_gpus, memory, resources, "
            f"concurrency, {', '.join(sorted(OPTIONS))}"
        )
    del max_concurrency
    if compute is not None:
        concurrency = _of_compute(compute, caller)
    found = _concurrency(concurrency, is_class, caller)
    check_resources("resources", dict(resources or {}))
    if ray_remote_args_fn is not None and not callable(ray_remote_args_fn):
        raise TypeError(f"{caller}(ray_remote_args_fn=...) takes a function of options, not {ray_remote_args_fn!r}")
    for name, amount in (("num_cpus", num_cpus), ("num_gpus", num_gpus)):
        if amount is not None and (not isinstance(amount, int | float) or amount < 0):
            raise ValueError(f"{caller}({name}={amount!r}): it must be 0 or more")
    return Needs(
        None if num_cpus is None else float(num_cpus),
        float(num_gpus or 0),
        size_in_bytes("memory", memory) if memory else 0,
        dict(resources or {}),
        found,
        options,
        ray_remote_args_fn,
    )


def _of_compute(compute: object, caller: str) -> object:
    if isinstance(compute, ActorPoolStrategy):
        return compute.size or (compute.min_size or 1, compute.max_size or max(compute.min_size or 1, 1_000))
    if isinstance(compute, TaskPoolStrategy):
        return compute.size
    if compute in ("tasks", "actors"):
        return None
    raise TypeError(f"{caller}(compute=...) must be an ActorPoolStrategy or a TaskPoolStrategy, not {compute!r}")


def _concurrency(given: object, is_class: bool, caller: str) -> Concurrency:
    if given is None:
        return None
    if isinstance(given, int) and given > 0:
        return given
    bounds = given if isinstance(given, tuple) and is_class else ()
    if len(bounds) in (2, 3) and all(isinstance(one, int) for one in bounds):
        least, most = bounds[:2]
        if 0 < least <= most and all(least <= one <= most for one in bounds):
            return least, most
    if isinstance(given, tuple) and not is_class:
        raise ValueError(
            f"{caller}(concurrency={given!r}): ``concurrency`` is set as a tuple of integers, which is for classes: "
            "state the most tasks of the function"
        )
    raise ValueError(
        f"{caller}(concurrency={given!r}): ``concurrency`` is expected to be set as a number above 0, or for a "
        "class as the least and the greatest number of actors, (1, 4), perhaps with that at the start, (1, 4, 2)"
    )


ASYNC = ("map", "map_batches", "flat_map")
"""Transformations that take asynchronous functions."""


def step(
    kind: str,
    caller: str,
    function: object,
    fn_args: Iterable[object] | None = None,
    fn_kwargs: Mapping[str, object] | None = None,
    fn_constructor_args: Iterable[object] | None = None,
    fn_constructor_kwargs: Mapping[str, object] | None = None,
) -> Step:
    """Make a step of a function or a class.

    Raises:
        TypeError: it cannot be called, or has arguments for its constructor and is not a class.
    """
    if not callable(function):
        raise TypeError(f"{caller}() takes a function or a class with __call__, not {function!r}")
    if caller not in ASYNC and is_async(function):
        raise TypeError(f"{caller}() takes no asynchronous function, as {', '.join(ASYNC)} do")
    is_class = inspect.isclass(function)
    if is_class and not callable(getattr(function, "__call__", None)):  # noqa: B004
        raise TypeError(f"{caller}() needs a class with a method __call__, which {function!r} lacks")
    if not is_class and (fn_constructor_args or fn_constructor_kwargs):
        raise ValueError(f"{caller}(fn_constructor_args=...) is for a class, and {function!r} is a function")
    name = f"{caller}({_name(function)})"
    return Step(
        kind, name, function, tuple(fn_args or ()), dict(fn_kwargs or {}),
        tuple(fn_constructor_args or ()), dict(fn_constructor_kwargs or {}),
    )  # fmt: skip


def _name(function: Callable[..., object]) -> str:
    if isinstance(function, functools.partial):
        return _name(function.func)
    return str(getattr(function, "__name__", type(function).__name__))
