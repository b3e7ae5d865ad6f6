"""Entries of a batch file and problems in it, each with its line and column."""

from __future__ import annotations

from collections.abc import Iterable
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
