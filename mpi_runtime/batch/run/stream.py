"""JSON lines on standard input, which become commands of a batch while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TextIO

from mpi_runtime.batch.file.entries import COMMANDS_MAX, LINE_MAX, Problem, is_refused, read_json_line
from mpi_runtime.batch.file.parse import Group, read_entry
from mpi_runtime.batch.history.graph import Graph, wrong_names
from mpi_runtime.batch.run.capacity import infeasible
from mpi_runtime.batch.run.running import EndOfLines, Event, Line
from mpi_runtime.scheduler.protocol.resources import Pool

END = "\x04"
"""The line after the last one, where a launcher does not pass on the end of standard input."""


def lines_of(stream: TextIO) -> Iterator[str]:
    """The lines up to the end, or to one that is too long."""
    for line in iter(partial(stream.readline, LINE_MAX + 1), ""):
        if line.rstrip("\n") == END:
            return
        yield line
        if len(line) > LINE_MAX:
            return


class Stream:
    """JSON lines that arrive while the batch runs."""

    def __init__(
        self,
        put: Callable[[Event], None],
        defaults: Mapping[str, object],
        nodes: tuple[Pool, ...],
    ) -> None:
        """Make a stream that gives its lines to `put`. The `defaults` are options of all its commands."""
        self._put = put
        self._defaults = defaults
        self._nodes = nodes

    def read(self, stream: Iterable[str]) -> None:
        """Read to the end, in a thread of its own."""
        try:
            for number, line in enumerate(stream, 1):
                self._put(Line(number, line))
                if number > COMMANDS_MAX:
                    return
        finally:
            self._put(EndOfLines())

    def group_of(self, line: str, number: int, graph: Graph) -> tuple[Group | None, list[Problem]]:
        """The group of a line, or its problems. Its `after` may have names of the graph."""
        if number > COMMANDS_MAX:
            return None, [Problem(number, 1, f"a batch can have {COMMANDS_MAX} commands: no more are read")]
        entry, problems = read_json_line(line.rstrip("\n"), number)
        if entry is None or problems:  # no notes yet
            return None, problems
        group, problems = read_entry(entry, self._defaults)
        problems += wrong_names([group], graph) + infeasible([group], self._nodes)
        return (None if is_refused(problems) else group), problems
