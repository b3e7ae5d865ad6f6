"""The keys of commands: by these a run knows what earlier runs have done.

A key is the hash of the words of a command, its surroundings, its standard input and the keys of the names in its
`after`. Blanks between words do not count. Until 0.1.0 they did: the keys of that time stay valid.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.file.text import SHELL, fill, plain
from mpi_runtime.scheduler.protocol.ids import digest

if TYPE_CHECKING:
    from mpi_runtime.batch.history.batch_history import Ended

_ID_BYTES = 16
_QUOTED_OR_BLANKS = re.compile(r"""(\\.|'[^']*'|"(?:[^"\\]|\\.)*")|[ \t]+""", re.DOTALL)
_BLANKS = " \t\n"


def by_words(text: str) -> str:
    """A command with one blank between its words; unchanged where blanks may mean something.

    They do in quotes. What is quoted is hard to say in substitutions, in documents of the shell (`<<`), and behind an
    apostrophe in a comment that is not the last line.
    """
    if "  " not in text and "\t" not in text and "\n" not in text and text.strip(_BLANKS) == text:
        return text
    stripped = text.lstrip(_BLANKS)
    stripped = stripped.rstrip(_BLANKS) if not stripped.rstrip(_BLANKS).endswith("\\") else stripped
    is_nested = '"' in stripped and ("$(" in stripped or "`" in stripped or "${" in stripped)
    if is_nested or "<<" in stripped or "$'" in stripped or ("\n" in stripped and "#" in stripped):
        return text
    return _QUOTED_OR_BLANKS.sub(lambda found: found[1] or " ", stripped)


class Known(msgspec.Struct, frozen=True):
    """What earlier runs have left of a command that waits for nothing more."""

    key: bytes
    after: float
    """The highest number of the ends before it."""
    ended: Ended | None = None
    """Its last end, if it is still valid."""
    is_kept: bool = False
    """Whether that is valid only because the user keeps what is done."""


class Keys:
    """The key of each command and array that has ended in this run or before, with the number of its end."""

    def __init__(self, ends: Mapping[str, Ended]) -> None:
        """Begin; `ends`: the last end of each command, which may change meanwhile."""
        self.keeps_done = False
        """Whether a command that is done stays done, though it has changed since."""
        self._ends = ends
        self._settled: dict[str, tuple[bytes, float]] = {}

    def find(self, command: Command) -> Known:
        """What is known of a command. The names in its `after` have ended."""
        settled = [self._settled.get(name, (b"", 0)) for name in command.after]
        before, after = [key for key, _ in settled], max((number for _, number in settled), default=0)
        key, ended = key_of(command, before), self._ends.get(command.name)
        if ended is None:
            return Known(key, after)
        if ended.key != key and ended.key == key_of(command, before, is_exact=True):
            key = ended.key
        is_valid = ended.key == key and ended.number > after
        is_kept = not is_valid and self.keeps_done and ended.result.is_success
        return Known(key, after, ended if is_valid or is_kept else None, is_kept)

    def settle(self, name: str, key: bytes, number: float) -> None:
        """Note the key of a command that has ended, and the number of this end."""
        self._settled[name] = key, number

    def settle_array(self, name: str, members: Iterable[str]) -> None:
        """Note that all commands of an array have ended."""
        known = [self._settled.get(member, (b"", 0)) for member in members]
        self.settle(name, digest(b"".join(key for key, _ in known), _ID_BYTES), max((n for _, n in known), default=0))


def key_of(command: Command, before: Sequence[bytes], is_exact: bool = False) -> bytes:
    """The hash of a command, its surroundings and its inputs; `is_exact`: with its blanks."""
    values = command.values
    text = fill(command.text, values)
    own = (
        text if is_exact else by_words(text),
        fill(command.cwd, values, plain),
        fill(command.stdout, values, plain),
        fill(command.stderr, values, plain),
        sorted((name, fill(value, values, plain)) for name, value in command.env.items()),
        _input_of(command),
        before,
        *([command.shell] if command.shell != SHELL else []),
    )
    return digest(msgspec.msgpack.encode(own), _ID_BYTES)


def _input_of(command: Command) -> tuple[object, ...]:
    if not command.stdin:
        return ()
    path = fill(command.stdin, command.values, plain)
    try:
        found = os.stat(path)
    except OSError:
        return (path,)
    return path, found.st_size, found.st_mtime_ns
