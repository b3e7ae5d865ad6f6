"""The loop of a batch: submits ready commands, handles ends, and reads commands that arrive meanwhile."""

from __future__ import annotations

import contextlib
import math
import os
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TextIO

import msgspec

import mpi_runtime
from mpi_runtime.batch.elastic.belonging import LEASE_S
from mpi_runtime.batch.elastic.files import JobFiles
from mpi_runtime.batch.elastic.member import Member
from mpi_runtime.batch.elastic.records import Work, share_of
from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.file.parse import Group
from mpi_runtime.batch.file.selection import Selection
from mpi_runtime.batch.memory.graph import DONE, FAILED, SKIPPED, STARTED, WAITING, Graph
from mpi_runtime.batch.memory.outputs import Archive, SharedFiles, is_full, kept, of_attempt, tail
from mpi_runtime.batch.memory.past import BatchJournal, Ended, Planned
from mpi_runtime.batch.memory.paths import Paths
from mpi_runtime.batch.memory.requests import Answer, answer, pending
from mpi_runtime.batch.memory.results import CommandResult, lost, shortened
from mpi_runtime.batch.run.capacity import capacities, node_resources
from mpi_runtime.batch.run.control import perform
from mpi_runtime.batch.run.sharing import Sharing, work_of
from mpi_runtime.batch.run.stream import END_OF_LINES, Stream
from mpi_runtime.batch.run.submission import submit
from mpi_runtime.batch.show.live import Live
from mpi_runtime.batch.show.overview import duration, in_lines, overview
from mpi_runtime.client import current
from mpi_runtime.client.refs import ObjectRef, future_of
from mpi_runtime.errors import TaskCancelledError
from mpi_runtime.journal.claim import Claim
from mpi_runtime.util.streams import together

PROGRESS_S = 10.0
TURN_S = 0.5
"""Seconds between turns of the journal while nothing happens."""
LOOK_S = 2.0
"""Seconds between questions to the scheduler where commands run, which `status` shows."""
FAILURES_SHOWN = 10
SUBMITTED_MAX = 1000
"""How many commands are submitted, in about 0.1 s, before events are handled."""
DRAIN_S = 8.0
"""Seconds for which commands may run on after the end in time was requested, so that short ones need not run again."""
TIME_IS_OVER = 75
"""The exit code of a batch that was not finished when the job's time ended: EX_TEMPFAIL."""
EXPIRED_S = 0.5
"""How long after its time a command is withdrawn."""
DOUBT_S = 1.0
"""How long the end of a doubtful command is held back: if its job dies meanwhile, another runs the command."""
SOON_S = 0.3
"""When another job joins, commands that are expected to begin here within this time stay."""
IDLE_S = 60.0
"""How long nothing runs in any job until a coordinator gives up, though commands wait for room."""
RECOVER_S = 120.0
"""How long a job tries to read what the coordinator before it has offered."""
_results = msgspec.msgpack.Decoder(CommandResult)
ENDED, INTERRUPTED, LATE = "ended", "interrupted", "late"


class Running(msgspec.Struct, frozen=True):
    """A command in the scheduler of this job."""

    ref: ObjectRef[Any]
    key: bytes
    number: int
    attempt: int
    until_s: float = 0.0
    """In seconds since 1970: after this time it does not begin, and may be withdrawn; 0: it stays."""


Events = queue.SimpleQueue[tuple[str, Any, Any]]


def expired(running: Mapping[str, Running]) -> list[str]:
    """Names of commands whose turn in the scheduler of this job has not come in time: others may have room for them."""
    now_s = time.time() - EXPIRED_S
    late = [name for name, one in running.items() if 0 < one.until_s < now_s]
    if not late:
        return []
    begun = {id for id, _, _ in current.client().questions.query("running")}
    return [name for name in late if running[name].ref.binary() not in begun]


def is_doubtful(future: Any) -> bool:
    """Whether a command was ended by a signal that a batch system sends to all processes of a job which it ends."""
    if future.exception() is not None or not future.result():
        return False
    result = _results.decode(future.result())
    return not result.problem and result.signal in (signal.SIGTERM, signal.SIGKILL)


@contextlib.contextmanager
def ctrl_c_as_event(events: Events) -> Iterator[None]:
    """Make the first Ctrl-C an event; the second raises as usual."""
    before = signal.getsignal(signal.SIGINT)

    def interrupted(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, before)
        events.put((INTERRUPTED, None, None))

    signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Place(NamedTuple):
    """The place of a coordinator that is gone, for a member that takes it."""

    claim: Claim
    events: Events
    running: dict[str, Running]
    member: Member
    files: JobFiles


class BatchRun:
    """One batch while it runs."""

    def __init__(
        self,
        directory: str,
        say: Callable[[str], None],
        journal: BatchJournal,
        selection: Selection | None = None,
        is_packed: bool = False,
        live: Live | None = None,
        failures_max: int | None = None,
        end_s: float | None = None,
        place: Place | None = None,
        idle_s: float | None = None,
    ) -> None:
        """Make a run without commands.

        Args:
            directory: of the output.
            say: shows a line.
            journal: has the ends of earlier runs, and records this run.
            selection: the commands of this run.
            is_packed: whether outputs are kept in one file.
            live: the view of the state; None: a line from time to time instead.
            failures_max: one more failed command than this stops the batch; None: none does.
            end_s: when this job starts nothing more, in seconds since 1970; None: not known.
            place: of a coordinator that is gone, which this job takes.
            idle_s: other jobs are expected: the commands are shared from the start, and this job waits this long for a
                job that has room for what has none here. None: all must run here.
        """
        self.graph = Graph(journal.settled_array)
        self.failures: list[CommandResult] = []
        self.refused = 0
        """Lines of a stream with problems."""
        self.done_before = self.left_out = 0
        """Commands that an earlier run has done, and those that were not selected."""
        self.is_interrupted = self.is_late = False
        """Whether Ctrl-C ended it, or the end of the job's time."""
        self.is_hopeless = False
        """Whether another job of the same length could start none of the remaining commands."""
        self._start_s = time.time()
        self._directory = directory
        self._say = say
        self._journal = journal
        self._live = live
        self._failures_max = failures_max
        self._archive = Archive(directory) if is_packed else None
        self._to_remove: list[str] = []
        """Outputs in the archive that the journal has not recorded yet."""
        self._selection = selection or Selection()
        self._ready: deque[Command] = deque()
        """Taken from the graph, and not submitted yet."""
        self._has_reported_before = False
        self._prepare(end_s, place, idle_s)
        self._begin_s = self._said_s = time.monotonic()
        self._looked_s = self._begin_s - LOOK_S + TURN_S
        self._ends_s = math.inf
        """When commands that still run are ended."""
        self._cpu_time = 0.0
        self._stream: Stream | None = None
        self._paths = Paths()
        self._outputs = SharedFiles()

    def _prepare(self, end_s: float | None, place: Place | None, idle_s: float | None) -> None:
        """Make what the commands of this job need, and what they need to be shared with other jobs."""
        self._events: Events = queue.SimpleQueue() if place is None else place.events
        self._running: dict[str, Running] = {} if place is None else place.running
        """Commands in the scheduler of this job that have not ended."""
        self._names: dict[bytes, str] = {one.ref.binary(): name for name, one in self._running.items()}
        """The names of submitted commands, by the ids of their calls."""
        self._shared: dict[str, int] = {}
        """The numbers of commands that were given to all jobs, and have not ended."""
        self._withdrawn: set[str] = set()
        """Commands that are taken from the scheduler of this job, to be given to all."""
        self._idle_s = idle_s
        self._busy_s = time.monotonic()
        self._is_successor = place is not None
        self._sharing = Sharing(
            self._journal,
            self._start_offered,
            end_s,
            *(() if place is None else (place.member.token, place.member, place.files)),
        )
        self.paused = {name for name, what in self._journal.history.controls.items() if what == "pause"}
        """Commands that do not start until they are resumed."""
        self._doubted: set[str] = set()
        self._expired: set[str] = set()
        """Commands that are withdrawn because their turn has not come in time."""
        self._expired_s = 0.0
        self._held: dict[str, bytes] = {}
        """Of these the ones that could start, with their keys."""
        self._names_seen: list[str] = []

    def run(
        self,
        groups: Sequence[Group],
        stream: TextIO | None = None,
        defaults: Mapping[str, Any] | None = None,
        source: str = "",
    ) -> int:
        """Run all commands to their end.

        Args:
            groups: without problems.
            stream: further commands as JSON lines, read as they arrive.
            defaults: options for the commands of the stream.
            source: the file of the batch, as `source_of` names it.

        Returns:
            The exit code: 0 if all commands have succeeded, 130 after Ctrl-C, TIME_IS_OVER if the end of the job's time
            left some out, else 1.

        Raises:
            OSError: the journal cannot be written.
        """
        history, chosen = self._journal.history, self._selection
        since = history.since if self._is_successor else None
        planned = [_planned(group) for group in groups]
        self._journal.plan(planned, capacities(), True, source, chosen.again, chosen.only, since)
        self._add(groups)
        if self._is_successor:
            self._recover()
        elif self._idle_s is not None:
            self._sharing.begin({})
        if stream is not None:
            self._stream = Stream(self._events, defaults or {}, node_resources())
            threading.Thread(target=self._stream.read, args=(stream,), name="batch lines", daemon=True).start()
        with ctrl_c_as_event(self._events):
            self._submit_ready()
            while self._handle_requests() or not self._is_over():
                self._look()
                self._turn()
                self._handle_events()
                self._submit_ready()
        self._turn()
        self._report()
        is_left = self.graph.counts[SKIPPED] and (self.is_late or self.is_interrupted)
        code = int(bool(self.graph.counts[FAILED] or self.graph.counts[SKIPPED] or self.refused))
        if not is_left:
            self._sharing.close(code)
        self._sharing.leave()
        if self.is_interrupted:
            return 130
        return TIME_IS_OVER if self.is_late and is_left else code

    def _add(self, groups: Sequence[Group]) -> None:
        self.graph.add(groups)
        self._paths.add(groups)
        self._outputs.add(command for group in groups for command in group.commands)
        for group in groups:
            for command in group.commands:
                known = self._journal.history.ends.get(command.name)
                if known is not None and known.result.is_success:
                    self._paths.measured(command.name, known.result.end - known.result.start)

    def end_in_time(self) -> None:
        """Start nothing more, and end running commands: the job's time is nearly over. Any thread may call this."""
        self._events.put((LATE, None, None))

    def give_up(self) -> None:
        """Another job has taken the batch over: end what runs here, and record what has ended."""
        self.is_late = True
        self._withdrawn.clear()
        self._sharing.is_on = False
        self._journal.lose_claim()
        for one in self._running.values():
            mpi_runtime.cancel(one.ref)
        limit_s = time.monotonic() + DRAIN_S
        while self._running and time.monotonic() < limit_s:
            self.graph.stop()
            with contextlib.suppress(queue.Empty):
                self._handle(*self._events.get(timeout=TURN_S))
        self._sharing.leave()

    def _is_over(self) -> bool:
        is_open = self._stream is not None and not self.graph.is_stopped
        return not is_open and self.graph.is_over()

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
        if self.done_before and not self._ready and not self._has_reported_before:
            self._has_reported_before = True
            self._say(f"{self.done_before} commands were done by earlier runs; --fresh forgets these")

    def _submit_unless_done(self, command: Command) -> None:
        if self.graph.states[command.name] != STARTED:
            return  # it was cancelled meanwhile
        command = self.graph.commands[command.name]
        key, after = self._journal.key_of(command)
        known = self._journal.known_end(command, key, after)
        is_done = known is not None and known.result.is_success
        since = self._journal.history.since
        if command.name in self._running or command.name in self._shared:
            pass  # a job has begun it, and this one has taken the place of the coordinator
        elif self._is_successor and known is not None and not is_done and known.number > since:
            self._note_failure(known.result)
            self._journal.settled(command.name, key, known.number)
            self.graph.end(command.name, False)
        elif known is not None and is_done and (command.name not in self._selection.again or known.number > since):
            self.done_before += 1
            self._journal.settled(command.name, key, known.number)
            self.graph.end(command.name, True)
        elif self._selection.only is not None and command.name not in self._selection.only:
            self.left_out += 1
            self._journal.settled(command.name, key, known.number if known is not None else after)
            self.graph.end(command.name, True)
        elif self._journal.history.controls.get(command.name) == "cancel":
            self.graph.cancelled(command.name)
        else:
            self._submit(command, key)

    def _submit(self, command: Command, key: bytes) -> None:
        if command.name in self.paused:
            self._held[command.name] = key
            return
        number = self._journal.next_number()
        if self._sharing.is_on:
            self._shared[command.name] = number
            self._sharing.add(self._work(command, number, key))
        else:
            self._start(command, key, number)

    def _work(self, command: Command, number: int, key: bytes) -> Work:
        name = command.name
        command = self._outputs.marked(command)
        return work_of(command, number, key, self._paths.expected_s(name), self._paths.path_us(name))

    def _start(self, command: Command, key: bytes, number: int, until_s: float = 0.0, attempt: int = 0) -> None:
        name = command.name
        self._journal.began(name, number)
        made = of_attempt(self._outputs.marked(command), self._directory, attempt)
        ref = submit(made, self._directory, False, path_us=self._paths.path_us(name), until_s=until_s)
        self._running[name] = Running(ref, key, number, attempt, until_s)
        self._names[ref.binary()] = name
        future_of(ref, lambda future: self._events.put((ENDED, name, future)))  # in another thread

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
        self._shared = {name: work.number for name, work in found.items() if name in self.graph.commands}

    def _share(self) -> None:
        """Another job has joined: from now on all jobs get their part. What runs here, or soon will, stays here."""
        self._say("another job has joined: the commands are shared")
        running = {id for id, _, _ in current.client().questions.query("running")}
        nodes = tuple(node_resources())
        works: dict[int, Work] = {}
        ahead_s = 0.0
        for name, one in self._running.items():
            work = self._work(self.graph.commands[name], one.number, one.key)
            if one.ref.binary() in running:
                works[one.number] = work
                continue
            ahead_s += share_of(work.request, nodes) * work.seconds
            if ahead_s < SOON_S:  # it may begin at any moment
                works[one.number] = work
        self._sharing.begin(works)
        self._shared = {name: one.number for name, one in self._running.items()}
        until_s = time.time() + LEASE_S
        self._running = {name: msgspec.structs.replace(one, until_s=until_s) for name, one in self._running.items()}
        for name, one in self._running.items():
            if one.number not in works:
                self._withdrawn.add(name)
                mpi_runtime.cancel(one.ref)

    def _ended_elsewhere(self, ended: Ended) -> None:
        name = ended.result.name
        if self._shared.get(name) != ended.number:
            self._journal.history.note(ended)  # it was run twice
            return
        del self._shared[name]
        if name in self._running:
            mpi_runtime.cancel(self._running[name].ref)
        self._journal.ended_elsewhere(ended)
        self._settle(name, ended.result)

    def _handle_events(self) -> None:
        """Wait for an event, and handle all that have arrived."""
        with contextlib.suppress(queue.Empty):
            self._handle(*self._events.get(timeout=0 if self._ready else TURN_S))
            while True:
                self._handle(*self._events.get_nowait())
        if self._live is not None:
            self._live.show(self._shown)
        elif time.monotonic() - self._said_s >= PROGRESS_S:
            self._said_s = time.monotonic()
            self._say(self._progress())

    def _look(self) -> None:
        """Ask the scheduler where commands run, and record it: the driver submits them without knowing."""
        if time.monotonic() - self._looked_s < LOOK_S or not self._running:
            return
        self._looked_s = time.monotonic()
        running = current.client().questions.query("running")
        for id, host, for_us in running:
            if id in self._names:
                self._journal.placed(self._names[id], host, time.time() - for_us / 1e6)
        if not running and self._stream is None and not self.is_late:
            self._end_if_nothing_can_start()

    def _end_if_nothing_can_start(self) -> None:
        """End the batch if nothing runs and each remaining command takes longer than the rest of the job's time."""
        found = current.client().questions.query("late")
        if sum(count for _, count, _ in found["calls"]) < len(self._running):
            return
        name, _, least_us = min(found["calls"], key=lambda one: one[2])
        end_s = found["end_us"] / 1e6
        self.is_late = True
        self.is_hopeless = least_us / 1e6 > end_s - self._start_s
        later = "the same line continues later"
        if self.is_hopeless:
            whole = duration(end_s - self._start_s)
            later = f"that was {whole} when this run began: have a longer job, or shorter limits"
        self._say(
            f"nothing that is left can end before the job does: {name} may take {duration(least_us / 1e6)}, and "
            f"{duration(end_s - time.time())} are left; {later}"
        )
        self._stop()

    def _end_if_nothing_fits(self) -> None:
        """End this job's part if for long no job had anything to do, though commands wait."""
        why, is_for_time = self._sharing.stuck()
        if not why or self.is_late or self.graph.is_stopped:
            self._busy_s = time.monotonic()
        elif time.monotonic() - self._busy_s > (IDLE_S if self._idle_s is None else self._idle_s):
            self._say(f"no job can run what is left: {why}; the same line continues where there is room")
            self.is_late = True
            self.is_hopeless = not is_for_time
            self._stop()

    def _shown(self) -> list[str]:
        now = time.time()
        found = overview(self._journal.history, now, True)
        return in_lines(os.path.basename(self._directory), found, "this process", now)

    def _handle(self, what: str, name: Any, value: Any) -> None:
        if what == ENDED:
            self._end(name, value)
        elif what == INTERRUPTED:
            self.is_interrupted = True
            self._say("interrupted: ending what runs; Ctrl-C once more ends at once")
            self._stop()
        elif what == LATE:
            self.is_late = True
            self._say("SIGTERM or the end of the job's time: ending what runs; the same line continues later")
            running = {id for id, _, _ in current.client().questions.query("running")}
            self._stop(running)
            self._ends_s = time.monotonic() + DRAIN_S
        elif what == END_OF_LINES:
            self._stream = None
        elif self._stream is not None:
            group, problems = self._stream.group_of(value, name, self.graph)
            self.refused += group is None and bool(problems)
            for problem in problems:
                self._say(problem.shown("-"))
            if group is not None:
                self._journal.plan([_planned(group)], is_new=False)
                self._add([group])

    def _end(self, name: str, future: Any) -> None:
        if self._sharing.is_on and name not in self._doubted and is_doubtful(future):
            self._doubted.add(name)
            self._after(DOUBT_S, name, future)
            return
        one = self._running.pop(name)
        self._doubted.discard(name)
        del self._names[one.ref.binary()]
        error = future.exception()
        command = self.graph.commands[name]
        is_empty = error is None and not future.result()
        was_ended = self._sharing.is_on and self.is_late and is_doubtful(future)  # by a signal to all of this job
        if isinstance(error, TaskCancelledError) or is_empty or was_ended:
            self._journal.history.began.pop(name, None)
            is_unwanted = self.graph.is_stopped or self._journal.history.controls.get(name) == "cancel"
            if name in self._withdrawn and not is_unwanted:
                self._withdrawn.discard(name)
                self._shared.pop(name, None)
                self._sharing.ended(one.number)
                self._submit(command, one.key)
            elif is_empty and self._shared.get(name) == one.number and not is_unwanted:
                self._sharing.not_begun(one.number)
            elif name in self._expired and self._shared.get(name) == one.number and not is_unwanted:
                self._sharing.returned(one.number)
            else:
                self._sharing.ended(one.number)
                if self.graph.states[name] == STARTED:
                    self._shared.pop(name, None)
                    self.graph.cancelled(name)
            return
        self._withdrawn.discard(name)
        result = lost(name, command.shown(), error) if error is not None else _results.decode(future.result())
        result = kept(result, self._directory, one.attempt)
        self._journal.ended(command, one.key, result, one.number, self._packed(command, result))
        self._sharing.ended(one.number)
        if self._sharing.is_on and self._shared.get(name) != one.number:
            return  # another job has ended it too
        self._shared.pop(name, None)
        self._settle(name, result)

    def _after(self, seconds: float, name: str, future: Any) -> None:
        """Handle the end of a command a little later."""
        timer = threading.Timer(seconds, self._events.put, ((ENDED, name, future),))
        timer.daemon = True
        timer.start()

    def _settle(self, name: str, result: CommandResult) -> None:
        """A command has ended, in this job or in another."""
        self._cpu_time += result.cpu_time
        if result.is_success:
            self._paths.measured(name, result.end - result.start)
        else:
            self._turn()
            self._note_failure(result)
        was_stopped = self.graph.is_stopped
        self.graph.end(name, result.is_success)
        if self.graph.is_stopped and not was_stopped:
            self._say(f"stopped: {name} failed, and its on_failure is stop")
            self._stop()
        elif not was_stopped and self._failures_max is not None and len(self.failures) > self._failures_max:
            self._say(f"stopped: {len(self.failures)} have failed, which is more than --max-failures")
            self._stop()

    def _note_failure(self, result: CommandResult) -> None:
        self.failures.append(result)
        self._say(f"failed: {result.name}: {result.ending()}")

    def _turn(self) -> None:
        """Write the journal, then remove the outputs that it has recorded as archived."""
        if time.monotonic() > self._ends_s:
            self._ends_s = math.inf
            self._stop()
        self._journal.turn()
        if self._sharing.must_begin():
            self._share()
        for ended in self._sharing.turn(time.time()):
            self._ended_elsewhere(ended)
        if self._sharing.is_on and time.monotonic() - self._expired_s > LOOK_S:
            self._expired_s = time.monotonic()
            self._expired = set(expired(self._running))
            for name in self._expired:
                mpi_runtime.cancel(self._running[name].ref)
        self._end_if_nothing_fits()
        for path in self._to_remove:
            with contextlib.suppress(OSError):
                os.unlink(path)
        self._to_remove.clear()

    def _packed(self, command: Command, result: CommandResult) -> tuple[int, int] | None:
        """Append the output of a command to the archive, unless it names a file of its own."""
        if self._archive is None or command.stdout or not result.stdout:
            return None
        place = self._archive.take(result.stdout)
        if place is not None:
            self._to_remove.append(result.stdout)
        return place

    def _stop(self, but: Container[bytes] = ()) -> None:
        """Start no further command, and end those that run, except these."""
        self.graph.stop()
        while self._ready:
            self.graph.cancelled(self._ready.popleft().name)
        self._withdrawn.clear()
        while self._held:
            self.graph.cancelled(self._held.popitem()[0])
        for one in self._running.values():
            if one.ref.binary() not in but:
                mpi_runtime.cancel(one.ref)
        elsewhere = {name: number for name, number in self._shared.items() if name not in self._running}
        if elsewhere and not (self.is_late or self.is_interrupted):  # then others continue
            self._sharing.stop(tuple(elsewhere.values()))
        for name in elsewhere:
            del self._shared[name]
            self.graph.cancelled(name)

    def _handle_requests(self) -> bool:
        """Do what users have requested since the last look; return whether there was anything."""
        names = self._journal.names
        if names is self._names_seen:
            return False
        self._names_seen = names
        found = pending(self._journal.path, names)
        for token, request in found:
            reply = Answer(False, "the request cannot be read: it is of another version")
            if request is not None:
                reply = perform(self, request)
                if reply.is_done:
                    self._say(f"requested: {request.verb} {' '.join(request.names)}".rstrip() + f": {reply.words}")
            self._journal.turn()
            with contextlib.suppress(OSError):  # the user sees that there is no answer
                answer(self._journal.path, token, reply)
        return bool(found)

    def add_groups(self, groups: list[Group]) -> None:
        """Add commands to the batch."""
        self._journal.plan([_planned(group) for group in groups], is_new=False)
        self._add(groups)

    def cancel(self, names: list[str]) -> None:
        """End commands, or never start them."""
        self._journal.controlled(names, "cancel")
        self._journal.history.controls |= dict.fromkeys(names, "cancel")
        elsewhere = []
        for name in names:
            self._withdrawn.discard(name)
            self._held.pop(name, None)
            if name in self._running:
                mpi_runtime.cancel(self._running[name].ref)
                continue
            if name in self._shared:
                number = self._shared.pop(name)
                elsewhere.append(number)
                self._sharing.ended(number)
            self.graph.cancelled(name)
        if elsewhere:
            self._sharing.stop(tuple(elsewhere))

    def withdraw(self, names: list[str]) -> None:
        """Take back commands that have not begun, so that they are submitted as they are now, or held."""
        self._journal.controlled([name for name in names if name in self.paused], "pause")
        running = {id for id, _, _ in current.client().questions.query("running")}
        for name in names:
            one = self._running.get(name)
            if one is not None and one.ref.binary() not in running:
                self._withdrawn.add(name)
                mpi_runtime.cancel(one.ref)
            elif one is None and name in self._shared and self._sharing.withdraw(self._shared[name]):
                self._submit(self.graph.commands[name], self._journal.key_of(self.graph.commands[name])[0])

    def resume(self, names: list[str]) -> None:
        """Let paused commands start."""
        self._journal.controlled(names, "resume")
        for name in names:
            if name in self._held:
                self._submit(self.graph.commands[name], self._held.pop(name))

    def _progress(self) -> str:
        counts = self.graph.counts
        parts = [f"{counts[DONE] - self.left_out} of {len(self.graph.commands)} done"]
        parts += [f"{self.done_before} of them before"] if self.done_before else []
        words = ((FAILED, "failed"), (SKIPPED, "skipped"), (STARTED, "running or ready"), (WAITING, "waiting"))
        parts += [f"{counts[state]} {word}" for state, word in words if counts[state]]
        parts += [f"{self.left_out} left out"] if self.left_out else []
        return f"{', '.join(parts)}; {time.monotonic() - self._begin_s:.0f} s"

    def _report(self) -> None:
        for result in self.failures[:FAILURES_SHOWN]:
            for line in self._shown_failure(result):
                self._say(line)
        if len(self.failures) > FAILURES_SHOWN:
            self._say(f"--- and {len(self.failures) - FAILURES_SHOWN} more have failed")
        if self.failures and is_full(self._directory):
            self._say(f"--- the disk of {self._directory}/ is full: they may have failed for want of room")
        refused = f"; lines refused: {self.refused}" if self.refused else ""
        self._say(f"{self._progress()}, {self._cpu_time:.1f} s of CPU time{refused}; output in {self._directory}/")

    def _shown_failure(self, result: CommandResult) -> list[str]:
        """The lines about a failed command, with the end of its output."""
        ended = self._journal.history.ends.get(result.name)
        place = ended.packed if ended is not None and ended.result is result else None
        lines = [f"--- {result.name}: {result.ending()}", f"    {shortened(result.command)}"]
        lines += [f"    {os.path.relpath(result.stdout)}:"] if result.stdout and place is None else []
        return lines + [f"    | {line}" for line in tail(self._directory, result, place)]


def _planned(group: Group) -> Planned:
    return Planned(group.name, group.commands, group.is_array)
