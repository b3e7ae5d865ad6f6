"""Reads the variables and files that batch systems give to the processes of a job."""

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from mpi_runtime.slurm import nodelist
from mpi_runtime.slurm.systems.system import AllocationError

_FILE_BYTES_MAX = 32 << 20
"""The largest file of hosts that is read: a million tasks on hosts with names of 30 letters."""
_DIGITS_MAX = 19
"""Longer numbers do not fit into 64 bits."""
T = TypeVar("T")


def read(env: Mapping[str, str], names: Sequence[str], reader: Callable[[str], T]) -> T:
    """Return what a reader makes of these variables, as one list; it reads an empty text if there are none."""
    text = ",".join(filter(None, (env.get(name) for name in names)))
    try:
        return reader(text)
    except ValueError as error:
        what = f"the variable {names[0]} is" if len(names) == 1 else f"the variables {names[0]} to {names[-1]} are"
        raise AllocationError(
            f"{what} {nodelist.shown(text)}, which makes no sense: {error}. Outside of a job unset the variables "
            "of the batch system"
        ) from None


def names_in(path: str) -> Counter[str]:
    """Read a file with the name of a host in each line: how many lines each has."""
    found: Counter[str] = Counter()
    for words in _lines(path):
        found[words[0]] += 1
        nodelist.check_number(len(found))
    return found


def hosts_in(path: str) -> list[list[str]]:
    """Read a file with a host in each line: its words."""
    found: list[list[str]] = []
    for words in _lines(path):
        if len(words) > 1:
            found.append(words)
            nodelist.check_number(len(found))
    return found


def _lines(path: str) -> Iterator[list[str]]:
    """Yield the first two words, and the rest, of each line of a file; nothing if it cannot be read."""
    try:
        file = open(path, errors="surrogateescape", opener=_open_at_once)  # noqa: SIM115  (closed below)
    except (OSError, ValueError):
        return
    with file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > _FILE_BYTES_MAX:
            raise ValueError(f"it must be a file of at most {_FILE_BYTES_MAX >> 20} MiB")
        yield from filter(None, (line.split(None, 2) for line in file))


def _open_at_once(path: str, flags: int) -> int:
    """Open a file. A pipe that nobody writes to would wait."""
    return os.open(path, flags | os.O_NONBLOCK)


def number(text: str | None) -> int | None:
    """Read a number without a sign. Return None for other text, and for numbers of more than 64 bits."""
    return int(text) if text and text.isdecimal() and len(text) < _DIGITS_MAX else None


def ids(text: str) -> tuple[str, ...]:
    """Split `0,1`. CUDA ends the list at the first entry that is not a device, such as -1."""
    found = [part.strip() for part in text.split(",")]
    return tuple(found[: found.index("-1")] if "-1" in found else filter(None, found))


def seconds(text: str) -> float | None:
    """Read 720:00:00, or a number of seconds."""
    parts = text.split(":")
    if not all(part.isdecimal() for part in parts) or len(parts) > 3:
        return None
    total = 0
    for part in parts:
        total = 60 * total + int(part)
    return total


def time(text: str, form: str) -> float | None:
    """Read a local time in this form; None: it is not in this form."""
    try:
        return datetime.strptime(text, form).timestamp()
    except ValueError:
        return None
