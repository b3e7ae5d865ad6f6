"""The journal of a batch that runs: it records, and each command has a key there."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from mpi_runtime.batch.elastic.coordinator_turns import is_open
from mpi_runtime.batch.elastic.files import MEMBER, JobFiles
from mpi_runtime.batch.elastic.records import EPOCH_BITS, Returned
from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.history import allocations, batch_history, outputs, submitted
from mpi_runtime.batch.history.keys import Keys
from mpi_runtime.batch.history.results import CommandResult
from mpi_runtime.errors import JournalError
from mpi_runtime.files import private, segments
from mpi_runtime.files.claim import Claim
from mpi_runtime.files.writing import is_full
from mpi_runtime.scheduler.protocol.effects import Record
from mpi_runtime.scheduler.protocol.events import Kept
from mpi_runtime.scheduler.protocol.ids import digest
from mpi_runtime.slurm import allocation as batch_job
from mpi_runtime.slurm.walltime import counts_restarts

SYNC_S = 5.0
"""Seconds between flushes to the disk. A killed process loses nothing, a host without power loses this."""
_ID_BYTES = 16


class BatchJournal:
    """The journal of a batch that runs."""

    def __init__(
        self,
        directory: str,
        is_fresh: bool = False,
        file: str = "",
        role: str = batch_history.RUN,
        claim: Claim | None = None,
        is_new: bool = False,
        allocation: str = "",
    ) -> None:
        """Read the records of earlier runs, and begin to write.

        Args:
            directory: of the output.
            is_fresh: whether earlier runs are forgotten.
            file: the batch, if the directory must not have the records of another file.
            role: a member does not claim the journal; a successor has a `claim`. A run is a successor, too, if jobs
                that an earlier run has left are still at work: what they have begun stays with them.
            claim: of a successor.
            is_new: whether this run is a new one in any case: no other job lives.
            allocation: the name of the allocation that this job is of; empty: of none.

        Raises:
            JournalError: another job runs this batch, the records are of another file, or the journal cannot be used.
        """
        self.path = Path(directory, batch_history.FOLDER)
        self.life = batch_job().job, batch_job().restarts
        self.job = process_in_words(self.life[0])
        self.published = 0
        """The number for other jobs: see `Claim`."""
        self._claim = claim
        self.length = segments.HEADER_BYTES
        """The number of bytes of its file that are written."""
        self._pending: list[bytes] = []
        self._synced_s = time.monotonic()
        self._is_synced = True
        try:
            private.make_directory(self.path)
            if role == batch_history.RUN:
                self._claim = Claim(self.path, self.job)
            try:
                self.history = batch_history.own_history(directory, is_fresh, file)
                is_next, is_late = allocations.place_of(directory, allocation, self.history)
                is_next = is_next or is_next_of(self.life, self.history, directory, counts_restarts())
                if role == batch_history.RUN and not is_new and (is_next or not is_fresh) and self._has_jobs():
                    role = batch_history.SUCCESSOR
                self.continues = role == batch_history.SUCCESSOR or is_next
                """Whether this job does what the last run was to do: in its place, or because its job was requeued or
                submitted together with it. Otherwise its command line says what it does."""
                is_late = is_late or _is_late(self.life[0], self.history, directory)
                self.is_late = role == batch_history.RUN and is_late
                """Whether the job was submitted for a batch that is finished, so that it has nothing to do."""
                if is_fresh and not (self.continues or self.is_late):
                    self._forget(directory)
                path, self._file = segments.create(self.path)
            except BaseException:
                if self._claim is not None:
                    self._claim.release()
                raise
        except OSError as error:
            raise _unusable(self.path, error) from error
        self.is_successor = role == batch_history.SUCCESSOR
        """Whether this job takes the place of a coordinator that is gone: the run of that one continues."""
        self.keys = Keys(self.history.ends)
        self.segment = int(path.stem)
        if self.is_late:
            return  # it records nothing
        self._begin(role)

    def _begin(self, role: str) -> None:
        """Record that this job begins."""
        self._pending.append(segments.frame(segments.Began(role, self.job, time.time())))
        self.history.runs.append(batch_history.Run(self.job, time.time(), role=role))
        if role == batch_history.RUN:
            self.history.new_run()
        if self._claim is not None:
            self.history.number = max(self.history.number, self._claim.number << EPOCH_BITS)

    def _forget(self, directory: str) -> None:
        """Remove what earlier runs have recorded."""
        for path in (*segments.paths(self.path), Path(directory, outputs.ARCHIVE)):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.path / outputs.STARTED, ignore_errors=True)
        self.history = batch_history.History()

    def _has_jobs(self) -> bool:
        """Whether jobs may be at work in the last run, without a coordinator."""
        files = JobFiles(self.path, "", batch_history.notes_in)
        files.epoch = self.epoch
        return self.history.is_planned and is_open(files, self.history.begun_by)

    def plan(self, plan: batch_history.Planning) -> None:
        """Record commands of this run; with the first ones, its selection."""
        self._add(plan)
        self.history.note_plan(plan)

    @property
    def epoch(self) -> int:
        """The number of the claim; 0 for a member."""
        return self._claim.number if self._claim is not None else 0

    def next_number(self) -> int:
        """Return the number of a command that may start now."""
        self.history.number += 1
        return self.history.number

    def began(self, name: str, number: int) -> None:
        """Record that a command is submitted to the scheduler."""
        self._began(batch_history.Began(name, time.time(), "", number))

    def placed(self, name: str, host: str, time_s: float) -> None:
        """Record where a submitted command runs and since when, unless this is known."""
        known = self.history.began.get(name)
        if known is not None and known.host != host:
            self._began(batch_history.Began(name, time_s, host, known.number))

    def _began(self, began: batch_history.Began) -> None:
        self.history.began[began.name] = began
        self._add(began, b"began" + began.name.encode())

    def ended(
        self,
        command: Command,
        key: bytes,
        result: CommandResult,
        number: int,
        packed: tuple[int, int] | None = None,
    ) -> None:
        """Record that a command has ended; `packed` is the place of its output in the archive."""
        had, ranks = command.demands()[result.alternative], command.ranks
        lacked_room = not result.is_success and _is_full(self.path)
        ended = batch_history.Ended(
            number, key, result, ranks * had.num_cpus, ranks * had.num_gpus, packed, lacked_room
        )
        self.history.note(ended)
        self.keys.settle(command.name, key, ended.number)
        took_us = max(0, round((result.end - result.start) * 1e6))
        self._add(ended, command.name.encode(), key, took_us)

    def returned(self, numbers: Sequence[int], slices: Mapping[int, str], is_begun: bool) -> None:
        """Record that this job gives commands back; `slices`: with which it had them."""
        if numbers:
            own = tuple(slices.get(number, "") for number in numbers)
            self._add(Returned(tuple(numbers), own, is_begun))

    def controlled(self, names: Sequence[str], what: str) -> None:
        """Record that a user has cancelled, paused or resumed commands."""
        self._add(batch_history.Control([*names], what))

    def finished(self, exit_code: int, jobs: Sequence[str]) -> None:
        """Record that nothing is left of the batch; `jobs`: those that were submitted for it."""
        self.history.finished = batch_history.Finished(exit_code, tuple(jobs))
        self._add(self.history.finished, b"finished %d" % self.history.number)

    @property
    def names(self) -> list[str]:
        """The names in the directory, as of the last beat."""
        return self._claim.names if self._claim is not None else []

    @property
    def has_members(self) -> bool:
        """Whether other jobs have joined."""
        return any(name.startswith(MEMBER) for name in self.names)

    def _add(self, content: batch_history.Content, id: bytes = b"", key: bytes = b"", took_us: int = 0) -> None:
        data = msgspec.msgpack.encode(content)
        own = digest(id or data, _ID_BYTES)
        record = Record(own, key or own, b"", batch_history.NAMES[type(content)], took_us, [Kept(data)])
        self._pending.append(segments.frame(record))

    def turn(self) -> None:
        """Write the pending records. They must not be reported before.

        Raises:
            TakenOverError: another job took the batch over because this one stood still.
            OSError: the journal cannot be written. The records stay pending.
        """
        if self._claim is not None:
            self._claim.beat(self.published)
        if self._pending:
            data = b"".join(self._pending)
            self._file.seek(self.length)  # what a full disk has cut off is written again
            segments.write_all(self._file, data)
            self.length += len(data)
            self._pending.clear()
            self._is_synced = False
        if not self._is_synced and time.monotonic() - self._synced_s > SYNC_S:
            os.fdatasync(self._file.fileno())
            self._is_synced, self._synced_s = True, time.monotonic()

    def lose_claim(self) -> None:
        """Another job has claimed the journal: the records of this one stay valid."""
        if self._claim is not None:
            self._claim.release()
            self._claim = None

    def close(self) -> None:
        """Flush all to the disk, and let others run this batch. Records that `turn` could not write are lost."""
        with contextlib.suppress(OSError):
            self.turn()
            os.fdatasync(self._file.fileno())
        self._file.close()
        if self._claim is not None:
            self._claim.release()


def process_in_words(job: str) -> str:
    """This process in words, with the batch system's id of its job if it is in one."""
    return f"{os.uname().nodename} (pid {os.getpid()}{f', job {job}' if job else ''})"


def is_in(job: str, process: str) -> bool:
    """Whether a process, in words, was in the job with this id."""
    return process.endswith(f", job {job})")


def _unusable(path: Path, error: OSError) -> JournalError:
    advice = "Free some space there, or name" if is_full(error) else "Name"
    return JournalError(
        f"the journal {path} cannot be used: {error.strerror or error} ({error.filename or path}). {advice} another "
        "directory with --directory, on a file system that all hosts of the job share."
    )


def is_next_of(life: tuple[str, int], history: batch_history.History, directory: str, is_counted: bool = True) -> bool:
    """Whether a job does what the last run was to do, which is not finished.

    It has begun that run and was requeued, or was submitted in one line with the job that has begun it. Unless restarts
    are counted (`is_counted`), one that was requeued before may be so again.
    """
    job, restarts = history.life
    if not job or not history.is_open:
        return False
    if life[0] == job:
        return life[1] > restarts or (not is_counted and life[1] == restarts > 0)
    return job in submitted.together(directory, life[0])


def _is_late(job: str, history: batch_history.History, directory: str) -> bool:
    """Whether a job was submitted for a batch that is finished, and not once more since."""
    return history.finished is not None and job in history.finished.jobs and job not in submitted.noted(directory)


def _is_full(path: Path) -> bool:
    """Whether a command may have failed for want of room."""
    with contextlib.suppress(OSError):
        return outputs.is_full(os.fspath(path))
    return False  # the next write of the journal shows why
