"""The head's use of the journal: it recalls calls of earlier runs, and records calls that end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from mpi_runtime import config as configuration
from mpi_runtime.core.transport.messages import Job, bytes_to_text
from mpi_runtime.scheduler.core import Scheduler
from mpi_runtime.scheduler.protocol.effects import Checkpoint, Discard, Fresh, JournalEffect, Recall, Record
from mpi_runtime.scheduler.protocol.rank_events import Recalled
from mpi_runtime.show import log

if TYPE_CHECKING:
    from mpi_runtime.core.journal.journal import Journal  # loaded by jobs that have one


class JournalLostError(Exception):
    """The journal cannot be written any more, and the job requires it."""


class JournalKeeper:
    """The journal of one job, with the scheduler that asks for calls."""

    def __init__(
        self, journal: Journal, is_required: bool, scheduler: Scheduler, say: Callable[[int, str], None]
    ) -> None:
        """Serve this scheduler. `say` logs a line for the user, with a level of `log`."""
        self.journal = journal
        self._is_required = is_required
        self._scheduler = scheduler
        self._say = say

    def turn(self, effects: Iterable[JournalEffect], now: int) -> bool:
        """Record calls that have ended, and recall those that the scheduler asks for. Return whether it asked for any.

        Raises:
            JournalLostError: the journal cannot be written any more, and the job requires it.
        """
        journal = self.journal
        asked = False
        for effect in effects:
            if isinstance(effect, Record | Checkpoint | Fresh):
                journal.give(effect)
            elif isinstance(effect, Discard):
                journal.discard(effect)
            elif isinstance(effect, Recall) and effect.is_actor:
                asked = True
                states, number = journal.earlier.take_state(effect)
                self._scheduler.handle_rank(Recalled(effect.id, states, number), now)
            elif isinstance(effect, Recall):
                asked = True
                values, why_not = journal.take(effect)
                if why_not:
                    self._say(log.INFO, why_not)
                self._scheduler.handle_rank(Recalled(effect.id, values), now)
            elif effect.unreadable:
                if line := journal.unreadable(effect.problem, effect.unreadable):
                    self._say(log.WARNING, line)
            elif not journal.problem:
                journal.fail(effect.problem)
                self._lose()
        if journal.turn():
            self._lose()
        return asked

    def _lose(self) -> None:
        text = f"the journal {self.journal.directory} cannot be written any more: {self.journal.problem}"
        if self._is_required:
            raise JournalLostError(f"{text}. The job ends, since it was started with journal_required=True.")
        self._say(log.ERROR, f"{text}. The job continues without it: calls that end now run again next time")


def open_journal(config: configuration.Config, job: Job, hostname: str) -> tuple[Journal | None, str]:
    """Return the journal of a job, None without one; and why it cannot be used, else empty."""
    if not config.journal:
        return None, ""
    from mpi_runtime.core.journal.journal import Journal
    from mpi_runtime.errors import JournalError  # not at the top: most jobs have no journal
    from mpi_runtime.files.segments import Began

    program = bytes_to_text(job.argv[0]) if job.argv else ""
    name = f"{program or 'a program'} (pid {os.getppid()} on {hostname}{configuration.batch_job()})"
    try:
        return Journal(config.journal, Began(program, name, time.time()), config.journal_sync_s), ""
    except JournalError as error:
        return None, str(error)
