"""The values of an array: one row of parameters, by name, for each of its commands."""

from __future__ import annotations

import csv
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def product(**values: Iterable[Any]) -> list[Row]:
    """Every combination of the values; the last name varies fastest.

    Args:
        **values: the values of each name.

    Returns:
        The rows. `product(a=[1, 2], b=["x", "y"])` has four.

    Raises:
        TypeError: the values of a name are not a list or another iterable.
    """
    return [dict(zip(values, row, strict=True)) for row in itertools.product(*_lists(values))]


def zipped(**values: Iterable[Any]) -> list[Row]:
    """The first values of all names, the second ones, and so on.

    Args:
        **values: the values of each name.

    Raises:
        TypeError: the values of a name are not a list or another iterable.
        ValueError: one name has more values than another.
    """
    lists = _lists(values)
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
        ValueError: a line is wrong. The message names it.
    """
    with open(os.fspath(path), newline="", encoding="utf-8-sig") as file:  # Excel begins with a byte order mark
        try:
            if Path(path).suffix in (".jsonl", ".ndjson", ".json"):
                return [_json_row(path, number, line) for number, line in enumerate(file, 1) if line.strip()]
            return [*_csv_rows(path, csv.DictReader(file, strict=True))]
        except UnicodeDecodeError as error:
            wrong = error.object[error.start]
            raise ValueError(f"{path} is not text in UTF-8: it has the byte {wrong:#x}. Save it as UTF-8") from error


def combined(parts: Iterable[list[Row]]) -> list[Row]:
    """Each row of one part with each row of the others.

    Raises:
        ValueError: two parts have the same name.
    """
    found: list[Row] = [{}]
    for part in parts:
        if twice := {name for row in part for name in row} & found[0].keys():
            raise ValueError(f"parameter {min(twice)!r} is given twice")
        found = [{**before, **row} for before in found for row in part]
        if not found:
            return []
    return found


def _lists(values: Mapping[str, Iterable[Any]]) -> list[list[Any]]:
    for name, one in values.items():
        if isinstance(one, (str, bytes)) or not isinstance(one, Iterable):
            raise TypeError(f"parameter {name!r} must be a list of values, not {one!r}; for one value write [{one!r}]")
    return [list(one) for one in values.values()]


def _json_row(path: str | Path, number: int, line: str) -> Row:
    try:
        row = json.loads(line.rstrip())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {number}, column {error.colno}: {error.msg}") from error
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
