"""Calls in the background, a bounded number at a time. Each completes a `concurrent.futures.Future`.

The thread that serves `ref.future()` reports the end of a call. It exists only while calls are unfinished, so a pool
leaves no thread behind even if it is never closed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, TypeVar

from mpi_runtime import ObjectRef
from mpi_runtime.errors import MpiRuntimeError, RuntimeNotInitializedError, TaskError
from mpi_runtime.extend import blocked, future_of, job, job_or_none

T = TypeVar("T")
Pending = Future[Any]
"""The future of a call, whose result is what code of the user returns."""
S = TypeVar("S")


class Dispatcher(Generic[S]):
    """Starts calls in the order of submission, as many at a time as there are slots."""

    def __init__(
        self,
        name: str,
        slots: Iterable[S],
        ended: Callable[[S, BaseException | None], None] = lambda _slot, _error: None,
    ) -> None:
        """Serve the running job. Without a job, one with defaults is started.

        Each running call occupies one of the slots. `ended` is called when a call on a slot has ended, before the slot
        serves the next, with the error if it failed. `name` is for errors.
        """
        self._client = job()
        self._name = name
        self._slot_ended = ended
        self._lock = threading.RLock()
        """Used in place of the condition, whose `__enter__` is Python code: an interrupt there would leave it held."""
        self._changed = threading.Condition(self._lock)
        self._free = deque(slots)
        self._queue: deque[tuple[Pending, Callable[[S], ObjectRef[object]]]] = deque()
        self._is_closed = False
        self._unfinished = 0
        """Futures that are not done, or whose callbacks are running."""

    def submit(self, future: Pending, start: Callable[[S], ObjectRef[object]]) -> None:
        """Start a call when a slot is free, and complete the future with its result. RuntimeError: it was closed.

        Callbacks that the future has already do not run in the thread of the caller.
        """
        failed: list[tuple[Pending, BaseException]] = []
        # Ctrl-C between the two would leave a slot that is neither free nor in use.
        with self._client.outbox.interrupts:
            with self._lock:
                if self._is_closed:
                    raise RuntimeError(f"This {self._name} was shut down, and takes no calls any more.")
                self._unfinished += 1
                self._queue.append((future, start))
            failed = self._hand_out()
            if failed:
                # Not in this thread: it may hold locks that callbacks need.
                threading.Thread(target=self._fail, args=(failed,), daemon=True).start()
        for _, error in failed:
            if not isinstance(error, Exception):
                raise error

    def close(self) -> None:
        """Accept no more calls."""
        with self._lock:
            self._is_closed = True

    def cancel_waiting(self) -> None:
        """Cancel the futures of all calls that have not started."""
        with self._lock:
            waiting = [future for future, _ in self._queue]
            self._queue.clear()
            self._finished(len(waiting))  # at once: a callback may call `join`
        for future in waiting:
            future.cancel()
            future.set_running_or_notify_cancel()

    def join(self) -> None:
        """Wait until all futures are done and their callbacks have returned. In a callback it does nothing."""
        if getattr(_calling_back, "dispatcher", None) is self:
            return
        with blocked(), self._lock:
            self._changed.wait_for(lambda: not self._unfinished)

    def _finished(self, count: int = 1) -> None:
        with self._lock:
            self._unfinished -= count
            if not self._unfinished:
                self._changed.notify_all()

    def _hand_out(self) -> list[tuple[Pending, BaseException]]:
        """Start calls, and return those that failed to start. Serialising runs user code, so the lock is not held."""
        failed: list[tuple[Pending, BaseException]] = []
        while True:
            with self._lock:
                if not self._queue or not self._free:
                    return failed
                (future, start), slot = self._queue.popleft(), self._free.popleft()
            if not future.set_running_or_notify_cancel():
                self._free.append(slot)
                self._finished()
                continue
            try:
                if job_or_none() is not self._client:  # the call would start another job
                    raise RuntimeNotInitializedError(f"The job that this {self._name} belongs to has ended.")
                ref = start(slot)
            except BaseException as error:
                self._free.append(slot)
                failed.append((future, error.with_traceback(None)))
            else:
                # Not by `ref.future()`, which may be done at once, and would then call back in this thread.
                future_of(ref, partial(self._ended, slot, future))

    def _ended(self, slot: S, future: Pending, result: Future[object]) -> None:
        """Handle the end of a call. Its slot serves the next call before the future is completed."""
        error = result.exception()
        value = result.result() if error is None else None
        self._slot_ended(slot, error)
        self._free.append(slot)
        failed = self._hand_out()
        self._conclude(future, value, error)
        self._fail(failed)

    def _fail(self, failed: list[tuple[Pending, BaseException]]) -> None:
        for future, error in failed:
            self._conclude(future, None, error)

    def _conclude(self, future: Pending, value: object, error: BaseException | None) -> None:
        _calling_back.dispatcher = self
        if error is None:
            guarded(future.set_result, value)
        else:
            guarded(future.set_exception, of_user(error))
        _calling_back.dispatcher = None
        self._finished()


_calling_back = threading.local()


def guarded(callback: Callable[[T], object], value: T) -> None:
    """Run a callback. Its error is printed, and does not end this thread, which others need."""
    try:
        callback(value)
    except BaseException as error:
        thread = threading.current_thread()
        threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, thread)))


def of_user(error: BaseException) -> BaseException:
    """The error as user code raised it, with its own text, and the remote traceback as its cause."""
    if not isinstance(error, TaskError) or not isinstance(error.cause, Exception):
        return error
    cause = error.cause
    # Not by plain assignment: classes such as frozen data classes refuse that.
    BaseException.__setattr__(cause, "__cause__", MpiRuntimeError(error.traceback_str))
    return cause
