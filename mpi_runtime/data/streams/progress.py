"""The line that shows the stages of a running stream, and the text of `Dataset.stats()`."""

from __future__ import annotations

import sys
import threading
import time

from mpi_runtime.data.streams.stream import Stream
from mpi_runtime.show import numbers, tables

AFTER_S = 2.0
"""A shorter run shows nothing."""
PAUSE_S = 0.5


class Stats:
    """What the stages of the last run have done."""

    def __init__(self, stream: Stream, began_s: float) -> None:
        self.stream = stream
        self.began_s = began_s
        self.ended_s = 0.0
        self.seconds = [0.0] * len(stream.stages)
        """The time that tasks of each stage have worked."""
        self.errors: list[str] = []


class Bar:
    """A line in the terminal of the job: what the stages have made, and which one holds the others back."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._next_s = stats.began_s + AFTER_S
        self._is_shown = sys.stderr.isatty() and threading.current_thread() is threading.main_thread()
        self._has_begun = False

    def turn(self, is_last: bool = False) -> None:
        """Draw it if it is time."""
        now_s = time.monotonic()
        if not self._is_shown or (now_s < self._next_s and not (is_last and self._has_begun)):
            return
        self._has_begun, self._next_s = True, now_s + PAUSE_S
        sys.stderr.write("\r\x1b[K" + ("" if is_last else line(self._stats)))
        sys.stderr.flush()


def line(stats: Stats) -> str:
    """One line about a running stream."""
    stream = stats.stream
    parts = []
    for stage in stream.stages:
        if stage.limit is None:
            running = sum(not task.is_done for task in stage.tasks)
            parts.append(f"{stage.name}: {numbers.count(stage.rows)} rows, {running} running")
    used = sum(stage.used for stage in stream.stages)
    return f"data: {'; '.join(parts)}; {numbers.size(used)} ahead, waits for {stream.holds_back()}"


def table(stats: Stats) -> str:
    """What each stage has done."""
    stream = stats.stream
    rows = [("stage", "tasks", "blocks", "rows", "size", "seconds of work", "most in memory", "actors")]
    for number, stage in enumerate(stream.stages):
        if stage.limit is None:
            rows.append(
                (
                    stage.name,
                    str(stage.started),
                    str(stage.blocks),
                    str(stage.rows),
                    numbers.size(stage.bytes),
                    f"{stats.seconds[number]:.3f}",
                    numbers.size(stage.peak),
                    str(stage.actors_made) if stage.pool else "",
                )
            )
    took = (stats.ended_s or time.monotonic()) - stats.began_s
    last = f"{took:.3f} s in all" + ("" if stats.ended_s else " so far")
    if stream.forced:
        last += f"; {numbers.plural(stream.forced, 'block')} made beyond the budget, since nothing else could run"
    if stats.errors:
        last += f"; {numbers.plural(len(stats.errors), 'block')} left out, since a function had failed"
    return "\n".join([*tables.aligned(rows), last])
