"""The journal of one job: the head recalls results of earlier runs, and records those of this run."""

from __future__ import annotations

import os
from pathlib import Path

from mpi_runtime.errors import JournalError
from mpi_runtime.journal import value_files
from mpi_runtime.journal.claim import Claim
from mpi_runtime.journal.earlier import Earlier
from mpi_runtime.journal.segments import Began, Body
from mpi_runtime.journal.states import STATES_KEPT
from mpi_runtime.journal.writer import Writer
from mpi_runtime.scheduler.protocol.effects import Checkpoint, Discard, Recall, Record
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
        """How many calls were taken from earlier runs, given to the writer, and not: it is too slow."""
        self.problem = ""
        """Why nothing is recorded any more."""
        self.states = 0
        """How many states of actors were given to the writer."""
        self._run = os.urandom(16)
        """No other run has this. So lives of actors are told apart."""
        self._files: dict[bytes, list[str]] = {}
        """The files of the states of each life that there are still."""
        self._told: set[tuple[str, str]] = set()
        """What was said of mismatches. Only for membership."""
        self._batch: list[Body] = []
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._claim = Claim(path, began.job)
            try:
                self.earlier = Earlier(path)
                self._writer = Writer(path, began, self._claim, sync_s)
            except BaseException:
                self._claim.release()
                raise
        except OSError as error:
            raise JournalError(
                f"the journal {directory} cannot be used: {error.strerror or error} ({error.filename or directory}). "
                "It needs a directory in which this user may write, on a file system that all hosts of the job share."
            ) from error
        own = os.path.basename(began.program)
        self._others = [name for name in self.earlier.programs if os.path.basename(name) != own]

    def start_lines(self) -> list[str]:
        """What there is to say when the job begins."""
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
        """The values of a call that an earlier run has made; without, what to tell the user, once of a function."""
        values, why = self.earlier.take(wanted)
        self.taken += bool(values)
        if not why or (wanted.name, why) in self._told:
            return values, ""
        self._told.add((wanted.name, why))
        if wanted.actor:
            return values, (
                f"the saved state of an actor includes another call of {wanted.name} than this one ({why}): this one "
                "runs too. If the program was changed, name another directory"
            )
        return values, f"a call of {wanted.name} runs again although it is in the journal: {why} different now"

    def take_state(self, wanted: Recall) -> tuple[list[Kept], bytes]:
        """The state with which an actor begins, and its name; or none."""
        return self.earlier.take_state(wanted)

    def give(self, record: Record | Checkpoint) -> None:
        """A call has ended, or an actor has saved its state."""
        if self.problem:
            return
        if record.life:
            record.life = digest(self._run + record.life, len(self._run))
        self._batch.append(record)
        if isinstance(record, Checkpoint):
            self.states += 1
            files = self._files.setdefault(record.life, [])
            files.append(record.state.file)
            if len(files) > STATES_KEPT:
                self.discard(Discard(files.pop(0)))

    def discard(self, effect: Discard) -> None:
        """A file is not needed any more."""
        value_files.remove(self.directory, effect.file)

    def turn(self) -> bool:
        """Have what was given written. True, once: it cannot be any more, for `problem`."""
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
        """Nothing is recorded any more."""
        self.problem = problem
        self._batch = []

    def totals_line(self) -> str:
        """What was taken and recorded, in words."""
        lost = f", {self.dropped} not recorded because the disk is too slow" if self.dropped else ""
        states = f", {self.states} states of actors saved" if self.states else ""
        left = self.earlier.states.left()
        missing = f", {left} calls that states have had were not made in this run" if left else ""
        return f"journal: {self.taken} calls taken from earlier runs, {self.recorded} recorded{states}{missing}{lost}"

    def close(self, limit_s: float) -> None:
        """Write what is left, within this time, and let others use it."""
        self.turn()
        has_ended = self._writer.close(limit_s)
        self.fail(self.problem or self._writer.problem or "the job has ended")
        self.earlier.close()
        if has_ended:
            self._claim.release()
