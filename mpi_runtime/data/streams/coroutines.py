"""Calls asynchronous functions: several calls at a time, whose results are in the order of the calls.

The event loop of a process has a thread of its own, and lasts as long as the process. So an instance of a class keeps
what belongs to a loop, such as connections, and they stay alive while the task rests.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, TypeVar

K = TypeVar("K")
_STARTING = threading.Lock()
_loops: list[asyncio.AbstractEventLoop] = []


def in_order(
    call: Callable[[Any], Any], items: Iterable[tuple[K, object]], most: int, is_flat: bool
) -> Iterator[tuple[K, Callable[[], list[Any]]]]:
    """Call a function with the second part of each item, `most` at a time.

    Yield the first part, and a function that returns the results of the call, or raises its error. An asynchronous
    generator has several results, and so has a list if `is_flat`. Up to `most` calls that have ended wait for one
    before them.
    """
    loop = _running_loop()
    calls: deque[tuple[K, Future[list[Any] | BaseException]]] = deque()
    try:
        for name, item in items:
            calls.append((name, asyncio.run_coroutine_threadsafe(_results(call, item, is_flat), loop)))
            while calls and (len(running := _not_done(calls)) >= most or len(calls) >= 2 * most or not running):
                if calls[0][1].done() or len(calls) >= 2 * most:
                    yield _taken(*calls.popleft())
                else:
                    wait(running, return_when=FIRST_COMPLETED)
        while calls:
            yield _taken(*calls.popleft())
    finally:
        for _, future in calls:
            future.cancel()


def _not_done(calls: Iterable[tuple[K, Future[Any]]]) -> list[Future[Any]]:
    return [future for _, future in calls if not future.done()]


def _taken(name: K, future: Future[list[Any] | BaseException]) -> tuple[K, Callable[[], list[Any]]]:
    def results() -> list[Any]:
        found = future.result()
        if isinstance(found, BaseException):
            raise found
        return found

    return name, results


async def _results(call: Callable[[Any], Any], item: object, is_flat: bool) -> list[Any] | BaseException:
    try:
        made = call(item)
        if inspect.isasyncgen(made):
            return [one async for one in made]
        result = await made
        return list(result) if is_flat else [result]
    except (KeyboardInterrupt, SystemExit) as error:
        return error  # it would end the thread of the loop, and nobody would hear of it


def _running_loop() -> asyncio.AbstractEventLoop:
    with _STARTING:
        if not _loops:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="mpi_runtime coroutines", daemon=True).start()
            _loops.append(loop)
        return _loops[0]
