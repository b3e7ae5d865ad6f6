"""The text of a command: its placeholders, words that only bash knows, and the option `launcher`.

`{seed}` is a parameter, `{workdir}` gets its value at the start, and `{{seed}}` stands for the text `{seed}`. Braces of
the shell stay as they are: `${HOME}`, `{a,b}`, `{ ls; }`.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping

SHELL = "/bin/sh"
BUILT_IN = ("workdir", "gpu", "cpus", "attempt", "host", "ranks", "rank", "hosts", "hostfile")
"""Placeholders that every command may have: its scratch directory, its GPUs, its number of CPUs, the number of the
attempt (from 1), the name of the host, the number of its ranks, the rank, the hosts of its ranks (`a:2,b:2`), and
a file with the host of each rank, a line each."""
_PLACEHOLDER = re.compile(r"\{\{([A-Za-z_]\w*)\}\}|(?<!\$)\{([A-Za-z_]\w*)\}")


def names_in(text: str) -> set[str]:
    """The names of the placeholders of a text."""
    return {found[2] for found in _PLACEHOLDER.finditer(text) if found[2]} if "{" in text else set()


def filled_length(text: str, values: Mapping[str, str]) -> int:
    """The number of letters of a text in which values have the place of their placeholders, without quotes."""
    shown = ((found[0], values.get(found[2] or "", found[0])) for found in _PLACEHOLDER.finditer(text))
    return len(text) + sum(len(value) - len(name) for name, value in shown)


def fill(text: str, values: Mapping[str, str], quote: Callable[[str], str] = shlex.quote) -> str:
    """Put values in the place of their placeholders; a placeholder without a value stays as it is.

    `quote` is applied to each value; by default a shell reads the result as one word.
    """
    if "{" not in text:
        return text

    def replaced(found: re.Match[str]) -> str:
        if found[1]:
            return f"{{{found[1]}}}"
        return quote(values[found[2]]) if found[2] in values else found[0]

    return _PLACEHOLDER.sub(replaced, text)


def in_text(value: object) -> str:
    """A value as the text of a command has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def plain(value: str) -> str:
    """The value itself: for names, paths and variables, which no shell reads."""
    return value


SELF = "self"
LAUNCHERS = ("srun", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun")
"""Programs that may be a launcher of ranks: their options for hosts are known."""


def launcher_of(value: object) -> str:
    """Read the option `launcher`.

    Raises:
        ValueError: it is neither a known launcher nor `SELF`.
    """
    if not isinstance(value, str):
        raise ValueError(f"must be a text, not {value!r}")
    text = value.strip()
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"must be words for a shell, not {value!r}: {error}") from None
    if words != [SELF] and (not words or os.path.basename(words[0]) not in LAUNCHERS):
        known = ", ".join(LAUNCHERS)
        raise ValueError(
            f"must begin with one of {known}, with options of yours, or be 'self' if the command itself starts its "
            f"ranks, with {{ranks}} and {{hostfile}}; not {value!r}"
        )
    return text


def wrong_with_launcher(launcher: str, texts: Iterable[str], is_pinned: bool) -> list[tuple[str, str]]:
    """Problems of a command that a launcher starts, and of one that has none: the option and a message, for each.

    `texts` are those that may have placeholders.
    """
    names = {name for text in texts if "{" in text for name in names_in(text)}
    if not launcher:
        why = "{hostfile} is for a command that starts its ranks itself: set launcher to 'self'"
        return [("command", why)] if "hostfile" in names else []
    wrong = []
    if "rank" in names:
        why = "{rank} has no value with a launcher: all ranks have one line. Their environment has their number"
        wrong.append(("command", why))
    if is_pinned:
        wrong.append(("pin", "pin has no meaning with a launcher, which binds its ranks by options of its own"))
    return wrong


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


def word_of_bash(text: str, shell: str) -> str:
    """The first word or sign of a command that its shell may not know; empty if its shell knows all."""
    if os.path.basename(shell) not in ("sh", "dash") or (shell == SHELL and _is_bash(SHELL)):
        return ""
    if not any(sign in text for sign in _SIGNS):
        return ""
    match = _OF_BASH.search(_QUOTED.sub("''", text))
    return next(word for word in match.groups() if word) if match else ""


@functools.cache
def _is_bash(path: str) -> bool:
    return os.path.basename(os.path.realpath(path)).startswith("bash")
