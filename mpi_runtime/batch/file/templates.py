"""Placeholders in commands: `{seed}` is a parameter, `{workdir}` gets its value at the start.

`{{seed}}` stands for the text `{seed}`. Braces of the shell stay as they are: `${HOME}`, `{a,b}`, `{ ls; }`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping

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


def plain(value: str) -> str:
    """The value itself: for names, paths and variables, which no shell reads."""
    return value
