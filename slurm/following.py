"""Follows a job to its end: its output, its progress, and the exit code of its program."""

import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from mpi_runtime.slurm import exit_file, systems
from mpi_runtime.slurm.commands import SlurmError
from mpi_runtime.slurm.jobs import status, statuses
from mpi_runtime.slurm.status import Status, table, task_number, task_numbers

POLL_S = (0.2, 2.0)
"""Seconds: the first and the longest pause between two questions. The controller serves all users."""
PATIENCE_S = 600.0
"""Seconds that the controller may be out of reach while a job is followed."""
LATE_S = 10.0
"""Seconds until a shared file system shows on this host what the job's host wrote last."""
_CLEAR = "\r\x1b[K"
"""Go to the beginning of the line and clear it."""


class Progress:
    """Shows the output and the progress of a job.

    On a terminal the progress is one line, which is replaced. Elsewhere a line is written for each change.
    """

    def __init__(self, out: IO[str], log: IO[str]) -> None:
        """`out` gets the output of the job, `log` its progress. They may be the same terminal."""
        self._out, self._log = out, log
        self._replaces = log.isatty()
        self._is_shown = False
        self._is_amid_a_line = False
        """Whether the output of the job has ended in the middle of a line on the terminal."""

    def write(self, text: str) -> None:
        """Write output of the job."""
        self._hide()
        self._out.write(text)
        self._out.flush()
        self._is_amid_a_line = self._replaces and self._out.isatty() and not text.endswith("\n")

    def show(self, text: str, is_news: bool, is_last: bool) -> None:
        """Show the progress, one line. `is_news`: it has changed. `is_last`: the line stays."""
        if is_last or not self._replaces:
            if is_last or is_news:
                self._hide()
                print("\n" * self._is_amid_a_line + text, file=self._log, flush=True)
        elif not self._is_amid_a_line:
            columns = os.get_terminal_size(self._log.fileno()).columns or 80
            print(_CLEAR + text[: columns - 1], end="", file=self._log, flush=True)
            self._is_shown = True

    def end(self) -> None:
        """Clear the line."""
        self._hide()

    def _hide(self) -> None:
        if self._is_shown:
            print(_CLEAR, end="", file=self._log, flush=True)
            self._is_shown = False


def follow(job: str | int, out: IO[str] | None = None, log: IO[str] | None = None) -> int:
    """Copy the output of a job to `out`, and write its progress to `log`, until the job has ended.

    On a terminal the progress is one line, which is replaced; elsewhere a line for each state. For an array `out` gets
    a table of all tasks at the end. If the controller is out of reach, this waits up to ten minutes.

    Args:
        job: the id of the job.
        out: standard output by default.
        log: standard error by default.

    Returns:
        The exit code of the program. Never 0 if the program did not run to its end: then the code of the batch script,
        or 1. For an array the code of the first task whose code is not 0.
    """
    for name, file in (("out", out), ("log", log)):
        if file is not None and not (hasattr(file, "write") and hasattr(file, "isatty")):
            raise TypeError(f"{name} must be a file to write text to, not {file!r}")
    progress = Progress(out or sys.stdout, log or sys.stderr)
    found = _patiently(job)
    is_array = "_" in found[0].job and "_" not in str(job)
    return (_follow_array if is_array else _follow_one)(job, progress, found)


def wait(job: str, is_done: Callable[[], bool], limit_s: float | None = None, log: IO[str] | None = None) -> Status:
    """Write the progress of a job to `log` until `is_done()`, its end, or the time is over. Return its status.

    Args:
        job: the id of the job, not of an array.
        is_done: is called often, and must be cheap.
        limit_s: the most seconds to wait; None: no limit.
        log: standard error by default.
    """
    progress = Progress(log or sys.stderr, log or sys.stderr)
    until_s = None if limit_s is None else time.monotonic() + limit_s
    pause_s, known = POLL_S[0], None
    while True:
        now = _patiently(job)[0]
        key = now.state, now.reason, now.nodes, bool(now.start)
        is_news, known = key != known, key
        is_late = until_s is not None and time.monotonic() >= until_s
        is_over = now.has_ended or is_late or is_done()
        progress.show(f"mpi-runtime: {str(now).splitlines()[0]}", is_news, is_last=now.has_ended or is_late)
        if is_over:
            progress.end()
            return now
        pause_s = POLL_S[0] if is_news else min(pause_s * 1.5, POLL_S[1])
        wake_s = time.monotonic() + pause_s
        while time.monotonic() < wake_s and not is_done():
            time.sleep(POLL_S[0] / 2)


def _follow_one(job: str | int, progress: Progress, found: list[Status]) -> int:
    now = found[0]
    with contextlib.ExitStack() as stack:
        file: IO[str] | None = None
        for (now,), is_news in _looks(job, found, lambda one: (one.state, one.reason, one.nodes, bool(one.start))):
            if file is None and now.output and Path(now.output).exists():
                file = stack.enter_context(open(now.output, errors="replace"))
            if file is not None and (written := file.read()):
                progress.write(written)
            progress.show(f"mpi-runtime: {str(now).splitlines()[0]}", is_news, is_last=now.has_ended)
            if now.has_ended:
                break
    return _code(_with_late_codes([now])[0])


def _follow_array(job: str | int, progress: Progress, found: list[Status]) -> int:
    tasks: dict[str, Status] = {}
    seen: set[int] = set()
    for present, is_news in _looks(job, found, lambda one: (one.job, one.state)):
        # Slurm may forget a task that has ended before the last task ends.
        tasks = {name: one for name, one in tasks.items() if one.has_ended}
        tasks |= {one.job: one for one in present}
        seen.update(*(task_numbers(one) for one in present))
        for number in seen.difference(*(task_numbers(one) for one in tasks.values())):
            name = f"{job}_{number}"  # cancelled while it waited: Slurm has forgotten it
            tasks[name] = Status(name, "CANCELLED", "", None, "", found[0].name, "", "", "", "", None, None)
        counts: Counter[str] = Counter()
        for one in tasks.values():
            counts[one.state] += len(task_numbers(one))
        states = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        has_ended = all(one.has_ended for one in tasks.values())
        progress.show(f"mpi-runtime: array {job} {found[0].name}: {states}", is_news, is_last=has_ended)
        if has_ended:
            break
    ended = _with_late_codes(sorted(tasks.values(), key=task_number))
    progress.write(table(ended))
    return next((code for code in map(_code, ended) if code), 0)


def _looks(job: str | int, found: list[Status], key: Callable[[Status], object]) -> Iterator[tuple[list[Status], bool]]:
    """Yield the status of a job again and again, and whether the keys are news. After news the pauses are short."""
    pause, longest = POLL_S
    known: list[object] = []
    while True:
        is_news = known != (known := [key(one) for one in found])
        yield found, is_news
        pause = POLL_S[0] if is_news else min(pause * 1.5, longest)
        if _rest(pause, found):
            pause = POLL_S[0]
        found = _patiently(job)


def _rest(pause_s: float, found: list[Status]) -> bool:
    """Sleep, but not when the program of a single job has ended. Return whether it has just ended.

    Its exit file (`script.text`) is beside its output. A look at a file costs the controller nothing.
    """
    file = Path(found[0].output or "").with_suffix(".exit")
    watches = len(found) == 1 and found[0].program_exit_code is None and bool(found[0].output)
    end_s = time.monotonic() + pause_s
    while (left_s := end_s - time.monotonic()) > 0:
        time.sleep(min(POLL_S[0], left_s))
        if watches and exit_file.read(file) is not None:
            return True
    return False


def _code(status: Status) -> int:
    return status.exit_code or 1 if status.program_exit_code is None else status.program_exit_code


def _with_late_codes(ended: list[Status]) -> list[Status]:
    """Ask again for jobs without a program's exit code, because a shared file system may show it late."""
    seen_s = time.monotonic()
    while time.monotonic() < seen_s + LATE_S:
        late = [number for number, one in enumerate(ended) if one.program_exit_code is None and one.exit_code == 0]
        if not late:
            break
        time.sleep(POLL_S[0])
        for number in late:
            ended[number] = status(ended[number].job)
    return ended


def _patiently(job: str | int) -> list[Status]:
    """Return the status of a job. Waits if the controller is out of reach, as during its restart."""
    give_up_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return statuses(job)
        except SlurmError as error:
            if time.monotonic() > give_up_s or not systems.is_passing(str(error)):
                raise
        time.sleep(POLL_S[1])
