"""Files that a program writes and reads by itself: states of searchers, and schedules. No decision reads one."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle


def write(path: str, state: object) -> None:
    """Write a state."""
    Path(path).write_bytes(cloudpickle.dumps(state))


def read(path: str) -> Any:
    """Read a state. That may run code, as with `pickle`."""
    return pickle.loads(Path(path).read_bytes())


def save_as(directory: str, name: str, save: Callable[[str], None]) -> None:
    """Have a searcher save itself in a directory: the file is there as a whole, or not at all."""
    new = Path(directory, f".new-{name}")
    save(str(new))
    if new.exists():
        new.replace(new.with_name(name))


def newest(directory: str, pattern: str) -> str:
    """The last of these files by name. RuntimeError: there is none."""
    found = sorted(Path(directory).glob(pattern))
    if not found:
        raise RuntimeError(f"{directory} has no state of a searcher: there is no {pattern} in it")
    return str(found[-1])


def is_path(value: object) -> bool:
    """Whether this is the path of a file."""
    return isinstance(value, str | os.PathLike)


def lines_of(path: str | os.PathLike[str]) -> list[list[Any]]:
    """The lines of a file, each of them JSON. ValueError: there is no such file, or it has something else."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise ValueError(f"there is no file {file}")
    try:
        return [json.loads(line) for line in file.read_text().splitlines()]
    except ValueError as error:
        raise ValueError(f"{file} has a line that is no JSON: {error}") from error
