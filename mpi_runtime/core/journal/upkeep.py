"""Shows, verifies and compacts a journal between runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from mpi_runtime.core.journal import value_files
from mpi_runtime.core.journal.states import STATES_KEPT
from mpi_runtime.errors import JournalError
from mpi_runtime.files import segments
from mpi_runtime.files.claim import Claim
from mpi_runtime.files.segments import Damage, Noted
from mpi_runtime.files.writing import is_full
from mpi_runtime.scheduler.protocol.effects import Checkpoint, Record

BATCH = 1000
T = TypeVar("T")


class Segment(NamedTuple):
    """The file of one run; after `compact`, of several."""

    path: Path
    bodies: list[segments.Body]
    """In the order in which they were written."""
    damage: Damage

    def of(self, kind: type[T]) -> list[T]:
        """The bodies of a kind.

        `Began`: the start of the run; several after `compact`. `Record`: the calls that have ended. `Checkpoint`: the
        saved states of actors; most were replaced by later ones. `Noted`: events of an experiment of `tune`.
        """
        return [body for body in self.bodies if isinstance(body, kind)]


class Health(msgspec.Struct, frozen=True):
    """The findings of `verify`."""

    calls: int
    damaged_bytes: int
    values: int
    """The number of files of values."""
    damaged_values: list[str]


def _paths(directory: Path) -> list[Path]:
    found = segments.paths(directory)
    if not found:
        raise JournalError(f"{directory} is not a journal: no file in it is called like 000001{segments.SUFFIX}")
    return found


def read(directory: Path) -> Iterator[Segment]:
    """Yield all runs, the oldest first.

    Raises:
        JournalError: this is not a journal, or one in a newer format, or it cannot be read.
    """
    for path in _paths(directory):
        damage = Damage()
        try:
            with path.open("rb") as file:
                bodies = [body for _, body in segments.read(file, damage)]
        except OSError as error:
            raise JournalError(f"{path} cannot be read: {error.strerror}") from error
        yield Segment(path, bodies, damage)


def verify(directory: Path) -> Health:
    """Read every record and every value."""
    found = list(read(directory))
    files = [value for segment in found for record in segment.of(Record) for value in record.values if value.file]
    files += [state.state for state in _last_states(found, 1) if state.state.file]
    return Health(
        sum(len(segment.of(Record)) for segment in found),
        sum(segment.damage.bytes for segment in found),
        len(files),
        [kept.file for kept in files if not value_files.is_whole(str(directory), kept)],
    )


def _last_states(found: list[Segment], count: int) -> list[Checkpoint]:
    of_actors: dict[tuple[bytes, bytes], list[Checkpoint]] = {}
    for segment in found:
        for state in segment.of(Checkpoint):
            of_actors.setdefault((state.key, state.id), []).append(state)
    return [state for states in of_actors.values() for state in states[-count:]]


def compact(directory: Path) -> tuple[int, int]:
    """Merge all segments into one, with each task once, and remove unused values. Return the bytes before and after.

    All calls of actors stay, in order: a state contains the calls before it.

    Raises:
        JournalError: a job uses it, or it cannot be read or written.
    """
    _paths(directory)  # a file, or another directory, is not claimed
    before = _size(directory)
    claim = Claim(directory, f"mpi-runtime journal compact (pid {os.getpid()})")
    try:
        old = []
        for segment in read(directory):
            old.append(segment)
            claim.beat()
        if any(segment.of(Noted) for segment in old):
            raise JournalError(f"{directory} is the journal of an experiment of tune, which needs every line")
        last = {(one.id, one.key): one for segment in old for one in segment.of(Record) if _has_files(directory, one)}
        bodies = [
            body
            for segment in old
            for body in segment.bodies
            if not isinstance(body, Record) or body.life or last.get((body.id, body.key)) is body
        ]
        _write(directory, bodies, claim)
        for segment in old:
            segment.path.unlink()
        wanted = {value.file for body in bodies if isinstance(body, Record) for value in body.values}
        wanted |= {state.state.file for state in _last_states(old, STATES_KEPT)}
        for path in sorted((directory / value_files.FOLDER).rglob("*")):
            if path.is_file() and str(path.relative_to(directory)) not in wanted:
                path.unlink()
    finally:
        claim.release()
    return before, _size(directory)


def _write(directory: Path, bodies: Sequence[segments.Body], claim: Claim) -> None:
    path = None
    try:
        path, file = segments.create(directory)
        with file:
            for at in range(0, len(bodies), BATCH):
                segments.write_all(file, b"".join(map(segments.frame, bodies[at : at + BATCH])))
                claim.beat()
            os.fsync(file.fileno())
    except OSError as error:
        if path is not None:
            path.unlink()  # what is left of it would take more room, with each call a second time
        advice = ". It needs as much room as the records have, until the old ones are removed" if is_full(error) else ""
        raise JournalError(
            f"{directory} stays as it was, since its new file cannot be written: {error.strerror}{advice}"
        ) from error


def _has_files(directory: Path, record: Record) -> bool:
    return all((directory / value.file).is_file() for value in record.values if value.file)


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
