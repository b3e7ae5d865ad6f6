"""The turns of the coordinator: it looks at all jobs, reads their records, writes offers, takes slices back."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import msgspec

from mpi_runtime.batch.elastic.coordinator import Coordinator, TakeBack
from mpi_runtime.batch.elastic.files import JobFiles
from mpi_runtime.batch.elastic.member_turns import GAP_S, in_words
from mpi_runtime.batch.elastic.records import ENTRIES, Closed, Entry, Offer, Returned, Status, Stop, pool_of
from mpi_runtime.batch.elastic.watch import Watch
from mpi_runtime.files.segments import bodies_in, frame

SILENT_LOOKS = 10
"""How many looks in a row must find a job unchanged until it counts as silent: it is offered nothing more."""
GRACE_S = 60.0
"""How long a silent job whose end is not known keeps what it has begun, while each look succeeds ..."""
GRACE_SHARE = 0.05
"""... or this share of its longest command."""


def is_open(files: JobFiles, first: int) -> bool:
    """Whether a batch that has not ended may have commands in a job that lives: its next coordinator recovers these.

    `first`: the number of the claim with which it began.

    Raises:
        OSError: this cannot be seen.
    """
    found = _offered(files, first)
    tokens = {entry.token for entries in found for entry in entries if isinstance(entry, Offer)}
    has_ended = bool(found) and any(isinstance(entry, Closed) for entry in found[-1])
    return not has_ended and any(may_live(files, token) for token in tokens)


def _offered(files: JobFiles, first: int) -> list[list[Entry]]:
    """What each earlier coordinator of a batch has written."""
    epochs = sorted(epoch for epoch in files.earlier_epochs() if epoch >= first)
    return [bodies_in(files.read_offers(epoch, 0, -1), ENTRIES)[0] for epoch in epochs]


def may_live(files: JobFiles, token: str) -> bool:
    """Whether a job is not known to have ended."""
    with contextlib.suppress(OSError):
        status = files.read_status(token)
        return status is None or not (status.is_leaving or files.is_gone(status))
    return True


class _Seen(msgspec.Struct):
    watch: Watch
    status: Status
    position: int = 0
    """How far its records were read."""
    is_lost: bool = False
    has_left: bool = False
    is_silent: bool = False
    silent_s: float = 0.0
    """How long looks in a row have found it silent; time with failed or slow looks does not count."""
    looked_s: float | None = None
    """When the last of these looks was; None: the last look was another one."""
    grace_s: float = 0.0


class Leading:
    """The coordinator of a batch."""

    def __init__(self, files: JobFiles, coordinator: Coordinator, token: str, clock: Callable[[], float]) -> None:
        """Begin to lead; `token`: this job's own."""
        self.coordinator = coordinator
        self.ended: list[Any] = []
        """The ends of commands in other jobs, as they have recorded them, for the caller."""
        self.length = 0
        """How many bytes of offers may be read by others: the caller publishes it."""
        self.problem = ""
        self._files = files
        self._token = token
        self._clock = clock
        self._seen: dict[str, _Seen] = {}
        self._entries: list[Entry] = []
        """Not written yet."""
        self._answers: list[str] = []
        """Slices to take back, whose names could not be made yet."""
        self._turned_s: float | None = None
        self._begun = ""

    def members(self) -> list[Status]:
        """The jobs that take part, without this one."""
        return [one.status for one in self._seen.values() if not (one.is_lost or one.has_left)]

    def recover(self, first: int, is_strict: bool = True) -> bool:
        """Read what earlier coordinators have offered; return whether all of it could be read.

        The caller has noted all ends that it knows in the coordinator before. `first`: the number of the claim with
        which the batch began. `is_strict`: the records of all jobs must be readable, not the offers alone.
        """
        try:
            if not self._look_at_all() and is_strict:
                return False
            found = _offered(self._files, first)
        except OSError as error:
            self.problem = in_words(error)
            return False
        for entry in itertools.chain.from_iterable(found):
            if isinstance(entry, Offer):
                self.coordinator.found(entry)
        return True

    def write(self, entry: Entry) -> None:
        """Write an entry with the next turn. An offer to this job counts as begun."""
        self._entries.append(entry)
        if isinstance(entry, Offer):
            self._begun = entry.slice

    def turn(self) -> list[Offer]:
        """Act once. Return the new offers for this job, which are written."""
        self.problem = ""
        now_s = self._clock()
        if self._turned_s is not None and now_s - self._turned_s > GAP_S:
            for one in self._seen.values():
                one.watch.failed()
        self._turned_s = now_s
        try:
            self._look_at_all()
        except OSError as error:
            self.problem = in_words(error)
        if not any(isinstance(entry, Offer) for entry in self._entries):  # else the disk is full
            for order in self.coordinator.orders(self._clock()):
                if isinstance(order, TakeBack):
                    self._answers.append(order.slice)
                else:
                    self._entries.append(order)
        self._take_back()
        return self._write()

    def _look_at_all(self) -> bool:
        """Look at all jobs; return whether all could be read."""
        tokens = [token for token in self._files.tokens() if token != self._token]
        present = [token for token in tokens if not (token in self._seen and self._seen[token].has_left)]
        return all([self._look(token) for token in present])

    def _look(self, token: str) -> bool:
        """Look at one job; return whether its status and all that it has published could be read."""
        known = self._seen.get(token)
        try:
            status = self._files.read_status(token)
        except OSError as error:
            self.problem = in_words(error)
            status = None
        if status is None or (known is not None and status.beat < known.status.beat):
            if known is not None:
                known.watch.failed()
            return False
        if known is None:
            known = self._seen[token] = _Seen(Watch(SILENT_LOOKS), status)
        has_moved = status.beat != known.status.beat
        known.status = status
        is_gone = status.is_leaving or self._files.is_gone(status)
        is_lost = self._is_silent_for_long(known, has_moved) or is_gone
        if not self._read(known, is_gone or (is_lost and not known.is_lost)):
            return False  # its last records first
        if is_lost:
            if not known.is_lost:
                known.is_lost = True
                self.coordinator.lost(token)
            known.has_left = is_gone
        elif has_moved or not (known.is_lost or known.is_silent):
            known.is_lost = False
            ends_s = None if status.left_s is None else self._clock() + status.left_s
            self.coordinator.joined(token, tuple(map(pool_of, status.nodes)), ends_s)
            if status.left_s is not None and status.left_s <= 0:
                self.coordinator.refuses(token)
        return known.position >= status.length

    def _is_silent_for_long(self, one: _Seen, has_moved: bool) -> bool:
        """Whether a job has been silent so long that others begin what it has begun."""
        now_s = self._clock()
        if has_moved:
            one.is_silent, one.silent_s = False, 0.0
        if not one.watch.look(one.status.beat, now_s):
            one.looked_s = None
            return False
        if not one.is_silent:
            one.is_silent = True
            one.grace_s = max(GRACE_S, GRACE_SHARE * self.coordinator.silent(one.status.token))
        one.silent_s += now_s - one.looked_s if one.looked_s is not None else 0.0
        one.looked_s = now_s
        self._files.ask(one.status)
        return one.silent_s >= one.grace_s

    def _read(self, one: _Seen, is_last: bool) -> bool:
        """Read the records of a job; return whether that was possible."""
        if one.status.length <= one.position and not is_last:
            return True
        try:
            notes, one.position = self._files.read_notes(one.status, one.position, is_last)
        except OSError as error:
            self.problem = in_words(error)
            one.watch.failed()
            return False
        for note in notes:
            if isinstance(note, Returned):
                self.coordinator.returned(note.numbers, note.slices, note.is_begun)
                continue
            other = self.coordinator.job_with(note.number)
            if other in ("", one.status.token):
                self.coordinator.ended(note.number)
            else:  # a job that was taken for dead has ended it after all, and that one runs it
                self.coordinator.stopped(note.number)
                self.write(Stop((note.number,)))
            self.ended.append(note)
        return True

    def _take_back(self) -> None:
        answers, self._answers = self._answers, []
        for slice in answers:
            token = self.coordinator.token_of(slice)
            if token is None:
                continue
            try:
                is_ours = not self._files.make_name(slice, is_back=True)
                is_known = is_ours or token in self._seen or token == self._token or self._look(token)
            except OSError as error:
                self.problem = in_words(error)
                is_known = False
            if is_known:
                self.coordinator.took_back(slice, is_ours)
            else:
                self._answers.append(slice)

    def _write(self) -> list[Offer]:
        if not self._entries:
            return []
        data = b"".join(map(frame, self._entries))
        try:
            self._files.write_offers(self.length, data)
        except OSError as error:
            self.problem = in_words(error)
            return []
        self.length += len(data)
        entries, self._entries = self._entries, []
        own = [entry for entry in entries if isinstance(entry, Offer) and entry.token == self._token]
        return [entry for entry in own if entry.slice != self._begun]
