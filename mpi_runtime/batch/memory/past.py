"""The history of a batch, kept in a journal: its commands, when each started, how each ended.

Three kinds of records are written, all by the driver, before it reports what they record:

- `PLAN`: commands that were added, in the order of the batch;
- `BEGAN`: a command was handed to the scheduler;
- `ENDED`: it has ended, with its result and the number of this end. A higher number is a later end.

A command is done if its last end was a success, has its key, and is later than the ends of all that it comes after.
The key is the hash of its text, its surroundings, its standard input and the keys of what it comes after.
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
from mpi_runtime.batch.memory.outputs import ARCHIVE, open_output
from mpi_runtime.batch.memory.results import CommandResult
from mpi_runtime.errors import JournalError
from mpi_runtime.journal import private, segments
from mpi_runtime.journal.claim import Claim, owner_of
from mpi_runtime.scheduler.protocol.effects import Record
from mpi_runtime.scheduler.protocol.events import Kept
from mpi_runtime.scheduler.protocol.ids import digest

FOLDER = "journal"
"""Where it is, in the directory of the output."""
PLAN, BEGAN, ENDED = "batch plan", "batch began", "batch command"
SYNC_S = 5.0
"""How often what was written is brought to the disk. A killed process loses nothing, a host that loses power this."""
_ID_BYTES = 16


class Planned(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of a batch: a command, or an array of them."""

    name: str
    commands: tuple[Command, ...]
    is_array: bool = False


class Began(msgspec.Struct, frozen=True):
    """A command was handed to the scheduler."""

    name: str
    time_s: float
    """Since 1970."""
    host: str = ""
    """Where it runs; empty: it was not seen to run yet."""


class Ended(msgspec.Struct, frozen=True):
    """A command has ended."""

    number: int
    key: bytes
    result: CommandResult
    cpus: float = 1.0
    gpus: float = 0.0
    """What it was given."""
    packed: tuple[int, int] | None = None
    """Where its output is in the archive; None: in a file of its own."""


class Capacity(msgspec.Struct, frozen=True):
    """What a node of a run has."""

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
    """Whether these replace all that there was; else they are added."""


class History:
    """What all runs of a batch have written."""

    def __init__(self) -> None:
        self.plan: dict[str, Planned] = {}
        self.ends: dict[str, Ended] = {}
        """The last end of each command."""
        self.began: dict[str, Began] = {}
        """Commands that were started and have not ended since."""
        self.all_ends: list[Ended] = []
        self.runs: list[Run] = []
        self.number = 0
        self.damaged_bytes = 0

    def add(self, record: Record, data: bytes) -> None:
        """Take one record into account."""
        if record.name == PLAN:
            plan = _plans.decode(data)
            self.plan = {} if plan.is_new else self.plan
            self.plan |= {group.name: group for group in plan.groups}
            if self.runs and plan.nodes:
                self.runs[-1].nodes = plan.nodes
        elif record.name == BEGAN:
            began = _begans.decode(data)
            self.began[began.name] = began
        elif record.name == ENDED:
            self.note(_ends.decode(data))

    def note(self, ended: Ended) -> None:
        """A command has ended."""
        self.ends[ended.result.name] = ended
        self.all_ends.append(ended)
        self.began.pop(ended.result.name, None)
        self.number = max(self.number, ended.number)

    def failed(self) -> list[str]:
        """The names of commands whose last end was a failure."""
        return [name for name, ended in self.ends.items() if not ended.result.is_success]

    def output_of(self, directory: str, name: str) -> Iterator[bytes]:
        """The output of a command that has ended, block by block.

        Args:
            directory: of the batch.
            name: of the command.

        Raises:
            OSError: it is not there.
        """
        ended = self.ends[name]
        return open_output(directory, ended.result, ended.packed)

    def commands(self) -> Iterator[Command]:
        """The commands of the last plan, in its order."""
        for group in self.plan.values():
            yield from group.commands


_plans = msgspec.msgpack.Decoder(_Plan)
_begans = msgspec.msgpack.Decoder(Began)
_ends = msgspec.msgpack.Decoder(Ended)


def read_history(directory: str) -> History:
    """What there is of a batch.

    Args:
        directory: of its output.

    Raises:
        JournalError: a file is of a newer version.
        OSError: one cannot be read.
    """
    found = History()
    for path in segments.paths(Path(directory, FOLDER)):
        damage = segments.Damage()
        with open(path, "rb") as file:
            try:
                for place in segments.read(file, damage):
                    if isinstance(place.body, segments.Began):
                        found.runs.append(Run(place.body.job, place.body.time_s))
                        found.began = {}  # what ran then does not any more
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


def used_by(directory: str) -> str:
    """The job that runs the batch of a directory, in words; empty: none, as far as can be known."""
    return owner_of(Path(directory, FOLDER))


class BatchJournal:
    """The journal of a batch that runs."""

    def __init__(self, directory: str, is_fresh: bool = False) -> None:
        """Read what earlier runs have left, and begin to write.

        Args:
            directory: of the output.
            is_fresh: whether earlier runs are forgotten.

        Raises:
            JournalError: another job runs this batch, or the journal cannot be used.
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
                if is_fresh:
                    for path in (*segments.paths(self._path), Path(directory, ARCHIVE)):
                        path.unlink(missing_ok=True)
                self.history = read_history(directory)
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

    def plan(self, groups: Sequence[Planned], nodes: Sequence[Capacity] = (), is_new: bool = True) -> None:
        """These commands are to be run."""
        self._add(PLAN, b"", b"", 0, _Plan([*groups], [*nodes], is_new))
        self.history.plan = {} if is_new else self.history.plan
        self.history.plan |= {group.name: group for group in groups}
        self.history.runs[-1].nodes = [*nodes] or self.history.runs[-1].nodes

    def key_of(self, command: Command) -> tuple[bytes, int]:
        """The key of a command of which all that it comes after has ended, and the highest number of those ends."""
        before = [self.keys.get(name, (b"", 0)) for name in command.after]
        return key_of(command, [key for key, _ in before]), max((number for _, number in before), default=0)

    def known_end(self, command: Command, key: bytes, after: int) -> Ended | None:
        """The end of a command in an earlier run, if it still holds."""
        found = self.history.ends.get(command.name)
        return found if found is not None and found.key == key and found.number > after else None

    def settled(self, name: str, key: bytes, number: int) -> None:
        """A command has a key and an end of this number."""
        self.keys[name] = key, number

    def settled_array(self, name: str, members: Iterable[str]) -> None:
        """All commands of an array have ended."""
        known = [self.keys.get(member, (b"", 0)) for member in members]
        self.keys[name] = digest(b"".join(key for key, _ in known), _ID_BYTES), max((n for _, n in known), default=0)

    def began(self, command: Command) -> None:
        """A command is handed to the scheduler."""
        self._began(Began(command.name, time.time()))

    def placed(self, name: str, host: str, time_s: float) -> None:
        """A command that was handed over runs there, since then; noted the first time."""
        known = self.history.began.get(name)
        if known is not None and known.host != host:
            self._began(Began(name, time_s, host))

    def _began(self, began: Began) -> None:
        self.history.began[began.name] = began
        self._add(BEGAN, b"began" + began.name.encode(), b"", 0, began)

    def ended(self, command: Command, key: bytes, result: CommandResult, packed: tuple[int, int] | None = None) -> None:
        """A command has ended; `packed` is where its output is in the archive."""
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
        """Write the pending records. Nobody may hear of them before.

        Raises:
            OSError: it cannot be written, or another job has taken the batch over, because this one stood still.
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
        """Bring all to the disk, and let others run this batch. What `turn` could not write is lost."""
        with contextlib.suppress(OSError):
            self.turn()
            os.fdatasync(self._file.fileno())
        self._file.close()
        self._claim.release()


def key_of(command: Command, before: Sequence[bytes]) -> bytes:
    """The hash of what a command does, as far as that can be known: see above."""
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
