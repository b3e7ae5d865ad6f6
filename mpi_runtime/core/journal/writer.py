"""Writes the records of a run in a thread, so that nothing waits for a disk.

A second thread flushes them to the disk. That may take seconds; records written meanwhile outlive this process too.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from pathlib import Path

from mpi_runtime.files import segments
from mpi_runtime.files.claim import BEAT_S, Claim

BATCHES_MAX = 10_000
"""This many turns of the head may wait to be written. Further calls are not recorded."""


class Writer:
    """A thread that adds to one segment."""

    def __init__(self, directory: Path, began: segments.Began, claim: Claim, sync_s: float) -> None:
        """Begin a segment. Records are flushed to the disk every `sync_s` seconds; below 0: by the kernel.

        Raises:
            OSError: it cannot be made.
        """
        self.problem = ""
        """Why writing has ended early; empty: it has not."""
        self.path, self._file = segments.create(directory)
        self._claim = claim
        self._sync_s = sync_s
        self._is_unsynced = threading.Event()
        self._is_over = threading.Event()
        self._batches: queue.Queue[list[segments.Body] | None] = queue.Queue(BATCHES_MAX)
        self._write([began])
        self._syncs = threading.Thread(target=self._run_syncs, name="mpi_runtime journal sync", daemon=True)
        self._thread = threading.Thread(target=self._run, name="mpi_runtime journal", daemon=True)
        if sync_s >= 0:
            self._syncs.start()
        self._thread.start()

    def give(self, batch: list[segments.Body]) -> bool:
        """Queue these records to be written; return False if too many wait."""
        try:
            self._batches.put_nowait(batch)
        except queue.Full:
            return False
        return True

    def close(self, limit_s: float) -> bool:
        """Write the rest, and end; return whether that was done within the limit."""
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
                self._claim.beat()  # before writing: another job may have taken the journal over
                if batch:
                    self._write(batch)
        except Exception as error:
            self._fail(error)
        finally:
            self._is_over.set()
            self._is_unsynced.set()
            if self._sync_s >= 0:
                self._syncs.join()
            self._file.close()

    def _run_syncs(self) -> None:
        try:
            while not self._is_over.wait(self._sync_s):
                self._is_unsynced.wait()
                self._sync()
            self._sync()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.problem = self.problem or f"{getattr(error, 'strerror', None) or repr(error)} ({self.path})"

    def _next(self) -> list[segments.Body] | None:
        """Return the next records; an empty list after `BEAT_S` without any; None at the end."""
        try:
            return self._batches.get(timeout=BEAT_S)
        except queue.Empty:
            return []

    def _write(self, batch: list[segments.Body]) -> None:
        segments.write_all(self._file, b"".join(map(segments.frame, batch)))
        self._is_unsynced.set()

    def _sync(self) -> None:
        self._is_unsynced.clear()
        os.fsync(self._file.fileno())
