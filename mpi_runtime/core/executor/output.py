"""Tags the output of an executor with its writer, by a mark in the pipe before the first line of a new writer.

An executor has its next calls before the running one has ended, so no other process can know which of them wrote a
line. Marks go straight into the pipe, also while user code has redirected standard output or error.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence

from mpi_runtime.core.executor.fork_messages import MARK, PLAIN

_outputs: list[Output] = []
"""Standard output and error of this process, once they are installed."""
_before_names = b""
"""PLAIN, or nothing."""


class Output(io.FileIO):
    """Standard output or error of an executor, below the buffer."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self.pipe = -1
        """Another descriptor of the pipe, for marks. -1: no marks are written."""
        self._writer = self._marked = b""

    def begin(self, writer: bytes) -> None:
        """Tag further output with this writer. After the first mark, output of child programs is tagged too."""
        self._writer = writer
        if self._marked and self._marked != writer:
            self._mark()

    def write(self, data: bytes) -> int | None:  # type: ignore[override]  # (buffers of any kind)
        """Write, as `FileIO` does, after the mark that is due."""
        if self._marked != self._writer:
            self._mark()
        return super().write(data)

    def _mark(self) -> None:
        self._marked = self._writer
        if self.pipe >= 0:
            with contextlib.suppress(OSError):  # user code has closed it
                os.write(self.pipe, MARK + self._writer + b"\n")


def install() -> None:
    """Make Python's standard output and error of this process such streams."""
    for name in ("stdout", "stderr"):
        old = getattr(sys, name)
        old.flush()
        raw = Output(old.fileno())
        raw.name = old.name
        buffer = raw if old.write_through else io.BufferedWriter(raw)  # type: ignore[type-var]
        new = io.TextIOWrapper(buffer, old.encoding, old.errors, "\n", old.line_buffering, old.write_through)
        new.mode = "w"  # type: ignore[misc]  # as Python's own
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
        _outputs.append(raw)


def mark_in(pipes: Sequence[int]) -> None:
    """Write marks into these pipes: those of standard output and error."""
    for output, pipe in zip(_outputs, pipes, strict=True):
        output.pipe = pipe


def show_plain() -> None:
    """Have the driver show further lines of this process as they are: each names its writer itself."""
    global _before_names
    _before_names = PLAIN


def begin(writer: str) -> None:
    """Tag further output of this process with this writer."""
    flush()
    data = _before_names + " ".join(writer.splitlines()).encode(errors="replace")
    for output in _outputs:
        output.begin(data)


def flush() -> None:
    """Write what Python has buffered."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
