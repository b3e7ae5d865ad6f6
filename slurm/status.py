"""The status of a job, whatever batch system has it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ENDED = frozenset(
    ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")
)
CANNOT_WRITE = 73
"""The exit code of the batch script if it can write nothing into its directory, as `sysexits.h` has it."""
_FULL = "its node could write nothing into its directory: the file system is full, or your quota is used up"


@dataclass(frozen=True)
class Status:
    """The status of a job, as Slurm reports it. `str(status)` is a line for people."""

    job: str
    """The id; 12_3 for a task of an array, 12_[4-9] for tasks that wait together."""
    state: str
    """The state, in Slurm's words: PENDING, RUNNING, COMPLETED ..."""
    reason: str
    """Why the job waits or has failed, in Slurm's words; empty if there is no reason."""
    exit_code: int | None
    """The exit code of the batch script, once it has ended; 128 plus the number for a signal."""
    nodes: str
    """Names of the nodes, in Slurm's short form; empty before the start."""
    name: str
    """The name of the job."""
    start: str
    """When it started, or is expected to start."""
    end: str
    """When it ended, or will end."""
    time_used: str
    """How long it has run."""
    time_limit: str
    """How long it may run."""
    output: str | None
    """The path of the output file; None if Slurm no longer knows it."""
    program_exit_code: int | None
    """The exit code of the program, if `submit` started it and it ran to its end; else None."""
    advice: str = ""
    """What the reason means, and what to do; empty where the reason needs no words."""

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended. A requeued job waits again."""
        return self.state in ENDED

    def __str__(self) -> str:
        why = f" ({self.reason})" if self.reason else ""
        parts = [f"job {self.job} {self.name}: {self.state}{why}"]
        if self.nodes:
            parts.append(f"on {self.nodes}")
        if self.has_ended:
            own = self.program_exit_code
            end = "the program did not run to its end" if own is None else f"the program has ended with {own}"
            parts.append(f"exit code {self.exit_code}; {end}")
            if self.advice:
                parts.append(self.advice)
            elif own is None and self.exit_code == CANNOT_WRITE:
                parts.append(_FULL)
        elif self.state == "RUNNING":
            until = f" of {self.time_limit}, until {self.end}" if self.time_limit else ""
            parts.append(f"{self.time_used}{until}")
        elif self.advice:
            parts.append(self.advice)
        elif self.state == "PENDING" and self.start:
            parts.append(f"expected to start {self.start}")
        return ", ".join(parts) + (f"\n  output: {self.output}" if self.output else "")


@dataclass(frozen=True)
class Granted:
    """The resources of a job on one node."""

    cpus: int
    memory: int
    """Bytes; 0: Slurm does not count memory."""
    gpus: tuple[int, ...]
    """Numbers of devices, as the node counts them."""


def table(tasks: Sequence[Status]) -> str:
    """Return a line for each task of an array, after a line of titles."""
    rows = [("task", "state", "exit code", "nodes", "time", "output")]
    for one in tasks:
        code = "none" if one.has_ended else ""
        code = code if one.program_exit_code is None else str(one.program_exit_code)
        output = Path(one.output).name if one.output else ""
        rows.append((one.job.partition("_")[2], one.state, code, one.nodes, one.time_used, output))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(f"{word:{width}}" for word, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "".join(f"{line}\n" for line in lines)


def task_numbers(status: Status) -> tuple[int, ...]:
    """Return the indices of the array tasks that this status is about; empty if it is not about an array."""
    found = re.search(r"_(?:(\d+)|\[([\d,:-]+))", status.job)
    if found is None:
        return ()
    numbers: list[int] = []
    for first, last, step in re.findall(r"(\d+)(?:-(\d+))?(?::(\d+))?", found[1] or found[2]):  # 7, 4-9 or 0-20:2
        numbers += range(int(first), int(last or first) + 1, int(step or 1))
    return tuple(numbers)


def task_number(status: Status) -> int:
    """Return the first index of the array tasks that this status is about; 0 if it is not about an array."""
    return next(iter(task_numbers(status)), 0)
