"""From the text of a batch file, in one of three forms, to entries and problems, each with its line and column.

One shell command a line, as GNU parallel reads it:

    python train.py --seed 1
    python train.py --seed 2   #batch num_cpus=2 time_limit=10m name=second
    cat *.csv > all            #batch after=second

Empty lines and lines that begin with `#` are left out. What follows `#batch` are options of this command. Options on a
line without a command, before the first command, are for all commands.

One JSON object a line:

    {"command": "train --seed {seed}", "name": "train", "product": {"seed": [1, 2]}}
    {"command": "plot", "after": "train"}

TOML: `[defaults]`, and a `[[task]]` for each command or array. TOML libraries do not report where a key is. So this
module finds the lines of headers and keys in the text.

A short file may stand for any number of commands: hence the limits.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import shlex
import stat
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

import msgspec

from mpi_runtime.batch.file.raw_bytes import text_with

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

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

    content: dict[str, object]
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


NAMES_SHOWN = 50
"""The number of known names that a message about an unknown one lists at most."""


def unknown(what: str, name: str, known: Sequence[str]) -> str:
    """A message for an unknown name, with the nearest known one."""
    near = get_close_matches(name, known, n=1)
    more = " and more" if len(known) > NAMES_SHOWN else ""
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known[:NAMES_SHOWN])}{more}"
    return f"there is no {what} {name!r}; {hint}"


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


def text_of(path: str | Path, may_be_raw: bool = False) -> str:
    """The text of a file or a pipe, in UTF-8, with its ends of lines. A pipe that nobody writes to is awaited.

    `may_be_raw`: other bytes have letters for them; see `raw_bytes.py`.

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
    if may_be_raw:
        return text_with(found.removeprefix(codecs.BOM_UTF8))
    return found.decode("utf-8-sig")  # Excel begins with a byte order mark


def wrong_with(value: object) -> str:
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


def read_json_line(line: str, number: int) -> tuple[Entry | None, list[Problem]]:
    """Read one line. An empty line has neither an entry nor a problem."""
    if not line.strip():
        return None, []
    if len(line) > LINE_MAX:
        return None, [Problem(number, 1, f"a line has at most {LINE_MAX} letters")]
    twice: list[str] = []

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice.extend(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        return found

    try:
        content = json.loads(line, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        return None, [Problem(number, error.colno, f"this is not JSON: {error.msg}")]
    except RecursionError:
        return None, [Problem(number, 1, TOO_DEEP)]
    except ValueError:
        return None, [Problem(number, 1, TOO_LONG)]
    if wrong := wrong_with(content):
        return None, [Problem(number, 1, wrong)]
    if not isinstance(content, dict):
        return None, [Problem(number, 1, f'each line must be an object, {{"command": ...}}, not {content!r}')]
    if len(content) > KEYS_MAX:
        return None, [Problem(number, 1, f"a command has at most {KEYS_MAX} keys, not {len(content)}")]
    places = {name: (number, _column(line, name)) for name in content}
    problems = [Problem(number, _column(line, name), f"{name} is given twice") for name in twice]
    return Entry(content, (number, len(line) - len(line.lstrip()) + 1), f"line-{number}", places), problems


def read_json_lines(text: str) -> Parsed:
    """Read the text of a whole file."""
    found = [read_json_line(line, number) for number, line in enumerate(text.split("\n"), 1)]
    entries = [entry for entry, _ in found if entry is not None]
    return entries, NO_DEFAULTS, [problem for _, problems in found for problem in problems]


def _column(line: str, name: str) -> int:
    """The column of a key; that of the line if the key is written with escapes."""
    found = re.search(rf"{re.escape(json.dumps(name, ensure_ascii=False))}\s*:", line)
    return found.start() + 1 if found else 1


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
        content: dict[str, object] = tomllib.loads(text)
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
