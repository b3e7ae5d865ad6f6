"""A job that joins a batch which another job coordinates: it takes slices, runs them, and records their ends."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable

import msgspec

from mpi_runtime.batch.elastic.files import JobFiles
from mpi_runtime.batch.elastic.member import Member
from mpi_runtime.batch.elastic.member_turns import Belonging
from mpi_runtime.batch.elastic.records import Work
from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.history.batch_history import MEMBER, Planning, notes_in
from mpi_runtime.batch.history.journal import BatchJournal
from mpi_runtime.batch.history.outlook import done_in_words
from mpi_runtime.batch.run.capacity import capacities, pools
from mpi_runtime.batch.run.coordinator_run import Statuses, boot_clock
from mpi_runtime.batch.run.running import (
    DRAIN_S,
    TIME_IS_OVER,
    TURN_S,
    CommandEnded,
    Event,
    Interrupted,
    Late,
    Place,
    Running,
    Trouble,
    ctrl_c_as_event,
)
from mpi_runtime.errors import JournalError, TaskCancelledError
from mpi_runtime.files.claim import Claim

PROGRESS_S = 10.0
_commands = msgspec.msgpack.Decoder(Command)


class MemberRun:
    """This job as a member."""

    def __init__(self, directory: str, say: Callable[[str], None], idle_s: float, end_s: float | None) -> None:
        """Join, until it has had nothing to do for `idle_s`, or until `end_s`, in seconds since 1970; None: not known.

        Raises:
            JournalError, OSError: the journal cannot be used.
        """
        self.has_run = self.is_late = False
        """Whether it has run a command; whether the end of its time has ended it."""
        self._journal = BatchJournal(directory, role=MEMBER)
        self._directory, self._say, self._idle_s = directory, say, idle_s
        self._running = Running(directory)
        self._trouble = Trouble(say)
        self._journal.plan(Planning([], capacities(), is_new=False))
        token = os.urandom(8).hex()
        self._files = JobFiles(self._journal.path, token, notes_in)
        self._statuses = Statuses(token, self._journal, end_s)
        self._files.make(self._statuses.next())
        self._member = Member(token, pools())
        self._belonging = Belonging(self._files, self._member, boot_clock)
        self._done = self._failed = 0
        self._busy_s = self._said_s = time.monotonic()
        self._leave_s: float | None = None
        """When commands that still run are ended, and the job leaves; None: it stays."""
        self._is_interrupted = False
        self._election: threading.Thread | None = None
        self._claim: Claim | None = None

    def end_in_time(self) -> None:
        """Start nothing more, and end: the job's time is nearly over. For all threads."""
        self._running.put(Late())

    def run(self) -> int | Place:
        """Take part until the batch has ended, or this job must end.

        Returns:
            The exit code; or the place of the coordinator, if that is gone and this job takes it.
        """
        with ctrl_c_as_event(self._running.put):
            while True:
                problem = self._write()
                turn = self._belonging.turn(
                    self._statuses.next(not problem and self._leave_s is None), not problem and self._leave_s is None
                )
                self._trouble.note(problem or self._belonging.problem, time.monotonic())
                for number in turn.end:
                    self._running.cancel(number)
                now_s = time.time() - boot_clock()
                for number, until_s in turn.start:
                    self._start(self._member.started[number], until_s + now_s)
                self._give_back(self._member.overdue(boot_clock()))
                self._give_back(self._member.settled())
                self._write()
                if turn.exit_code is not None:
                    self._running.drain(self._handle)  # what was stopped, and has not ended yet
                    return self._leave(turn.exit_code)
                if turn.is_orphaned and self._election is None and self._leave_s is None:
                    self._election = threading.Thread(target=self._elect, name="batch election", daemon=True)
                    self._election.start()
                if self._election is not None and not self._election.is_alive():
                    self._election = None
                    self._belonging.stood_up()
                    if self._claim is not None:
                        return self._succeed(self._claim)
                if (code := self._end_if_due()) is not None:
                    return self._leave(code)
                for event in self._running.take(TURN_S):
                    self._handle(event)
                if self._leave_s is None:
                    self._running.return_expired()
                if time.monotonic() - self._said_s >= PROGRESS_S:
                    self._said_s = time.monotonic()
                    left = len(self._running.by_number)
                    self._say(f"{done_in_words(self._done, 'this job')}, {left} running or ready")

    def _elect(self) -> None:
        """Try to take the place of the coordinator. This takes ten seconds if it is not known to be dead."""
        try:
            self._claim = Claim(self._journal.path, self._journal.job)
        except JournalError:
            pass  # another job has taken it
        except OSError as error:
            self._say(f"the coordinator of the batch is gone, and its place cannot be taken: {error.strerror or error}")

    def _succeed(self, claim: Claim) -> Place:
        self._say("the coordinator of the batch is gone: this job takes its place")
        self._write()
        self._journal.close()
        return Place(claim, self._running, self._member, self._files)

    def _end_if_due(self) -> int | None:
        """The exit code, if this job is to leave now."""
        left = self._running.by_number
        is_hindered = bool(self._trouble.problem) and not left
        if not self._member.is_idle() and not is_hindered:
            self._busy_s = time.monotonic()
        if self._leave_s is not None:
            if left and time.monotonic() < self._leave_s:
                return None
            if left:
                self._end_all()
            return 130 if self._is_interrupted else TIME_IS_OVER
        if time.monotonic() - self._busy_s > self._idle_s:
            why, problem = f"nothing to do for {self._idle_s:g} s", self._trouble.problem
            self._say(f"{why}{problem and ', and '}{problem}: this job leaves the batch")
            return int(bool(problem))
        return None

    def _end_all(self) -> None:
        """End what runs, and give it back."""
        numbers = tuple(self._running.by_number)
        self._running.drain(self._handle)
        left = [number for number in numbers if number in self._member.started]
        self._journal.returned(left, self._member.slices, True)

    def _leave(self, exit_code: int) -> int:
        self._journal.returned(self._member.leave(), self._member.slices, False)
        self._journal.close()
        with contextlib.suppress(OSError):
            self._files.write_status(self._statuses.next(is_leaving=True))
        self._files.close()
        failed = f", {self._failed} failed" if self._failed else ""
        self._say(f"{done_in_words(self._done, 'this job')}{failed}; output in {self._directory}/")
        return exit_code

    def _start(self, work: Work, until_s: float) -> None:
        self.has_run = True
        if work.number in self._running.by_number:  # it ends here, because others had it meanwhile
            self._member.not_begun(work.number)
            return
        command = _commands.decode(work.command)
        self._journal.began(command.name, work.number)
        self._running.start(command, work.key, work.number, work.path_us, until_s, work.attempt)

    def _handle(self, event: Event) -> None:
        if isinstance(event, CommandEnded):
            self._end(event)
        elif isinstance(event, Interrupted):
            self._is_interrupted = True
            self._leave_s = 0.0
            self._say("interrupted: this job ends what it runs, and leaves the batch; others continue")
        elif isinstance(event, Late) and self._leave_s is None:
            self.is_late = True
            self._leave_s = time.monotonic() + DRAIN_S
            self._say("SIGTERM or the end of the job's time: this job leaves the batch")

    def _end(self, event: CommandEnded) -> None:
        one = self._running.ended(event)
        if one is None:
            return
        number, error = event.number, event.outcome.exception()
        work = self._member.started.get(number)
        was_ended = self._leave_s is not None and one.is_doubted  # with this job, by a signal to all its processes
        if isinstance(error, TaskCancelledError) or work is None or was_ended:
            if self._leave_s is None:  # else it is given back
                self._member.ended(number)
            if work is not None and (one.is_returned or self._member.is_stopped(number)):
                self._give_back([number], not one.is_returned)
            return
        if error is None and not event.outcome.result():
            self._member.not_begun(number)
            return
        self._member.ended(number)
        command = _commands.decode(work.command)
        result = self._running.result(command, one, event.outcome)
        self._journal.ended(command, one.key, result, number)
        self._done += result.is_success
        if not result.is_success:
            self._failed += 1
            self._say(f"failed: {one.name}: {result.ending()}")

    def _give_back(self, numbers: list[int], is_begun: bool = False) -> None:
        """Let other jobs have commands, or what stopped ones had; `is_begun`: they have begun here."""
        self._member.given_back += numbers
        self._journal.returned(numbers, self._member.slices, is_begun)

    def _write(self) -> str:
        """Write the journal; return why that is impossible."""
        try:
            self._journal.turn()
        except OSError as error:
            return f"the journal cannot be written, so this job takes nothing more: {error.strerror or error}"
        return ""
