"""The turns of a job that belongs to a batch: it writes its status, reads offers, takes slices, starts commands.

The clock must also count while the host is suspended.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from mpi_runtime.batch.elastic.files import JobFiles
from mpi_runtime.batch.elastic.member import Member
from mpi_runtime.batch.elastic.records import ENTRIES, Closed, Offer, Status, Stop
from mpi_runtime.batch.elastic.watch import Watch
from mpi_runtime.files.segments import bodies_in

GAP_S = 5.0
"""After a longer pause of its own a job may count as lost: it starts nothing until it has seen what has changed."""
LEASE_S = 5.0
"""A command that has not begun this long after the look that allowed it does not begin."""


def in_words(error: OSError) -> str:
    """Why a job cannot take part at present."""
    where = f" ({error.filename})" if error.filename else ""
    return f"the files of the batch cannot be used: {error.strerror or error}{where}"


def take(files: JobFiles, member: Member) -> str:
    """Take the slices that a member wants. Return why that is impossible at present; empty: it is not."""
    while (offer := member.wants()) is not None:
        try:
            is_ours = files.make_name(offer.slice) == member.token
        except OSError as error:
            member.doubt(offer)
            return in_words(error)
        member.took(offer, is_ours)
    return ""


class Turn(msgspec.Struct):
    """What the caller is to do after a turn."""

    start: list[tuple[int, float]] = []
    """Numbers of commands to start, each with the time after which it must not begin."""
    end: list[int] = []
    """Numbers of commands to end: another job has them, or the batch is stopped."""
    exit_code: int | None = None
    """The batch has ended."""
    is_orphaned: bool = False
    """The coordinator is gone: one of the jobs must take its place."""


class Belonging:
    """One job of a batch."""

    def __init__(self, files: JobFiles, member: Member, clock: Callable[[], float]) -> None:
        self.member = member
        self.epoch = 0
        self.problem = ""
        """Why it cannot read or write at present; empty: it can."""
        self._files = files
        self._clock = clock
        self._position = 0
        self._watch = Watch()
        self._beat = ""
        self._turned_s: float | None = None
        self._unconfirmed: tuple[int, str] | None = None
        """Epoch and beat before a pause of this job: until the coordinator writes a new one nothing starts."""

    def turn(self, status: Status, is_taking: bool = True) -> Turn:
        """Act once. `status`: what is written; `is_taking`: whether it may take more."""
        turn = Turn([], [])
        self.problem = ""
        now_s = self._clock()
        if self._turned_s is not None and now_s - self._turned_s > GAP_S:
            self._watch.failed()
            self._unconfirmed = self.epoch, self._beat
        self._turned_s = now_s
        try:
            self._files.write_status(status)
        except OSError as error:
            self.problem = in_words(error)
            is_taking = False
        try:
            is_current = self._look(turn)
        except OSError as error:
            self.problem = in_words(error)
            self._watch.failed()
            return turn
        if is_current and self._unconfirmed is None:
            if is_taking and turn.exit_code is None:
                self.problem = take(self._files, self.member)
            turn.start = [(work.number, now_s + LEASE_S) for work in self.member.start()]
        return turn

    def stood_up(self) -> None:
        """Nobody took the place of the coordinator: look at it from the start."""
        self._watch.failed()

    def _look(self, turn: Turn) -> bool:
        """Read what the coordinator has written. Return whether all of it is known."""
        found = self._files.coordinator()
        if found is None:
            self._watch.failed()
            return False
        epoch, beat, length = found
        if epoch < self.epoch:
            return False
        if epoch > self.epoch:
            self.epoch, self._position = epoch, 0
            self.member.new_coordinator()
            self._watch = Watch()
        self._beat = beat
        if self._unconfirmed is not None and self._unconfirmed != (epoch, beat):
            self._unconfirmed = None
        turn.is_orphaned = self._watch.look(beat, self._clock())
        if length > self._position:
            data = self._files.read_offers(epoch, self._position, length - self._position)
            entries, size = bodies_in(data, ENTRIES)
            self._position += size
            for entry in entries:
                self._read(entry, turn)
        return length <= self._position

    def _read(self, entry: Offer | Stop | Closed, turn: Turn) -> None:
        if isinstance(entry, Offer):
            turn.end += self.member.drop(self.member.offered(entry))
        elif isinstance(entry, Stop):
            turn.end += self.member.stop(entry.numbers)
        else:
            turn.exit_code = entry.exit_code
