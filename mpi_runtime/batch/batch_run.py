"""Running a batch: submit what is ready, hear what has ended, read what comes in meanwhile; one loop over one queue."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TextIO

import mpi_runtime
from mpi_runtime.batch.batch_file import Group, read_entry
from mpi_runtime.batch.file_entries import Problem
from mpi_runtime.batch.graph import DONE, FAILED, SKIPPED, STARTED, WAITING, Graph, wrong_names
from mpi_runtime.batch.json_tasks import read_json_line
from mpi_runtime.batch.launching import submit
from mpi_runtime.batch.model import cannot_run
from mpi_runtime.batch.results import CommandResult, tail
from mpi_runtime.client.refs import ObjectRef
from mpi_runtime.errors import MpiRuntimeError, TaskCancelledError

PROGRESS_S = 10.0
FAILURES_SHOWN = 10
_LINE, _END_OF_LINES, _ENDED, _INTERRUPTED = "line", "end of lines", "ended", "interrupted"


def node_resources() -> list[dict[str, float]]:
    """What each node of the job has in all."""
    return [dict(node["Resources"]) for node in mpi_runtime.nodes() if node["Alive"]]


def infeasible(groups: Sequence[Group], nodes: Sequence[Mapping[str, float]]) -> list[Problem]:
    """A problem for each group that no node can ever run; the commands of a group ask for the same."""
    reasons = [(group, cannot_run(group.commands[0], nodes)) for group in groups if group.commands]
    return [Problem(*group.place, f"{group.name}: {reason}") for group, reason in reasons if reason]


class BatchRun:
    """One batch while it runs."""

    def __init__(self, directory: str, say: Callable[[str], None]) -> None:
        """Make one that has no commands yet.

        Args:
            directory: of the output.
            say: shows a line.
        """
        self.graph = Graph()
        self.failures: list[tuple[str, CommandResult | MpiRuntimeError]] = []
        self.refused = 0
        """Lines of a stream that were wrong."""
        self.is_interrupted = False
        self._directory = directory
        self._say = say
        self._events: queue.SimpleQueue[tuple[str, Any, Any]] = queue.SimpleQueue()
        self._running: dict[str, ObjectRef[CommandResult]] = {}
        self._begin_s = self._said_s = time.monotonic()
        self._cpu_time = 0.0
        self._stream: _Stream | None = None

    def run(
        self, groups: Sequence[Group], stream: TextIO | None = None, defaults: Mapping[str, Any] | None = None
    ) -> int:
        """Run all commands to their end.

        Args:
            groups: that are known to be right.
            stream: of further ones as JSON lines, read while it grows.
            defaults: options of these.

        Returns:
            The exit code: 0 if all commands have succeeded, 130 after Ctrl-C, else 1.
        """
        self.graph.add(groups)
        if stream is not None:
            self._stream = _Stream(self._events, defaults or {}, node_resources())
            threading.Thread(target=self._stream.read, args=(stream,), name="batch lines", daemon=True).start()
        with self._ctrl_c_heard():
            while not self._is_over():
                self._submit_ready()
                self._handle_events()
        self._report()
        if self.is_interrupted:
            return 130
        return int(bool(self.graph.counts[FAILED] or self.graph.counts[SKIPPED] or self.refused))

    @contextlib.contextmanager
    def _ctrl_c_heard(self) -> Iterator[None]:
        """Make the first Ctrl-C an event like others; the second raises as ever."""
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
        for command in self.graph.take_ready():
            ref = submit(command, self._directory, False)
            self._running[command.name] = ref
            ref.future().add_done_callback(partial(self._heard, command.name))

    def _heard(self, name: str, future: Any) -> None:
        """A command has ended; called by another thread."""
        self._events.put((_ENDED, name, future))

    def _handle_events(self) -> None:
        """Wait for something to happen, and take all that has happened."""
        with contextlib.suppress(queue.Empty):
            self._handle(*self._events.get(timeout=PROGRESS_S))
            while True:
                self._handle(*self._events.get_nowait())
        if time.monotonic() - self._said_s >= PROGRESS_S:
            self._said_s = time.monotonic()
            self._say(self._progress())

    def _handle(self, what: str, name: Any, value: Any) -> None:
        if what == _ENDED:
            self._end(name, value)
        elif what == _INTERRUPTED:
            self.is_interrupted = True
            self._say("interrupted: ending what runs; Ctrl-C once more ends at once")
            self._stop()
        elif what == _END_OF_LINES:
            self._stream = None
        elif self._stream is not None:
            group, problems = self._stream.group_of(value, name, self.graph)
            self.refused += bool(problems)
            for problem in problems:
                self._say(problem.shown("-"))
            self.graph.add([group] if group is not None else [])

    def _end(self, name: str, future: Any) -> None:
        del self._running[name]
        error = future.exception()
        if isinstance(error, TaskCancelledError):
            self.graph.cancelled(name)
            return
        outcome: CommandResult | MpiRuntimeError = error if error is not None else future.result()
        is_success = isinstance(outcome, CommandResult) and outcome.is_success
        if isinstance(outcome, CommandResult):
            self._cpu_time += outcome.cpu_time
        if not is_success:
            self.failures.append((name, outcome))
            self._say(f"failed: {name}: {_ending(outcome)}")
        was_stopped = self.graph.is_stopped
        self.graph.end(name, is_success)
        if self.graph.is_stopped and not was_stopped:
            self._say(f"stopped: {name} failed, and its on_failure is stop")
            self._stop()

    def _stop(self) -> None:
        self.graph.stop()
        for ref in self._running.values():
            mpi_runtime.cancel(ref)

    def _progress(self) -> str:
        counts = self.graph.counts
        parts = [f"{counts[DONE]} of {len(self.graph.commands)} done"]
        words = ((FAILED, "failed"), (SKIPPED, "skipped"), (STARTED, "running or ready"), (WAITING, "waiting"))
        parts += [f"{counts[state]} {word}" for state, word in words if counts[state]]
        return f"{', '.join(parts)}; {time.monotonic() - self._begin_s:.0f} s"

    def _report(self) -> None:
        for name, outcome in self.failures[:FAILURES_SHOWN]:
            self._say(f"--- {name}: {_ending(outcome)}")
            if isinstance(outcome, CommandResult):
                self._say(f"    {outcome.command}")
                for path in dict.fromkeys((outcome.stdout, outcome.stderr)):
                    self._say(f"    {os.path.relpath(path)}:")
                    for line in tail(path):
                        self._say(f"    | {line}")
        if len(self.failures) > FAILURES_SHOWN:
            self._say(f"--- and {len(self.failures) - FAILURES_SHOWN} more have failed")
        refused = f"; lines refused: {self.refused}" if self.refused else ""
        self._say(f"{self._progress()}, {self._cpu_time:.1f} s of CPU time{refused}; output in {self._directory}/")


class _Stream:
    """JSON lines that come in while the batch runs."""

    def __init__(
        self,
        events: queue.SimpleQueue[tuple[str, Any, Any]],
        defaults: Mapping[str, Any],
        nodes: list[dict[str, float]],
    ) -> None:
        self._events = events
        self._defaults = defaults
        self._nodes = nodes

    def read(self, stream: TextIO) -> None:
        """Read to the end, in a thread of its own."""
        try:
            for number, line in enumerate(stream, 1):
                self._events.put((_LINE, number, line))
        finally:
            self._events.put((_END_OF_LINES, None, None))

    def group_of(self, line: str, number: int, graph: Graph) -> tuple[Group | None, list[Problem]]:
        """The group of a line, which may come after what is known already; or what is wrong with it."""
        entry, problems = read_json_line(line.rstrip("\n"), number)
        if entry is None or problems:
            return None, problems
        group, problems = read_entry(entry, self._defaults)
        problems += wrong_names([group], graph) + infeasible([group], self._nodes)
        return (None if problems else group), problems


def described(groups: Sequence[Group]) -> list[str]:
    """The graph in lines: each command or array with what it asks for and what it comes after."""
    lines = []
    for group in groups:
        if not group.commands:
            lines.append(f"{group.name} (0)")
            continue
        first = group.commands[0]
        count = f" ({len(group.commands)})" if group.is_array else ""
        asked = [f"{amount:g} {what}" for what, amount in (("CPU", first.num_cpus), ("GPU", first.num_gpus)) if amount]
        asked += [f"{first.memory} bytes"] if first.memory else []
        asked += [f"{first.time_limit:g} s"] if first.time_limit is not None else []
        after = f", after {', '.join(group.after)}" if group.after else ""
        lines.append(f"{group.name}{count}: {', '.join(asked) or 'nothing'}{after}: {first.shown()}")
    total = sum(len(group.commands) for group in groups)
    return [*lines, f"{total} command{'' if total == 1 else 's'}"]


def _ending(outcome: CommandResult | MpiRuntimeError) -> str:
    if isinstance(outcome, CommandResult):
        return outcome.ending()
    return f"{type(outcome).__name__}: {outcome}"
