"""What has become of the commands of a run, in numbers and in lines for people."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence

from mpi_runtime.batch.history.graph import DONE, FAILED, SKIPPED, STARTED, WAITING, Graph
from mpi_runtime.batch.history.outlook import done_in_words, names_in_words, skipped_in
from mpi_runtime.batch.history.outputs import is_full, tail
from mpi_runtime.batch.history.results import CommandResult, shortened
from mpi_runtime.batch.run.commands import Setting
from mpi_runtime.batch.show.overview import in_lines, overview
from mpi_runtime.show.numbers import plural, seconds

PROGRESS_S = 10.0
KINDS_SHOWN = 10
NOT_RUN = "not run"


class Progress:
    """The counts of a run, and what is shown of it."""

    def __init__(self, setting: Setting, graph: Graph) -> None:
        self.failures: list[CommandResult] = []
        self.done_before = self.left_out = 0
        """Commands that an earlier run has done, and those that were not selected."""
        self.failed_before = 0
        """Commands that have failed before, and stay failed because the batch was not finished."""
        self.refused = 0
        """Lines of a stream with problems."""
        self.cpu_time = 0.0
        self._setting, self._graph = setting, graph
        self._begin_s = self._said_s = time.monotonic()
        self._has_reported_before = False

    def show(self) -> None:
        """Show the state, if it is time to."""
        if self._setting.live is not None:
            self._setting.live.show_lines(self._shown)
        elif time.monotonic() - self._said_s >= PROGRESS_S:
            self._said_s = time.monotonic()
            self._setting.say(self._line())

    def _shown(self) -> list[str]:
        now = time.time()
        found = overview(self._setting.journal.history, now, True, self._graph.skipped())
        return in_lines(os.path.basename(self._setting.directory), found, "this process", now)

    def _line(self, not_run: int = 0) -> str:
        """The counts. `not_run`: how many of the commands that the graph skips are left for the next run."""
        counts = {**self._graph.counts, NOT_RUN: not_run}
        counts[SKIPPED] -= not_run
        parts = [f"{counts[DONE] - self.left_out} of {len(self._graph.commands)} done"]
        parts += [f"{self.done_before} of them before"] if self.done_before else []
        words = (
            (FAILED, "failed"),
            (SKIPPED, "skipped"),
            (NOT_RUN, "not run"),
            (STARTED, "running or ready"),
            (WAITING, "waiting"),
        )
        parts += [f"{counts[state]} {word}" for state, word in words if counts[state]]
        parts += [f"{self.left_out} left out"] if self.left_out else []
        return f"{', '.join(parts)}; {seconds(time.monotonic() - self._begin_s)}"

    def note_failure(self, result: CommandResult) -> None:
        """A command has failed in this run."""
        self.failures.append(result)
        self._setting.say(f"failed: {result.name}: {result.ending()}")

    def report_before(self) -> None:
        """Show once what earlier runs have left."""
        if self._has_reported_before or not (self.done_before or self.failed_before):
            return
        self._has_reported_before = True
        if self.done_before:
            self._setting.say(f"{done_in_words(self.done_before, 'earlier runs')}; --fresh forgets these")
        if self.failed_before:
            self._setting.say(
                f"{plural(self.failed_before, 'command')} failed in earlier runs and will not run again until the "
                "batch is finished: then the same line runs failed commands again, before that --retry-failed does"
            )

    def report(self, is_cut: bool) -> None:
        """Show how the run has ended; `is_cut`: what has not run is left for the next one."""
        say, directory = self._setting.say, self._setting.directory
        not_run = max(0, self._graph.counts[SKIPPED] - len(skipped_in(self._setting.journal.history))) if is_cut else 0
        kinds: dict[str, list[CommandResult]] = {}
        for result in self.failures:
            kinds.setdefault(result.kind(), []).append(result)
        for results in [*kinds.values()][:KINDS_SHOWN]:
            for line in self._shown_failure(results):
                say(line)
        if hidden := [*kinds.values()][KINDS_SHOWN:]:
            say(f"--- and {sum(map(len, hidden))} more have failed, in {plural(len(hidden), 'other way')}")
        if self.failures:
            place = shlex.quote(directory)
            say(f"--- each output: mpi-runtime batch log {place} {self.failures[0].name}")
            say(f"    all failures: mpi-runtime batch report {place}")
            if self._setting.again:
                say(f"    run them again: {self._setting.again}")
        if self.failures and is_full(directory):
            say(f"--- the disk of {directory}/ is full: they may have failed for want of room")
        refused = f"; lines refused: {self.refused}" if self.refused else ""
        say(f"{self._line(not_run)}, {seconds(self.cpu_time)} of CPU time{refused}; output in {directory}/")

    def _shown_failure(self, results: Sequence[CommandResult]) -> list[str]:
        """The lines about failures of one kind, with the end of the output of the first."""
        result, *others = results
        more = f"; {len(others)} more: {names_in_words([one.name for one in others])}" if others else ""
        ended = self._setting.journal.history.ends.get(result.name)
        place = ended.packed if ended is not None and ended.result is result else None
        lines = [f"--- {result.name}: {result.ending()}{more}", f"    {shortened(result.command)}"]
        lines += [f"    {os.path.relpath(result.stdout)}:"] if result.stdout and place is None else []
        return lines + [f"    | {line}" for line in tail(self._setting.directory, result, place)]
