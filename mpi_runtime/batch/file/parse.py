"""The parser of batches: three forms become entries, entries become groups; all problems at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from mpi_runtime.batch.file.entries import (
    COMMANDS_MAX,
    KEYS_MAX,
    Entry,
    Place,
    Problem,
    read_json_lines,
    read_lines,
    read_toml,
    text_of,
    unknown,
)
from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.file.options import OPTIONS, count, file_names, read_command
from mpi_runtime.batch.file.parameters import Row, combined, product, repeated, rows, zipped
from mpi_runtime.batch.file.text import BUILT_IN, fill, in_text, names_in, plain, word_of_bash
from mpi_runtime.errors import LaunchError

LINES, TOML, JSON = "lines", "toml", "json"
FORMS = (LINES, TOML, JSON)
_QUOTED = re.compile(r"""(["'])\{(\w+)\}\1""")
_ARRAY = ("product", "zip", "rows", "repeat")
_INDEX = "index"
"""The placeholder of the number of a command in its array."""
_KEYS = ("command", *OPTIONS, *_ARRAY)


NOWHERE: Place = (1, 1)
"""Where nothing is looked for."""


class TooManyError(Exception):
    """A batch has more commands than there can be."""


class Group(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of a batch: a command, or the commands of an array."""

    name: str
    commands: tuple[Command, ...]
    after: tuple[str, ...] = ()
    place: Place = NOWHERE
    after_place: Place = NOWHERE
    """In the file from which it was read."""
    is_array: bool = False
    is_wrong: bool = False
    """Whether it has a problem, so that its commands are not known."""
    is_element_wise: bool = False
    """Whether its commands come after different ones: then `after` has all of these names."""


def form_of(path: str) -> str:
    """The form of a file by the end of its name; standard input (`-`) has JSON lines."""
    if path == "-" or Path(path).suffix in (".json", ".jsonl", ".ndjson"):
        return JSON
    return TOML if Path(path).suffix == ".toml" else LINES


def read_text(path: str, form: str) -> str:
    """The text of a batch file. A list of commands may have bytes that are not UTF-8.

    Raises:
        LaunchError: it cannot be read.
    """
    try:
        return text_of(path, form == LINES).replace("\r\n", "\n").replace("\r", "\n")
    except OSError as error:
        raise LaunchError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise LaunchError(
            f"{path} is not text in UTF-8: line {line} has a wrong byte, byte {error.start} of the file"
        ) from error
    except ValueError as error:
        raise LaunchError(f"{path} is not a batch file: {error}") from error


def read_batch(
    text: str, form: str, defaults: Mapping[str, object], folder: str = ".", prefix: str = ""
) -> tuple[list[Group], list[Problem]]:
    """Read a whole batch: its groups in the order of the file, and all problems in the order of places.

    Options of the file override the `defaults`. `folder` has its files of rows. Names of commands that have none of
    their own begin with `prefix`.
    """
    if (lines := text.count("\n")) > COMMANDS_MAX:
        return [], [Problem(1, 1, f"there are {lines} lines, and a batch can have {COMMANDS_MAX}: split it")]
    entries, own, problems = {LINES: read_lines, TOML: read_toml, JSON: read_json_lines}[form](text)
    right: dict[str, object] = {}
    for key, value in own.content.items():
        messages = _wrong_default(key, value)
        problems += [own.problem(key, message) for message in messages]
        right |= {} if messages else {key: value}  # else each task would have the same problem
    defaults = {**defaults, **right}
    groups: list[Group] = []
    room = COMMANDS_MAX
    for entry in entries:
        named = msgspec.structs.replace(entry, default_name=prefix + entry.default_name)
        try:
            group, wrong = read_entry(named, defaults, folder, room)
        except TooManyError as error:  # the next ones would take long, and memory
            problems.append(entry.problem("", str(error)))
            break
        problems += wrong
        groups.append(group)
        room -= len(group.commands)
    if not entries and not problems:
        problems.append(Problem(1, 1, "there is no command here"))
    known = [group for group in groups if group.commands]
    totals = _notes_on_totals(known) if len(known) == len(groups) else []
    return groups, sorted([*problems, *_notes_on_shells(known), *totals])


def _notes_on_shells(groups: Sequence[Group]) -> list[Problem]:
    """One note for all groups whose commands look like bash and run in a shell without its extensions."""
    firsts = [(group, group.commands[0]) for group in groups]
    like_bash = [(group, one, word) for group, one in firsts if (word := word_of_bash(one.text, one.shell))]
    if not like_bash:
        return []
    group, first, word = like_bash[0]
    more = f" (and {len(like_bash) - 1} more such)" if len(like_bash) > 1 else ""
    return [Problem(*group.place, f'{word!r} is of bash, and {first.shell} runs this{more}: set shell to "bash"', True)]


def _notes_on_totals(groups: Sequence[Group]) -> list[Problem]:
    """A note for each total of `batch_resources` of which no command takes a part: it limits nothing."""
    totals = {name: group.place for group in reversed(groups) for name in group.commands[0].batch_resources}
    used = {name for group in groups for name in group.commands[0].shares} if totals else set()
    message = "batch_resources limits nothing: no command takes {0} of it; give commands resources={0}=1"
    return [Problem(*place, message.format(name), is_note=True) for name, place in totals.items() if name not in used]


def read_entry(
    entry: Entry, defaults: Mapping[str, object], folder: str = ".", room: int = COMMANDS_MAX
) -> tuple[Group, list[Problem]]:
    """Make the commands of one entry; none, and all problems, if there are any.

    Raises:
        TooManyError: the batch has no `room` for as many.
    """
    if len(entry.content) > KEYS_MAX:
        too_many = entry.problem("", f"a command has at most {KEYS_MAX} keys, not {len(entry.content)}")
        return Group(entry.default_name, (), place=entry.place, is_wrong=True), [too_many]
    problems = [entry.problem(key, unknown("key", key, _KEYS)) for key in entry.content if key not in _KEYS]
    found, wrong_rows = _rows_of(entry, folder)
    if len(found) > room:
        raise TooManyError(f"with {len(found)} more the batch has more than {COMMANDS_MAX} commands: split it")
    problems += wrong_rows
    text = entry.content.get("command", "true") if not wrong_rows else "true"  # its placeholders cannot be judged
    if "command" not in entry.content:
        problems.append(entry.problem("", "there is no command: write command = ..."))
    options = {name: value for name, value in {**defaults, **entry.content}.items() if name in OPTIONS}
    name = options.setdefault("name", entry.default_name)
    is_array = any(key in entry.content for key in _ARRAY)
    used = _names_used([text, *(value for key, value in options.items() if key != "after")]) if is_array else set()
    in_after = _names_used([options.get("after")]) if is_array else set()
    if in_after and found and not wrong_rows and (missing := in_after - found[0].keys() - {_INDEX}):
        names = [*found[0], _INDEX]
        problems += [entry.problem("after", unknown("placeholder", name, names)) for name in sorted(missing)]
        found = []
    commands = []
    for number, row in enumerate(found):
        values: Row = {_INDEX: number, **row}
        own = {**options, "name": f"{name}.{number}"} if is_array and isinstance(name, str) else options
        if in_after:
            own["after"] = _filled(options["after"], {key: in_text(value) for key, value in values.items()})
            values = {key: value for key, value in values.items() if key not in in_after or key in used}
        if _INDEX not in used and _INDEX not in row:
            values.pop(_INDEX, None)
        command, wrong = read_command(text, own, values if is_array else row)
        problems += [entry.problem(key, message) for key, message in wrong]
        if command is None:
            break  # the others have the same options
        commands.append(command)
    quoted = [one[2] for one in _QUOTED.finditer(text)] if isinstance(text, str) and "{" in text else []
    notes = [
        entry.problem("command", f"the value of {{{name}}} is quoted for the shell already: leave out the quotes", True)
        for name in dict.fromkeys(quoted)
        if name in (*BUILT_IN, *(name for row in found[:1] for name in row))
    ]
    after = commands[0].after if commands else _names_after(options) if problems else ()
    if in_after:
        after = tuple(dict.fromkeys(name for command in commands for name in command.after))
    after_place = entry.places.get("after", entry.place) if after else NOWHERE
    if problems:  # the graph is checked all the same
        return Group(str(name), (), after, entry.place, after_place, is_array, is_wrong=True), problems + notes
    made = Group(str(name), tuple(commands), after, entry.place, after_place, is_array, is_element_wise=bool(in_after))
    return made, notes


def _names_used(values: Iterable[object]) -> set[str]:
    """The placeholders of these texts, and of those in lists and tables among them."""
    found: set[str] = set()
    for value in values:
        if isinstance(value, str):
            found |= names_in(value)
        elif isinstance(value, (list, tuple)):
            found |= _names_used(value)
        elif isinstance(value, Mapping):
            found |= _names_used(value.values())
    return found


def _filled(after: object, values: Mapping[str, str]) -> object:
    """The names in `after` of one command of an array."""
    if isinstance(after, (list, tuple)):
        return [_filled(one, values) for one in after]
    return fill(after, values, plain) if isinstance(after, str) else after


def _names_after(options: Mapping[str, object]) -> tuple[str, ...]:
    """The names in `after`, for an entry with problems."""
    try:
        return file_names(options.get("after", ()))
    except ValueError:
        return ()


def _wrong_default(key: str, value: object) -> list[str]:
    if key not in OPTIONS:
        return [unknown("option", key, [*OPTIONS])]
    if key == "name":
        return ["name is for one task, not for all of them"]
    return [message for _, message in read_command("true", {key: value}, {})[1]]


def _rows_of(entry: Entry, folder: str) -> tuple[list[Row], list[Problem]]:
    """The rows of an array, and their problems; one row without parameters for a single command."""
    found: list[Row] = [{}]
    problems: list[Problem] = []
    for key in (key for key in _ARRAY if key in entry.content):
        try:
            found = combined([found, _part(key, entry.content[key], folder)])
        except (OSError, TypeError, ValueError) as error:  # noqa: PERF203  (all problems at once)
            problems.append(entry.problem(key, f"{key}: {error}"))
    return ([{}], problems) if problems else (found, [])


def _part(key: str, value: object, folder: str) -> list[Row]:
    if key == "repeat":
        return repeated(count(value))
    if key == "rows":
        if not isinstance(value, str):
            raise TypeError(f"must be the path of a CSV file or of JSON lines, not {value!r}")
        return rows(Path(folder, value))
    if not isinstance(value, dict) or not value:
        raise TypeError(f"must be a table of names and lists, not {value!r}")
    lists = {name: _values(one) for name, one in value.items()}
    return product(**lists) if key == "product" else zipped(**lists)


def _values(value: object) -> Any:
    """The values of one parameter: a list, or `{range = [begin, end, step]}` as Python counts."""
    if not isinstance(value, dict):
        return value
    numbers = value["range"] if value.keys() == {"range"} else None
    is_list = isinstance(numbers, list) and 1 <= len(numbers) <= 3 and all(type(one) is int for one in numbers)
    if not isinstance(numbers, list) or not is_list or numbers[2:] == [0]:
        raise TypeError(f"a parameter must be a list, or {{range = [begin, end]}} with whole numbers, not {value!r}")
    return range(*numbers)
