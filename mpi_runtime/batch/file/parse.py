"""The parser of batches: three forms become entries, entries become groups; all problems at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from mpi_runtime.batch.file.entries import Entry, Place, Problem
from mpi_runtime.batch.file.json import read_json_lines
from mpi_runtime.batch.file.lines import read_lines
from mpi_runtime.batch.file.model import OPTIONS, Command, names_after, read_command, unknown
from mpi_runtime.batch.file.parameters import Row, combined, product, rows, zipped
from mpi_runtime.batch.file.toml import read_toml

LINES, TOML, JSON = "lines", "toml", "json"
FORMS = (LINES, TOML, JSON)
_ARRAY = ("product", "zip", "rows")
_KEYS = ("command", *OPTIONS, *_ARRAY)
_ONE_EACH = ("name",)
"""Options that are no defaults."""


class Group(msgspec.Struct, frozen=True):
    """One entry of a file: a command, or the commands of an array."""

    name: str
    commands: tuple[Command, ...]
    after: tuple[str, ...]
    place: Place
    after_place: Place
    is_array: bool = False
    is_wrong: bool = False
    """Whether something is wrong with it, so that its commands are not known."""


def form_of(path: str) -> str:
    """The form of a file by the end of its name; standard input (`-`) has JSON lines."""
    if path == "-" or Path(path).suffix in (".json", ".jsonl", ".ndjson"):
        return JSON
    return TOML if Path(path).suffix == ".toml" else LINES


def read_batch(
    text: str, form: str, defaults: Mapping[str, Any], folder: str = "."
) -> tuple[list[Group], list[Problem]]:
    """Read a whole batch.

    Args:
        text: of the file.
        form: one of `FORMS`.
        defaults: options for all commands; those of the file go before them.
        folder: where files of rows are looked for.

    Returns:
        The groups in the order of the file, and what is wrong with them or between them, in the order of places.
    """
    if form == TOML:
        entries, own, problems = read_toml(text)
        right: dict[str, Any] = {}
        for key, value in own.content.items():
            messages = _wrong_default(key, value)
            problems += [own.problem(key, message) for message in messages]
            right |= {} if messages else {key: value}  # or each task would have the same problem
        defaults = {**defaults, **right}
    else:
        entries, problems = (read_lines if form == LINES else read_json_lines)(text)
    groups: list[Group] = []
    for entry in entries:
        group, wrong = read_entry(entry, defaults, folder)
        problems += wrong
        groups.append(group)
    if not entries and not problems:
        problems.append(Problem(1, 1, "there is no command here"))
    return groups, sorted(problems)


def read_entry(entry: Entry, defaults: Mapping[str, Any], folder: str = ".") -> tuple[Group, list[Problem]]:
    """Make the commands of one entry; none, and all that is wrong with it."""
    problems = [entry.problem(key, unknown("key", key, _KEYS)) for key in entry.content if key not in _KEYS]
    found, wrong_rows = _rows_of(entry, folder)
    problems += wrong_rows
    text = entry.content.get("command", "true") if not wrong_rows else "true"  # its placeholders cannot be judged
    if "command" not in entry.content:
        problems.append(entry.problem("", "there is no command: write command = ..."))
    options = {name: value for name, value in {**defaults, **entry.content}.items() if name in OPTIONS}
    name = options.setdefault("name", entry.default_name)
    is_array = any(key in entry.content for key in _ARRAY)
    commands = []
    for number, row in enumerate(found):
        own = {**options, "name": f"{name}.{number}"} if is_array and isinstance(name, str) else options
        command, wrong = read_command(text, own, row)
        problems += [entry.problem(key, message) for key, message in wrong]
        if command is None:
            break  # the others have the same options
        commands.append(command)
    after_place = entry.places.get("after", entry.place)
    if problems:
        # What comes after it, and before it, is looked at all the same.
        after = commands[0].after if commands else names_after(options)
        return Group(str(name), (), after, entry.place, after_place, is_array, is_wrong=True), problems
    after = commands[0].after if commands else ()
    return Group(name, tuple(commands), after, entry.place, after_place, is_array), []


def _wrong_default(key: str, value: Any) -> list[str]:
    """What is wrong with an option for all commands."""
    if key not in OPTIONS:
        return [unknown("option", key, [*OPTIONS])]
    if key in _ONE_EACH:
        return [f"{key} is for one task, not for all of them"]
    return [message for _, message in read_command("true", {key: value}, {})[1]]


def _rows_of(entry: Entry, folder: str) -> tuple[list[Row], list[Problem]]:
    """The rows of an array, and what is wrong with them; one without parameters for a single command."""
    found: list[Row] = [{}]
    problems: list[Problem] = []
    for key in (key for key in _ARRAY if key in entry.content):
        found, wrong = _with_part(found, key, entry.content[key], folder)
        problems += [entry.problem(key, f"{key}: {wrong}")] if wrong else []
    return ([{}], problems) if problems else (found, [])


def _with_part(before: list[Row], key: str, value: Any, folder: str) -> tuple[list[Row], str]:
    """The rows so far with those of one more key; or what is wrong with it."""
    try:
        return combined([before, _part(key, value, folder)]), ""
    except (OSError, TypeError, ValueError) as error:
        return before, str(error)


def _part(key: str, value: Any, folder: str) -> list[Row]:
    if key == "rows":
        if not isinstance(value, str):
            raise TypeError(f"must be the path of a CSV file or of JSON lines, not {value!r}")
        return rows(Path(folder, value))
    if not isinstance(value, dict) or not value:
        raise TypeError(f"must be a table of names and lists, not {value!r}")
    lists: dict[str, Iterable[Any]] = {name: _values(one) for name, one in value.items()}
    return product(**lists) if key == "product" else zipped(**lists)


def _values(value: Any) -> Any:
    """The values of one parameter: a list, or `{range = [begin, end, step]}` as Python counts."""
    if isinstance(value, dict):
        numbers = value["range"] if value.keys() == {"range"} else None
        if (
            not isinstance(numbers, list)
            or not 1 <= len(numbers) <= 3
            or any(type(one) is not int for one in numbers)
            or numbers[2:] == [0]
        ):
            raise TypeError(
                f"a parameter must be a list, or {{range = [begin, end]}} with whole numbers, not {value!r}"
            )
        return range(*numbers)
    return value
