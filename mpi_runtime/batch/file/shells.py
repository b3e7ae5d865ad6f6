"""Finds commands that are written for bash and would run in another shell, where they fail or mean something else."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable

from mpi_runtime.batch.file.entries import Place, Problem
from mpi_runtime.batch.file.model import SHELL, Command

_QUOTED = re.compile(r"""\\.|'[^']*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_START = r"(?:^|[;&|({\n]|\b(?:if|then|else|elif|do|while|until)\b|!)\s*"
"""What may precede the name of a command."""
_OF_BASH = re.compile(
    rf"{_START}(source(?=\s)|\[\[(?=\s)|module (?:load|use|purge|add|swap)\b|ml(?=\s)|shopt(?=\s)|declare(?=\s))"
    r"|([<>]\(|<<<|&>|\bpipefail\b|\{\d+\.\.\d+\})"
    r"|(?<![\w$])(\w+=\()"
)
"""Words and signs that bash has beyond POSIX (IEEE 1003.1-2017, "Shell Command Language"). `module` and `ml` are
functions, which only bash inherits."""
_SIGNS = ("source", "[[", "module", "ml", "shopt", "declare", "(", "<<<", "&>", "pipefail", "..")
"""A text without any of these has none of those: most of a long list are known in a tenth of the time."""


def notes_on_shells(found: Iterable[tuple[Place, Command]]) -> list[Problem]:
    """One note for all commands that look like bash and run in a shell without its extensions.

    `found` are the first command of each entry, and the entry's place.
    """
    like_bash = [(place, command, word) for place, command in found if (word := _word_of_bash(command))]
    if not like_bash:
        return []
    place, command, word = like_bash[0]
    more = f" (and {len(like_bash) - 1} more such)" if len(like_bash) > 1 else ""
    return [Problem(*place, f'{word!r} is of bash, and {command.shell} runs this{more}: set shell to "bash"', True)]


def _word_of_bash(command: Command) -> str:
    """The first word or sign of a command that its shell may not know; empty if its shell knows all."""
    if os.path.basename(command.shell) not in ("sh", "dash") or (command.shell == SHELL and _is_bash(SHELL)):
        return ""
    if not any(sign in command.text for sign in _SIGNS):
        return ""
    match = _OF_BASH.search(_QUOTED.sub("''", command.text))
    return next(word for word in match.groups() if word) if match else ""


@functools.cache
def _is_bash(path: str) -> bool:
    return os.path.basename(os.path.realpath(path)).startswith("bash")
