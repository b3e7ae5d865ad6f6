"""Writes the records of a run: a thread, so that nobody waits for a disk."""

from __future__ import annotations

import os
import queue
import threading
import time
from pathlib import Path

from mpi_runtime.journal import segments
from mpi_runtime.journal.claim import BEAT_S, Claim

BATCHES_MAX = 10_000
"""So many turns of the head may wait to be written. After that calls are not recorded."""


class Writer:
    """A thread that adds to one segment."""

    def __init__(self, directory: Path, began: segments.Began, claim: Claim, sync_s: float) -> None:
        """Begin a segment. What is given is on disk after `sync_s` seconds, or so; below 0: when the kernel likes.

        Raises:
            OSError: it cannot be made.
        """
        self.problem = ""
        """Why nothing is written any more."""
        self.path, self._file = segments.create(directory)
        self._claim = claim
        self._sync_s = sync_s
        self._is_synced = False
        self._synced_s = time.monotonic()
        self._batches: queue.Queue[list[segments.Body] | None] = queue.Queue(BATCHES_MAX)
        self._write([began])
        self._thread = threading.Thread(target=self._run, name="mpi_runtime journal", daemon=True)
        self._thread.start()

    def give(self, batch: list[segments.Body]) -> bool:
        """Have these records written; False: too much is waiting."""
        try:
            self._batches.put_nowait(batch)
        except queue.Full:
            return False
        return True

    def close(self, limit_s: float) -> bool:
        """Write the rest, and end; whether that was done within the limit."""
        deadline = time.monotonic() + limit_s
        while self._thread.is_alive() and time.monotonic() < deadline:
            try:
                self._batches.put(None, timeout=0.1)
                break
            except queue.Full:
                continue
        self._thread.join(max(0.0, deadline - time.monotonic()))
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while (batch := self._next()) is not None:
                if batch:
                    self._write(batch)
                if self._sync_s >= 0 and not self._is_synced and time.monotonic() - self._synced_s >= self._sync_s:
                    self._sync()
                self._claim.beat()
            if self._sync_s >= 0:
                self._sync()
        except Exception as error:
            self.problem = f"{getattr(error, 'strerror', None) or repr(error)} ({self.path})"
        finally:
            self._file.close()

    def _next(self) -> list[segments.Body] | None:
        """What is to be written; nothing if there is something else to do."""
        limit_s = BEAT_S if self._is_synced or self._sync_s < 0 else max(0.01, min(self._sync_s, BEAT_S))
        try:
            return self._batches.get(timeout=limit_s)
        except queue.Empty:
            return []

    def _write(self, batch: list[segments.Body]) -> None:
        data = memoryview(b"".join(map(segments.frame, batch)))
        self._is_synced = False
        while data:
            data = data[self._file.write(data) :]

    def _sync(self) -> None:
        os.fsync(self._file.fileno())
        self._is_synced, self._synced_s = True, time.monotonic()
