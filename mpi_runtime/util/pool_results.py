"""Results of a pool's calls, and iterators over them."""

from __future__ import annotations

import math
import multiprocessing
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from mpi_runtime.errors import ActorError, TaskCancelledError
from mpi_runtime.extend import blocked
from mpi_runtime.util.background_calls import Pending, guarded

T = TypeVar("T")
Work = tuple[Any, ...]
"""The name of a method of a process of the pool, and its arguments."""

TimeoutError = multiprocessing.TimeoutError


class AsyncResult(Generic[T]):
    """The result of calls of a pool: see `Pool.apply_async` and `Pool.map_async`."""

    def __init__(
        self,
        assemble: Callable[[list[Any]], T],
        futures: list[Pending],
        terminated: threading.Event,
        callback: Callable[[T], object] | None,
        error_callback: Callable[[BaseException], object] | None,
    ) -> None:
        self._assemble = assemble
        self._futures = futures
        self._terminated = terminated
        self._callback = callback
        self._error_callback = error_callback
        self._unfinished = len(futures)
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None
        if not futures:
            self._conclude()
        for future in futures:
            future.add_done_callback(self._one_ended)

    def get(self, timeout: float | None = None) -> T:
        """Wait for the result, at most `timeout` seconds, and return it.

        Raises:
            TimeoutError: the result was not ready in time; the `TimeoutError` of `multiprocessing`.
            Exception: the error of the call. Of several calls the first error in order, when all have ended.
                `ActorDiedError` if the process died, `TaskCancelledError` if the pool was terminated.
        """
        self.wait(timeout)
        if not self.ready():
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[no-any-return]

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the result is ready, at most `timeout` seconds."""
        if not self.ready():
            with blocked():
                self._ended.wait(timeout)

    def ready(self) -> bool:
        """Whether the calls have ended."""
        return self._ended.is_set()

    def successful(self) -> bool:
        """Whether the calls have ended without an exception.

        Raises:
            ValueError: they have not ended.
        """
        if not self.ready():
            raise ValueError("successful() may be called only after ready()")
        return self._error is None

    def _one_ended(self, _: Pending) -> None:
        with self._lock:
            self._unfinished -= 1
            if self._unfinished:
                return
        self._conclude()

    def _conclude(self) -> None:
        try:
            self._value = self._assemble([future.result() for future in self._futures])
        except BaseException as error:
            self._error = terminated() if self._terminated.is_set() else error.with_traceback(None)
        self._futures = []
        # Before the result is visible: code that waits for the result may rely on the callback.
        if self._error is None and self._callback is not None:
            guarded(self._callback, self._value)
        if self._error is not None and self._error_callback is not None and not self._terminated.is_set():
            guarded(self._error_callback, self._error)
        self._ended.set()


class IMapIterator(Iterator[T]):
    """An iterator over the results of `Pool.imap` and `Pool.imap_unordered`."""

    def __init__(
        self, submit: Callable[[Pending, Work], None], chunks: Iterator[Work], is_ordered: bool, ahead_max: float
    ) -> None:
        self._submit = submit
        self._is_ordered = is_ordered
        self._ahead_max = ahead_max
        self._lock = threading.RLock()
        """As that of a `Dispatcher`."""
        self._changed = threading.Condition(self._lock)
        self._line: deque[Future[list[T]]] = deque()
        """Chunks with unread results, in the order in which they started, or in which they ended."""
        self._ahead = 0
        """The number of chunks that have started and were not read."""
        self._is_fed = False
        """Whether all chunks have started."""
        self._is_stopped = False
        self._items: Iterator[T] = iter(())
        self._feeder = threading.Thread(target=self._feed, args=(chunks,), name="mpi_runtime pool imap", daemon=True)
        self._feeder.start()

    def __next__(self) -> T:
        return self.next()

    def next(self, timeout: float | None = None) -> T:
        """Wait for the next result, at most `timeout` seconds, and return it.

        Raises:
            StopIteration: there are no more results.
            TimeoutError: the result was not ready in time; the `TimeoutError` of `multiprocessing`.
            Exception: the error of the call, or of the iterable of the arguments. Later results can still be read.
        """
        while True:
            for item in self._items:
                return item
            with self._lock:
                if not self._can_read():
                    with blocked():
                        if not self._changed.wait_for(self._can_read, timeout):
                            raise TimeoutError
                if not self._line:
                    raise StopIteration
                future = self._line.popleft()
                self._ahead -= 1
                self._changed.notify_all()
            # The error of a call in a killed process names the kill. The true cause is `terminate`.
            if future.cancelled() or (self._is_stopped and isinstance(future.exception(), ActorError)):
                raise terminated()
            self._items = iter(future.result())

    def _can_read(self) -> bool:
        if self._line:
            return self._line[0].done()
        return self._is_fed and not self._ahead

    def _feed(self, chunks: Iterator[Work]) -> None:
        """Start chunks, at most `_ahead_max` ahead of the reader."""
        try:
            for chunk in chunks:
                with self._lock:
                    self._changed.wait_for(lambda: self._is_stopped or self._ahead < self._ahead_max)
                    if self._is_stopped:
                        raise terminated()
                self._begin(chunk)
        except BaseException as error:
            failed: Future[list[T]] = Future()
            failed.set_exception(error)
            with self._lock:
                self._line.append(failed)
                self._ahead += 1
        with self._lock:
            self._is_fed = True
            self._changed.notify_all()

    def _begin(self, chunk: Work) -> None:
        future: Future[list[T]] = Future()
        future.add_done_callback(self._one_ended)
        with self._lock:
            self._ahead += 1
            if self._is_ordered:
                self._line.append(future)
        self._submit(future, chunk)

    def _one_ended(self, future: Future[list[T]]) -> None:
        with self._lock:
            if not self._is_ordered:
                self._line.append(future)
            self._changed.notify_all()

    def _stop(self) -> None:
        """Start no more chunks."""
        with self._lock:
            self._is_stopped = True
            self._changed.notify_all()

    def _feed_all(self) -> None:
        """Start all chunks, even if their results are not read, and wait until they have started."""
        with self._lock:
            self._ahead_max = math.inf
            self._changed.notify_all()
        self._feeder.join()


def terminated() -> TaskCancelledError:
    """The error of calls that were unfinished when their pool was terminated."""
    return TaskCancelledError("the pool was terminated before the call had ended")
