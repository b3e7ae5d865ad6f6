"""The commands of a batch once they are ready: started here or offered to all jobs, until they have ended."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from mpi_runtime.batch.elastic.member_turns import LEASE_S
from mpi_runtime.batch.elastic.records import Work, share_on
from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.file.parse import Group
from mpi_runtime.batch.file.selection import Selection
from mpi_runtime.batch.history.batch_history import Ended, Planning
from mpi_runtime.batch.history.graph import STARTED, Graph, Paths
from mpi_runtime.batch.history.journal import BatchJournal
from mpi_runtime.batch.history.outputs import SharedFiles
from mpi_runtime.batch.history.results import CommandResult
from mpi_runtime.batch.run.capacity import pools
from mpi_runtime.batch.run.coordinator_run import Sharing, work_of
from mpi_runtime.batch.run.running import TURN_S, CommandEnded, Place, Running, Started, Trouble, begun_here
from mpi_runtime.errors import TaskCancelledError
from mpi_runtime.show.live_picture import LivePicture

SOON_S = 0.3
"""When another job joins, commands that are expected to begin here within this time stay."""
RECOVER_S = 120.0
"""How long a job tries to read what the coordinator before it has offered."""


class Setting(msgspec.Struct, frozen=True):
    """How a job runs a batch."""

    directory: str
    """Of the output."""
    say: Callable[[str], None]
    """Shows a line."""
    journal: BatchJournal
    """Has the ends of earlier runs, and records this run."""
    selection: Selection = Selection()
    """The commands of this run."""
    is_packed: bool = False
    """Whether outputs are kept in one file."""
    live: LivePicture | None = None
    """The view of the state; None: a line from time to time instead."""
    failures_max: float = math.inf
    """One more failed command than this stops the batch."""
    again: str = ""
    """The line that runs what has failed again; empty: not known."""
    end_s: float | None = None
    """When this job starts nothing more, in seconds since 1970; None: not known."""
    place: Place | None = None
    """Of a coordinator that is gone, which this job takes."""
    idle_s: float | None = None
    """Other jobs are expected: the commands are shared from the start, and this job waits this long for a job that has
    room for what has none here. None: all must run here."""


class Commands:
    """The commands of a batch, and where each of them is.

    A command is in the graph until it is ready, then in `_ready`. From there it goes to the scheduler of this job
    (`running`), to all jobs (`sharing`), or, while it is paused, to `_held`.
    """

    def __init__(self, setting: Setting) -> None:
        """Begin without commands, or with those that this job had as a member."""
        self.graph = Graph(setting.journal.keys.settle_array)
        self.running = Running(setting.directory) if setting.place is None else setting.place.running
        self.sharing: Sharing | None = None
        """Other jobs on the batch; None: there are none, and all commands go to the scheduler of this job."""
        self.paused: set[str] = set()
        """Commands that do not start until they are resumed."""
        self.has_shares = False
        """Whether commands need what all jobs have together: the coordinator's rules count then from the start."""
        self._setting, self._journal = setting, setting.journal
        self._paths = Paths()
        self._outputs = SharedFiles()
        self._trouble = Trouble(setting.say)
        self._ready: deque[Command] = deque()
        """Taken from the graph, and not submitted yet."""
        self._given: dict[str, int] = {}
        """The numbers of commands that were given to the scheduler of this job, or to all jobs, and have not ended."""
        self._held: dict[str, bytes] = {}
        """Of the paused commands the ones that could start, with their keys."""

    def add_groups(self, groups: Sequence[Group]) -> None:
        """Add commands to the batch while it runs."""
        self._journal.plan(Planning(groups, is_new=False))
        self.add(groups)
        if self.has_shares and self.sharing is None:
            self._share()

    def add(self, groups: Sequence[Group]) -> None:
        """Add commands that the journal knows."""
        self.graph.add(groups)
        self._paths.add(groups)
        self._outputs.add(command for group in groups for command in group.commands)
        self.has_shares = self.has_shares or any(command.shares for group in groups for command in group.commands)
        for group in groups:
            for command in group.commands:
                known = self._journal.history.ends.get(command.name)
                if known is not None and known.result.is_success:
                    self._paths.measured(command.name, known.result.end - known.result.start)

    def next_ready(self) -> Command | None:
        """Take a command that may start now, or return None."""
        while True:
            if not self._ready:
                self._ready.extend(self.graph.take_ready())
            if not self._ready:
                return None
            name = self._ready.popleft().name
            if self.graph.states[name] == STARTED:  # else it was cancelled meanwhile
                return self.graph.commands[name]

    def has_ready(self) -> bool:
        """Whether commands were left for the next turn."""
        return bool(self._ready)

    def is_given(self, name: str) -> bool:
        """Whether a command was started, or offered to all jobs, and has not ended."""
        return name in self._given

    def are_all_here(self) -> bool:
        """Whether this job has all commands that were started or offered."""
        return self.running.by_number.keys() >= {*self._given.values()}

    def submit(self, command: Command, key: bytes) -> None:
        """Start a command here, or offer it to all jobs, unless it is paused."""
        if command.name in self.paused:
            self._held[command.name] = key
            return
        number = self._given[command.name] = self._journal.next_number()
        if self.sharing is None:
            self._start(command, key, number)
        else:
            self.sharing.coordinator.add(self._work(command, number, key))

    def _work(self, command: Command, number: int, key: bytes) -> Work:
        name = command.name
        command = self._outputs.marked(command)
        paths = self._paths
        return work_of(command, number, key, paths.expected_s(name), paths.path_us(name), paths.is_measured(name))

    def _start(self, command: Command, key: bytes, number: int, until_s: float = 0.0, attempt: int = 0) -> None:
        self._journal.began(command.name, number)
        path_us = self._paths.path_us(command.name)
        self.running.start(self._outputs.marked(command), key, number, path_us, until_s, attempt)

    def begin_sharing(self, begun: Mapping[int, Work]) -> Sharing:
        """Other jobs get their part from now on; `begun`: what this job has, by number."""
        end_s, place = self._setting.end_s, self._setting.place
        self.sharing = Sharing(self._journal, self._paths.expected_s, end_s, begun, place)
        return self.sharing

    def recover(self) -> None:
        """Take over what earlier coordinators have offered."""
        sharing = self.begin_sharing({})
        limit_s = time.monotonic() + RECOVER_S
        while True:
            self._journal.turn()
            try:
                found = sharing.recover(time.monotonic() < limit_s - RECOVER_S / 2)
                break
            except OSError:
                if time.monotonic() > limit_s:
                    raise
                time.sleep(TURN_S)
        self._given = {name: work.number for name, work in found.items() if name in self.graph.commands}
        for number, one in self.running.by_number.items():
            if self._journal.history.controls.get(one.name) == "cancel":
                self.running.cancel(number)

    def _share(self) -> None:
        """From now on all jobs get their part of the commands. What runs here, or soon will, stays here."""
        begun = begun_here()
        nodes = pools()
        works: dict[int, Work] = {}
        ahead_s = 0.0
        for one in self.running.by_number.values():
            work = self._work(self.graph.commands[one.name], one.number, one.key)
            if one.ref.binary() in begun:
                works[one.number] = work
                continue
            ahead_s += share_on(work, nodes) * work.seconds
            if ahead_s < SOON_S:  # it may begin at any moment
                works[one.number] = work
        self.begin_sharing(works)
        until_s = time.time() + LEASE_S
        for one in self.running.by_number.values():
            one.until_s = until_s
            if one.number not in works:
                self.running.withdraw(one)

    def turn(self) -> list[Ended]:
        """Take part in what all jobs do, if there are others; return the ends of commands in those."""
        if self.sharing is None and self._journal.has_members:
            self._setting.say("another job has joined: the commands are shared")
            self._share()
        if self.sharing is None:
            return []
        starts, ended = self.sharing.turn(time.time())
        for work, until_s in starts:
            self._start(self.graph.commands[work.name], work.key, work.number, until_s, work.attempt)
        self._trouble.note(self.sharing.problem, time.monotonic())
        return ended

    def stuck(self) -> tuple[str, bool]:
        """Why nothing runs in any job though commands wait, in words, and whether more time would help."""
        return self.sharing.stuck() if self.sharing is not None else ("", False)

    def end(self, event: CommandEnded, is_late: bool) -> tuple[Command, Started, CommandResult] | None:
        """Handle an end in the scheduler of this job. Return the result; None: the command has not run to its end.

        `is_late`: a signal that ends a command now is one to all of this job.
        """
        one = self.running.ended(event)
        if one is None:
            return None
        error = event.outcome.exception()
        is_empty = error is None and not event.outcome.result()
        if isinstance(error, TaskCancelledError) or is_empty or (is_late and one.is_doubted):
            self._not_run(one, is_empty)
            return None
        command = self.graph.commands[one.name]
        return command, one, self.running.result(command, one, event.outcome)

    def _not_run(self, one: Started, is_empty: bool) -> None:
        """A command was taken from the scheduler of this job, or came too late to its turn (`is_empty`)."""
        name, number = one.name, one.number
        is_current = self._given.get(name) == number
        self._journal.history.began.pop(name, None)
        is_unwanted = self.graph.is_stopped or self._journal.history.controls.get(name) == "cancel"
        if is_current and one.is_withdrawn and not is_unwanted:
            self.has_ended(one)
            self.submit(self.graph.commands[name], one.key)
        elif is_current and is_empty and self.sharing is not None and not is_unwanted:
            self.sharing.not_begun(number)
        elif is_current and one.is_returned and self.sharing is not None and not is_unwanted:
            self.sharing.returned(number)
        elif self.has_ended(one):
            self.graph.cancelled(name)

    def has_ended(self, one: Started) -> bool:
        """Forget a command that has ended here; return whether this end counts: else another job has ended it too."""
        if self.sharing is not None:
            self.sharing.ended(one.number)
        if self._given.get(one.name) != one.number:
            return False
        del self._given[one.name]
        return True

    def has_ended_elsewhere(self, ended: Ended) -> bool:
        """Note the end of a command in another job; return whether it counts: else the command was run twice."""
        name = ended.result.name
        self._journal.history.note(ended)
        if self._given.get(name) != ended.number:
            return False
        del self._given[name]
        self.running.cancel(ended.number)
        self._journal.keys.settle(name, ended.key, ended.number)
        return True

    def note_success(self, result: CommandResult) -> None:
        """A command has succeeded in this run."""
        self._paths.measured(result.name, result.end - result.start)
        self.graph.end(result.name, True)

    def stop(self, but: Collection[bytes], is_everywhere: bool) -> None:
        """Start no further command, and end those that run, except these calls; `is_everywhere`: in all jobs."""
        self.graph.stop()
        while (command := self.next_ready()) is not None:
            if not self.is_given(command.name):  # a successor has those that were offered before it looks at them
                self.graph.cancelled(command.name)
        while self._held:
            self.graph.cancelled(self._held.popitem()[0])
        self.running.cancel_all(but)
        elsewhere = {name: number for name, number in self._given.items() if number not in self.running.by_number}
        if elsewhere and is_everywhere and self.sharing is not None:
            self.sharing.stop(tuple(elsewhere.values()))
        for name in elsewhere:
            del self._given[name]
            self.graph.cancelled(name)

    def note(self, names: Sequence[str], what: str) -> None:
        """Cancel, pause or resume commands before any has started."""
        self._journal.controlled(names, what)
        self._journal.history.controls |= dict.fromkeys(names, what)
        self.paused.difference_update(names)
        self.paused.update(names if what == "pause" else ())

    def cancel(self, names: Sequence[str]) -> None:
        """End commands, or never start them."""
        self._journal.controlled(names, "cancel")
        self._journal.history.controls |= dict.fromkeys(names, "cancel")
        elsewhere = []
        for name in names:
            self._held.pop(name, None)
            number = self._given.get(name, 0)
            if self.running.cancel(number):
                continue
            if number and self.sharing is not None:
                del self._given[name]
                elsewhere.append(number)
            self.graph.cancelled(name)
        if elsewhere and self.sharing is not None:
            self.sharing.stop(tuple(elsewhere))

    def withdraw(self, names: Iterable[str]) -> None:
        """Take back commands that have not begun, so that they are submitted as they are now, or held."""
        self._journal.controlled([name for name in names if name in self.paused], "pause")
        begun = begun_here()
        for name in names:
            number = self._given.get(name, 0)
            one = self.running.by_number.get(number)
            if one is not None and one.ref.binary() not in begun:
                self.running.withdraw(one)
            elif one is None and number and self.sharing is not None and self.sharing.coordinator.withdraw(number):
                del self._given[name]
                self.submit(self.graph.commands[name], self._journal.keys.find(self.graph.commands[name]).key)

    def resume(self, names: Sequence[str]) -> None:
        """Let paused commands start."""
        self._journal.controlled(names, "resume")
        for name in names:
            if name in self._held:
                self.submit(self.graph.commands[name], self._held.pop(name))
