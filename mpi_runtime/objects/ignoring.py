"""What `.gitignore` files say: patterns, and which of them decides about a path.

The meaning is git's (`git help gitignore`): the last pattern that fits decides, `!` takes a path back in, a pattern
with a slash before its end counts from the directory of its file, one with a slash at its end is for directories alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple


class _Rule(NamedTuple):
    fits: re.Pattern[str]
    is_ignored: bool
    for_directories: bool


class Patterns:
    """The patterns of one file, for paths relative to its directory."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules = [rule for line in lines if (rule := _rule(line)) is not None]

    def decide(self, path: str, is_directory: bool) -> bool | None:
        """Whether a path is to be left out; None if no pattern fits.

        Args:
            path: relative, with slashes and none at its end.
            is_directory: what it is.
        """
        for rule in reversed(self._rules):
            if (is_directory or not rule.for_directories) and rule.fits.fullmatch(path):
                return rule.is_ignored
        return None


def _rule(line: str) -> _Rule | None:
    pattern = re.sub(r"(?<!\\) +$", "", line.rstrip("\r\n"))
    if not pattern or pattern.startswith("#"):
        return None
    is_ignored = not pattern.startswith("!")
    pattern = pattern[not is_ignored :]
    for_directories = pattern.endswith("/")
    pattern = pattern.rstrip("/")
    start = "" if "/" in pattern else "(?:.*/)?"
    try:
        return _Rule(re.compile(start + _expression(pattern.lstrip("/")), re.DOTALL), is_ignored, for_directories)
    except re.error:
        return None  # such as a range from z to a: git lets it fit nothing


_PARTS = re.compile(r"(?:^|(?<=/))\*\*/|/\*\*$|\*+|\?|\[[!^]?\]?[^\]]*\]|\\.|.", re.DOTALL)


def _expression(pattern: str) -> str:
    """The regular expression that a pattern stands for."""
    return "".join(_translated(part) for part in _PARTS.findall(pattern))


def _translated(part: str) -> str:
    if part == "**/":
        return "(?:.*/)?"
    if part == "/**":
        return "/.+"
    if part[0] == "*":
        return "[^/]*"
    if part == "?":
        return "[^/]"
    if part[0] == "[" and len(part) > 1:
        inside = part[1:-1].replace("[", r"\[")
        return f"(?!/)[^{inside[1:]}]" if inside[0] in "!^" else f"(?!/)[{inside}]"
    return re.escape(part[1:] if part[0] == "\\" and len(part) > 1 else part)
