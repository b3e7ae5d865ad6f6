"""The form of a batch in TOML: `[defaults]`, and a `[[task]]` for each command or array.

TOML libraries do not report where a key is. So this module finds the lines of headers and keys in the text.
"""

from __future__ import annotations

import re
import sys
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from mpi_runtime.batch.file.entries import NO_DEFAULTS, TOO_DEEP, TOO_LONG, Entry, Parsed, Place, Problem, wrong_with

_HEADER = re.compile(r"\s*\[\[?([\w.\s\"'-]+)\]\]?\s*(#.*)?$")
_KEY = re.compile(r"\s*([\w-]+)\s*(?:\.[^=]*)?=")
_TEXT = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"  # of several lines
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"  # of one
    r"|#[^\n]*",
    re.DOTALL,
)
_AT = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_TOP = ("defaults", "task")


def read_toml(text: str) -> Parsed:
    """Read the text of a file."""
    try:
        content: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        found = _AT.search(message)
        end = (text.count("\n") + 1, len(text) - text.rfind("\n"))
        place = (int(found[1]), int(found[2])) if found and found[1] else end
        return [], NO_DEFAULTS, [Problem(*place, f"this is not TOML: {_AT.sub('', message)}")]
    except RecursionError:
        return [], NO_DEFAULTS, [Problem(1, 1, TOO_DEEP)]
    except ValueError:
        return [], NO_DEFAULTS, [Problem(1, 1, TOO_LONG)]
    if wrong := wrong_with(content):
        return [], NO_DEFAULTS, [Problem(1, 1, wrong)]
    top, defaults_places, task_places = _find_places(text)
    problems = [
        Problem(*top.get(name, (1, 1)), f"there is no {name!r} here; there are [defaults] and [[task]]")
        for name in content
        if name not in _TOP
    ]
    tasks, defaults = content.get("task", []), content.get("defaults", {})
    if not isinstance(tasks, list) or not all(isinstance(one, dict) for one in tasks):
        return [], NO_DEFAULTS, [*problems, Problem(*top.get("task", (1, 1)), "tasks are written as [[task]]")]
    if not isinstance(defaults, dict):
        return [], NO_DEFAULTS, [*problems, Problem(*top.get("defaults", (1, 1)), "defaults are written as [defaults]")]
    if len(task_places) != len(tasks):  # written in another way: task = [{...}]
        task_places = [{"": top.get("task", (1, 1))}] * len(tasks)
    entries = [
        Entry(task, places[""], f"task-{number}", places)
        for number, (task, places) in enumerate(zip(tasks, task_places, strict=True), 1)
    ]
    return entries, Entry(defaults, top.get("defaults", (1, 1)), "", defaults_places), problems


def _find_places(text: str) -> tuple[dict[str, Place], dict[str, Place], list[dict[str, Place]]]:
    """The places of the names at the top, of the keys of the defaults, and of those of each task; "" is its header."""
    top: dict[str, Place] = {}
    defaults: dict[str, Place] = {}
    tasks: list[dict[str, Place]] = []
    here = top
    for number, line in enumerate(_TEXT.sub(_first_line, text).split("\n"), 1):
        place = (number, len(line) - len(line.lstrip()) + 1)
        if header := _HEADER.match(line):
            first, *rest = (part.strip(" \t\"'") for part in header[1].split("."))
            top.setdefault(first, place)
            if first == "task" and not rest:
                tasks.append({"": place})
            section = defaults if first == "defaults" else tasks[-1] if first == "task" and tasks else {}
            if rest:
                section.setdefault(rest[0], place)
            here = section if not rest else {}
        elif key := _KEY.match(line):
            here.setdefault(key[1], place)
    return top, defaults, tasks


def _first_line(found: re.Match[str]) -> str:
    """A text or a comment without its further lines, which may look like headers and keys."""
    first, newline, rest = found[0].partition("\n")
    return first + newline + "\n" * rest.count("\n")
