"""The journal of one job: the head recalls results of earlier runs, and records those of this run."""

from __future__ import annotations

import os
from pathlib import Path

from mpi_runtime.core.journal import value_files
from mpi_runtime.core.journal.earlier_results import Earlier
from mpi_runtime.core.journal.states import STATES_KEPT
from mpi_runtime.core.journal.writer import Writer
from mpi_runtime.errors import JournalError
from mpi_runtime.files import private
from mpi_runtime.files.claim import Claim
from mpi_runtime.files.segments import Began, Body
from mpi_runtime.files.writing import is_full
from mpi_runtime.scheduler.protocol.effects import Checkpoint, Discard, Fresh, Recall, Record
from mpi_runtime.scheduler.protocol.events import Kept
from mpi_runtime.scheduler.protocol.ids import digest


class Journal:
    """Opened by the head when all ranks have joined."""

    def __init__(self, directory: str, began: Began, sync_s: float) -> None:
        """Open a journal, or begin one.

        Raises:
            JournalError: the directory cannot be used, or another job uses it.
        """
        path = Path(directory)
        self.directory = directory
        self.taken = self.recorded = self.dropped = 0
        """The numbers of calls that were taken from earlier runs, recorded, and dropped because the writer is slow."""
        self.problem = ""
        """Why recording has ended; empty: it has not."""
        self.states = 0
        """The number of states of actors that were recorded."""
        self._run = os.urandom(16)
        """Distinguishes the lives of actors from those of other runs."""
        self._files: dict[bytes, list[str]] = {}
        """The present files of the states of each life."""
        self._reported: set[tuple[str, ...]] = set()
        """Mismatches, and value files that could not be read: each is reported once. Only for membership."""
        self._batch: list[Body] = []
        try:
            private.make_directory(path)
            self._claim = Claim(path, began.job)
            try:
                self.earlier = Earlier(path)
                self._writer = Writer(path, began, self._claim, sync_s)
            except BaseException:
                self._claim.release()
                raise
        except OSError as error:
            advice = "Free some space there. " if is_full(error) else ""
            raise JournalError(
                f"the journal {directory} cannot be used: {error.strerror or error} ({error.filename or directory}). "
                f"{advice}It needs a directory in which only this user may write, on a file system that all hosts of "
                "the job share."
            ) from error
        own = os.path.basename(began.program)
        self._others = [name for name in self.earlier.programs if os.path.basename(name) != own]

    def start_lines(self) -> list[str]:
        """Return the log lines at the start of the job."""
        earlier = self.earlier
        states = f", {earlier.states.count} states of actors" if earlier.states.count else ""
        lines = [f"journal {self.directory}: {earlier.count} finished calls of earlier runs{states}"]
        lines = lines if earlier.count or states else []
        if self._others and earlier.count:
            lines.append(
                f"the journal was written by {', '.join(self._others)}, which is another program: calls are taken "
                "from it only where code and arguments are the same"
            )
        if earlier.damage.bytes:
            lines.append(
                f"{earlier.damage.bytes} bytes of the journal cannot be read, as after a crash: the calls that were "
                "recorded there run again"
            )
        return lines

    def take(self, wanted: Recall) -> tuple[list[Kept], str]:
        """Return the values that a call had in an earlier run; or [] and a log line, once for each function."""
        values, why = self.earlier.take(wanted)
        self.taken += bool(values)
        if not why or (wanted.name, why) in self._reported:
            return values, ""
        self._reported.add((wanted.name, why))
        if wanted.actor:
            return values, (
                f"the saved state of an actor includes another call of {wanted.name} than this one ({why}): this one "
                "runs too. If the program was changed, name another directory"
            )
        return values, f"a call of {wanted.name} runs again although it is in the journal: {why} different now"

    def unreadable(self, problem: str, file: str) -> str:
        """Count a call as not taken because a file of its values cannot be read, and return a log line, once."""
        if (file,) in self._reported:
            return ""
        self._reported.add((file,))
        self.taken -= 1
        return f"a value in the journal cannot be read: {problem}"

    def give(self, record: Record | Checkpoint | Fresh) -> None:
        """Record a call that has ended, or a saved state or the beginning of an actor."""
        if self.problem:
            return
        if not isinstance(record, Fresh) and record.life:
            record.life = digest(self._run + record.life, len(self._run))
        self._batch.append(record)
        if isinstance(record, Checkpoint):
            self.states += 1
            files = self._files.setdefault(record.life, [])
            files.append(record.state.file)
            if len(files) > STATES_KEPT:
                self.discard(Discard(files.pop(0)))

    def discard(self, effect: Discard) -> None:
        """Remove the file of an old state."""
        value_files.remove(self.directory, effect.file)

    def turn(self) -> bool:
        """Pass the records of this turn to the writer. Returns True, once, when writing has failed: see `problem`."""
        if self._batch:
            if self._writer.give(self._batch):
                self.recorded += sum(isinstance(one, Record) for one in self._batch)
            else:
                self.dropped += len(self._batch)
            self._batch = []
        if self._writer.problem and not self.problem:
            self.fail(self._writer.problem)
            return True
        return False

    def fail(self, problem: str) -> None:
        """Stop recording."""
        self.problem = problem
        self._batch = []

    def totals_line(self) -> str:
        """Return the log line at the end of the job."""
        lost = f", {self.dropped} not recorded because the disk is too slow" if self.dropped else ""
        states = f", {self.states} states of actors saved" if self.states else ""
        left = self.earlier.states.left()
        missing = f", {left} calls in saved states were not made in this run" if left else ""
        return f"journal: {self.taken} calls taken from earlier runs, {self.recorded} recorded{states}{missing}{lost}"

    def close(self, limit_s: float) -> None:
        """Write the rest within this time, and release the journal."""
        self.turn()
        has_ended = self._writer.close(limit_s)
        self.fail(self.problem or self._writer.problem or "the job has ended")
        self.earlier.close()
        if has_ended:
            self._claim.release()
