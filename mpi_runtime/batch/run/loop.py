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
from typing import Any, TextIO

import msgspec

import mpi_runtime
from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.file.parse import Group
from mpi_runtime.batch.file.selection import Selection
from mpi_runtime.batch.memory.graph import DONE, FAILED, SKIPPED, STARTED, WAITING, Graph
from mpi_runtime.batch.memory.outputs import Archive, SharedFiles, is_full, tail
from mpi_runtime.batch.memory.past import BatchJournal, Planned
from mpi_runtime.batch.memory.paths import Paths
from mpi_runtime.batch.memory.results import CommandResult, lost, shortened
from mpi_runtime.batch.run.capacity import capacities, node_resources
from mpi_runtime.batch.run.stream import END_OF_LINES, Stream
from mpi_runtime.batch.run.submission import submit
from mpi_runtime.batch.show.live import Live
from mpi_runtime.batch.show.overview import duration, in_lines, overview
from mpi_runtime.client import current
from mpi_runtime.client.refs import ObjectRef, future_of
from mpi_runtime.errors import TaskCancelledError
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
_results = msgspec.msgpack.Decoder(CommandResult)
_ENDED, _INTERRUPTED, _LATE = "ended", "interrupted", "late"


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
        self._events: queue.SimpleQueue[tuple[str, Any, Any]] = queue.SimpleQueue()
        self._ready: deque[Command] = deque()
        """Taken from the graph, and not submitted yet."""
        self._has_reported_before = False
        self._running: dict[str, tuple[ObjectRef[Any], bytes]] = {}
        """Submitted commands that have not ended: the results and keys."""
        self._names: dict[bytes, str] = {}
        """The names of submitted commands, by the ids of their calls."""
        self._begin_s = self._said_s = time.monotonic()
        self._looked_s = self._begin_s - LOOK_S + TURN_S
        self._ends_s = math.inf
        """When commands that still run are ended."""
        self._cpu_time = 0.0
        self._stream: Stream | None = None
        self._paths = Paths()
        self._shared = SharedFiles()

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
        self._journal.plan([_planned(group) for group in groups], capacities(), source=source)
        self._add(groups)
        if stream is not None:
            self._stream = Stream(self._events, defaults or {}, node_resources())
            threading.Thread(target=self._stream.read, args=(stream,), name="batch lines", daemon=True).start()
        with self._ctrl_c_as_event():
            self._submit_ready()
            while not self._is_over():
                self._look()
                self._turn()
                self._handle_events()
                self._submit_ready()
        self._turn()
        self._report()
        if self.is_interrupted:
            return 130
        if self.is_late and self.graph.counts[SKIPPED]:
            return TIME_IS_OVER
        return int(bool(self.graph.counts[FAILED] or self.graph.counts[SKIPPED] or self.refused))

    def _add(self, groups: Sequence[Group]) -> None:
        self.graph.add(groups)
        self._paths.add(groups)
        self._shared.add(command for group in groups for command in group.commands)
        for group in groups:
            for command in group.commands:
                known = self._journal.history.ends.get(command.name)
                if known is not None and known.result.is_success:
                    self._paths.measured(command.name, known.result.end - known.result.start)

    def end_in_time(self) -> None:
        """Start nothing more, and end running commands: the job's time is nearly over. Any thread may call this."""
        self._events.put((_LATE, None, None))

    @contextlib.contextmanager
    def _ctrl_c_as_event(self) -> Iterator[None]:
        """Make the first Ctrl-C an event; the second raises as usual."""
        before = signal.getsignal(signal.SIGINT)

        def interrupted(number: int, frame: object) -> None:
            signal.signal(signal.SIGINT, before)
            self._events.put((_INTERRUPTED, None, None))

        signal.signal(signal.SIGINT, interrupted)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

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
        key, after = self._journal.key_of(command)
        known = self._journal.known_end(command, key, after)
        is_done = known is not None and known.result.is_success
        if known is not None and is_done and command.name not in self._selection.again:
            self.done_before += 1
            self._journal.settled(command.name, key, known.number)
            self.graph.end(command.name, True)
        elif self._selection.only is not None and command.name not in self._selection.only:
            self.left_out += 1
            self._journal.settled(command.name, key, known.number if known is not None else after)
            self.graph.end(command.name, True)
        else:
            self._submit(command, key)

    def _submit(self, command: Command, key: bytes) -> None:
        self._journal.began(command)
        ref = submit(self._shared.marked(command), self._directory, False, path_us=self._paths.path_us(command.name))
        self._running[command.name] = ref, key
        self._names[ref.binary()] = command.name
        future_of(ref, lambda future: self._events.put((_ENDED, command.name, future)))  # in another thread

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

    def _shown(self) -> list[str]:
        now = time.time()
        found = overview(self._journal.history, now, True)
        return in_lines(os.path.basename(self._directory), found, "this process", now)

    def _handle(self, what: str, name: Any, value: Any) -> None:
        if what == _ENDED:
            self._end(name, value)
        elif what == _INTERRUPTED:
            self.is_interrupted = True
            self._say("interrupted: ending what runs; Ctrl-C once more ends at once")
            self._stop()
        elif what == _LATE:
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
        ref, key = self._running.pop(name)
        del self._names[ref.binary()]
        error = future.exception()
        if isinstance(error, TaskCancelledError):
            self._journal.history.began.pop(name, None)
            self.graph.cancelled(name)
            return
        command = self.graph.commands[name]
        result = lost(name, command.shown(), error) if error is not None else _results.decode(future.result())
        self._cpu_time += result.cpu_time
        if result.is_success:
            self._paths.measured(name, result.end - result.start)
        self._journal.ended(command, key, result, self._packed(command, result))
        if not result.is_success:
            self._turn()
            self.failures.append(result)
            self._say(f"failed: {name}: {result.ending()}")
        was_stopped = self.graph.is_stopped
        self.graph.end(name, result.is_success)
        if self.graph.is_stopped and not was_stopped:
            self._say(f"stopped: {name} failed, and its on_failure is stop")
            self._stop()
        elif not was_stopped and self._failures_max is not None and len(self.failures) > self._failures_max:
            self._say(f"stopped: {len(self.failures)} have failed, which is more than --max-failures")
            self._stop()

    def _turn(self) -> None:
        """Write the journal, then remove the outputs that it has recorded as archived."""
        if time.monotonic() > self._ends_s:
            self._ends_s = math.inf
            self._stop()
        self._journal.turn()
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
        for ref, _ in self._running.values():
            if ref.binary() not in but:
                mpi_runtime.cancel(ref)

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
