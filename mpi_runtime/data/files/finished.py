"""What a program with a journal has written already, which its next run does not recreate.

A unit is the parts of sources that one task reads, such as some files, with all that becomes of them. Tasks take no
blocks of two units. So when nothing of a unit is on its way any more, its files are all that is needed of it.

A file in the journal has a record for each such unit: its parts, and the names, sizes and times of its files. A run
with the same plan leaves these parts out, if the files are as they were. The plan is a digest of the functions with all
that they refer to, of their arguments, and of the sources: their parts, and the sizes and times of files. All but the
parts has a digest of its own: if it is the same, the parts are made as in the earlier run, whatever CPUs and stores the
job has now. Each run replaces the file of the journal by a new one with the records that it trusts. So a run that
continues although another has taken over the journal writes into a file that nobody reads.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from mpi_runtime.data.datasource.names import state_of, words_of
from mpi_runtime.data.plan import Divided, Exchanged, Joined, Limited, Mapped, Operator, Source, sources
from mpi_runtime.data.steps import Piece
from mpi_runtime.data.streams.records import Stage
from mpi_runtime.data.streams.stream import Stream
from mpi_runtime.extend import digest_of
from mpi_runtime.files import private, segments
from mpi_runtime.files.writing import beside
from mpi_runtime.show import log, numbers

FOLDER = "streams"
"""In the directory of the journal."""
PAUSE_S = 1.0
"""Units that have ended since the last record of this run are recorded together."""
Part = tuple[int, ...]
"""The number of a source, and that of one of its parts."""


class Saved(Struct, frozen=True, array_like=True):
    """A file, relative to the directory that is written to."""

    name: str
    bytes: int
    time_ns: int


class Plan(Struct, frozen=True, array_like=True, tag=1):
    """The first record."""

    digest: bytes
    all_but_parts: bytes = b""
    """The digest without the parts of sources. An older version has not recorded it, nor what follows."""
    cpus: int = 0
    block_bytes: int = 0
    """What parts of sources were made for."""


class Unit(Struct, frozen=True, array_like=True, tag=2):
    """A unit that has ended."""

    parts: list[Part]
    files: list[Saved]


_BODIES = msgspec.msgpack.Decoder(Plan | Unit)


def is_divisible(operator: Operator) -> bool:
    """Whether what becomes of a part of the sources does not depend on the others."""
    match operator:
        case Source():
            return True
        case Mapped(parent):
            return is_divisible(parent)
        case Joined(parents):
            return all(map(is_divisible, parents))
        case Limited() | Exchanged() | Divided():  # which joins rows of several parts
            return False


class Finished:
    """The units of one data set that are written."""

    def __init__(
        self, journal: str, folder: str, prefix: str, operator: Operator, options: Mapping[str, object]
    ) -> None:
        """`prefix`: of the names of its files, which has what the names of functions and their code say."""
        self._folder = folder
        self._path = Path(journal, FOLDER, digest_of((folder, prefix)).hex())
        self._operator = operator
        self._words = folder, prefix, dict(options), words_of(operator)
        self._sizes = 0, 0
        self._files: dict[Part, list[Saved]] = {}
        """The files of units that have begun."""
        self._noted: set[Part] = set()
        self._file: BinaryIO | None = None
        self._next_s = 0.0
        self.kept: list[str] = []
        """The names of files of earlier runs."""

    def sizes(self, cpus: int, block_bytes: int) -> tuple[int, int]:
        """What parts of sources are made for: the same as in an earlier run with these functions and inputs."""
        self._sizes = cpus, block_bytes
        with contextlib.suppress(OSError):  # `leave_out` says it
            match self._recorded():
                case [Plan(_, all_but_parts, earlier_cpus, earlier_bytes), _, *_] if earlier_cpus:  # a unit has ended
                    if all_but_parts == self._digest():
                        self._sizes = earlier_cpus, earlier_bytes
        return self._sizes

    def leave_out(self, stages: list[Stage]) -> bool:
        """Leave out the parts of sources that are written. Return whether this run records units."""
        parts = [block for stage in stages if not stage.inputs for block in stage.queues[0]]
        digest = self._digest([part.value if isinstance(part.value, Piece) else part.rows for part in parts])
        if not digest:
            return False
        plan = Plan(digest, self._digest(), *self._sizes)
        try:
            found = self._trusted(plan)
            self._begin(plan, found)
        except OSError as error:
            self._fail(error)
            return False
        done = {part for unit in found for part in unit.parts}
        for stage in stages:
            if not stage.inputs:
                left = [block for block in stage.queues[0] if block.key[:2] not in done]
                stage.queues[0].clear()
                stage.queues[0].extend(left)
        self.kept = [file.name for unit in found for file in unit.files]
        if done:
            log.say(
                log.line(
                    log.INFO,
                    log.DATA,
                    f"{len(done)} of {numbers.plural(len(parts), 'part')} of the data "
                    f"set are not recreated: the journal has their {numbers.plural(len(self.kept), 'file')}",
                ),
                quiet=False,
            )
        return True

    def wrote(self, key: tuple[int, ...], files: Iterable[Saved]) -> None:
        """A block with this place in the order is written."""
        self._files.setdefault(key[:2], []).extend(files)

    def note(self, stream: Stream, is_last: bool = False) -> None:
        """Record the units that have ended, if it is time."""
        if self._file is None or (time.monotonic() < self._next_s and not is_last):
            return
        self._next_s = time.monotonic() + PAUSE_S
        ended = stream.units.keys() - stream.open_units() - self._noted
        units = [Unit(sorted(stream.units[one]), self._files.pop(one, [])) for one in sorted(ended)]
        try:
            segments.write_all(self._file, b"".join(map(segments.frame, units)))
        except OSError as error:
            self._fail(error)
        self._noted |= ended

    def close(self) -> None:
        """Record no more."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _digest(self, parts: Sequence[object] = ()) -> bytes:
        """Return a digest of the functions and of the sources with these parts, or nothing if one cannot be hashed."""
        return digest_of((self._words, list(parts), [_states(one) for one in sources(self._operator)]))

    def _recorded(self) -> list[Plan | Unit]:
        try:
            with open(private.open_file(self._path), "rb") as file:
                return segments.bodies_in(file.read(), _BODIES)[0]
        except FileNotFoundError:
            return []

    def _trusted(self, plan: Plan) -> list[Unit]:
        bodies = self._recorded()
        if not bodies or not isinstance(bodies[0], Plan) or bodies[0].digest != plan.digest:
            return []
        return [one for one in bodies if isinstance(one, Unit) and all(map(self._is_there, one.files))]

    def _is_there(self, file: Saved) -> bool:
        return state_of(os.path.join(self._folder, file.name)) == (file.bytes, file.time_ns)

    def _begin(self, plan: Plan, units: list[Unit]) -> None:
        private.make_directory(self._path.parent)
        with beside(self._path) as spare:
            self._file = open(private.create_file(spare), "wb", buffering=0)  # noqa: SIM115  (see `close`)
            segments.write_all(self._file, b"".join(map(segments.frame, (plan, *units))))

    def _fail(self, error: OSError) -> None:
        self.close()
        log.say(
            log.line(
                log.ERROR,
                log.DATA,
                f"the journal has no record of written blocks from now on: "
                f"{error.strerror or error} ({error.filename or self._path})",
            ),
            quiet=False,
        )


def saved(folder: str, name: str) -> Saved:
    """The state of a file. OSError: it is not there."""
    path = os.path.join(folder, name)
    if (found := state_of(path)) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return Saved(name, *found)


def _states(source: Source) -> list[Saved]:
    return [saved("", name) for name in source.files]
