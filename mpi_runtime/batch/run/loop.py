"""The loop of a batch: submits ready commands, handles ends, and reads commands that arrive meanwhile."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mpi_runtime.batch.file.parse import Group
from mpi_runtime.batch.history import submitted
from mpi_runtime.batch.history.batch_history import Planning
from mpi_runtime.batch.history.graph import DONE, FAILED, SKIPPED, STARTED, WAITING
from mpi_runtime.batch.history.outputs import is_full, tail
from mpi_runtime.batch.history.requests import Answer, answer, pending
from mpi_runtime.batch.history.results import CommandResult, shortened
from mpi_runtime.batch.run import events
from mpi_runtime.batch.run.capacity import capacities, node_resources
from mpi_runtime.batch.run.control import perform
from mpi_runtime.batch.run.ends import Ends
from mpi_runtime.batch.run.stream import END_OF_LINES, Stream
from mpi_runtime.batch.show.overview import in_lines, overview
from mpi_runtime.extend import ask
from mpi_runtime.show.numbers import seconds
from mpi_runtime.slurm.commands import SlurmError

PROGRESS_S = 10.0
FAILURES_SHOWN = 10


class BatchRun(Ends):
    """One batch while it runs."""

    def __init__(self, setting: events.Setting) -> None:
        super().__init__(setting)
        self.refused = 0
        """Lines of a stream with problems."""
        self._start_s = time.time()
        self._begin_s = self._said_s = time.monotonic()
        self._looked_s = self._begin_s - events.LOOK_S + events.TURN_S
        self._stream: Stream | None = None
        self._names_seen: list[str] = []

    def run(
        self,
        groups: Sequence[Group],
        stream: Iterable[str] | None = None,
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
        history = self._journal.history
        was_open = history.is_open
        self._journal.plan(self._planning(groups, source))
        self._continue_controls()
        self._add(groups)
        if self._journal.is_successor:
            self._recover()
        elif self._setting.idle_s is not None or self._has_shares:
            self._sharing.begin({})
        if stream is not None:
            self._stream = Stream(self._events, defaults or {}, node_resources())
            threading.Thread(target=self._stream.read, args=(stream,), name="batch lines", daemon=True).start()
        with events.ctrl_c_as_event(self._events):
            self._submit_ready()
            while self._handle_requests() or not self._is_over():
                self._look()
                self._turn()
                self._handle_events(0.0 if self._ready else events.TURN_S)
                self._show()
                self._submit_ready()
        self._turn()
        self._report()
        is_cut = self.is_late or self.is_interrupted
        is_left = is_cut and bool(self.graph.counts[SKIPPED] or self._stream is not None)
        code = int(bool(self.graph.counts[FAILED] or self.graph.counts[SKIPPED] or self.refused))
        if not is_left:
            if not (was_open and self._is_partial):
                self._journal.finished(code, submitted.noted(self._directory))
                self._journal.turn()
            self._sharing.close(code)
            self._cancel_jobs()
        self._sharing.leave()
        if self.is_interrupted:
            return 130
        return events.TIME_IS_OVER if self.is_late and is_left else code

    def _planning(self, groups: Sequence[Group], source: str) -> Planning:
        """What this run is to do. It continues a batch that was not finished, and begins any other."""
        history = self._journal.history
        since = history.since if self._journal.continues else history.number
        failed_since = history.failed_since
        if failed_since is None or not (self._journal.continues or (history.is_open and not self._selection.is_retry)):
            failed_since = since
        return Planning(groups, capacities(), True, source, self._selection, since, failed_since, self._journal.life)

    def _continue_controls(self) -> None:
        """Keep commands cancelled and paused that were in an earlier run of this batch."""
        controls = self._journal.history.controls
        self.paused.update(name for name, what in controls.items() if what == "pause")
        counts = Counter(controls.values())
        words = (("cancel", "cancelled"), ("pause", "paused"))
        parts = [f"{counts[what]} {word}" for what, word in words if counts[what]]
        if parts and not self._journal.is_successor:
            self._say(f"requests to earlier runs still count, because the batch was not finished: {', '.join(parts)}")

    def give_up(self) -> None:
        """Another job has taken the batch over: end what runs here, and record what has ended."""
        self.is_late = True
        self._sharing.is_on = False
        self._journal.lose_claim()
        self.graph.stop()
        self._drain()
        self._sharing.leave()

    def _is_over(self) -> bool:
        is_open = self._stream is not None and not self.graph.is_stopped
        return not is_open and self.graph.is_over()

    def _show(self) -> None:
        if self._setting.live is not None:
            self._setting.live.show_lines(self._shown)
        elif time.monotonic() - self._said_s >= PROGRESS_S:
            self._said_s = time.monotonic()
            self._say(self._progress())

    def _look(self) -> None:
        """Ask the scheduler where commands run, and record it: the driver submits them without knowing."""
        if time.monotonic() - self._looked_s < events.LOOK_S or not self._running:
            return
        self._looked_s = time.monotonic()
        running = ask("running")
        for id, host, for_us in running:
            if id in self._names:
                self._journal.placed(self._names[id], host, time.time() - for_us / 1e6)
        if not running and self._stream is None and not self.is_late:
            self._end_if_nothing_can_start()

    def _end_if_nothing_can_start(self) -> None:
        """End the batch if nothing runs and each remaining command takes longer than the rest of the job's time."""
        found = ask("late")
        if sum(count for _, count, _ in found["calls"]) < len(self._running):
            return
        if not self._running.keys() >= {*self._given.values()}:
            self._return(self._running.values())  # another job may have the time, and this one for others
            return
        name, _, least_us = min(found["calls"], key=lambda one: one[2])
        end_s = found["end_us"] / 1e6
        self.is_late = True
        self.is_hopeless = least_us / 1e6 > end_s - self._start_s
        later = "the same line continues later"
        if self.is_hopeless:
            whole = seconds(end_s - self._start_s)
            later = f"that was {whole} when this run began: have a longer job, or shorter limits"
        self._say(
            f"nothing that is left can end before the job does: {name} may take {seconds(least_us / 1e6)}, and "
            f"{seconds(end_s - time.time())} are left; {later}"
        )
        self._stop()

    def _shown(self) -> list[str]:
        now = time.time()
        found = overview(self._journal.history, now, True)
        return in_lines(os.path.basename(self._directory), found, "this process", now)

    def _handle(self, what: str, name: Any, value: Any) -> None:
        if what == events.ENDED:
            self._end(name, value)
        elif what == events.INTERRUPTED:
            self.is_interrupted = True
            self._say("interrupted: ending what runs; Ctrl-C once more ends at once")
            self._stop()
        elif what == events.LATE:
            self.is_late = True
            self._say("SIGTERM or the end of the job's time: ending what runs; the same line continues later")
            running = {id for id, _, _ in ask("running")}
            self._stop(running)
            self._ends_s = time.monotonic() + events.DRAIN_S
        elif what == END_OF_LINES:
            self._stream = None
        elif self._stream is not None:
            group, problems = self._stream.group_of(value, name, self.graph)
            self.refused += group is None and bool(problems)
            for problem in problems:
                self._say(problem.shown("-"))
            if group is not None:
                self.add_groups([group])

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

    def _cancel_jobs(self) -> None:
        """Cancel jobs that still wait in the queue for this batch: nothing is left for them."""
        try:
            submitted.cancel(self._directory)
        except (OSError, SlurmError) as error:
            self._say(f"jobs of this batch that still wait in the queue cannot be cancelled: {error}")

    def _progress(self) -> str:
        counts = self.graph.counts
        parts = [f"{counts[DONE] - self.left_out} of {len(self.graph.commands)} done"]
        parts += [f"{self.done_before} of them before"] if self.done_before else []
        words = ((FAILED, "failed"), (SKIPPED, "skipped"), (STARTED, "running or ready"), (WAITING, "waiting"))
        parts += [f"{counts[state]} {word}" for state, word in words if counts[state]]
        parts += [f"{self.left_out} left out"] if self.left_out else []
        return f"{', '.join(parts)}; {seconds(time.monotonic() - self._begin_s)}"

    def _report(self) -> None:
        for result in self.failures[:FAILURES_SHOWN]:
            for line in self._shown_failure(result):
                self._say(line)
        if len(self.failures) > FAILURES_SHOWN:
            self._say(f"--- and {len(self.failures) - FAILURES_SHOWN} more have failed")
        if self.failures and is_full(self._directory):
            self._say(f"--- the disk of {self._directory}/ is full: they may have failed for want of room")
        refused = f"; lines refused: {self.refused}" if self.refused else ""
        self._say(f"{self._progress()}, {seconds(self._cpu_time)} of CPU time{refused}; output in {self._directory}/")

    def _shown_failure(self, result: CommandResult) -> list[str]:
        """The lines about a failed command, with the end of its output."""
        ended = self._journal.history.ends.get(result.name)
        place = ended.packed if ended is not None and ended.result is result else None
        lines = [f"--- {result.name}: {result.ending()}", f"    {shortened(result.command)}"]
        lines += [f"    {os.path.relpath(result.stdout)}:"] if result.stdout and place is None else []
        return lines + [f"    | {line}" for line in tail(self._directory, result, place)]
