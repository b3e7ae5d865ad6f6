"""What a batch has to start: the commands that are ready are submitted here, or offered to all jobs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

import mpi_runtime
from mpi_runtime.batch.elastic.member_turns import LEASE_S
from mpi_runtime.batch.elastic.records import Work, share_on
from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.file.parse import Group
from mpi_runtime.batch.history.batch_history import Planning
from mpi_runtime.batch.history.graph import STARTED, Graph
from mpi_runtime.batch.history.outputs import SharedFiles, forget_start
from mpi_runtime.batch.history.paths import Paths
from mpi_runtime.batch.history.results import CommandResult
from mpi_runtime.batch.run.capacity import node_resources
from mpi_runtime.batch.run.coordinator_run import Sharing, work_of
from mpi_runtime.batch.run.events import TURN_S, Commands, Setting
from mpi_runtime.extend import ask
from mpi_runtime.scheduler.protocol.questions import RunningCalls
from mpi_runtime.show.numbers import plural
from mpi_runtime.util.streams import together

SUBMITTED_MAX = 1000
"""How many commands are submitted, in about 0.1 s, before events are handled."""
SOON_S = 0.3
"""When another job joins, commands that are expected to begin here within this time stay."""
RECOVER_S = 120.0
"""How long a job tries to read what the coordinator before it has offered."""


class Starts(Commands):
    """The commands of a batch until they are started."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.graph = Graph(setting.journal.settled_array)
        self.failures: list[CommandResult] = []
        self.done_before = self.left_out = 0
        """Commands that an earlier run has done, and those that were not selected."""
        self.failed_before = 0
        """Commands that have failed before, and stay failed because the batch was not finished."""
        self._is_partial = False
        """Whether a command that was not selected has never ended."""
        self._selection = setting.selection
        self._ready: deque[Command] = deque()
        """Taken from the graph, and not submitted yet."""
        self._has_reported_before = False
        self._names: dict[bytes, str] = {one.ref.binary(): one.name for one in self._running.values()}
        """The names of submitted commands, by the ids of their calls."""
        self._given: dict[str, int] = {}
        """The numbers of commands that were given to the scheduler of this job, or to all jobs, and have not ended."""
        self._has_shares = False
        """Whether commands need what all jobs have together: the coordinator's rules count then from the start."""
        self._paths = Paths()
        self._sharing = Sharing(
            setting.journal, self._start_offered, self._paths.expected_s, setting.end_s, setting.place
        )
        self.paused: set[str] = set()
        """Commands that do not start until they are resumed."""
        self._held: dict[str, bytes] = {}
        """Of these the ones that could start, with their keys."""
        self._outputs = SharedFiles()

    def add_groups(self, groups: list[Group]) -> None:
        """Add commands to the batch."""
        self._journal.plan(Planning(groups, is_new=False))
        self._add(groups)
        if self._has_shares and not self._sharing.is_on:
            self._share()

    def _add(self, groups: Sequence[Group]) -> None:
        self.graph.add(groups)
        self._paths.add(groups)
        self._outputs.add(command for group in groups for command in group.commands)
        self._has_shares = self._has_shares or any(command.shares for group in groups for command in group.commands)
        for group in groups:
            for command in group.commands:
                known = self._journal.history.ends.get(command.name)
                if known is not None and known.result.is_success:
                    self._paths.measured(command.name, known.result.end - known.result.start)

    def _submit_ready(self) -> None:
        """Submit the commands that may start and are not done, in few messages. Those that are done make others ready.

        Not all of a long list at once, so that ends are recorded and Ctrl-C is handled meanwhile.
        """
        with together():
            for _ in range(SUBMITTED_MAX):
                if not self._ready:
                    self._ready.extend(self.graph.take_ready())
                if not self._ready:
                    break
                self._submit_unless_done(self._ready.popleft())
        if not self._ready and not self._has_reported_before and (self.done_before or self.failed_before):
            self._has_reported_before = True
            self._report_before()

    def _submit_unless_done(self, command: Command) -> None:
        if self.graph.states[command.name] != STARTED:
            return  # it was cancelled meanwhile
        command = self.graph.commands[command.name]
        key, after = self._journal.key_of(command)
        history = self._journal.history
        known = self._journal.known_end(command, key, after)
        is_done = known is not None and known.result.is_success
        is_named = command.name in self._selection.again
        counts = known is not None and (not is_named or known.number > history.since)
        if command.name in self._given:
            pass  # a job has begun it, and this one has taken the place of the coordinator
        elif known is not None and counts and is_done:
            self.done_before += 1
            self._journal.settled(command.name, key, known.number)
            self.graph.end(command.name, True)
        elif self._selection.only is not None and command.name not in self._selection.only:
            self.left_out += 1
            self._is_partial = self._is_partial or known is None
            self._journal.settled(command.name, key, known.number if known is not None else after)
            self.graph.end(command.name, True)
        elif known is not None and counts and history.stays_failed(known):
            self.failed_before += 1
            self._journal.settled(command.name, key, known.number)
            self.failures.append(known.result)
            self._end_failed(command.name)
        elif history.controls.get(command.name) == "cancel":
            self.graph.cancelled(command.name)
        else:
            if not command.rerun and is_named and not self._journal.continues:
                forget_start(self._directory, command.name, key)
            self._submit(command, key)

    def _end_failed(self, name: str) -> None:
        raise NotImplementedError

    def _report_before(self) -> None:
        if self.done_before:
            self._say(f"{self.done_before} commands were done by earlier runs; --fresh forgets these")
        if self.failed_before:
            self._say(
                f"{plural(self.failed_before, 'command')} failed in earlier runs and will not run again until the "
                "batch is finished: then the same line runs failed commands again, before that --retry-failed does"
            )

    def _submit(self, command: Command, key: bytes) -> None:
        if command.name in self.paused:
            self._held[command.name] = key
            return
        number = self._given[command.name] = self._journal.next_number()
        if self._sharing.is_on:
            self._sharing.coordinator.add(self._work(command, number, key))
        else:
            self._start(command, key, number)

    def _work(self, command: Command, number: int, key: bytes) -> Work:
        name = command.name
        command = self._outputs.marked(command)
        return work_of(command, number, key, self._paths.expected_s(name), self._paths.path_us(name))

    def _start(self, command: Command, key: bytes, number: int, until_s: float = 0.0, attempt: int = 0) -> None:
        name = command.name
        ref = self._run(self._outputs.marked(command), key, number, self._paths.path_us(name), until_s, attempt)
        self._names[ref.binary()] = name

    def _start_offered(self, work: Work, until_s: float) -> None:
        self._start(self.graph.commands[work.name], work.key, work.number, until_s, work.attempt)

    def _recover(self) -> None:
        """Take over what earlier coordinators have offered."""
        self._sharing.begin({})
        limit_s = time.monotonic() + RECOVER_S
        while True:
            self._journal.turn()
            try:
                found = self._sharing.recover(time.monotonic() < limit_s - RECOVER_S / 2)
                break
            except OSError:
                if time.monotonic() > limit_s:
                    raise
                time.sleep(TURN_S)
        self._given = {name: work.number for name, work in found.items() if name in self.graph.commands}
        for one in self._running.values():
            if self._journal.history.controls.get(one.name) == "cancel":
                mpi_runtime.cancel(one.ref)

    def _share(self) -> None:
        """From now on all jobs get their part of the commands. What runs here, or soon will, stays here."""
        running = {one.id for one in ask(RunningCalls())}
        nodes = tuple(node_resources())
        works: dict[int, Work] = {}
        ahead_s = 0.0
        for one in self._running.values():
            work = self._work(self.graph.commands[one.name], one.number, one.key)
            if one.ref.binary() in running:
                works[one.number] = work
                continue
            ahead_s += share_on(work, nodes) * work.seconds
            if ahead_s < SOON_S:  # it may begin at any moment
                works[one.number] = work
        self._sharing.begin(works)
        until_s = time.time() + LEASE_S
        for one in self._running.values():
            one.until_s = until_s
            if one.number not in works:
                one.is_withdrawn = True
                mpi_runtime.cancel(one.ref)

    def _note_failure(self, result: CommandResult) -> None:
        self.failures.append(result)
        self._say(f"failed: {result.name}: {result.ending()}")
