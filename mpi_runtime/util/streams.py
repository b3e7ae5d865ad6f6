"""Items of a stream from a plain function, and whether the reader wants more.

    from mpi_runtime.util.streams import emit, emits

    @mpi_runtime.remote(num_returns="streaming", _generator_backpressure_num_objects=1)
    @emits
    def train(epochs):
        for epoch in range(epochs):
            if not emit({"epoch": epoch}):  # waits until it was taken
                return  # the stream has no reader

    stream = train.remote(100)
    print(mpi_runtime.get(next(stream)))

The function is not a generator, so functions that it calls may emit too. The reader may look at an item before it lets
the function continue: `stream.next_ref(None, resume=False)`, then `stream.resume()`, or drop the stream.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec

from mpi_runtime.extend import job_or_none

__all__ = ["emit", "emits", "together"]

P = ParamSpec("P")


def emits(function: Callable[P, Any]) -> Callable[P, tuple[()]]:
    """Prepare a function that calls `emit` for `num_returns="streaming"`. Its return value is dropped."""

    @functools.wraps(function)
    def emitting(*args: P.args, **kwargs: P.kwargs) -> tuple[()]:
        function(*args, **kwargs)
        return ()

    return emitting


def emit(item: object) -> bool:
    """Send an item of the running task to its caller, as `yield` does in a generator function.

    With `_generator_backpressure_num_objects` it waits while that number of items were not taken.

    Returns:
        Whether more items are wanted. False: the generator of the call is gone, and further items are dropped.

    Raises:
        RuntimeError: no task with `num_returns="streaming"` runs here.
    """
    client = job_or_none()
    executor = None if client is None else client.executor
    if executor is None:
        raise RuntimeError("emit() sends items of a task, and no task runs here: call it in a remote function")
    return executor.emit(item)


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Send the requests inside this block in few messages, at its end or when it waits, instead of each at once.

    For loops that submit calls, resume and drop many streams. A request is held back for about a millisecond at most.
    Without a job nothing is held back.
    """
    client = job_or_none()
    if client is None:
        yield
        return
    with client.outbox.gathering():
        yield
