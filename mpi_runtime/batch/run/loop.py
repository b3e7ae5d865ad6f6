"""The loop of a batch: starts ready commands, handles ends, and reads commands that arrive meanwhile."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.file.parse import Group
from mpi_runtime.batch.history import submitted
from mpi_runtime.batch.history.graph import DONE, FAILED, SKIPPED
from mpi_runtime.batch.history.outlook import CANCELLED, LEFT_OUT, STAYS_FAILED, fate_of, plan_of
from mpi_runtime.batch.history.outputs import Archive, forget_start
from mpi_runtime.batch.history.requests import Answer, answer, pending
from mpi_runtime.batch.history.results import CommandResult
from mpi_runtime.batch.run.capacity import capacities, pools
from mpi_runtime.batch.run.commands import Commands, Setting
from mpi_runtime.batch.run.control import perform
from mpi_runtime.batch.run.progress import Progress
from mpi_runtime.batch.run.running import (
    DRAIN_S,
    LOOK_S,
    TIME_IS_OVER,
    TURN_S,
    CommandEnded,
    EndOfLines,
    Event,
    Interrupted,
    Late,
    Line,
    begun_here,
    ctrl_c_as_event,
)
from mpi_runtime.batch.run.stream import Stream
from mpi_runtime.extend import ask
from mpi_runtime.scheduler.protocol.questions import Late as LateCalls
from mpi_runtime.scheduler.protocol.questions import RunningCalls
from mpi_runtime.show.numbers import seconds
from mpi_runtime.slurm.commands import SlurmError
from mpi_runtime.util.streams import together

SUBMITTED_MAX = 1000
"""How many commands are submitted, in about 0.1 s, before events are handled."""
IDLE_S = 60.0
"""How long nothing runs in any job until a coordinator gives up, though commands wait for room."""


class BatchRun:
    """One batch while it runs."""

    def __init__(self, setting: Setting) -> None:
        self.is_interrupted = self.is_late = False
        """Whether Ctrl-C ended it, or the end of the job's time."""
        self.is_hopeless = False
        """Whether another job of the same length could start none of the remaining commands."""
        self._setting, self._say, self._journal = setting, setting.say, setting.journal
        self._commands = Commands(setting)
        self._graph = self._commands.graph
        self._progress = Progress(setting, self._graph)
        self._archive = Archive(setting.directory) if setting.is_packed else None
        self._stream: Stream | None = None
        self._is_partial = False
        """Whether a command that was not selected has never ended."""
        self._names_seen: list[str] = []
        self._start_s = time.time()
        self._busy_s = time.monotonic()
        self._looked_s = self._busy_s - LOOK_S + TURN_S
        self._ends_s = math.inf
        """When commands that still run are ended."""

    def run(
        self,
        groups: Sequence[Group],
        stream: Iterable[str] | None = None,
        defaults: Mapping[str, object] | None = None,
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
        commands, running = self._commands, self._commands.running
        was_open = self._journal.history.is_open
        selection, continues = self._setting.selection, self._journal.continues
        self._journal.plan(
            plan_of(self._journal.history, groups, capacities(), source, selection, self._journal.life, continues)
        )
        self._journal.keys.keeps_done = selection.keeps_done
        self._continue_controls()
        commands.add(groups)
        if self._journal.is_successor:
            commands.recover()
        elif self._setting.idle_s is not None or commands.has_shares:
            commands.begin_sharing({})
        if stream is not None:
            self._stream = Stream(running.put, defaults or {}, pools())
            threading.Thread(target=self._stream.read, args=(stream,), name="batch lines", daemon=True).start()
        with ctrl_c_as_event(running.put):
            self._handle_requests(os.listdir(self._journal.path), is_first=not self._journal.is_successor)
            self._start_ready()
            while self._handle_requests(self._journal.names) or not self._is_over():
                self._look()
                self._turn()
                for event in running.take(0.0 if commands.has_ready() else TURN_S):
                    self._handle(event)
                self._progress.show()
                self._start_ready()
        self._turn()
        self._progress.report(self.is_late or self.is_interrupted)
        return self._end_batch(was_open)

    def _end_batch(self, was_open: bool) -> int:
        """Record the end of the batch, unless something is left of it, and leave it. Return the exit code."""
        counts, sharing = self._graph.counts, self._commands.sharing
        is_cut = self.is_late or self.is_interrupted
        is_left = is_cut and bool(counts[SKIPPED] or self._stream is not None)
        code = int(bool(counts[FAILED] or counts[SKIPPED] or self._progress.refused))
        if not is_left:
            if not (was_open and self._is_partial):
                self._journal.finished(code, submitted.noted(self._setting.directory))
                self._journal.turn()
            if sharing is not None:
                sharing.close(code)
            self._cancel_jobs()
        if sharing is not None:
            sharing.leave()
        if self.is_interrupted:
            return 130
        return TIME_IS_OVER if self.is_late and is_left else code

    def _continue_controls(self) -> None:
        """Keep commands cancelled and paused that were in an earlier run of this batch."""
        controls = self._journal.history.controls
        self._commands.paused.update(name for name, what in controls.items() if what == "pause")
        counts = Counter(controls.values())
        words = (("cancel", "cancelled"), ("pause", "paused"))
        parts = [f"{counts[what]} {word}" for what, word in words if counts[what]]
        if parts and not self._journal.is_successor:
            self._say(f"requests to earlier runs still count, because the batch was not finished: {', '.join(parts)}")

    def end_in_time(self) -> None:
        """Start nothing more, and end: the job's time is nearly over. For all threads."""
        self._commands.running.put(Late())

    def give_up(self) -> None:
        """Another job has taken the batch over: end what runs here, and record what has ended."""
        self.is_late = True
        sharing, self._commands.sharing = self._commands.sharing, None
        self._journal.lose_claim()
        self._graph.stop()
        self._commands.running.drain(self._handle)
        if sharing is not None:
            sharing.leave()

    def _is_over(self) -> bool:
        is_open = self._stream is not None and not self._graph.is_stopped
        return not is_open and self._graph.is_over()

    def _start_ready(self) -> None:
        """Start the commands that may start and are not done, in few messages. Those that are done make others ready.

        Not all of a long list at once, so that ends are recorded and Ctrl-C is handled meanwhile.
        """
        with together():
            for _ in range(SUBMITTED_MAX):
                command = self._commands.next_ready()
                if command is None:
                    break
                self._start_unless_done(command)
        if not self._commands.has_ready():
            self._progress.report_before()

    def _start_unless_done(self, command: Command) -> None:
        name, history, selection = command.name, self._journal.history, self._setting.selection
        if self._commands.is_given(name):
            return  # a job has begun it, and this one has taken the place of the coordinator
        known = self._journal.keys.find(command)
        key, ended = known.key, known.ended
        fate = fate_of(name, known, history, selection)
        if fate == DONE:
            assert ended is not None
            self._progress.done_before += 1
            self._journal.keys.settle(name, ended.key, ended.number)
            self._graph.end(name, True)
        elif fate == LEFT_OUT:
            self._progress.left_out += 1
            self._is_partial = self._is_partial or ended is None
            self._journal.keys.settle(name, key, ended.number if ended is not None else known.after)
            self._graph.end(name, True)
        elif fate == STAYS_FAILED:
            assert ended is not None
            self._progress.failed_before += 1
            self._progress.failures.append(ended.result)
            self._journal.keys.settle(name, key, ended.number)
            self._fail(name)
        elif fate == CANCELLED:
            self._graph.cancelled(name)
        else:
            if not command.rerun and name in selection.again and not self._journal.continues:
                forget_start(self._setting.directory, name, key)
            self._commands.submit(command, key)

    def _look(self) -> None:
        """Ask the scheduler where commands run, and record it: the driver submits them without knowing."""
        commands = self._commands.running
        if time.monotonic() - self._looked_s < LOOK_S or not commands.by_number:
            return
        self._looked_s = time.monotonic()
        running = ask(RunningCalls())
        for one in running:
            if name := commands.name_of(one.id):
                self._journal.placed(name, one.host, time.time() - one.for_us / 1e6)
        if not running and self._stream is None and not self.is_late:
            self._end_if_nothing_can_start()

    def _end_if_nothing_can_start(self) -> None:
        """End the batch if nothing runs and each remaining command takes longer than the rest of the job's time."""
        found = ask(LateCalls())
        running = self._commands.running
        if sum(one.calls for one in found.functions) < len(running.by_number):
            return
        if not self._commands.are_all_here():
            running.give_back(running.by_number.values())  # another job may have the time, and this one for others
            return
        least = min(found.functions, key=lambda one: one.each_us)
        end_s = found.end_us / 1e6
        self.is_late = True
        self.is_hopeless = least.each_us / 1e6 > end_s - self._start_s
        later = "the same line continues later"
        if self.is_hopeless:
            whole = seconds(end_s - self._start_s)
            later = f"that was {whole} when this run began: have a longer job, or shorter limits"
        self._say(
            f"nothing that is left can end before the job does: {least.name} may take {seconds(least.each_us / 1e6)}, "
            f"and {seconds(end_s - time.time())} are left; {later}"
        )
        self._stop()

    def _handle(self, event: Event) -> None:
        if isinstance(event, CommandEnded):
            self._end(event)
        elif isinstance(event, Interrupted):
            self.is_interrupted = True
            self._say("interrupted: ending what runs; Ctrl-C once more ends at once")
            self._stop()
        elif isinstance(event, Late):
            self.is_late = True
            self._say("SIGTERM or the end of the job's time: ending what runs; the same line continues later")
            self._stop(begun_here())
            self._ends_s = time.monotonic() + DRAIN_S
        elif isinstance(event, EndOfLines):
            self._stream = None
        elif self._stream is not None:
            self._add_line(event, self._stream)

    def _add_line(self, line: Line, stream: Stream) -> None:
        group, problems = stream.group_of(line.text, line.number, self._graph)
        self._progress.refused += group is None and bool(problems)
        for problem in problems:
            self._say(problem.shown("-"))
        if group is not None:
            self._commands.add_groups([group])

    def _end(self, event: CommandEnded) -> None:
        found = self._commands.end(event, self.is_late)
        if found is None:
            return
        command, one, result = found
        packed = None
        if self._archive is not None and not command.stdout and result.stdout:
            packed = self._archive.take(result.stdout)
        self._journal.ended(command, one.key, result, one.number, packed)
        if self._commands.has_ended(one):
            self._settle(result)

    def _settle(self, result: CommandResult) -> None:
        """A command has ended, in this job or in another."""
        self._progress.cpu_time += result.cpu_time
        if result.is_success:
            self._commands.note_success(result)
        else:
            self._turn()
            self._progress.note_failure(result)
            self._fail(result.name)

    def _fail(self, name: str) -> None:
        """A command has failed, now or before: this may stop the batch."""
        was_stopped = self._graph.is_stopped
        self._graph.end(name, False)
        failures = len(self._progress.failures)
        if self._graph.is_stopped and not was_stopped:
            self._say(f"stopped: {name} failed, and its on_failure is stop")
            self._stop()
        elif not was_stopped and failures > self._setting.failures_max:
            self._say(f"stopped: {failures} have failed, which is more than --max-failures")
            self._stop()

    def _turn(self) -> None:
        """Write the journal, take part in what all jobs do, then remove the outputs that are recorded as archived."""
        if time.monotonic() > self._ends_s:
            self._ends_s = math.inf
            self._stop()
        self._journal.turn()
        for ended in self._commands.turn():
            if self._commands.has_ended_elsewhere(ended):
                self._settle(ended.result)
        if self._commands.sharing is not None:
            self._commands.running.return_expired()
        self._end_if_nothing_fits()
        if self._archive is not None:
            self._archive.remove_taken()

    def _end_if_nothing_fits(self) -> None:
        """End this job's part if for long no job had anything to do, though commands wait."""
        why, is_for_time = self._commands.stuck()
        patience_s = IDLE_S if self._setting.idle_s is None else self._setting.idle_s
        if is_for_time and self._commands.sharing is not None and not self._commands.sharing.others():
            patience_s = LOOK_S  # waiting makes it worse
        if not why or self.is_late or self._graph.is_stopped:
            self._busy_s = time.monotonic()
        elif time.monotonic() - self._busy_s > patience_s:
            self._say(f"no job can run what is left: {why}; the same line continues where there is room")
            self.is_late = True
            self.is_hopeless = not is_for_time
            self._stop()

    def _stop(self, but: Collection[bytes] = ()) -> None:
        """Start no further command, and end those that run, except these calls. Others continue without this job."""
        self._commands.stop(but, is_everywhere=not (self.is_late or self.is_interrupted))

    def _handle_requests(self, names: list[str], is_first: bool = False) -> bool:
        """Do what users have requested since the last look; return whether there was anything.

        `names`: in the directory of the journal. `is_first`: nothing has started.
        """
        if names is self._names_seen:
            return False
        self._names_seen = names
        found = pending(self._journal.path, names)
        for token, request in found:
            reply = Answer(False, "the request cannot be read: it is of another version")
            if request is not None:
                reply = perform(self._commands, request, is_first)
                if reply.is_done or request.is_left:
                    self._say(f"requested: {request.verb} {' '.join(request.names)}".rstrip() + f": {reply.words}")
            self._journal.turn()
            with contextlib.suppress(OSError):  # the user sees that there is no answer
                answer(self._journal.path, token, reply, request is not None and request.is_left)
        return bool(found)

    def _cancel_jobs(self) -> None:
        """Cancel jobs that still wait in the queue for this batch: nothing is left for them."""
        try:
            submitted.cancel(self._setting.directory)
        except (OSError, SlurmError) as error:
            self._say(f"jobs of this batch that still wait in the queue cannot be cancelled: {error}")
