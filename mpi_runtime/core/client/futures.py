"""Futures of values, for programs and coroutines that do not wait in `get`.

One thread of the client waits for all of them, and exists only as long as it has something to wait for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mpi_runtime.core.client.references import References
from mpi_runtime.core.client.store import Store
from mpi_runtime.core.client.waiting import Waiting
from mpi_runtime.errors import MpiRuntimeError

if TYPE_CHECKING:
    from concurrent.futures import Future  # slow to load, and most programs use none

    _Pair = tuple[object, Future[object] | "Outcome[Any]"]

T = TypeVar("T")


class Outcome(Generic[T]):
    """The value or the error of a call that has ended. It takes the place of a future that nothing waits for.

    A future has a lock and a condition, which would cost a command of a batch as much as its journal.
    """

    __slots__ = ("_error", "_then", "_value")

    def __init__(self, then: Callable[[Outcome[T]], None]) -> None:
        """`then` is called with this once, in the thread of the futures. It must not raise."""
        self._then = then
        self._error: BaseException | None = None

    def set_running_or_notify_cancel(self) -> bool:
        """Nothing can cancel this."""
        return True

    def set_result(self, value: T) -> None:
        """The call has ended with a value."""
        self._value = value
        self._then(self)

    def set_exception(self, error: BaseException) -> None:
        """The call has ended with an error."""
        self._error = error
        self._then(self)

    def exception(self) -> BaseException | None:
        """The error; None: it has a value."""
        return self._error

    def result(self) -> T:
        """The value, or raise the error."""
        if self._error is not None:
            raise self._error
        return self._value


class RefFutures:
    """The futures of one client that are not done."""

    def __init__(self, waiting: Waiting, references: References, store: Store) -> None:
        self._values = references.values
        self._for = waiting
        self._store = store
        self._lock = threading.Lock()
        self._waiting: dict[bytes, list[_Pair]] = {}
        self._is_served = False
        """Whether the thread exists and will read `_waiting` again."""

    def add(self, id: bytes, keep: object, future: Future[Any] | Outcome[Any]) -> None:
        """Complete a future with an object's value, never in the caller's thread.

        It is running from now on: cancelling it would not cancel the call. `keep` is a reference to the object.
        """
        future.set_running_or_notify_cancel()
        with self._lock:
            self._waiting.setdefault(id, []).append((keep, future))
            is_here = self._for.expect(id)
            waiting = self._waiting.pop(id) if is_here else []
            is_served = self._is_served
            self._is_served = is_served or not is_here
        if is_here:
            self._start(partial(self._settle_all, waiting, id))
            return
        self._for.ask_for(id)
        if not is_served:
            self._start(self._serve)

    def drop(self, id: bytes, future: Future[object]) -> None:
        """Do not complete a future of an object: nothing waits for it any more, and the value may never arrive."""
        with self._lock:
            left = [pair for pair in self._waiting.get(id, ()) if pair[1] is not future]
            if left:
                self._waiting[id] = left
            elif self._waiting.pop(id, None) is not None:
                self._for.expect_no_more(id)

    def _start(self, target: Callable[[], None]) -> None:
        threading.Thread(target=target, name="mpi_runtime futures", daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                arrived = self._for.wait_for_expected()
            except MpiRuntimeError as error:
                self._fail(error)
                return
            for id in arrived:
                self._finish(id)
            with self._lock:
                if not self._waiting:
                    self._is_served = False
                    return

    def _finish(self, id: bytes) -> None:
        with self._lock:
            waiting = self._waiting.pop(id, [])
        self._settle_all(waiting, id)

    def _settle_all(self, waiting: list[_Pair], id: bytes) -> None:
        for _, future in waiting:
            self._settle(future, id)

    def _settle(self, future: Future[object] | Outcome[object], id: bytes) -> None:
        try:
            value = self._for.get([id], None)[0]
        except BaseException as error:
            future.set_exception(error.with_traceback(None))  # its frames would keep the future, and so the error
        else:
            future.set_result(value)

    def _fail(self, error: MpiRuntimeError) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, {}
            self._is_served = False
        for pairs in waiting.values():
            for _, future in pairs:
                future.set_exception(error)
