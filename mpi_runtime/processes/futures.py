"""Values for those who do not wait themselves: futures, and through them coroutines.

One thread of the client waits for all of them. It exists only while there is something to wait for.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from mpi_runtime.errors import MpiRuntimeError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from mpi_runtime.processes.client import Client
    from mpi_runtime.refs import ObjectRef


class Futures:
    """The futures of one client that are not done."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._waiting: dict[bytes, list[tuple[ObjectRef[Any], Future[Any]]]] = {}
        self._is_served = False
        """Whether the thread is there and will look at `_waiting` once more."""

    def add(self, ref: ObjectRef[Any]) -> Future[Any]:
        """A future for a reference's value. It is running from the start: cancelling it would not cancel the call."""
        from concurrent.futures import Future  # not at the top: it is slow to load, and most programs use none

        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        id = ref.binary()
        with self._lock:
            self._waiting.setdefault(id, []).append((ref, future))
            is_served, self._is_served = self._is_served, True
        # Only now: what arrived before is in `values`, what arrives from now on is noted for the thread.
        self._client.expect(id)
        if not is_served:
            threading.Thread(target=self._serve, name="mpi_runtime futures", daemon=True).start()
        return future

    def _serve(self) -> None:
        while True:
            try:
                arrived = self._client.wait_for_expected()
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
        for _, future in waiting:
            self._settle(future, id)

    def _settle(self, future: Future[Any], id: bytes) -> None:
        try:
            value = self._client.load(self._client.values[id])
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(value)

    def _fail(self, error: MpiRuntimeError) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, {}
            self._is_served = False
        for pairs in waiting.values():
            for _, future in pairs:
                future.set_exception(error)
