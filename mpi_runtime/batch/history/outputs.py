"""The output of commands: a file for each, or one archive, with each output's place in the journal."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.file.text import fill, plain
from mpi_runtime.batch.history.batch_history import FOLDER
from mpi_runtime.batch.history.results import CommandResult
from mpi_runtime.files.segments import write_all
from mpi_runtime.show.terminal import visible

ARCHIVE = "output.archive"
"""The file of all outputs, in the directory of the batch: their bytes one after the other, and nothing else."""
STARTED = "started"
"""The directory, in that of the journal, of files that the starts of some commands make."""
_BLOCK_BYTES = 1 << 20
_ROOM_BYTES_MIN = 1 << 20
_PART_MAX = 250
"""The letters of the beginning, and of the end, that are shown of a long line."""
_TAIL_BYTES_MAX = 4096
Place = tuple[int, int]
"""Where an output begins in the archive, and how many bytes it has."""


class Archive:
    """Collects the outputs of commands that have ended. Raises OSError if it cannot be written."""

    def __init__(self, directory: str) -> None:
        self._file = open(Path(directory, ARCHIVE), "ab", buffering=0)  # noqa: SIM115  (open until the process ends)
        self._taken: list[str] = []

    def take(self, path: str) -> Place | None:
        """Append a file, and return its place; None if there is no such file. `remove_taken` removes it."""
        try:
            source = open(path, "rb")  # noqa: SIM115  (closed below)
        except OSError:
            return None
        begin = self._file.seek(0, os.SEEK_END)
        with source:
            while block := source.read(_BLOCK_BYTES):
                write_all(self._file, block)
        self._taken.append(path)
        return begin, self._file.tell() - begin

    def remove_taken(self) -> None:
        """Remove the files that were appended: the journal has their places now."""
        for path in self._taken:
            with contextlib.suppress(OSError):
                os.unlink(path)
        self._taken.clear()


def of_attempt(command: Command, directory: str, attempt: int, key: bytes) -> Command:
    """A command with an output file of its own, if a job that counts as lost may still write to the usual one.

    One that must not start twice gets the path of the file that its start makes.
    """
    if not command.rerun:
        command = msgspec.structs.replace(command, started=os.fspath(start_file(directory, command.name, key)))
    if not attempt or command.stdout:
        return command
    return msgspec.structs.replace(command, stdout=os.path.join(directory, f"{command.name}.out.{attempt}"))


def kept(result: CommandResult, directory: str, attempt: int) -> CommandResult:
    """Give the output of such an attempt the usual name."""
    if not attempt:
        return result
    own = os.path.join(os.path.abspath(directory), f"{result.name}.out")
    if result.stdout != f"{own}.{attempt}":
        return result
    try:
        os.replace(result.stdout, own)
    except OSError:
        return result
    is_one = result.stderr == result.stdout
    return msgspec.structs.replace(result, stdout=own, stderr=own if is_one else result.stderr)


def start_file(directory: str, name: str, key: bytes) -> Path:
    """The file that shows that a command has started, if it must not start twice. A changed command has another."""
    return Path(os.path.abspath(directory), FOLDER, STARTED, f"{name}.{key.hex()}")


def forget_start(directory: str, name: str, key: bytes) -> None:
    """Let such a command start again."""
    path = start_file(directory, name, key)
    for one in path.parent.glob(f"{glob.escape(path.name)}.*"):  # one for each rank
        one.unlink(missing_ok=True)


class SharedFiles:
    """Counts how many commands name a file as their output. Shared files are appended to; others are emptied first."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, commands: Iterable[Command]) -> None:
        """Count the files of commands. If commands arrive one by one, the first of them still empties its file."""
        for command in commands:
            if command.stdout or command.stderr:
                self._counts.update({*_files_of(command).values()})

    def marked(self, command: Command) -> Command:
        """Set `appends` of a command."""
        if not (command.stdout or command.stderr):
            return command
        shared = tuple(stream for stream, path in _files_of(command).items() if self._counts[path] > 1)
        return msgspec.structs.replace(command, appends=shared) if shared else command


def _files_of(command: Command) -> dict[str, str]:
    """The files that a command names, by "stdout" and "stderr", as far as they are known before it runs."""
    named = {"stdout": command.stdout, "stderr": command.stderr}
    return {stream: fill(path, command.values, plain) for stream, path in named.items() if path}


def open_output(directory: str, result: CommandResult, place: Place | None) -> Iterator[bytes]:
    """The output of a command, block by block. `place` is in the archive; None: it has a file of its own.

    Raises:
        OSError: there is no output.
    """
    with open(Path(directory, ARCHIVE) if place is not None else result.stdout, "rb") as file:
        begin, left = place or (0, os.fstat(file.fileno()).st_size)
        file.seek(begin)
        while left > 0 and (block := file.read(min(left, _BLOCK_BYTES))):
            left -= len(block)
            yield block


def is_full(directory: str) -> bool:
    """Whether the disk of a directory has no room for outputs: less than 1 MiB."""
    return shutil.disk_usage(directory).free < _ROOM_BYTES_MIN


def tail(directory: str, result: CommandResult, place: Place | None = None, lines: int = 10) -> list[str]:
    """The last lines of the output of a command, with control characters as letters; empty if there is no output."""
    with contextlib.suppress(OSError):
        if place is not None:
            begin, size = place
            return _last(Path(directory, ARCHIVE), begin, begin + size, lines)
        found = []
        for path in dict.fromkeys(one for one in (result.stdout, result.stderr) if os.path.isfile(one)):
            found += _last(Path(path), 0, os.stat(path).st_size, lines)
        return found
    return []


def _last(path: Path, begin: int, end: int, lines: int) -> list[str]:
    with open(path, "rb") as file:
        begin = max(begin, end - _TAIL_BYTES_MAX)
        file.seek(begin)
        found = file.read(end - begin).decode(errors="replace").splitlines()[-lines:]
    shown = [visible(line.expandtabs()) for line in found]
    return [one if len(one) <= 2 * _PART_MAX else f"{one[:_PART_MAX]} ... {one[-_PART_MAX:]}" for one in shown]
