"""The form of a batch file with one shell command a line, as GNU parallel reads it.

    python train.py --seed 1
    python train.py --seed 2   #batch num_cpus=2 time_limit=10m name=second
    cat *.csv > all            #batch after=second

Empty lines and lines that begin with `#` are left out. What follows `#batch` are options of this command. Options on a
line without a command, before the first command, are for all commands.
"""

from __future__ import annotations

import re
import shlex

from mpi_runtime.batch.file.entries import NO_DEFAULTS, Entry, Parsed, Place, Problem

MARK = "#batch"
_MARK_OR_QUOTED = re.compile(
    rf"""(?<!\S){MARK}(?!\S)"""  # a comment for the shell, and a word of its own
    r"""|\\.|'[^']*(?:'|$)|"(?:[^"\\]|\\.)*(?:"|\\?$)"""
)
_COMMENT = re.compile(rf"#(?!{MARK[1:]}(?!\S))")
_LIKE_MARK = re.compile(r"(?<!\S)#(?!(?-i:batch)\s)\s*batch\s+\w+=", re.IGNORECASE)
_OPTION = re.compile(r"""(?P<name>\w+)=(?P<value>(?:[^\s"']|"[^"]*"|'[^']*')*)(?=\s|$)""")


def read_lines(text: str) -> Parsed:
    """Read the text of a file."""
    entries: list[Entry] = []
    defaults = NO_DEFAULTS
    problems: list[Problem] = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        if found := _LIKE_MARK.search(line):
            message = f"{found[0].rstrip('=')} is a comment: write {MARK}, with a blank before and after it"
            problems.append(Problem(number, found.start() + 1, message, is_note=True))
        words = line.lstrip()
        if not words or _COMMENT.match(words):
            continue
        entry, wrong = _read_line(line, number)
        problems += wrong
        if entry.content["command"]:
            entries.append(entry)
        elif entries or defaults.content:
            message = "options without a command are for all commands: write them once, before the first one"
            problems.append(entry.problem("", message))
        else:
            del entry.content["command"]
            defaults = entry
    return entries, defaults, problems


def _read_line(line: str, number: int) -> tuple[Entry, list[Problem]]:
    begin = len(line) - len(line.lstrip())
    at = _find_mark(line)
    content: dict[str, object] = {"command": line[:at].strip()}
    places: dict[str, Place] = {"command": (number, begin + 1)}
    problems = []
    at += len(MARK)
    while at < len(line):
        if line[at].isspace():
            at += 1
            continue
        found = _OPTION.match(line, at)
        if found is None:
            problems.append(Problem(number, at + 1, f"options are name=value with blanks between, not {line[at:]!r}"))
            break
        if found["name"] in content:
            problems.append(Problem(number, at + 1, f"{found['name']} is given twice"))
        try:
            content[found["name"]] = "".join(shlex.split(found["value"]))
        except ValueError as error:
            problems.append(
                Problem(number, at + 1, f"{found[0]} is not a word for a shell ({error}): write \\\\ for \\")
            )
        places[found["name"]] = (number, at + 1)
        at = found.end()
    return Entry(content, (number, begin + 1), f"line-{number}", places), problems


def _find_mark(line: str) -> int:
    """The index of the options, outside of quotes; the length of the line if there are none."""
    if MARK not in line:
        return len(line)
    return next((found.start() for found in _MARK_OR_QUOTED.finditer(line) if found[0] == MARK), len(line))
