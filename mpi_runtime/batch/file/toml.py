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

from mpi_runtime.batch.file.entries import Entry, Place, Problem

_HEADER = re.compile(r"\s*\[\[?\s*([\w.\s\"'-]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"\s*([\w-]+)\s*(?:\.[^=]*)?=")
_AT = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_TOP = ("defaults", "task")


def read_toml(text: str) -> tuple[list[Entry], Entry, list[Problem]]:
    """Read the text of a file: its commands, their defaults, and its problems."""
    nothing = Entry({}, (1, 1), "")
    try:
        content: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        found = _AT.search(message)
        end = (text.count("\n") + 1, len(text) - text.rfind("\n"))
        place = (int(found[1]), int(found[2])) if found and found[1] else end
        return [], nothing, [Problem(*place, f"this is not TOML: {_AT.sub('', message)}")]
    top, defaults_places, task_places = _find_places(text)
    problems = [
        Problem(*top.get(name, (1, 1)), f"there is no {name!r} here; there are [defaults] and [[task]]")
        for name in content
        if name not in _TOP
    ]
    tasks, defaults = content.get("task", []), content.get("defaults", {})
    if not isinstance(tasks, list) or not all(isinstance(one, dict) for one in tasks):
        return [], nothing, [*problems, Problem(*top.get("task", (1, 1)), "tasks are written as [[task]]")]
    if not isinstance(defaults, dict):
        return [], nothing, [*problems, Problem(*top.get("defaults", (1, 1)), "defaults are written as [defaults]")]
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
    quote = ""
    for number, line in enumerate(text.split("\n"), 1):
        was_inside, quote = quote, _quote_after(line, quote)
        if was_inside:
            continue
        place = (number, len(line) - len(line.lstrip()) + 1)
        if header := _HEADER.match(line):
            first, *rest = (part.strip(" \"'") for part in header[1].split("."))
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


def _quote_after(line: str, quote: str) -> str:
    """The quotes of the text of several lines that is open after a line; `quote`: those before it."""
    at = 0
    while at < len(line):
        three = line[at : at + 3]
        if quote:
            if line[at] == "\\" and quote == '"""':
                at += 2
                continue
            if three == quote:
                quote = ""
                at += 2
        elif three in ('"""', "'''"):
            quote = three
            at += 2
        elif line[at] in "\"'":
            at = _end_of_text(line, at)
        elif line[at] == "#":
            break
        at += 1
    return quote


def _end_of_text(line: str, at: int) -> int:
    """The end of the text of one line that begins here."""
    mark = line[at]
    at += 1
    while at < len(line) and line[at] != mark:
        at += 2 if line[at] == "\\" and mark == '"' else 1
    return at
