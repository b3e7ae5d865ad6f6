"""Items of a stream from within a plain function, and whether the reader wants more.

    from mpi_runtime.util.streams import emit, emits

    @mpi_runtime.remote(num_returns="streaming", _generator_backpressure_num_objects=1)
    @emits
    def train(epochs):
        for epoch in range(epochs):
            if not emit({"epoch": epoch}):  # waits until it was taken
                return  # nobody reads any more

    stream = train.remote(100)
    print(mpi_runtime.get(next(stream)))

The function is no generator, so what it calls may emit too. The other side may look at an item before it lets the
function go on: `stream.next_ref(None, resume=False)`, then `stream.resume()`, or drop the stream.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec

from mpi_runtime.client import current

__all__ = ["emit", "emits", "together"]

P = ParamSpec("P")


def emits(function: Callable[P, Any]) -> Callable[P, tuple[()]]:
    """Make of a function that calls `emit` one that may be called with `num_returns="streaming"`.

    What it returns is dropped.
    """

    @functools.wraps(function)
    def emitting(*args: P.args, **kwargs: P.kwargs) -> tuple[()]:
        function(*args, **kwargs)
        return ()

    return emitting


def emit(item: Any) -> bool:
    """Send an item of the running task to who has called it, as `yield` does in a generator function.

    With `_generator_backpressure_num_objects` it waits until so few items are left that were not taken.

    Args:
        item: any value that can be serialised.

    Returns:
        Whether more items are wanted. False: the generator of the call is gone, and what follows is dropped.

    Raises:
        RuntimeError: what runs here is not a task with `num_returns="streaming"`.
    """
    client = current.client_or_none()
    executor = None if client is None else client.executor
    if executor is None:
        raise RuntimeError("emit() sends items of a task, and no task runs here: call it in a remote function")
    return executor.emit(item)


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Send what is said within this block in few messages, at its end or when it waits, instead of each at once.

    For loops that submit calls, resume and drop many streams. What it holds back is sent after about a millisecond even
    if the block goes on. Without a job nothing is held back.
    """
    client = current.client_or_none()
    if client is None:
        yield
        return
    with client.outbox.gathering():
        yield
