"""A queue that tasks, actors and the driver share. Its items are in an actor.

Actors run one call at a time. A call that waited in the actor for an item or for room would block the call that brings
it. So the actor always answers at once, and a process that has to wait polls: soon at first, then less and less often,
so that the actor has time for others. A task lends its CPU in each poll, so that the calls it waits for can run.
"""

from __future__ import annotations

import math
import operator
import queue
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mpi_runtime import ActorHandle, ObjectRef, get, kill, remote, wait
from mpi_runtime.errors import ActorDiedError
from mpi_runtime.errors.arguments import check_bool, seconds

PAUSE_MIN_S = 0.001
PAUSE_MAX_S = 0.05


class Empty(queue.Empty):
    """The queue is empty, or has fewer items than requested. Also the standard library's `queue.Empty`."""


class Full(queue.Full):
    """The queue has no room. Also the standard library's `queue.Full`."""


class Queue:
    """A first-in, first-out queue for all processes of the job, with the interface of the standard library's.

    Tasks and actors get it like any value: each copy is the same queue. It ends with its items when the last copy is
    gone, or by `shutdown`; after that every call raises `ActorDiedError`. An item that is an `ObjectRef` stands for its
    value, as in every remote call; inside a container it stays a reference.

        @mpi_runtime.remote
        def produce(queue):
            for n in range(3):
                queue.put(n)

        queue = Queue(maxsize=2)
        produce.remote(queue)
        print([queue.get(timeout=10) for _ in range(3)])  # [0, 1, 2]

    Waiting processes are served in no particular order. A timeout bounds the wait for items or for room, not the start
    of the actor or the transfer of a value.

    Args:
        maxsize: the largest number of items; 0 or less: no limit.
        actor_options: options of the actor of the queue, as for `remote`: `{"num_cpus": 1}`.

    Raises:
        TypeError: `maxsize` is not a whole number.
        ValueError: an option does not exist, or its value is out of bounds.
    """

    def __init__(self, maxsize: int = 0, actor_options: Mapping[str, object] | None = None) -> None:
        self.maxsize = operator.index(maxsize)
        self.actor: Any = remote(_QueueItems).options(**(actor_options or {})).remote(self.maxsize)

    def __len__(self) -> int:
        return self.qsize()

    def qsize(self) -> int:
        """The number of items in the queue. Other processes may change it at any time."""
        size: int = get(self._alive().size.remote())
        return size

    def size(self) -> int:
        """The same as `qsize()`."""
        return self.qsize()

    def empty(self) -> bool:
        """Whether the queue has no items."""
        return self.qsize() == 0

    def full(self) -> bool:
        """Whether the queue has no room; never true without a limit."""
        return self._is_full(self.qsize())

    def put(self, item: object, block: bool = True, timeout: float | None = None) -> None:
        """Add an item at the end.

        Args:
            item: any value that can be serialised.
            block: whether to wait for room. False: `timeout` is ignored.
            timeout: the most seconds to wait; None waits without a limit.

        Raises:
            Full: there was no room in time.
            ValueError: `timeout` is negative.
            ActorDiedError: the queue was shut down.
        """
        for pause in pauses(block, timeout):
            time.sleep(pause)
            # Asks for room before it sends the item again, which may be large.
            if not (pause and self.full()) and get(self._alive().put.remote(item)):
                return
        raise self._full()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Remove the first item and return it.

        Args:
            block: whether to wait for an item. False: `timeout` is ignored.
            timeout: the most seconds to wait; None waits without a limit.

        Raises:
            Empty: there was no item in time.
            ValueError: `timeout` is negative.
            ActorDiedError: the queue was shut down.
        """
        for pause in pauses(block, timeout):
            time.sleep(pause)
            if items := get(self._alive().take.remote(1)):
                return items[0]
        raise Empty("The queue is empty")

    async def put_async(self, item: object, block: bool = True, timeout: float | None = None) -> None:
        """Like `put`, for coroutines: others run while it waits."""
        import asyncio  # not at the top: callers have loaded it, other programs do not need it

        for pause in pauses(block, timeout):
            await asyncio.sleep(pause)
            if not self._is_full(await _value(self._alive().size.remote())) and get(self._alive().put.remote(item)):
                return
        raise self._full()

    async def get_async(self, block: bool = True, timeout: float | None = None) -> Any:
        """Like `get`, for coroutines: others run while it waits.

        If it is cancelled, no item is lost.
        """
        import asyncio

        for pause in pauses(block, timeout):
            await asyncio.sleep(pause)
            # The item is not awaited: a cancellation at that moment would lose it. `get` does not block for long,
            # because the actor has just answered.
            if await _value(self._alive().size.remote()) and (items := get(self._alive().take.remote(1))):
                return items[0]
        raise Empty("The queue is empty")

    def put_nowait(self, item: object) -> None:
        """Add an item at the end if there is room: `put(item, block=False)`.

        Raises:
            Full: there is no room.
        """
        self.put(item, block=False)

    def get_nowait(self) -> Any:
        """Remove the first item if there is one, and return it: `get(block=False)`.

        Raises:
            Empty: there is no item.
        """
        return self.get(block=False)

    def put_nowait_batch(self, items: Iterable[object]) -> None:
        """Add several items next to each other in one call: all or none.

            queue.put_nowait_batch([1, 2, 3])

        Raises:
            Full: there is no room for all of them.
            TypeError: `items` is not iterable.
        """
        if not isinstance(items, Iterable):
            raise TypeError(f"put_nowait_batch() needs several items, such as a list, not {items!r}")
        items = list(items)
        if not get(self._alive().put_all.remote(items)):
            raise Full(f"The queue has no room for {len(items)} more items: its maxsize is {self.maxsize}")

    def get_nowait_batch(self, num_items: int) -> list[Any]:
        """Remove the first `num_items` items in one call and return them: all or none.

        Raises:
            Empty: there are fewer items.
            TypeError: `num_items` is not a whole number.
            ValueError: `num_items` is negative.
        """
        if not isinstance(num_items, int):
            raise TypeError(f"get_nowait_batch() needs a whole number, not {num_items!r}")
        if num_items < 0:
            raise ValueError(f"get_nowait_batch() cannot take {num_items} items: the number must be 0 or more")
        items: list[Any] | None = get(self._alive().take.remote(num_items))
        if items is None:
            raise Empty(f"There are fewer than {num_items} items in the queue")
        return items

    def shutdown(self, force: bool = False, grace_period_s: float = 5) -> None:
        """End the queue for all processes. Its items are lost. A second call does nothing.

        Args:
            force: end it at once; unfinished calls raise `ActorDiedError`.
            grace_period_s: without `force`, the most seconds to wait for unfinished calls of this process.
        """
        if self.actor is None:
            return
        if not force:
            # Calls of one process run in order: when this one has ended, so have those before it.
            wait([self._alive().size.remote()], timeout=grace_period_s)
        kill(self.actor)
        self.actor = None

    def _alive(self) -> ActorHandle:
        if self.actor is None:
            raise ActorDiedError("The queue was shut down by this process: make another.")
        actor: ActorHandle = self.actor
        return actor

    def _is_full(self, size: int) -> bool:
        return 0 < self.maxsize <= size

    def _full(self) -> Full:
        return Full(f"The queue is full: its maxsize is {self.maxsize}")


class _QueueItems:
    """The actor of a queue. It answers at once, with values also for failures, because errors would cost more."""

    def __init__(self, maxsize: int) -> None:
        self._maxsize = maxsize
        self._items: deque[object] = deque()

    def size(self) -> int:
        return len(self._items)

    def put(self, item: object) -> bool:
        return self.put_all([item])

    def put_all(self, items: list[object]) -> bool:
        if 0 < self._maxsize < len(self._items) + len(items):
            return False
        self._items.extend(items)
        return True

    def take(self, count: int) -> list[object] | None:
        if count > len(self._items):
            return None
        return [self._items.popleft() for _ in range(count)]


def pauses(block: bool, timeout: float | None) -> Iterator[float]:
    """The pauses in seconds before each attempt: 0 before the first; the last ends with the timeout."""
    check_bool("block", block)
    timeout = seconds(timeout) if block else 0.0
    if timeout is not None and timeout < 0:
        raise ValueError(f"'timeout' must be a non-negative number of seconds, not {timeout!r}")
    end = math.inf if timeout is None else time.monotonic() + timeout
    yield 0.0
    pause = PAUSE_MIN_S
    while (left := end - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(2 * pause, PAUSE_MAX_S)


async def _value(ref: ObjectRef[object]) -> Any:
    """Await a value. Not by `await ref`: a task would keep its CPU, which the calls it waits for may need."""
    import asyncio

    for pause in pauses(True, None):
        await asyncio.sleep(pause)
        if wait([ref], timeout=0)[0]:
            break
    return get(ref)
