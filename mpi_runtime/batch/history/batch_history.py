"""The history of a batch, kept in a journal: its commands, when each started, how each ended.

The driver writes these kinds of records, each before it reports the event:
- `Planning`: commands were added, in the order of the batch;
- `Began`: a command was submitted to the scheduler;
- `Ended`: it has ended, with its result and the number of this end;
- `Finished`: nothing is left of the batch.

The number is given when a command may start, after the ends of all names in its `after`: so it is higher than theirs,
whichever job runs which. Of two ends of a command the one with the higher number counts; with the same number, because
a job that was taken for dead has ended it too, a success does.
If several jobs run a batch, each has a file of its own. A `Returned` lists commands that such a job gives back.

A command is done if its last end was a success, has its key, and is later than the ends of all names in its `after`.
The key is the hash of its text, its surroundings, its standard input and the keys of the names in its `after`.
A run after `Finished` begins the batch again: what has not succeeded runs. Any other continues it: what has failed
since the batch began stays failed, what was cancelled or paused stays that way.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import operator
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from mpi_runtime.batch.elastic import files
from mpi_runtime.batch.elastic.records import EPOCH_BITS, Returned
from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.file.parse import Group
from mpi_runtime.batch.file.selection import Selection
from mpi_runtime.batch.history.results import CommandResult
from mpi_runtime.errors import JournalError
from mpi_runtime.files import claim, segments
from mpi_runtime.scheduler.protocol.effects import Record

FOLDER = "journal"
"""The directory of the journal, in the directory of the output."""
RUN, SUCCESSOR, MEMBER = "mpi-runtime batch", "mpi-runtime batch successor", "mpi-runtime batch member"
"""What the first record of a file calls its job: a run, one that took the place of its coordinator, or another job."""
_what = operator.attrgetter("text", "values", "after")
"""What only the file of a batch says. Other things that a command has may be options on the command line."""


class Began(msgspec.Struct, frozen=True):
    """A command was submitted to the scheduler."""

    name: str
    time_s: float
    """Since 1970."""
    host: str = ""
    """Where it runs; empty: no report has shown it running yet."""
    number: int = 0
    """That of its end."""


class Ended(msgspec.Struct, frozen=True, omit_defaults=True):
    """A command has ended."""

    number: int
    key: bytes
    result: CommandResult
    cpus: float = 1.0
    gpus: float = 0.0
    """The CPUs and GPUs that were reserved for it."""
    packed: tuple[int, int] | None = None
    """The place of its output in the archive; None: it has a file of its own."""
    lacked_room: bool = False
    """It failed while the disk was full: the next run runs it again."""


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
    nodes: Sequence[Capacity] = []
    role: str = RUN
    ended: int = 0
    """How many ends of commands it has recorded."""


class Planning(msgspec.Struct):
    """Commands were added."""

    groups: Sequence[Group]
    nodes: Sequence[Capacity] = []
    is_new: bool = True
    """Whether these replace all commands so far; else they are added."""
    source: str = ""
    """The file of the batch, from the directory that has the directory of the output."""
    selection: Selection = Selection()
    """That of the run, for a job that takes its place."""
    since: int = 0
    """Ends of this run have higher numbers."""
    failed_since: int | None = None
    """Failures with higher numbers stay failed until the batch is finished. None: an earlier version has planned it,
    which recorded no end of the batch."""
    life: tuple[str, int] = ("", 0)
    """The batch system's id of the job that has planned it, and how often this was requeued before."""


class Control(msgspec.Struct, frozen=True):
    """A user has changed what may start."""

    names: list[str]
    what: str
    """cancel, pause or resume: a job that takes the place of the coordinator needs to know."""


class Finished(msgspec.Struct, frozen=True):
    """Nothing is left of the batch: each command has ended, or a failure or a user keeps it from running."""

    exit_code: int
    jobs: tuple[str, ...] = ()
    """The jobs that were submitted for it: they have nothing to do, though some may start later than this."""


Content = Planning | Began | Ended | Returned | Control | Finished
NAMES: dict[type[Content], str] = {
    Planning: "batch plan", Began: "batch began", Ended: "batch command", Returned: "batch returned",
    Control: "batch control", Finished: "batch finished",
}  # fmt: skip
"""The names of their records."""
_decoders = {name: msgspec.msgpack.Decoder(kind) for kind, name in NAMES.items()}


def content_of(body: segments.Body) -> Content | None:
    """What a record of a journal says about a batch; None: nothing."""
    if not isinstance(body, Record) or body.name not in _decoders:
        return None
    return _decoders[body.name].decode(body.values[0].data)


class History:
    """The records of all runs of a batch."""

    def __init__(self) -> None:
        self.plan: dict[str, Group] = {}
        self.ends: dict[str, Ended] = {}
        """The last end of each command."""
        self.began: dict[str, Began] = {}
        """Commands that were started and have not ended since."""
        self.began_by: dict[str, str] = {}
        """By which process, in words; known of those that were read."""
        self.all_ends: list[Ended] = []
        self.runs: list[Run] = []
        self.source = ""
        """The file of the last plan; empty if it is not known."""
        self.number = self.since = 0
        self.controls: dict[str, str] = {}
        """Commands that were cancelled or paused since the batch began."""
        self.selection = Selection()
        self.failed_since: int | None = None
        self.life = ("", 0)
        self.finished: Finished | None = None
        """The end of the batch; None: something may be left."""
        self.damaged_bytes = 0
        """Since the last coordinator began: it has done again what was lost before."""
        self.is_planned = False
        """Whether the commands of a run were read: there may be none."""

    def add(self, content: Content | None) -> None:
        """Take one record into account."""
        if isinstance(content, Ended):
            self.note(content)
        elif isinstance(content, Began):
            known = self.ends.get(content.name)
            if known is None or not content.number or known.number < content.number:
                self.began[content.name] = content
                self.began_by[content.name] = self.runs[-1].job if self.runs else ""
        elif isinstance(content, Planning):
            self.note_plan(content)
        elif isinstance(content, Control):
            self.controls |= dict.fromkeys(content.names, content.what)
        elif isinstance(content, Finished):
            self.finished = content

    @property
    def is_open(self) -> bool:
        """Whether something may be left of the batch, so that the next run continues it."""
        return self.failed_since is not None and self.finished is None

    def new_run(self) -> None:
        """A run begins: no command runs any more."""
        self.began, self.began_by = {}, {}
        if not self.is_open:
            self.controls = {}

    def stays_failed(self, ended: Ended) -> bool:
        """Whether a command that has failed does not run again until the batch is finished."""
        return self.failed_since is not None and ended.number > self.failed_since and not ended.lacked_room

    def note_plan(self, plan: Planning) -> None:
        """Note that commands were added."""
        if plan.is_new:
            self.plan = {}
            if plan.since != self.since:  # else a job takes the place of another in one run
                named = plan.selection.again
                self.controls = {name: what for name, what in self.controls.items() if name not in named}
            self.selection, self.since = plan.selection, plan.since
            self.failed_since, self.life = plan.failed_since, plan.life
            self.is_planned, self.finished = True, None
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
            self.began_by.pop(name, None)
        self.number = max(self.number, ended.number)
        if self.runs:
            self.runs[-1].ended += 1

    @property
    def begun_by(self) -> int:
        """The number of the claim of the job that began the last run."""
        return self.since >> EPOCH_BITS

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


def read_history(directory: str) -> History:
    """Read the journal of the batch with this output directory.

    Raises:
        JournalError: a file cannot be read, or is of a newer version.
    """
    found = History()
    is_collecting = gc.isenabled()
    gc.disable()  # records leave no garbage, and the collector would take a third of the time
    try:
        with readable(directory):
            for path in segments.paths(Path(directory, FOLDER)):
                _read_segment(found, path)
    finally:
        if is_collecting:
            gc.enable()
    return found


def _read_segment(found: History, path: Path) -> None:
    damage = segments.Damage()
    with open(path, "rb") as file:
        try:
            for _, body in segments.read(file, damage):
                if isinstance(body, segments.Began):
                    found.runs.append(Run(body.job, body.time_s, role=body.program))
                    if body.program == RUN:
                        found.new_run()
                    if body.program in (RUN, SUCCESSOR):
                        found.damaged_bytes = 0
                else:
                    found.add(content_of(body))
        except (msgspec.DecodeError, IndexError):
            raise JournalError(
                f"{path} is of another version of mpi_runtime, or not of a batch. Move it away, or use --fresh"
            ) from None
    found.damaged_bytes += damage.bytes


def planned_history(directory: str) -> History:
    """The same for people, who ask for the commands: these must be known if a job has begun the batch.

    Raises:
        JournalError: they cannot be read.
    """
    found = read_history(directory)
    folder = Path(directory, FOLDER)
    if not found.is_planned and segments.paths(folder) and not jobs_of(directory):  # a job records them as it begins
        lost = f", and {found.damaged_bytes} bytes of it cannot be read" if found.damaged_bytes else ""
        raise JournalError(
            f"the journal {folder} has no commands of a batch{lost}: it was damaged, as by a crash or a full disk, or "
            "is that of another program. The line that started the batch records its commands again, and runs those "
            "that are not recorded as done"
        )
    return found


def damage_in_words(directory: str, history: History) -> str:
    """What damage of the journal means, for people."""
    return (
        f"{history.damaged_bytes} bytes of the journal {Path(directory, FOLDER)} cannot be read, as after a crash or a "
        "full disk: commands with their ends there run again"
    )


@contextlib.contextmanager
def readable(directory: str) -> Iterator[None]:
    """Raise JournalError, with what to do, if the files of a batch cannot be read."""
    try:
        yield
    except OSError as error:
        advice = "`ls -l` shows what lies there. Move it away if it is not of a batch, or name another directory"
        if error.errno in (errno.EACCES, errno.EPERM):
            advice = "Only the user who has started a batch may read it: `ls -ld` shows who that is"
        why = f"{error.strerror or error} ({error.filename or Path(directory, FOLDER)})"
        raise JournalError(f"the batch in {directory} cannot be read: {why}. {advice}") from error


def source_of(directory: str, file: str) -> str:
    """The file of a batch from the directory that has its output, so that both can be moved together."""
    return os.path.relpath(os.path.realpath(file), os.path.dirname(os.path.realpath(directory))) if file != "-" else ""


def not_in_plan(history: History, groups: Sequence[Group]) -> list[str]:
    """The names of commands that the last plan does not have, or has with another text or after others."""
    known = {command.name: _what(command) for command in history.commands()}
    return [one.name for group in groups for one in group.commands if known.get(one.name) != _what(one)]


def own_history(directory: str, is_fresh: bool, file: str) -> History:
    """The records of a directory, which may be unreadable if `is_fresh`. Those of another `file` are refused.

    Raises:
        JournalError: they cannot be read, or are of another file.
    """
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
    return claim.owner_of(Path(directory, FOLDER))


def jobs_of(directory: str) -> list[str]:
    """The jobs that run the batch of a directory, in words: first the coordinator, if it lives.

    This takes ten seconds if one of them, on another host, stands still.

    Raises:
        JournalError: the directory cannot be read.
    """
    folder = Path(directory, FOLDER)
    first, far = used_by(directory), claim.far_owner(folder)
    with readable(directory):
        others = files.statuses(folder)
    members = {folder / f"{files.MEMBER}{one.token}": one.job for one in others if one.host != claim.here()}
    still = claim.standing_still([*([far] if far else []), *members])
    gone = {members[path] for path in still & members.keys()}
    living = {one.job for one in others if one.host == claim.here() or one.job not in gone}
    return [*([first] if first and far not in still else []), *sorted(living - {first})]


def notes_in(bodies: Iterable[segments.Body]) -> list[Ended | Returned]:
    """The records for the coordinator of an elastic batch."""
    return [one for one in map(content_of, bodies) if isinstance(one, Ended | Returned)]
