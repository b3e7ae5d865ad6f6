"""The file into which the head writes what its scheduler is told, if MPI_RUNTIME_RECORD names one."""

from __future__ import annotations

import os
from typing import BinaryIO

from mpi_runtime.scheduler.core import Scheduler
from mpi_runtime.scheduler.recording import RecordedScheduler

BUFFER_BYTES = 1 << 18
NAMES_MAX = 1000
"""Recordings beside each other: one for each job of a program, and for each run."""


class Recorder:
    """A file that is written, by and by, and a scheduler that does so."""

    def __init__(self, path: str) -> None:
        """Write to this path or, since what is there is never written over, to the first free of it with .2, .3, ...

        Raises:
            OSError: no file can be made there.
        """
        self._file = _new_file(path)
        self.scheduler: Scheduler = RecordedScheduler(self._file.write)

    def flush(self) -> None:
        """There is time to write what is buffered."""
        self._file.flush()

    def close(self) -> None:
        """Write the rest."""
        self._file.close()


def _new_file(path: str) -> BinaryIO:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    for number in range(1, NAMES_MAX + 1):
        try:  # for the user alone: what is in calls is in it
            descriptor = os.open(path if number == 1 else f"{path}.{number}", flags, 0o600)
        except FileExistsError:
            continue
        return os.fdopen(descriptor, "wb", BUFFER_BYTES)
    raise FileExistsError(f"{path} and {NAMES_MAX - 1} others of its kind are there already")
