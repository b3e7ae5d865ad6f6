"""A job with a journal is cut at some moment, and the program runs again: the same answers, and no recorded call runs.

The journal is a list here. Small values are in its records; large ones are "files", which the executors that make them
write, and which now and then cannot be read.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import msgspec

from mpi_runtime.scheduler.effects import Recall, Record
from mpi_runtime.scheduler.events import Kept, Spec, Value
from mpi_runtime.scheduler.ids import digest
from tests.simulation.options import Options, random_options
from tests.simulation.require import require

UNREADABLE = 0.1
"""The share of files that cannot be read."""
CUT_US = 300_000


class CutError(BaseException):
    """The job is killed now."""


@dataclass
class Journal:
    """What one run has of it: the records of the runs before, and its own."""

    earlier: list[Record] = field(default_factory=list)
    own: list[Record] = field(default_factory=list)
    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    """The content of each, and how long it pretends to be."""
    recalled: set[bytes] = field(default_factory=set)
    """Calls that have ended by it. Only for membership."""
    loaded: set[bytes] = field(default_factory=set)
    """Calls that were given files. Only for membership."""
    taken: dict[int, bytes] = field(default_factory=dict)
    """Which call has which record, by its position."""

    def take(self, wanted: Recall) -> list[Kept]:
        """The values of a call."""
        fitting = [
            number
            for number, record in enumerate(self.earlier)
            if record.key == wanted.key and self.taken.get(number, wanted.id) == wanted.id
        ]
        fitting.sort(key=lambda number: self.earlier[number].id != wanted.id)
        if not fitting:
            return []
        self.taken[fitting[0]] = wanted.id
        values = self.earlier[fitting[0]].values
        if any(value.file for value in values):
            self.loaded.add(wanted.id)
        else:
            self.recalled.add(wanted.id)
        return values

    def give(self, record: Record) -> None:
        """A call is recorded."""
        require(record.id not in self.recalled, f"call {record.id.hex()} was recalled and is recorded again")
        self.own.append(record)

    def write(self, id: bytes, index: int, content: bytes, value: Value) -> None:
        """An executor writes a large value."""
        value.file = f"{id.hex()}-{index}-{len(self.files)}"
        value.digest = digest(content, 16)
        assert value.stored is not None
        self.files[value.file] = content, value.stored.size


def with_code(spec: Spec) -> Spec:
    """The spec of a task of which the journal may know calls."""
    return msgspec.structs.replace(spec, code=digest(spec.name.encode(), 16))


def journal_options(seed: int) -> tuple[Options, Options, int]:
    """A world, another with the same program where other things happen, and when the first is cut."""
    rng = random.Random(seed * 8887 + 3)
    options = replace(random_options(seed), has_journal=True)
    return options, replace(options, course=rng.randint(1, 1 << 30)), rng.randint(1000, CUT_US)
