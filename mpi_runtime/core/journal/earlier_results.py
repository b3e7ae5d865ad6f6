"""Records of earlier runs, by key. Each is used for one call."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from mpi_runtime.core.journal import value_files
from mpi_runtime.core.journal.states import Calls, States
from mpi_runtime.files import private, segments
from mpi_runtime.scheduler.protocol.effects import Checkpoint, Fresh, Recall, Record
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
        self._at = lru_cache(maxsize=4)(self._read_at)  # a call looks at its record several times
        self._tasks = Calls(lambda place: record.key if (record := self._at(place)) is not None else None)
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
                    self._tasks.add(body.id, body.key, number | position)
            elif isinstance(body, Checkpoint):
                self.states.saved(body)
            elif isinstance(body, Fresh):
                self.states.began(body)
            elif isinstance(body, segments.Began):
                self.programs[body.program] = None

    def take(self, wanted: Recall) -> tuple[list[Kept], str]:
        """Return the values of a call; or [] and, if an earlier run made a call with its id, why that was another.

        Calls of an actor are those that its state contains.
        """
        calls = self.states.calls_of(wanted.actor) if wanted.actor else self._tasks
        if calls is None:
            return [], ""
        other = calls.another(wanted)
        place = calls.take(wanted)
        if place is not None:
            record = self._at(place)
            return ([], "its record can no longer be read") if record is None else (record.values, "")
        if other is None or wanted.actor:
            return [], "" if other is None else "it was another one"
        record = self._at(other)
        if record is None or record.name != wanted.name:
            return [], ""
        return [], "its arguments are" if record.code == wanted.code else "its code, or what that refers to, is"

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

    def _read_at(self, place: int) -> Record | None:
        file = self._files[place >> _POSITION_BITS]
        try:
            found = segments.read_at(file, place & (1 << _POSITION_BITS) - 1)
        except OSError:
            return None
        return found if isinstance(found, Record) else None

    def close(self) -> None:
        """Close the files. No further record can be read."""
        for file in self._files:
            file.close()
