"""Records of earlier runs, by key. Each is used for one call."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import BinaryIO

from mpi_runtime.journal import private, segments, value_files
from mpi_runtime.journal.states import States
from mpi_runtime.scheduler.protocol.effects import Checkpoint, Recall, Record
from mpi_runtime.scheduler.protocol.events import Kept

_POSITION_BITS = 44


class Earlier:
    """The records of all present segments of a journal. They stay on disk; their places are in memory."""

    def __init__(self, directory: Path) -> None:
        """Read all segments once.

        Raises:
            JournalError: a segment is in a newer format.
            OSError: one cannot be read.
        """
        self.count = 0
        self.states = States()
        self._directory = str(directory)
        self.programs: dict[str, None] = {}
        """Names of the programs that wrote the journal, in order."""
        self.damage = segments.Damage()
        self._files: list[BinaryIO] = []
        self._by_key: dict[bytes, int | deque[int]] = {}
        self._by_id: dict[bytes, int] = {}
        self._taken: dict[int, bytes] = {}
        """Calls of this run, by the places of their records."""
        try:
            for path in segments.paths(directory):
                self._read(path)
        except BaseException:
            self.close()
            raise

    def _read(self, path: Path) -> None:
        file = open(path, "rb", opener=lambda name, _: private.open_file(name))  # noqa: SIM115  (closed by `close`)
        number = len(self._files) << _POSITION_BITS
        self._files.append(file)
        for position, body in segments.read(file, self.damage):
            if isinstance(body, Record):
                self.count += 1
                if body.life:
                    self.states.recorded(body, number | position)
                else:
                    self._add(body, number | position)
            elif isinstance(body, Checkpoint):
                self.states.saved(body)
            elif isinstance(body, segments.Began):
                self.programs[body.program] = None

    def _add(self, record: Record, place: int) -> None:
        known = self._by_key.get(record.key)
        if known is None:
            self._by_key[record.key] = place
        elif isinstance(known, int):
            self._by_key[record.key] = deque((known, place))
        else:
            known.append(place)
        self._by_id[record.id] = place

    def take(self, wanted: Recall) -> tuple[list[Kept], str]:
        """Return the values of a call; or [] and, if an earlier run made a call with its id, why that was another."""
        if wanted.actor:
            return self._take_of_actor(wanted)
        why = ""
        own = self._by_id.get(wanted.id)
        if own is not None and self._taken.get(own, wanted.id) == wanted.id:
            record = self._at(own)
            if record is not None and record.key == wanted.key:
                self._taken[own] = wanted.id
                return record.values, ""
            if record is not None and record.name == wanted.name:
                why = "its arguments are" if record.code == wanted.code else "its code, or what that refers to, is"
        record = self._oldest(wanted)
        return ([], why) if record is None else (record.values, "")

    def has_any(self) -> bool:
        """Whether there are records or states."""
        return bool(self.count or self.states.count)

    def take_state(self, wanted: Recall) -> tuple[list[Kept], bytes]:
        """Return the state with which an actor begins, and its name; both empty: it has no state."""
        for state in self.states.candidates(wanted):
            if value_files.has_size(self._directory, state.state):
                self.states.begin(wanted, state)
                return [state.state], state.number
        return [], b""

    def _take_of_actor(self, wanted: Recall) -> tuple[list[Kept], str]:
        """Return the values of a call that the state of its actor contains; or [] and why that was another call."""
        calls = self.states.calls_of(wanted.actor)
        if calls is None:
            return [], ""
        had = calls.take(wanted)
        if had is None:
            return [], "it was another one" if calls.has_another(wanted) else ""
        record = self._at(had.place)
        return ([], "its record can no longer be read") if record is None else (record.values, "")

    def _oldest(self, wanted: Recall) -> Record | None:
        known = self._by_key.get(wanted.key)
        places = deque(() if known is None else (known,)) if known is None or isinstance(known, int) else known
        while places:
            place = places.popleft()
            if place not in self._taken:
                record = self._at(place)
                if record is not None and record.key == wanted.key:
                    self._taken[place] = wanted.id
                    self._by_id[wanted.id] = place  # if it asks again
                    return record
        return None

    def _at(self, place: int) -> Record | None:
        file = self._files[place >> _POSITION_BITS]
        try:
            found = segments.read_at(file, place & (1 << _POSITION_BITS) - 1)
        except OSError:
            return None
        return found if isinstance(found, Record) else None

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()
