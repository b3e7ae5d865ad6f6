"""Writes a recording, a file of all events of the scheduler, if MPI_RUNTIME_RECORD names one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from io import BufferedWriter, FileIO

from mpi_runtime.scheduler.core import Scheduler
from mpi_runtime.scheduler.recording import RecordedScheduler

BUFFER_BYTES = 1 << 18
NAMES_MAX = 1000
"""The most recordings with one name: each job of each run of a program makes one."""


class Recorder:
    """A recording, and the scheduler that writes it."""

    def __init__(self, path: str) -> None:
        """Create the file. An existing file is never overwritten: then .2, .3, ... is added to the name.

        Raises:
            OSError: no file can be made there.
        """
        self._path = path
        self._file = _new_file(path)
        self.scheduler: Scheduler = RecordedScheduler(lambda data: self._perform(partial(self._file.write, data)))

    def flush(self) -> None:
        """Write the buffer. Call it when there is no other work."""
        self._perform(self._file.flush)

    def close(self) -> None:
        """Write the buffer, and close the file."""
        self._perform(self._file.close)

    def _perform(self, write: Callable[[], object]) -> None:
        """Write. If that fails, as on a full disk, the recording ends here, and the job continues."""
        if self._file.closed:
            return
        try:
            write()
        except OSError as error:
            self._file.raw.close()  # closes the file without another attempt to write its buffer
            text = f"the recording {self._path} cannot be written any more: {error.strerror}"
            print(f"mpi_runtime: {text}. The job continues without it", file=sys.stderr, flush=True)


def new_recorder(path: str) -> Recorder | None:
    """Return a recorder. If the file cannot be made, the job runs without a recording."""
    try:
        return Recorder(path)
    except OSError as error:
        print(f"mpi_runtime: the job is not recorded: {error}", file=sys.stderr, flush=True)
        return None


def _new_file(path: str) -> BufferedWriter[FileIO]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    for number in range(1, NAMES_MAX + 1):
        try:  # only for the user: it has the content of calls
            descriptor = os.open(path if number == 1 else f"{path}.{number}", flags, 0o600)
        except FileExistsError:
            continue
        return BufferedWriter(FileIO(descriptor, "wb"), BUFFER_BYTES)
    raise FileExistsError(f"{path} and {NAMES_MAX - 1} files with numbers after that name exist already")
