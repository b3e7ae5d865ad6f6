"""A pool of actors that share work. Each actor has one call at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any, TypeVar

from mpi_runtime import ActorHandle, ObjectRef, get, wait

V = TypeVar("V")


class ActorPool:
    """Spreads calls over actors that do the same work.

    An actor is idle again once the result of its call is collected, also if the call failed. Until an actor is idle,
    calls wait in the pool, in the order of `submit`. A pool belongs to one thread and one process.

        @mpi_runtime.remote
        class Worker:
            def double(self, x):
                return 2 * x

        pool = ActorPool([Worker.remote() for _ in range(4)])
        print(list(pool.map(lambda worker, x: worker.double.remote(x), range(100))))

    Args:
        actors: handles of the first actors; may be empty. `push` adds more.
    """

    def __init__(self, actors: Iterable[ActorHandle]) -> None:
        self._idle_actors = list(actors)
        self._waiting: deque[tuple[Callable[[ActorHandle, Any], object], object]] = deque()
        """Calls that wait for an idle actor, in the order of submission."""
        self._running: dict[int, tuple[Any, ActorHandle | None]] = {}
        """By number in the order of submission: references and the actor of the call, or an error without an actor."""
        self._numbers = count()
        self._highest_collected = -1

    def map(self, fn: Callable[[ActorHandle, V], object], values: Iterable[V]) -> Iterator[Any]:
        """Apply `fn` to each value with some actor, and iterate over the results in the order of the values.

        All values are submitted at once, before the first result is read. Uncollected results of earlier submissions
        are dropped; their calls still run. `fn(actor, value)` must return the reference of a call of the actor.

        Raises:
            Exception: the error of a call, in the place of its result. The iteration ends there; `get_next` returns the
                later results.
        """
        self._submit_afresh(fn, values)
        return self._collect(self.get_next)

    def map_unordered(self, fn: Callable[[ActorHandle, V], object], values: Iterable[V]) -> Iterator[Any]:
        """Like `map`, but yields each result as soon as it is ready."""
        self._submit_afresh(fn, values)
        return self._collect(self.get_next_unordered)

    def submit(self, fn: Callable[[ActorHandle, V], object], value: V) -> None:
        """Start `fn(actor, value)` with an idle actor, or as soon as there is one.

        `fn` must return the reference of a call of the actor, or its list of references if `num_returns` is above 1.

        Raises:
            TypeError: `fn` returned something else.
            Exception: the error of `fn`. If no actor is idle, this and TypeError are raised in the place of the result.
        """
        if self._idle_actors:
            self._start(fn, value)
        else:
            self._waiting.append((fn, value))

    def has_next(self) -> bool:
        """Whether there are results to collect, ready or not."""
        return bool(self._running)

    def get_next(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        """Wait for the next result in the order of submission and return it.

            pool.submit(lambda worker, x: worker.double.remote(x), 1)
            assert pool.get_next() == 2

        Args:
            timeout: the most seconds to wait; None waits without a limit, 0 does not wait.
            ignore_if_timedout: drop the result if it is not ready in time: the actor gets other work, and the next call
                returns the next result.

        Raises:
            StopIteration: there are no results to collect.
            TimeoutError: the result was not ready in time.
            ValueError: `get_next_unordered` has returned a later result before. Collect the rest with it too.
            Exception: the error of the call. Its actor is back in the pool.
        """
        self._check_not_empty()
        number = next(iter(self._running))
        if number < self._highest_collected:
            raise ValueError(
                "get_next() is not allowed after get_next_unordered(), which has returned a later result already. "
                "Collect the rest with get_next_unordered()."
            )
        return self._first_of([number], timeout, ignore_if_timedout)

    def get_next_unordered(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        """Wait until any result is ready and return it.

        Args:
            timeout: the most seconds to wait; None waits without a limit, 0 does not wait.
            ignore_if_timedout: if no result is ready in time, drop the one that was submitted first.

        Raises:
            StopIteration: there are no results to collect.
            TimeoutError: no result was ready in time.
            Exception: the error of the call. Its actor is back in the pool.
        """
        self._check_not_empty()
        return self._first_of(list(self._running), timeout, ignore_if_timedout)

    def has_free(self) -> bool:
        """Whether an actor is idle."""
        return bool(self._idle_actors)

    def pop_idle(self) -> ActorHandle | None:
        """Take an idle actor out of the pool and return it; None if no actor is idle."""
        return self._idle_actors.pop() if self._idle_actors else None

    def push(self, actor: ActorHandle) -> None:
        """Add an actor to the pool. It gets the first call that waits.

        Raises:
            ValueError: the actor is in the pool already.
            TypeError: it is not a handle of an actor.
        """
        if not isinstance(actor, ActorHandle):
            raise TypeError(f"an ActorPool has handles of actors, not {actor!r}")
        if actor in self._idle_actors or any(actor == busy for _, busy in self._running.values()):
            raise ValueError(f"{actor!r} is in this ActorPool already")
        self._release(actor)

    def _submit_afresh(self, fn: Callable[[ActorHandle, V], object], values: Iterable[V]) -> None:
        while self._running:
            self._forget(next(iter(self._running)))
        for value in values:
            self.submit(fn, value)

    def _collect(self, get_one: Callable[[], Any]) -> Iterator[Any]:
        while self.has_next():
            yield get_one()

    def _first_of(self, numbers: list[int], timeout: float | None, ignore_if_timedout: bool) -> Any:
        by_ref = {}
        for number in numbers:
            returned, _ = self._running[number]
            if isinstance(returned, Exception):
                self._highest_collected = max(self._highest_collected, number)
                raise self._forget(number)
            by_ref[_first_ref(returned)] = number
        ready, _ = wait(list(by_ref), timeout=timeout)
        if not ready:
            if ignore_if_timedout:
                self._forget(numbers[0])
            what = "it was dropped" if ignore_if_timedout else "a later call can return it"
            raise TimeoutError(f"No result in an ActorPool was ready within {timeout} s; {what}")
        number = by_ref[ready[0]]
        self._highest_collected = max(self._highest_collected, number)
        return get(self._forget(number))

    def _forget(self, number: int) -> Any:
        # The actor gets its next call before its result is read, which may take long or raise.
        returned, actor = self._running.pop(number)
        if actor is not None:
            self._release(actor)
        return returned

    def _release(self, actor: ActorHandle) -> None:
        self._idle_actors.append(actor)
        while self._idle_actors and self._waiting:
            fn, value = self._waiting.popleft()
            try:
                self._start(fn, value)
            except Exception as error:
                # Not raised here: the caller collects another result, and must not lose that to this error.
                self._running[next(self._numbers)] = error, None

    def _start(self, fn: Callable[[ActorHandle, V], object], value: V) -> None:
        actor = self._idle_actors.pop()
        try:
            returned = fn(actor, value)
            _first_ref(returned)
        except BaseException:
            self._idle_actors.append(actor)
            raise
        self._running[next(self._numbers)] = returned, actor

    def _check_not_empty(self) -> None:
        if not self.has_next():
            raise StopIteration("No results are left in this ActorPool")


def _first_ref(returned: object) -> ObjectRef[object]:
    """The reference that stands for all values of a call: a call ends with all of its values or with none."""
    first = returned[0] if isinstance(returned, (list, tuple)) and returned else returned
    if not isinstance(first, ObjectRef):
        raise TypeError(
            "The function of an ActorPool must return the reference of a call of the actor, as in "
            f"'lambda actor, value: actor.method.remote(value)'; it returned {returned!r}"
        )
    return first
