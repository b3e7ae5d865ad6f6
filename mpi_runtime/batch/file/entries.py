"""The text of a batch file, within limits; its entries, and problems in it, each with its line and column.

A short file may stand for any number of commands: hence the limits.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

Place = tuple[int, int]
"""Line and column, both from 1."""


class Problem(msgspec.Struct, frozen=True, order=True):
    """A problem in a batch file."""

    line: int
    column: int
    message: str
    is_note: bool = False
    """Whether it may be on purpose, so that the batch is not refused."""

    def shown(self, source: str) -> str:
        """One line for people and editors."""
        return f"{source}:{self.line}:{self.column}: {'note: ' if self.is_note else ''}{self.message}"


class Entry(msgspec.Struct, frozen=True):
    """One command or array as it is written."""

    content: dict[str, Any]
    """Its keys: "command", options, and those of an array."""
    place: Place
    default_name: str
    places: dict[str, Place] = {}
    """Where its keys are."""

    def problem(self, key: str, message: str, is_note: bool = False) -> Problem:
        """A problem with one of its keys."""
        return Problem(*self.places.get(key, self.place), message, is_note)


NO_DEFAULTS = Entry({}, (1, 1), "")
"""The options for all commands of a file that has none."""
Parsed = tuple[list[Entry], Entry, list[Problem]]
"""The content of a batch file: its commands, their defaults, and its problems."""


def is_refused(problems: Iterable[Problem]) -> bool:
    """Whether there are problems that are not notes."""
    return not all(problem.is_note for problem in problems)


COMMANDS_MAX = 10_000_000
"""The most commands of a batch, rows of an array, and lines of a file."""
TEXT_BYTES_MAX = 1 << 30
"""The largest file: that many commands with a hundred letters."""
LINE_MAX = 64 << 20
"""The most letters of a line with JSON."""
KEYS_MAX = 1000
"""The most keys of one command."""
DEPTH_MAX = 100
"""The deepest nesting of lists and tables."""
DIGITS_MAX = 4000
"""The most digits of a number. Python reads and writes no more than 4300."""
TOO_DEEP = f"this is nested more than {DEPTH_MAX} deep"
TOO_LONG = f"a number has more than {DIGITS_MAX} digits"
_CHUNK_BYTES = 1 << 20
_PATIENCE_S = 1.0
"""How long nobody may write to a pipe until a line reports that it is awaited."""


def text_of(path: str | Path) -> str:
    """The text of a file or a pipe, in UTF-8, with its ends of lines. A pipe that nobody writes to is awaited.

    Raises:
        OSError: it cannot be read.
        UnicodeDecodeError: it is not text in UTF-8.
        ValueError: it is something else, such as /dev/zero, or too large.
    """
    is_pipe = stat.S_ISFIFO(os.stat(path).st_mode)
    line = f"mpi-runtime: waits for a program that writes to the pipe {path}"
    waiting = threading.Timer(_PATIENCE_S, lambda: print(line, file=sys.stderr, flush=True))
    if is_pipe:
        waiting.start()
    try:
        file = open(path, "rb")  # noqa: SIM115  (closed below)
    finally:
        waiting.cancel()
        if is_pipe:
            waiting.join()  # a job forks, which is for processes with one thread
    found = bytearray()
    with file:
        status = os.fstat(file.fileno())
        if not (is_pipe or stat.S_ISREG(status.st_mode) or file.isatty()):
            raise ValueError("it is neither a file nor a pipe")
        size = status.st_size
        while max(size, len(found)) <= TEXT_BYTES_MAX and (chunk := file.read(_CHUNK_BYTES)):
            found += chunk
    if max(size, len(found)) > TEXT_BYTES_MAX:
        raise ValueError(f"it has more than {TEXT_BYTES_MAX >> 20} MiB, the most that a batch file can have: split it")
    return found.decode("utf-8-sig")  # Excel begins with a byte order mark


def wrong_with(value: Any) -> str:
    """Why no command can have a value from a file, or a table of values; empty if one can."""
    level, depth = [value], 0
    while level:
        if depth > DEPTH_MAX:
            return TOO_DEEP
        if any(type(one) is int and one.bit_length() > 3.3 * DIGITS_MAX for one in level):
            return TOO_LONG
        inner = [one.values() if isinstance(one, Mapping) else one for one in level if isinstance(one, (Mapping, list))]
        level, depth = [one for values in inner for one in values], depth + 1
    return ""
