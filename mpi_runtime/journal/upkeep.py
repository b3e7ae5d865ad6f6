"""A journal between runs: what is in it, whether it is whole, and without what nobody needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mpi_runtime.errors import JournalError
from mpi_runtime.journal import segments, value_files
from mpi_runtime.journal.claim import Claim
from mpi_runtime.journal.segments import Began, Damage
from mpi_runtime.scheduler.effects import Record

BATCH = 1000


class Segment(NamedTuple):
    """One run."""

    path: Path
    began: list[Began]
    """One; more in a segment that was made of several; none if the record is damaged."""
    records: list[Record]
    damage: Damage
    notes: int = 0
    """How much else is in it: events of an experiment of `tune`."""


class Health(NamedTuple):
    """What `verify` has found."""

    calls: int
    bytes_damaged: int
    values: int
    """Files of values."""
    values_damaged: list[str]


def read(directory: Path) -> Iterator[Segment]:
    """All runs, the oldest first.

    Raises:
        JournalError: this is no journal, or one in a newer format, or it cannot be read.
    """
    found = segments.paths(directory)
    if not found:
        raise JournalError(f"{directory} is no journal: no file in it is called like 000001{segments.SUFFIX}")
    for path in found:
        damage = Damage()
        try:
            with path.open("rb") as file:
                bodies = [place.body for place in segments.read(file, damage)]
        except segments.NewerFormatError as error:
            raise JournalError(f"{path} was written by a newer mpi_runtime: its format is {error}") from None
        except OSError as error:
            raise JournalError(f"{path} cannot be read: {error.strerror}") from error
        began = [body for body in bodies if isinstance(body, Began)]
        notes = sum(isinstance(body, segments.Noted) for body in bodies)
        yield Segment(path, began, [body for body in bodies if isinstance(body, Record)], damage, notes)


def verify(directory: Path) -> Health:
    """Read every record and every value."""
    calls = damaged = values = 0
    wrong: list[str] = []
    for segment in read(directory):
        calls += len(segment.records)
        damaged += segment.damage.bytes
        for kept in (value for record in segment.records for value in record.values if value.file):
            values += 1
            if not value_files.is_whole(str(directory), kept):
                wrong.append(kept.file)
    return Health(calls, damaged, values, wrong)


def compact(directory: Path) -> tuple[int, int]:
    """Make one segment of all, with each call once and without values that no call has. Returns bytes before and after.

    Raises:
        JournalError: a job uses it, or it cannot be read.
        OSError: it cannot be written.
    """
    before = _size(directory)
    claim = Claim(directory, f"mpi-runtime journal compact (pid {os.getpid()})")
    try:
        old = list(read(directory))
        if any(segment.notes for segment in old):
            raise JournalError(f"{directory} is the journal of an experiment of tune, which needs every line")
        records = {(one.id, one.key): one for segment in old for one in segment.records if _has_files(directory, one)}
        began = [one for segment in old for one in segment.began]
        _, file = segments.create(directory)
        with file:
            bodies: list[segments.Body] = [*began, *records.values()]
            for at in range(0, len(bodies), BATCH):
                data = memoryview(b"".join(map(segments.frame, bodies[at : at + BATCH])))
                while data:
                    data = data[file.write(data) :]
                claim.beat()
            os.fsync(file.fileno())
        for segment in old:
            segment.path.unlink()
        wanted = {value.file for record in records.values() for value in record.values}
        for path in sorted((directory / value_files.FOLDER).rglob("*")):
            if path.is_file() and str(path.relative_to(directory)) not in wanted:
                path.unlink()
    finally:
        claim.release()
    return before, _size(directory)


def _has_files(directory: Path, record: Record) -> bool:
    return all((directory / value.file).is_file() for value in record.values if value.file)


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
