"""The result of a command."""

from __future__ import annotations

import re
import signal as signals
import time

import msgspec

from mpi_runtime.batch.file import raw_bytes
from mpi_runtime.core import published
from mpi_runtime.show.terminal import visible


@published("mpi_runtime.batch")  # journals of programs contain it
class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a command has ended, and what it has used."""

    name: str
    """Its name in the batch."""
    command: str
    """Its text with all values."""
    exit_code: int | None
    """None: a signal ended it, or it was not started."""
    signal: int | None = None
    """The signal that ended it."""
    problem: str = ""
    """Why it failed, if neither exit code nor signal shows this: its time limit, or why it was not started."""
    rank: int | None = None
    """Of a failed command with several ranks: the one that failed first. None: any other command."""
    is_success: bool
    """Whether its exit code is one of `success_codes`."""
    attempts: int = 1
    """How often it was started."""
    start: float
    """When its last attempt began, in seconds since 1970."""
    end: float
    """When its last attempt ended."""
    host: str
    """The name of the host on which it ran."""
    cpus: tuple[int, ...] = ()
    """The processors to which it was bound; empty if it was not."""
    gpu_ids: tuple[int, ...] = ()
    """The GPUs that were assigned to it."""
    alternative: int = 0
    """The index of the alternative that it had, if it has `alternatives`."""
    peak_memory: int = 0
    """The most bytes that one of its processes had in memory."""
    cpu_time: float = 0.0
    """Seconds of CPU time of its processes, without those that it did not wait for."""
    stdout: str = ""
    """The path of its standard output; empty if it was not started, or nobody knows what became of it."""
    stderr: str = ""
    """The path of its standard error; empty as that of its output."""
    workdir: str = ""
    """The path of its scratch directory; empty if it was removed."""

    def ending(self) -> str:
        """How it has ended, in words."""
        where = "" if self.rank is None else f" (rank {self.rank})"
        if self.problem:
            return str(visible(self.problem)) + where
        if self.signal is None:
            hint = f" ({_HINTS[self.exit_code]})" if self.exit_code in _HINTS else ""
            return f"exit code {self.exit_code}{hint}{where}"
        try:
            return f"ended by {signals.Signals(self.signal).name}{where}"
        except ValueError:
            return f"ended by signal {self.signal}{where}"

    def kind(self) -> str:
        """The kind of its end: the same for ends that differ in amounts, hosts and paths alone."""
        return _AMOUNT.split(self.problem, maxsplit=1)[0] if self.problem else self.ending().partition(" (rank")[0]


_AMOUNT = re.compile(r"[\d:/]")
"""Where what differs between ends of one kind begins."""
_HINTS = {126: "a program that may not be executed", 127: "a program was not found"}
"""What a shell means by its own exit codes."""
SHOWN_MAX = 1000
"""How many letters of a command are shown."""


def shortened(text: str) -> str:
    """The text of a command for people: cut if it is long, with control characters as letters."""
    text = str(visible(raw_bytes.shown(text)))
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]} ... ({len(text)} letters)"


@published("mpi_runtime.batch")
class CommandError(Exception):
    """A command has failed. `result` has the details."""

    def __init__(self, result: CommandResult) -> None:
        super().__init__(result)
        self.result = result

    def __str__(self) -> str:
        result = self.result
        output = f"\n  output:  {result.stdout}" if result.stdout else ""
        return f"{result.name}: {result.ending()}\n  command: {shortened(result.command)}{output}"


def lost(name: str, text: str, error: BaseException) -> CommandResult:
    """The result of a command whose task has only an error: its process was lost, or one of its ranks has failed."""
    if isinstance(error, CommandError):
        return error.result
    now = time.time()
    return CommandResult(
        name=name,
        command=text,
        exit_code=None,
        problem=f"{type(error).__name__}: {error}",
        is_success=False,
        start=now,
        end=now,
        host="",
    )
