"""A queue that tasks, actors and the driver share: its items live in an actor.

Actors run one call at a time here. A call that waited in the actor for an item or for room would keep out the call that
brings it, so the actor only ever answers at once, and whoever has to wait asks again: soon at first, so that
a short wait stays short, then more and more seldom, so that many who wait long leave the actor time for others. A task
that waits so gives up its CPU each time it asks: those it waits for can run.
"""

from __future__ import annotations

import math
import operator
import queue
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mpi_runtime import ObjectRef, get, kill, remote, wait
from mpi_runtime.errors import ActorDiedError

PAUSE_MIN_S = 0.001
PAUSE_MAX_S = 0.05


class Empty(queue.Empty):
    """There is nothing in the queue, or less than was asked for; also an instance of the standard library's `Empty`."""


class Full(queue.Full):
    """There is no room in the queue; also an instance of the standard library's `Full`."""


class Queue:
    """A first-in, first-out queue for all processes of the job, with the interface of the standard library's.

    It can be passed to tasks and actors like any value: each copy is the same queue. It ends, with what is in it, when
    the last copy is gone or by `shutdown`, after which every call raises `ActorDiedError`. An item that is an
    `ObjectRef` by itself stands for its value, as in every remote call; inside a container it stays a reference.

        @mpi_runtime.remote
        def produce(queue):
            for n in range(3):
                queue.put(n)

        queue = Queue(maxsize=2)
        produce.remote(queue)
        print([queue.get(timeout=10) for _ in range(3)])  # [0, 1, 2]

    Those that wait are served in no particular order. A timeout bounds the waiting for items or for room, not the
    time in which the actor starts or a value is brought.

    Args:
        maxsize: how many items it can hold; 0 or less for no limit, as with Python's own queues and Ray's.
        actor_options: options of the actor behind it, as for `remote`: `{"num_cpus": 1}`.

    Raises:
        TypeError: `maxsize` is not a whole number.
        ValueError: there is no such option, or its value is out of bounds.
    """

    def __init__(self, maxsize: int = 0, actor_options: Mapping[str, Any] | None = None) -> None:
        self.maxsize = operator.index(maxsize)
        self.actor: Any = remote(_QueueItems).options(**(actor_options or {})).remote(self.maxsize)

    def __len__(self) -> int:
        return self.qsize()

    def qsize(self) -> int:
        """How many items are in the queue; others may change that at any time."""
        size: int = get(self._alive().size.remote())
        return size

    def size(self) -> int:
        """The same as `qsize()`."""
        return self.qsize()

    def empty(self) -> bool:
        """Whether there is no item in the queue."""
        return self.qsize() == 0

    def full(self) -> bool:
        """Whether there is no room in the queue; never without a limit."""
        return self._is_full(self.qsize())

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Add an item at the end.

        Args:
            item: any value that can be serialised.
            block: wait for room; False: do not, and take no notice of `timeout`.
            timeout: seconds to wait at most; None for as long as it takes.

        Raises:
            Full: there was no room in time.
            ValueError: `timeout` is negative.
            ActorDiedError: the queue was shut down.
        """
        for pause in pauses(block, timeout):
            time.sleep(pause)
            # Looks for room before it sends the item again, which may be large.
            if not (pause and self.full()) and get(self._alive().put.remote(item)):
                return
        raise self._full()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Take the first item out and return it.

        Args:
            block: wait for an item; False: do not, and take no notice of `timeout`.
            timeout: seconds to wait at most; None for as long as it takes.

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

    async def put_async(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Add an item at the end, as `put` does; other coroutines run while it waits."""
        import asyncio  # not at the top: who calls this has it, and others need not wait for it

        for pause in pauses(block, timeout):
            await asyncio.sleep(pause)
            if not self._is_full(await _value(self._alive().size.remote())) and get(self._alive().put.remote(item)):
                return
        raise self._full()

    async def get_async(self, block: bool = True, timeout: float | None = None) -> Any:
        """Take the first item out and return it, as `get` does; other coroutines run while it waits.

        If it is cancelled no item is lost.
        """
        import asyncio

        for pause in pauses(block, timeout):
            await asyncio.sleep(pause)
            # The item is not awaited: a coroutine that is cancelled just then would take it with it. Nor need it be:
            # the actor has just answered, so it is there, and has nothing to do that takes long.
            if await _value(self._alive().size.remote()) and (items := get(self._alive().take.remote(1))):
                return items[0]
        raise Empty("The queue is empty")

    def put_nowait(self, item: Any) -> None:
        """Add an item at the end if there is room: `put(item, block=False)`.

        Raises:
            Full: there is no room.
        """
        self.put(item, block=False)

    def get_nowait(self) -> Any:
        """Take the first item out if there is one: `get(block=False)`.

        Raises:
            Empty: there is no item.
        """
        return self.get(block=False)

    def put_nowait_batch(self, items: Iterable[Any]) -> None:
        """Add several items in one call, next to each other: all or none.

            queue.put_nowait_batch([1, 2, 3])

        Raises:
            Full: there is no room for all of them.
            TypeError: not something to iterate over.
        """
        if not isinstance(items, Iterable):
            raise TypeError(f"put_nowait_batch() needs several items, such as a list, not {items!r}")
        items = list(items)
        if not get(self._alive().put_all.remote(items)):
            raise Full(f"The queue has no room for {len(items)} more items: its maxsize is {self.maxsize}")

    def get_nowait_batch(self, num_items: int) -> list[Any]:
        """Take the first `num_items` items out in one call and return them: all or none.

        Raises:
            Empty: there are fewer.
            TypeError, ValueError: not a whole number, or negative.
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
        """End the queue for all who have it; what is in it is gone. Once more does nothing.

        Args:
            force: at once; calls that have not ended raise `ActorDiedError`.
            grace_period_s: how many seconds, without `force`, the calls that this process has made may take to end.
        """
        if self.actor is None:
            return
        if not force:
            # Calls of one process run in order: when this one has ended, so have those before it.
            wait([self._alive().size.remote()], timeout=grace_period_s)
        kill(self.actor)
        self.actor = None

    def _alive(self) -> Any:
        if self.actor is None:
            raise ActorDiedError("The queue was shut down by this process: make another.")
        return self.actor

    def _is_full(self, size: int) -> bool:
        return 0 < self.maxsize <= size

    def _full(self) -> Full:
        return Full(f"The queue is full: its maxsize is {self.maxsize}")


class _QueueItems:
    """The actor behind a queue. Answers at once, with what was impossible as a value: errors would cost more."""

    def __init__(self, maxsize: int) -> None:
        self._maxsize = maxsize
        self._items: deque[Any] = deque()

    def size(self) -> int:
        return len(self._items)

    def put(self, item: Any) -> bool:
        return self.put_all([item])

    def put_all(self, items: list[Any]) -> bool:
        if 0 < self._maxsize < len(self._items) + len(items):
            return False
        self._items.extend(items)
        return True

    def take(self, count: int) -> list[Any] | None:
        if count > len(self._items):
            return None
        return [self._items.popleft() for _ in range(count)]


def pauses(block: bool, timeout: float | None) -> Iterator[float]:
    """The pauses before each attempt, in seconds: none before the first, and the last ends with the time allowed."""
    if not block:
        timeout = 0.0
    elif timeout is not None and timeout < 0:
        raise ValueError(f"'timeout' must be a non-negative number of seconds, not {timeout!r}")
    end = math.inf if timeout is None else time.monotonic() + timeout
    yield 0.0
    pause = PAUSE_MIN_S
    while (left := end - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(2 * pause, PAUSE_MAX_S)


async def _value(ref: ObjectRef[Any]) -> Any:
    """Await a value. Not by `await ref`: a task would keep its CPU meanwhile, and those it waits for may need it."""
    import asyncio

    for pause in pauses(True, None):
        await asyncio.sleep(pause)
        if wait([ref], timeout=0)[0]:
            break
    return get(ref)
