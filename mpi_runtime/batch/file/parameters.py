"""The values of an array: one row of parameters, by name, for each of its commands."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from pathlib import Path
from typing import Any

from mpi_runtime.batch.file.entries import COMMANDS_MAX, TOO_DEEP, TOO_LONG, text_of, wrong_with

Row = dict[str, Any]


def product(**values: Iterable[object]) -> list[Row]:
    """Every combination of the values; the last name varies fastest.

    Args:
        **values: the values of each name.

    Returns:
        The rows. `product(a=[1, 2], b=["x", "y"])` has four.

    Raises:
        TypeError: the values of a name are not a list or another iterable.
        ValueError: there are more rows than a batch can have commands.
    """
    lists = _lists(values, math.prod)
    return [dict(zip(values, row, strict=True)) for row in itertools.product(*lists)]


def zipped(**values: Iterable[object]) -> list[Row]:
    """The first values of all names, the second ones, and so on.

    Args:
        **values: the values of each name.

    Raises:
        TypeError: the values of a name are not a list or another iterable.
        ValueError: one name has more values than another, or more than a batch can have commands.
    """
    lists = _lists(values, max)
    if len({len(one) for one in lists}) > 1:
        counts = ", ".join(f"{name} has {len(one)}" for name, one in zip(values, lists, strict=True))
        raise ValueError(f"values that go together must be as many: {counts}")
    return [dict(zip(values, row, strict=True)) for row in zip(*lists, strict=True)]


def rows(path: str | Path) -> list[Row]:
    """The rows of a file: CSV with names in its first line, or JSON lines, each an object.

    Args:
        path: of the file. One that ends in `.jsonl`, `.ndjson` or `.json` has JSON lines, any other CSV.

    Returns:
        The rows. Values of CSV are texts.

    Raises:
        OSError: it cannot be read.
        ValueError: a line is wrong, there are too many, or it is neither a file nor a pipe. The message says which.
    """
    try:
        text = text_of(os.fspath(path))
    except UnicodeDecodeError as error:
        wrong = error.object[error.start]
        raise ValueError(f"{path} is not text in UTF-8: it has the byte {wrong:#x}. Save it as UTF-8") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    _check_number(text.count("\n"))
    file = io.StringIO(text, newline="")
    if Path(path).suffix in (".jsonl", ".ndjson", ".json"):
        return [_json_row(path, number, line) for number, line in enumerate(file, 1) if line.strip()]
    return [*_csv_rows(path, csv.DictReader(file, strict=True))]


def repeated(count: int) -> list[Row]:
    """Rows without parameters, this many.

    Raises:
        ValueError: there are more than a batch can have commands.
    """
    _check_number(count)
    return [{} for _ in range(count)]


def combined(parts: Iterable[list[Row]]) -> list[Row]:
    """Each row of one part with each row of the others.

    Raises:
        ValueError: two parts have the same name, or there are more rows than a batch can have commands.
    """
    found: list[Row] = [{}]
    for part in parts:
        if twice := {name for row in part for name in row} & found[0].keys():
            raise ValueError(f"parameter {min(twice)!r} is given twice")
        _check_number(len(found) * len(part))
        found = [{**before, **row} for before in found for row in part]
        if not found:
            return []
    return found


def _lists(values: Mapping[str, Iterable[object]], rows: Callable[[list[int]], int]) -> list[list[object]]:
    """The values as lists, of whose lengths `rows` makes the number of rows. That is checked first."""
    for name, one in values.items():
        if isinstance(one, (str, bytes)) or not isinstance(one, Iterable):
            raise TypeError(f"parameter {name!r} must be a list of values, not {one!r}; for one value write [{one!r}]")
    _check_number(rows([1, *map(_length, values.values())]))
    found = [list(itertools.islice(one, COMMANDS_MAX + 1)) for one in values.values()]
    _check_number(rows([1, *map(len, found)]))
    return found


def _length(values: Iterable[object]) -> int:
    """The number of values; 1 if it is known only when all of them have been made."""
    if isinstance(values, range):  # it may be too long for `len`
        return 1 + (values[-1] - values[0]) // values.step if values else 0
    return len(values) if isinstance(values, Sized) else 1


def _check_number(count: int) -> None:
    if count > COMMANDS_MAX:
        raise ValueError(f"there are {count} rows, and a batch can have {COMMANDS_MAX} commands: split it")


def _json_row(path: str | Path, number: int, line: str) -> Row:
    try:
        row = json.loads(line.rstrip())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {number}, column {error.colno}: {error.msg}") from error
    except RecursionError:
        raise ValueError(f"{path}, line {number}: {TOO_DEEP}") from None
    except ValueError:
        raise ValueError(f"{path}, line {number}: {TOO_LONG}") from None
    if wrong := wrong_with(row):
        raise ValueError(f"{path}, line {number}: {wrong}")
    if not isinstance(row, dict):
        raise ValueError(f'{path}, line {number}: must be an object, {{"name": value}}, not {row!r}')
    return row


def _csv_rows(path: str | Path, reader: csv.DictReader[str]) -> Iterator[Row]:
    try:
        for row in reader:
            if None in row or None in row.values():
                count = len(reader.fieldnames or ())
                raise ValueError(
                    f"{path}, line {reader.line_num}: the first line names {count} columns, this one has others"
                )
            yield row
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}") from error
