"""Results in the order in which they become ready."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import mpi_runtime
from mpi_runtime import ObjectRef
from mpi_runtime.errors.arguments import check_whole

__all__ = ["as_completed", "map_unordered"]

CHUNK_SIZE = 10


def as_completed(
    refs: Iterable[ObjectRef[object]], *, chunk_size: int = CHUNK_SIZE, yield_obj_refs: bool = False
) -> Iterator[Any]:
    """Yield values in the order in which they become ready.

    Args:
        refs: references to the values.
        chunk_size: how many to wait for at a time; with 1 each value is yielded as soon as it is ready.
        yield_obj_refs: yield the references instead.

    Raises:
        ValueError: `chunk_size` is below 1.

    Example:
        ```python
        for value in ray.util.as_completed([work.remote(n) for n in range(8)], chunk_size=1):
            print(value)
        ```
    """
    check_whole("chunk_size", chunk_size, 1)
    return _ready(list(refs), None, chunk_size, yield_obj_refs)


def map_unordered(
    fn: Any, items: Iterable[object], *, backpressure_size: int | None = 100, chunk_size: int = CHUNK_SIZE,
    yield_obj_refs: bool = False,
) -> Iterator[Any]:  # fmt: skip
    """Call a remote function with each item, and yield results in the order in which they become ready.

    Args:
        fn: a remote function, or a method of an actor, with one argument.
        items: the arguments.
        backpressure_size: the largest number of unfinished calls; None: all calls are submitted at once.
        chunk_size: how many results to wait for at a time.
        yield_obj_refs: yield references instead of values.

    Raises:
        ValueError: `backpressure_size` is below `chunk_size`, or `chunk_size` is below 1.
        TypeError: `fn` is not remote.
    """
    check_whole("chunk_size", chunk_size, 1)
    if backpressure_size is not None:
        check_whole("backpressure_size", backpressure_size, 1)
    if backpressure_size is not None and backpressure_size < chunk_size:
        raise ValueError(f"backpressure_size ({backpressure_size}) must be at least chunk_size ({chunk_size})")
    if not hasattr(fn, "remote"):
        raise TypeError(f"fn must be a remote function or a method of an actor, which have .remote(), not {fn!r}")
    return _ready((fn.remote(item) for item in items), backpressure_size, chunk_size, yield_obj_refs)


def _ready(refs: Iterable[ObjectRef[object]], most: int | None, chunk_size: int, yield_obj_refs: bool) -> Iterator[Any]:
    """Yield values in the order in which they become ready. At most `most` references are read before that."""
    further, rest = iter(refs), list[ObjectRef[object]]()
    while rest := rest + list(itertools.islice(further, None if most is None else most - len(rest))):
        ready, rest = mpi_runtime.wait(rest, num_returns=min(chunk_size, len(rest)))
        yield from ready if yield_obj_refs else mpi_runtime.get(ready)
