"""The allocation of a batch: the jobs that `batch --allocate` has submitted for it, and its record on disk.

One process at a time submits jobs: that with the claim in the directory of the record. It may be killed: the next one
reads the record, and asks the batch system for jobs by their name, which only this allocation has.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from mpi_runtime.batch.history.batch_history import FOLDER, History
from mpi_runtime.errors import JournalError
from mpi_runtime.files import claim, private
from mpi_runtime.files.writing import replace_file

PLACE = "allocator"
"""The directory of claim and record, in that of the journal."""
_RECORD = "record"


class AllocatedJob(msgspec.Struct):
    """A job that was submitted."""

    job: str
    submitted_s: float
    """Since 1970."""
    state: str = "PENDING"
    """As the batch system reported it last; of a job that has ended, how."""
    has_ended: bool = False
    commands: int = 0
    """How many have ended in it; counted when it has ended."""


class Allocation(msgspec.Struct):
    """All jobs that were submitted for one run of a batch."""

    name: str
    """Of its jobs: no other jobs have it."""
    since: int
    """That of the run before it."""
    was_finished: bool
    """Whether that run was finished."""
    flags: list[str] = []
    """Words of the command line that only the job which begins the run follows."""
    jobs: list[AllocatedJob] = []
    is_over: bool = False
    """Whether nothing is left of the batch."""
    problem: str = ""
    """Why nothing is submitted at present."""

    def has_begun(self, history: History) -> bool:
        """Whether one of its jobs has begun the run, or it continues a run of other jobs."""
        return history.is_planned and (history.since != self.since or not (self.was_finished or self.flags))

    def is_finished(self, history: History) -> bool:
        """Whether its run is finished."""
        return history.finished is not None and self.has_begun(history)

    def living(self) -> list[AllocatedJob]:
        """The jobs that have not ended."""
        return [one for one in self.jobs if not one.has_ended]


def folder_of(directory: str) -> Path:
    """The directory of claim and record."""
    return Path(directory, FOLDER, PLACE)


def read(directory: str) -> Allocation | None:
    """Return the allocation of a batch; None: there was none.

    Raises:
        JournalError: its record cannot be read.
    """
    path = folder_of(directory) / _RECORD
    try:
        return msgspec.json.decode(path.read_bytes(), type=Allocation)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise JournalError(f"{path} cannot be read: {error}. Without it the jobs of the batch are not known") from error


def write(directory: str, allocation: Allocation) -> None:
    """Write the record, which is there as a whole or as it was.

    Raises:
        OSError: it cannot be written.
    """
    replace_file(os.fspath(folder_of(directory) / _RECORD), msgspec.json.encode(allocation))


def take(directory: str, words: str) -> claim.Claim:
    """Become the process that submits jobs for a batch, described by `words`.

    Raises:
        JournalInUseError: another process is it.
        OSError: the directory cannot be written to.
    """
    private.make_directory(Path(directory, FOLDER))
    private.make_directory(folder_of(directory))
    return claim.Claim(folder_of(directory), words)


def allocator_of(directory: str) -> str:
    """The process that submits jobs for a batch, in words; empty if no process does. This may take ten seconds."""
    return claim.living_owner_of(folder_of(directory))


def place_of(directory: str, name: str, history: History) -> tuple[bool, bool]:
    """Whether a job of the allocation of this name continues the run of its batch, and whether it has nothing to do.

    A job without an allocation, or whose record cannot be read, is as any other: (False, False).
    """
    own = None
    with contextlib.suppress(JournalError):
        own = read(directory) if name else None
    if own is None:
        return False, False
    is_own = own.name == name
    is_late = history.finished is not None and (not is_own or own.is_finished(history))
    return is_own and history.is_open and own.has_begun(history), is_late
