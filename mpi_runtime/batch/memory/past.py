"""The history of a batch, kept in a journal: its commands, when each started, how each ended.

The driver writes three kinds of records, each before it reports the event:

- `PLAN`: commands were added, in the order of the batch;
- `BEGAN`: a command was submitted to the scheduler;
- `ENDED`: it has ended, with its result and the number of this end.

The number is given when a command may start, after the ends of all names in its `after`: so it is higher than theirs,
whichever job runs which. Of two ends of a command the one with the higher number counts; with the same number, because
a job that was taken for dead has ended it too, a success does.

If several jobs run a batch, each has a file of its own. A `RETURNED` lists commands that such a job gives back.

A command is done if its last end was a success, has its key, and is later than the ends of all names in its `after`.
The key is the hash of its text, its surroundings, its standard input and the keys of the names in its `after`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from mpi_runtime.batch.elastic import files
from mpi_runtime.batch.elastic.records import EPOCH_BITS, Note
from mpi_runtime.batch.file.model import SHELL, Command
from mpi_runtime.batch.file.parse import Group
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
PLAN, BEGAN, ENDED, RETURNED = "batch plan", "batch began", "batch command", "batch returned"
CONTROL = "batch control"
RUN, SUCCESSOR, MEMBER = "mpi-runtime batch", "mpi-runtime batch successor", "mpi-runtime batch member"
"""What the first record of a file calls its job: a run, one that took the place of its coordinator, or another job."""
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
    role: str = RUN
    ended: int = 0
    """How many ends it has recorded."""


class _Plan(msgspec.Struct):
    groups: list[Planned]
    nodes: list[Capacity] = []
    is_new: bool = True
    """Whether these replace all commands so far; else they are added."""
    source: str = ""
    """The file of the batch, from the directory that has the directory of the output."""
    again: list[str] = []
    only: list[str] | None = None
    """The selection of the run, for a job that takes its place."""
    since: int = 0
    """Ends of this run have higher numbers."""


class _Control(msgspec.Struct, frozen=True):
    names: list[str]
    what: str
    """cancel, pause or resume: a job that takes the place of the coordinator needs to know."""


class Returned(msgspec.Struct, frozen=True):
    """A job gives commands back, and will not end them."""

    numbers: tuple[int, ...]
    slices: tuple[str, ...]
    is_begun: bool


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
        self.number = self.since = 0
        self.controls: dict[str, str] = {}
        """Commands that were cancelled or paused in the last run."""
        self.again: list[str] = []
        self.only: list[str] | None = None
        self.damaged_bytes = 0

    def add(self, record: Record, data: bytes) -> None:
        """Take one record into account."""
        if record.name == PLAN:
            self.note_plan(_plans.decode(data))
        elif record.name == BEGAN:
            began = _begans.decode(data)
            known = self.ends.get(began.name)
            if known is None or not began.number or known.number < began.number:
                self.began[began.name] = began
        elif record.name == ENDED:
            self.note(_ends.decode(data))
        elif record.name == CONTROL:
            control = _controls.decode(data)
            self.controls |= dict.fromkeys(control.names, control.what)

    def note_plan(self, plan: _Plan) -> None:
        """Note that commands were added."""
        if plan.is_new:
            self.plan = {}
            self.again, self.only, self.since = plan.again, plan.only, plan.since
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
        if self.runs:
            self.runs[-1].ended += 1

    def session(self) -> list[Run]:
        """The last run of the batch: first the job that began it, then those that joined."""
        first = max((number for number, run in enumerate(self.runs) if run.role == RUN), default=0)
        return self.runs[first:]

    def nodes(self) -> list[Capacity]:
        """The nodes of all jobs of the last run."""
        return [*{(run.job, node.host): node for run in self.session() for node in run.nodes}.values()]

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
_controls = msgspec.msgpack.Decoder(_Control)
_returns = msgspec.msgpack.Decoder(Returned)


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
                        found.runs.append(Run(place.body.job, place.body.time_s, role=place.body.program))
                        if place.body.program == RUN:
                            found.began = {}  # the commands of the run before do not run any more
                            found.controls = {}
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


def planned_groups(history: History) -> list[Group]:
    """The groups of the last plan, for a job that takes the place of its coordinator: their file may be another now."""
    return [
        Group(one.name, one.commands, one.commands[0].after if one.commands else (), (1, 1), (1, 1), one.is_array)
        for one in history.plan.values()
    ]


def check_source(directory: str, file: str) -> None:
    """Raise JournalError if a directory has the records of another file."""
    _own_history(directory, False, file)


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
    """The job that coordinates the batch of a directory, in words; empty if no job is known to."""
    return owner_of(Path(directory, FOLDER))


def jobs_of(directory: str) -> list[str]:
    """The jobs that run the batch of a directory, in words: first the coordinator, if it is not known to be gone."""
    first = used_by(directory)
    others = [one.job for one in files.statuses(Path(directory, FOLDER))]
    return [*([first] if first else []), *sorted({*others} - {first})]


def job_in_words() -> str:
    """This process, for people."""
    return f"{os.uname().nodename} (pid {os.getpid()})"


def notes_in(bodies: Iterable[segments.Body]) -> list[Note]:
    """The records for the coordinator of an elastic batch."""
    found = []
    for body in bodies:
        if isinstance(body, Record) and body.name == ENDED:
            ended = _ends.decode(body.values[0].data)
            found.append(Note("ended", (ended.number,), content=ended))
        elif isinstance(body, Record) and body.name == RETURNED:
            returned = _returns.decode(body.values[0].data)
            found.append(Note("returned", returned.numbers, returned.slices, returned.is_begun))
    return found


class BatchJournal:
    """The journal of a batch that runs."""

    def __init__(
        self, directory: str, is_fresh: bool = False, file: str = "", role: str = RUN, claim: Claim | None = None
    ) -> None:
        """Read the records of earlier runs, and begin to write.

        Args:
            directory: of the output.
            is_fresh: whether earlier runs are forgotten.
            file: the file of the batch, if the directory must not have the records of another file.
            role: a member does not claim the journal.
            claim: that of a successor.

        Raises:
            JournalError: another job runs this batch, the records are of another file, or the journal cannot be used.
        """
        self.path = Path(directory, FOLDER)
        self.job = job_in_words()
        self.published = 0
        """The number for other jobs: see `Claim`."""
        self._claim = claim
        self._length = segments.HEADER_BYTES
        self._pending: list[bytes] = []
        self._synced_s = time.monotonic()
        self._is_synced = True
        try:
            private.make_directory(self.path)
            if role == RUN:
                self._claim = Claim(self.path, self.job)
            try:
                self.history = _own_history(directory, is_fresh, file)
                if is_fresh:
                    for path in (*segments.paths(self.path), Path(directory, ARCHIVE)):
                        path.unlink(missing_ok=True)
                    self.history = History()
                path, self._file = segments.create(self.path)
            except BaseException:
                if self._claim is not None:
                    self._claim.release()
                raise
        except OSError as error:
            raise JournalError(
                f"the journal {self.path} cannot be used: {error.strerror or error}. Name another directory with "
                "--directory, on a file system that all hosts of the job share."
            ) from error
        self.keys: dict[str, tuple[bytes, int]] = {}
        """The key of each command and array that has ended in this run or before, with the number of its end."""
        self.segment = int(path.stem)
        self._pending.append(segments.frame(segments.Began(role, self.job, time.time())))
        self.history.runs.append(Run(self.job, time.time(), role=role))
        if role == RUN:
            self.history.began = {}
            self.history.controls = {}
        if self._claim is not None:
            self.history.number = max(self.history.number, self._claim.number << EPOCH_BITS)

    def plan(
        self,
        groups: Sequence[Planned],
        nodes: Sequence[Capacity] = (),
        is_new: bool = True,
        source: str = "",
        again: Iterable[str] = (),
        only: Iterable[str] | None = None,
        since: int | None = None,
    ) -> None:
        """Record the commands of this run, and its selection; `since`: of the run whose place this one takes."""
        chosen = sorted(only) if only is not None else None
        since = self.history.number if since is None else since
        plan = _Plan([*groups], [*nodes], is_new, source, sorted(again), chosen, since)
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

    @property
    def epoch(self) -> int:
        """The number of the claim; 0 for a member."""
        return self._claim.number if self._claim is not None else 0

    def next_number(self) -> int:
        """Return the number of a command that may start now."""
        self.history.number += 1
        return self.history.number

    def began(self, name: str, number: int) -> None:
        """Record that a command is submitted to the scheduler."""
        self._began(Began(name, time.time(), "", number))

    def placed(self, name: str, host: str, time_s: float) -> None:
        """Record where a submitted command runs and since when, unless this is known."""
        known = self.history.began.get(name)
        if known is not None and known.host != host:
            self._began(Began(name, time_s, host, known.number))

    def _began(self, began: Began) -> None:
        self.history.began[began.name] = began
        self._add(BEGAN, b"began" + began.name.encode(), b"", 0, began)

    def ended(
        self,
        command: Command,
        key: bytes,
        result: CommandResult,
        number: int,
        packed: tuple[int, int] | None = None,
    ) -> None:
        """Record that a command has ended; `packed` is the place of its output in the archive."""
        had, ranks = command.demands()[result.alternative], command.ranks
        ended = Ended(number, key, result, ranks * had.num_cpus, ranks * had.num_gpus, packed)
        self.history.note(ended)
        self.settled(command.name, key, ended.number)
        took_us = max(0, round((result.end - result.start) * 1e6))
        self._add(ENDED, command.name.encode(), key, took_us, ended)

    def ended_elsewhere(self, ended: Ended) -> None:
        """Note the end of a command that another job has recorded."""
        self.history.note(ended)
        self.settled(ended.result.name, ended.key, ended.number)

    def returned(self, numbers: Sequence[int], slices: Mapping[int, str], is_begun: bool) -> None:
        """Record that this job gives commands back; `slices`: with which it had them."""
        if numbers:
            own = tuple(slices.get(number, "") for number in numbers)
            self._add(RETURNED, b"", b"", 0, Returned(tuple(numbers), own, is_begun))

    def controlled(self, names: Sequence[str], what: str) -> None:
        """Record that a user has cancelled, paused or resumed commands."""
        self._add(CONTROL, b"", b"", 0, _Control([*names], what))

    @property
    def length(self) -> int:
        """How many bytes of the file are written."""
        return self._length

    @property
    def names(self) -> list[str]:
        """The names in the directory, as of the last beat."""
        return self._claim.names if self._claim is not None else []

    def _add(self, kind: str, id: bytes, key: bytes, took_us: int, content: object) -> None:
        data = msgspec.msgpack.encode(content)
        own = digest(id or data, _ID_BYTES)
        record = Record(own, key or own, b"", kind, took_us, [Kept(data)])
        self._pending.append(segments.frame(record))

    def turn(self) -> None:
        """Write the pending records. They must not be reported before.

        Raises:
            TakenOverError: another job took the batch over because this one stood still.
            OSError: the journal cannot be written. The records stay pending.
        """
        if self._claim is not None:
            self._claim.beat(self.published)
        if self._pending:
            data = b"".join(self._pending)
            self._file.seek(self._length)  # what a full disk has cut off is written again
            segments.write_all(self._file, data)
            self._length += len(data)
            self._pending.clear()
            self._is_synced = False
        if not self._is_synced and time.monotonic() - self._synced_s > SYNC_S:
            os.fdatasync(self._file.fileno())
            self._is_synced, self._synced_s = True, time.monotonic()

    def lose_claim(self) -> None:
        """Another job has claimed the journal: the records of this one stay valid."""
        if self._claim is not None:
            self._claim.release()
            self._claim = None

    def close(self) -> None:
        """Flush all to the disk, and let others run this batch. Records that `turn` could not write are lost."""
        with contextlib.suppress(OSError):
            self.turn()
            os.fdatasync(self._file.fileno())
        self._file.close()
        if self._claim is not None:
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
        *([command.shell] if command.shell != SHELL else []),
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
