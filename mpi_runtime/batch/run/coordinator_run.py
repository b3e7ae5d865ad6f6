"""The coordinator's side of a batch that several jobs run: its files, its turns, and its own part of the commands.

It is made when another job joins. As long as none has, all commands go to the scheduler of this job.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping

import msgspec

from mpi_runtime.batch.elastic.coordinator import Coordinator
from mpi_runtime.batch.elastic.coordinator_turns import Leading
from mpi_runtime.batch.elastic.files import JobFiles
from mpi_runtime.batch.elastic.member import Member
from mpi_runtime.batch.elastic.member_turns import LEASE_S, take
from mpi_runtime.batch.elastic.records import Closed, Offer, Status, Stop, Work, can_run
from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.history.batch_history import Ended, notes_in
from mpi_runtime.batch.history.journal import BatchJournal
from mpi_runtime.batch.run.capacity import node_resources, pools
from mpi_runtime.batch.run.running import TURN_S, Place
from mpi_runtime.files import claim
from mpi_runtime.slurm import allocation

CLOSING_S = 3.0
"""How long the end of the batch is announced before the coordinator ends."""


def boot_clock() -> float:
    """Seconds, also while the host is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def work_of(command: Command, number: int, key: bytes, seconds: float, path_us: int, is_measured: bool = False) -> Work:
    """What jobs are offered. If commands like it have ended (`is_measured`), it is expected to take as long."""
    limit_s = command.limit_s() if command.expect is None and not is_measured else None
    together = "\n".join(getattr(command, stream) for stream in command.appends)
    return Work(
        *(number, command.name, key, msgspec.msgpack.encode(command), (), seconds),
        *(limit_s or 0.0, (-command.priority, -path_us), 0, together),
    )


class Statuses:
    """Makes the statuses of this job."""

    def __init__(self, token: str, journal: BatchJournal, end_s: float | None) -> None:
        """Begin; `end_s`: when this job starts nothing more, in seconds since 1970; None: not known."""
        self.nodes = tuple(node_resources())
        self._journal, self._end_s = journal, end_s
        pid = os.getpid()
        process = claim.here(), pid, claim.state_and_start(pid)[1]
        self._last = Status(token, 0, journal.job, *process, allocation().job, journal.segment, 0, self.nodes)

    def next(self, is_taking: bool = True, is_leaving: bool = False) -> Status:
        """The next status."""
        left_s = None if self._end_s is None else max(0.0, self._end_s - time.time())
        self._last = msgspec.structs.replace(
            self._last,
            beat=self._last.beat + 1,
            length=self._journal.length,
            left_s=left_s if is_taking else 0.0,
            is_leaving=is_leaving,
        )
        return self._last


class Sharing:
    """This job as the coordinator of others."""

    def __init__(
        self,
        journal: BatchJournal,
        expected_s: Callable[[str], float],
        end_s: float | None,
        begun: Mapping[int, Work],
        place: Place | None,
    ) -> None:
        """Share the commands from now on.

        Args:
            journal: of the batch.
            expected_s: how long a command takes, by its name, as far as is known.
            end_s: when this job starts nothing more, in seconds since 1970; None: not known.
            begun: the commands in the scheduler of this job, by number.
            place: if this job was a member before.

        Raises:
            OSError: the files cannot be made.
        """
        self.problem = ""
        """Why the files of the jobs cannot be read or written at present; empty: they can."""
        self._journal = journal
        own = Member(os.urandom(8).hex(), pools()) if place is None else place.member
        self._member = own
        self._statuses = Statuses(own.token, journal, end_s)
        if place is None:
            self._files = JobFiles(journal.path, own.token, notes_in)
            self._files.make(self._statuses.next())
        else:
            self._files = place.files
        self._files.epoch = journal.epoch
        self.coordinator = Coordinator(journal.epoch, lambda work: expected_s(work.name))
        for ended in journal.history.all_ends:
            self.coordinator.ended(ended.number)
        self._leading = Leading(self._files, self.coordinator, own.token, boot_clock)
        self._turned_s = 0.0
        own.new_coordinator()
        ends_s = None if end_s is None else end_s - time.time() + boot_clock()
        self.coordinator.joined(own.token, own.nodes, ends_s)
        self.coordinator.returned(own.given_back, map(own.slices.__getitem__, own.given_back))
        if begun:
            offer = Offer(f"{journal.epoch}-0", own.token, tuple(begun.values()))
            self._files.make_name(offer.slice)
            self._leading.write(offer)
            self.coordinator.begun(offer)
            for work in begun.values():
                own.adopt(work)
                own.slices[work.number] = offer.slice

    def recover(self, is_strict: bool) -> dict[str, Work]:
        """Read what earlier coordinators have offered; return the works that have not ended, by name.

        `is_strict`: the records of all jobs must be readable now. The journal has read them, too.

        Raises:
            OSError: it cannot be read at this moment.
        """
        if not self._leading.recover(self._journal.history.begun_by, is_strict):
            raise OSError(self._leading.problem or "the status of a job cannot be read yet")
        for ended in self._ended():
            self._journal.history.note(ended)
        for work in [*self.coordinator.outstanding().values(), *self.coordinator.waiting()]:
            known = self._journal.history.ends.get(work.name)
            has_run = known is not None and known.result.is_success and known.number > work.number
            if has_run or self._journal.history.controls.get(work.name) == "cancel":
                self.stop((work.number,))
        works = [*self.coordinator.outstanding().values(), *self.coordinator.waiting()]
        return {work.name: work for work in works}

    def ended(self, number: int) -> None:
        """A command has ended in this job."""
        self.coordinator.ended(number)
        self._member.ended(number)

    def returned(self, number: int) -> None:
        """A command was withdrawn from the scheduler of this job: it may be offered to another."""
        self._member.ended(number)
        self.coordinator.returned([number], [self._member.slices[number]])

    def not_begun(self, number: int) -> None:
        """A command came too late to its turn in this job: it is submitted again, unless another job has it."""
        self._member.not_begun(number)

    def turn(self, checked_s: float) -> tuple[list[tuple[Work, float]], list[Ended]]:
        """Act if it is time to. Return what this job is to start, and the ends in other jobs.

        Each start has the time, in seconds since 1970, after which the command must not begin. `checked_s`: when this
        job was known to coordinate.
        """
        if time.monotonic() - self._turned_s < TURN_S:
            return [], []
        self._turned_s = time.monotonic()
        with contextlib.suppress(OSError):  # its successor reads offers and records
            self._files.write_status(self._statuses.next())
        for offer in self._leading.turn():
            self._member.offered(offer)
        self.problem = self._leading.problem
        self._journal.published = self._leading.length
        self.problem = take(self._files, self._member) or self.problem
        self._settle()
        overdue = self._member.overdue(boot_clock())
        self.coordinator.returned(overdue, map(self._member.slices.__getitem__, overdue))
        return [(work, checked_s + LEASE_S) for work in self._member.start()], self._ended()

    def _ended(self) -> list[Ended]:
        ended, self._leading.ended = self._leading.ended, []
        self._member.stop([one.number for one in ended])  # the caller ends those that it has started
        self._settle()
        return ended

    def stop(self, numbers: tuple[int, ...]) -> None:
        """End these commands in all jobs. What they have of what all jobs share is free when they have ended."""
        for number in numbers:
            self.coordinator.stopped(number)
        self._member.stop(numbers)  # the caller ends those that it has started
        self._settle()
        self._leading.write(Stop(numbers))

    def _settle(self) -> None:
        for number in self._member.settled():
            self.coordinator.ended(number)

    def others(self) -> list[Status]:
        """The other jobs that take part."""
        return self._leading.members()

    def stuck(self) -> tuple[str, bool]:
        """Why nothing runs in any job though commands wait, in words, and whether more time would help."""
        works = self.coordinator.stuck()
        if not works:
            return "", False
        members = self.coordinator.members.values()
        late = [work for work in works if any(can_run(work, member.nodes) for member in members)]
        if late:
            return f"{late[0].name} cannot end before the time of its job does", True
        ranks = works[0].asked.ranks
        needs = f"{works[0].requests()[0]}{f' for each of {ranks} ranks' if ranks > 1 else ''}"
        return f"{works[0].name} needs {needs}, which no node of a job has that takes part", False

    def close(self, exit_code: int) -> None:
        """Announce the end of the batch to the other jobs, and wait a little until they have read it.

        What was stopped has ended then: another run may start at once.
        """
        self._leading.write(Closed(exit_code))
        limit_s = time.monotonic() + CLOSING_S
        while self.others() and (time.monotonic() < limit_s or self.coordinator.is_ending()):
            self._turned_s = 0.0
            self.turn(0.0)
            self._journal.turn()
            time.sleep(TURN_S)

    def leave(self) -> None:
        """Write nothing more."""
        with contextlib.suppress(OSError):  # it counts as lost a little later
            self._files.write_status(self._statuses.next(is_leaving=True))
        self._files.close()
