"""The files of one job of an elastic batch, in the directory of the journal.

    member-TOKEN       token: 16 characters | newline | a `Status`, in place
    taken/own-TOKEN-N  token | newline
    taken/fence-...    `fence`
    taken/SLICE        another name of `own-TOKEN-N`, if the job has begun the slice; of a fence, if the coordinator has
                       taken it back
    offers-EPOCH       the entries of a coordinator, each added to the end

Statuses and entries have the form of records in a journal, with a hash (`files/segments.py`).
The member file has its full size from the start, so that a full disk does not look like the death of a job. What is not
whole is read again: over a network a part of what was written may be seen first. A file and its other names are in one
directory, as AFS wants it, and a file with as many names as its file system allows (65 000 on ext4) is followed by the
next.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from mpi_runtime.batch.elastic.records import Status
from mpi_runtime.files import claim, private, segments
from mpi_runtime.files.writing import beside
from mpi_runtime.slurm import jobs
from mpi_runtime.slurm.commands import SlurmError

MEMBER, OWN, FENCE, OFFERS, TAKEN = "member-", "own-", "fence-", "offers-", "taken"
FILE_BYTES = 16384
ASK_S = 5.0
"""Seconds between questions to Slurm about one job."""
WAITS_AGAIN = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT")
"""States of a job that was requeued: all its processes have ended."""
LIST_EVERY = 5
"""Every how many looks a member lists the directory: the coordinator's file tells it of most changes."""
_TOKEN_BYTES = 17
_FENCE_TEXT = b"fence"
_statuses = msgspec.msgpack.Decoder(Status)


class JobFiles:
    """The files of this job, and those that it reads. Each method raises OSError if its file system fails."""

    def __init__(self, folder: Path, token: str, notes_in: Callable[[Iterable[segments.Body]], list[Any]]) -> None:
        """Read those of others in the directory of the journal. The token has 16 characters.

        `notes_in` finds what is for a coordinator in a segment: `Returned`, and ends of commands, with their `number`.
        """
        self._folder = folder
        self.token = token
        self.epoch = 0
        self._notes_in = notes_in
        self._looks = 0
        self._offers = -1
        self._asked_s: dict[str, float] = {}
        self._ended: set[str] = set()
        """Jobs that have ended, as the batch system says, by token."""
        self._status = -1
        self._sources: dict[str, Path] = {}
        """The files whose other names are those of slices, by kind."""
        self._sources_made = 0

    def make(self, status: Status) -> None:
        """Make those of this job. Nobody sees one without a status: others could not know whether its job lives.

        Raises:
            OSError: they cannot be made.
        """
        private.make_directory(self._folder / TAKEN)
        with beside(self._folder / f"{MEMBER}{self.token}") as spare:
            self._status = private.create_file(spare)
            _write_all(self._status, f"{self.token}\n".encode().ljust(FILE_BYTES, b"\0"), 0)
            self.write_status(status)

    def close(self) -> None:
        """Close the files. They stay, for other jobs to read."""
        for file in (self._status, self._offers):
            if file >= 0:
                os.close(file)
        self._status = self._offers = -1

    def write_status(self, status: Status) -> None:
        """Write the status of this job in place."""
        _write_all(self._status, segments.frame(status), _TOKEN_BYTES)

    def tokens(self) -> list[str]:
        """The jobs that are known, also those that are gone."""
        return tokens_in(os.listdir(self._folder))

    def read_status(self, token: str) -> Status | None:
        """The status of a job; None: look again."""
        return read_status(self._folder / f"{MEMBER}{token}")

    def is_gone(self, status: Status) -> bool:
        """Whether a job is known to have ended, though it did not write this."""
        return status.token in self._ended or claim.is_dead(status.host, status.pid, status.started)

    def ask(self, status: Status) -> None:
        """Ask Slurm in a thread whether the job of a status has ended, at most every `ASK_S`: see `is_gone`."""
        now_s = time.monotonic()
        if status.batch_job and now_s - self._asked_s.get(status.token, -ASK_S) >= ASK_S:
            self._asked_s[status.token] = now_s
            threading.Thread(target=self._ask, args=(status,), name="batch job status", daemon=True).start()

    def _ask(self, status: Status) -> None:
        with contextlib.suppress(SlurmError):
            found = jobs.status(status.batch_job)
            if found.has_ended or found.state in WAITS_AGAIN:
                self._ended.add(status.token)

    def read_notes(self, status: Status, begin: int, is_last: bool) -> tuple[list[Any], int]:
        """The records of a job from a position, and the next position. `is_last`: to the end of the file."""
        begin = begin or segments.HEADER_BYTES
        with open(self._folder / f"{status.segment:06d}{segments.SUFFIX}", "rb") as file:
            file.seek(begin)
            data = file.read() if is_last else file.read(max(0, status.length - begin))
        bodies, size = segments.bodies_in(data, segments.BODIES)
        if is_last and begin + size < status.length:
            raise OSError(errno.EAGAIN, "its last records cannot be read yet")
        return self._notes_in(bodies), begin + size

    def make_name(self, slice: str, is_back: bool = False) -> str:
        """Make the name of a slice, to begin it or to take it back, unless it exists.

        Return the token of the job that has begun it; empty: it was taken back.
        """
        path = self._folder / TAKEN / slice
        with contextlib.suppress(FileExistsError):
            self._link(FENCE if is_back else OWN, path)
            return "" if is_back else self.token
        with open(path, "rb") as file:  # over a network a link may be made, and its answer lost: this shows whose it is
            holder = file.read(_TOKEN_BYTES)
        if holder == _FENCE_TEXT:
            return ""
        if len(holder) != _TOKEN_BYTES or not holder.endswith(b"\n"):
            raise OSError(errno.EAGAIN, "it cannot be read yet", str(path))
        return holder[:-1].decode()

    def _link(self, kind: str, path: Path) -> None:
        """Make another name of a file of this kind."""
        if kind in self._sources:
            try:
                os.link(self._sources[kind], path)
                return
            except OSError as error:
                if error.errno != errno.EMLINK:
                    raise
        self._sources_made += 1
        source = path.parent / f"{kind}{self.token}-{self._sources_made}"
        file = private.create_file(source)
        try:
            _write_all(file, _FENCE_TEXT if kind == FENCE else f"{self.token}\n".encode(), 0)
        finally:
            os.close(file)
        self._sources[kind] = source
        os.link(source, path)

    def coordinator(self) -> tuple[int, str, int] | None:
        """Epoch and beat of the last coordinator, and how many bytes it has offered; None: look again."""
        self._looks += 1
        if not self.epoch or self._looks % LIST_EVERY == 0:
            self.epoch = max(claim.numbers_in(os.listdir(self._folder)), default=self.epoch)
        try:
            found = claim.beat_of(self._folder, self.epoch)
        except FileNotFoundError:
            self.epoch = max(claim.numbers_in(os.listdir(self._folder)), default=self.epoch)
            return None
        return (self.epoch, *found) if found is not None else None

    def read_offers(self, epoch: int, begin: int, length: int) -> bytes:
        """Some bytes of the offers of a coordinator; empty: look again. A length below 0: all."""
        try:
            with open(self._folder / f"{OFFERS}{epoch}", "rb") as file:
                file.seek(begin)
                return file.read(length)
        except FileNotFoundError:
            return b""

    def write_offers(self, at: int, data: bytes) -> None:
        """Write to the own offers at a position."""
        if self._offers < 0:
            self._offers = private.create_file(self._folder / f"{OFFERS}{self.epoch}")
        _write_all(self._offers, data, at)

    def earlier_epochs(self) -> list[int]:
        """Epochs before that of this coordinator that have offers."""
        found = [name.removeprefix(OFFERS) for name in os.listdir(self._folder) if name.startswith(OFFERS)]
        return [int(name) for name in found if name.isdecimal() and int(name) < self.epoch]


def tokens_in(names: Iterable[str]) -> list[str]:
    """The jobs among the names in a journal."""
    return [name.removeprefix(MEMBER) for name in names if name.startswith(MEMBER)]


def read_status(path: Path) -> Status | None:
    """The status of a job; None: it cannot be read at this moment.

    Raises:
        OSError: the file cannot be read.
    """
    found, _ = segments.bodies_in(path.read_bytes()[_TOKEN_BYTES:], _statuses)
    return found[0] if found else None


def statuses(folder: Path) -> list[Status]:
    """The jobs of a batch that are not known to have ended, in the order of their names."""
    found = []
    for token in sorted(tokens_in(os.listdir(folder))):
        with contextlib.suppress(OSError):
            status = read_status(folder / f"{MEMBER}{token}")
            if status is None or status.is_leaving or claim.is_dead(status.host, status.pid, status.started):
                continue
            found.append(status)
    return found


def clear(folder: Path) -> None:
    """Remove what earlier jobs have left, unless one of them lives, or has just joined.

    A job that wakes up later finds no place for the names of its slices. Last the last offers: these show whether the
    batch has ended.
    """
    names = [name for name in os.listdir(folder) if name.startswith((MEMBER, OFFERS))]
    if not all(_has_ended(folder / name) for name in names if name.startswith(MEMBER)):
        return
    taken = folder / TAKEN
    if taken.is_dir():
        for name in os.listdir(taken):
            (taken / name).unlink(missing_ok=True)
        taken.rmdir()
    for name in sorted(names, key=lambda name: (name.startswith(OFFERS), len(name), name)):
        (folder / name).unlink(missing_ok=True)


def _has_ended(path: Path) -> bool:
    """Whether a job is known to have ended, by its status."""
    with contextlib.suppress(OSError):
        status = read_status(path)
        return status is not None and (status.is_leaving or claim.is_dead(status.host, status.pid, status.started))
    return False


def _write_all(file: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, at)
        view, at = view[written:], at + written
    os.close(os.dup(file))  # at a close NFS sends the data
