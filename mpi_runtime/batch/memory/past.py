"""The history of a batch, kept in a journal: its commands, when each started, how each ended.

The driver writes three kinds of records, each before it reports the event:

- `PLAN`: commands were added, in the order of the batch;
- `BEGAN`: a command was submitted to the scheduler;
- `ENDED`: it has ended, with its result and the number of this end. A higher number is a later end.

A command is done if its last end was a success, has its key, and is later than the ends of all names in its `after`.
The key is the hash of its text, its surroundings, its standard input and the keys of the names in its `after`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.file.templates import fill, plain
from mpi_runtime.batch.memory.outputs import ARCHIVE
from mpi_runtime.batch.memory.results import CommandResult
from mpi_runtime.errors import JournalError
from mpi_runtime.journal import private, segments
from mpi_runtime.journal.claim import Claim, owner_of
from mpi_runtime.scheduler.protocol.effects import Record
from mpi_runtime.scheduler.protocol.events import Kept
from mpi_runtime.scheduler.protocol.ids import digest

FOLDER = "journal"
"""The directory of the journal, in the directory of the output."""
PLAN, BEGAN, ENDED = "batch plan", "batch began", "batch command"
SYNC_S = 5.0
"""Seconds between flushes to the disk. A killed process loses nothing, a host without power loses this."""
_ID_BYTES = 16


class Planned(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of a batch: a command, or an array of them."""

    name: str
    commands: tuple[Command, ...]
    is_array: bool = False


class Began(msgspec.Struct, frozen=True):
    """A command was submitted to the scheduler."""

    name: str
    time_s: float
    """Since 1970."""
    host: str = ""
    """Where it runs; empty: no report has shown it running yet."""
    number: int = 0
    """That of its end."""


class Ended(msgspec.Struct, frozen=True):
    """A command has ended."""

    number: int
    key: bytes
    result: CommandResult
    cpus: float = 1.0
    gpus: float = 0.0
    """The CPUs and GPUs that were reserved for it."""
    packed: tuple[int, int] | None = None
    """The place of its output in the archive; None: it has a file of its own."""


class Capacity(msgspec.Struct, frozen=True):
    """The resources of a node of a run."""

    host: str
    cpus: float
    gpus: float
    memory: float
    resources: dict[str, float] = {}
    """Custom ones, by name."""


class Run(msgspec.Struct):
    """One start of the batch."""

    job: str
    """Host and process, in words."""
    begin_s: float
    nodes: list[Capacity] = []


class _Plan(msgspec.Struct):
    groups: list[Planned]
    nodes: list[Capacity] = []
    is_new: bool = True
    """Whether these replace all commands so far; else they are added."""
    source: str = ""
    """The file of the batch, from the directory that has the directory of the output."""


class History:
    """The records of all runs of a batch."""

    def __init__(self) -> None:
        self.plan: dict[str, Planned] = {}
        self.ends: dict[str, Ended] = {}
        """The last end of each command."""
        self.began: dict[str, Began] = {}
        """Commands that were started and have not ended since."""
        self.all_ends: list[Ended] = []
        self.runs: list[Run] = []
        self.source = ""
        """The file of the last plan; empty if it is not known."""
        self.number = 0
        self.damaged_bytes = 0

    def add(self, record: Record, data: bytes) -> None:
        """Take one record into account."""
        if record.name == PLAN:
            self.note_plan(_plans.decode(data))
        elif record.name == BEGAN:
            began = _begans.decode(data)
            self.began[began.name] = began
        elif record.name == ENDED:
            self.note(_ends.decode(data))

    def note_plan(self, plan: _Plan) -> None:
        """Note that commands were added."""
        self.plan = {} if plan.is_new else self.plan
        self.source = plan.source or self.source
        self.plan |= {group.name: group for group in plan.groups}
        if self.runs and plan.nodes:
            self.runs[-1].nodes = plan.nodes

    def note(self, ended: Ended) -> None:
        """Note that a command has ended. Records of several jobs may arrive in any order."""
        name = ended.result.name
        known = self.ends.get(name)
        if known is None or (ended.number, ended.result.is_success) >= (known.number, known.result.is_success):
            self.ends[name] = ended
        self.all_ends.append(ended)
        began = self.began.get(name)
        if began is not None and began.number <= ended.number:
            del self.began[name]
        self.number = max(self.number, ended.number)

    def failed(self) -> list[str]:
        """The names of commands that failed the last time."""
        return [name for name, ended in self.ends.items() if not ended.result.is_success]

    def commands(self) -> Iterator[Command]:
        """The commands of the last plan, in its order."""
        for group in self.plan.values():
            yield from group.commands


_plans = msgspec.msgpack.Decoder(_Plan)
_begans = msgspec.msgpack.Decoder(Began)
_ends = msgspec.msgpack.Decoder(Ended)


def read_history(directory: str) -> History:
    """Read the journal of the batch with this output directory.

    Raises:
        JournalError: a file is of a newer version.
        OSError: a file cannot be read.
    """
    found = History()
    for path in segments.paths(Path(directory, FOLDER)):
        damage = segments.Damage()
        with open(path, "rb") as file:
            try:
                for place in segments.read(file, damage):
                    if isinstance(place.body, segments.Began):
                        found.runs.append(Run(place.body.job, place.body.time_s))
                        found.began = {}  # the commands of the run before do not run any more
                    elif isinstance(place.body, Record):
                        found.add(place.body, place.body.values[0].data)
            except segments.NewerFormatError as error:
                raise JournalError(f"{path} was written by a newer mpi_runtime: its format is {error}") from None
            except (msgspec.DecodeError, IndexError):
                raise JournalError(
                    f"{path} is of another version of mpi_runtime, or not of a batch. Move it away, or use --fresh"
                ) from None
        found.damaged_bytes += damage.bytes
    return found


def source_of(directory: str, file: str) -> str:
    """The file of a batch from the directory that has its output, so that both can be moved together."""
    return os.path.relpath(os.path.realpath(file), os.path.dirname(os.path.realpath(directory))) if file != "-" else ""


def _own_history(directory: str, is_fresh: bool, file: str) -> History:
    try:
        found = read_history(directory)
    except JournalError:
        if not is_fresh:
            raise
        return History()
    if file and found.source not in ("", source_of(directory, file)):
        raise JournalError(
            f"{directory} has the journal and the outputs of another file, {found.source}. Name another directory with "
            f"--directory; or this one, if {file} takes the place of that file: --directory {directory}"
        )
    return found


def used_by(directory: str) -> str:
    """The job that runs the batch of a directory, in words; empty if no job is known to."""
    return owner_of(Path(directory, FOLDER))


class BatchJournal:
    """The journal of a batch that runs."""

    def __init__(self, directory: str, is_fresh: bool = False, file: str = "") -> None:
        """Read the records of earlier runs, and begin to write.

        Args:
            directory: of the output.
            is_fresh: whether earlier runs are forgotten.
            file: the file of the batch, if the directory must not have the records of another file.

        Raises:
            JournalError: another job runs this batch, the records are of another file, or the journal cannot be used.
        """
        self._path = Path(directory, FOLDER)
        job = f"{os.uname().nodename} (pid {os.getpid()})"
        self._pending: list[bytes] = []
        self._synced_s = time.monotonic()
        self._is_synced = True
        try:
            private.make_directory(self._path)
            self._claim = Claim(self._path, job)
            try:
                self.history = _own_history(directory, is_fresh, file)
                if is_fresh:
                    for path in (*segments.paths(self._path), Path(directory, ARCHIVE)):
                        path.unlink(missing_ok=True)
                    self.history = History()
                _, self._file = segments.create(self._path)
            except BaseException:
                self._claim.release()
                raise
        except OSError as error:
            raise JournalError(
                f"the journal {self._path} cannot be used: {error.strerror or error}. Name another directory with "
                "--directory, on a file system that all hosts of the job share."
            ) from error
        self.keys: dict[str, tuple[bytes, int]] = {}
        """The key of each command and array that has ended in this run or before, with the number of its end."""
        self._pending.append(segments.frame(segments.Began("mpi-runtime batch", job, time.time())))
        self.history.runs.append(Run(job, time.time()))
        self.history.began = {}

    def plan(
        self, groups: Sequence[Planned], nodes: Sequence[Capacity] = (), is_new: bool = True, source: str = ""
    ) -> None:
        """Record the commands of this run."""
        plan = _Plan([*groups], [*nodes], is_new, source)
        self._add(PLAN, b"", b"", 0, plan)
        self.history.note_plan(plan)

    def key_of(self, command: Command) -> tuple[bytes, int]:
        """The key of a command that waits for nothing more, and the highest number of the ends before it."""
        before = [self.keys.get(name, (b"", 0)) for name in command.after]
        return key_of(command, [key for key, _ in before]), max((number for _, number in before), default=0)

    def known_end(self, command: Command, key: bytes, after: int) -> Ended | None:
        """The end of a command in an earlier run, if it is still valid."""
        found = self.history.ends.get(command.name)
        return found if found is not None and found.key == key and found.number > after else None

    def settled(self, name: str, key: bytes, number: int) -> None:
        """Note the key of a command that has ended, and the number of this end."""
        self.keys[name] = key, number

    def settled_array(self, name: str, members: Iterable[str]) -> None:
        """Note that all commands of an array have ended."""
        known = [self.keys.get(member, (b"", 0)) for member in members]
        self.keys[name] = digest(b"".join(key for key, _ in known), _ID_BYTES), max((n for _, n in known), default=0)

    def began(self, command: Command) -> None:
        """Record that a command is submitted to the scheduler."""
        self._began(Began(command.name, time.time()))

    def placed(self, name: str, host: str, time_s: float) -> None:
        """Record where a submitted command runs and since when, unless this is known."""
        known = self.history.began.get(name)
        if known is not None and known.host != host:
            self._began(Began(name, time_s, host))

    def _began(self, began: Began) -> None:
        self.history.began[began.name] = began
        self._add(BEGAN, b"began" + began.name.encode(), b"", 0, began)

    def ended(self, command: Command, key: bytes, result: CommandResult, packed: tuple[int, int] | None = None) -> None:
        """Record that a command has ended; `packed` is the place of its output in the archive."""
        self.history.number += 1
        ended = Ended(self.history.number, key, result, command.num_cpus, command.num_gpus, packed)
        self.history.note(ended)
        self.settled(command.name, key, ended.number)
        took_us = max(0, round((result.end - result.start) * 1e6))
        self._add(ENDED, command.name.encode(), key, took_us, ended)

    def _add(self, kind: str, id: bytes, key: bytes, took_us: int, content: object) -> None:
        data = msgspec.msgpack.encode(content)
        own = digest(id or data, _ID_BYTES)
        record = Record(own, key or own, b"", kind, took_us, [Kept(data)])
        self._pending.append(segments.frame(record))

    def turn(self) -> None:
        """Write the pending records. They must not be reported before.

        Raises:
            OSError: the journal cannot be written, or another job took the batch over because this one stood still.
        """
        self._claim.beat()
        if self._pending:
            data, self._pending = b"".join(self._pending), []
            segments.write_all(self._file, data)
            self._is_synced = False
        if not self._is_synced and time.monotonic() - self._synced_s > SYNC_S:
            os.fdatasync(self._file.fileno())
            self._is_synced, self._synced_s = True, time.monotonic()

    def close(self) -> None:
        """Flush all to the disk, and let others run this batch. Records that `turn` could not write are lost."""
        with contextlib.suppress(OSError):
            self.turn()
            os.fdatasync(self._file.fileno())
        self._file.close()
        self._claim.release()


def key_of(command: Command, before: Sequence[bytes]) -> bytes:
    """The hash of a command, its surroundings and its inputs: see above."""
    values = command.values
    own = (
        fill(command.text, values),
        fill(command.cwd, values, plain),
        fill(command.stdout, values, plain),
        fill(command.stderr, values, plain),
        sorted((name, fill(text, values, plain)) for name, text in command.env.items()),
        _input_of(command),
        before,
    )
    return digest(msgspec.msgpack.encode(own), _ID_BYTES)


def _input_of(command: Command) -> tuple[object, ...]:
    if not command.stdin:
        return ()
    path = fill(command.stdin, command.values, plain)
    try:
        found = os.stat(path)
    except OSError:
        return (path,)
    return path, found.st_size, found.st_mtime_ns
