"""The verbs that show a batch: `status`, `report`, `log`. They only read its files."""

import argparse
import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from mpi_runtime.batch.file.entries import unknown
from mpi_runtime.batch.file.selection import NAMES_MAX
from mpi_runtime.batch.history import allocations, batch_history, submitted
from mpi_runtime.batch.history.outputs import open_output
from mpi_runtime.batch.show.overview import Overview, in_lines, overview
from mpi_runtime.batch.show.report import document
from mpi_runtime.errors import LaunchError
from mpi_runtime.show.command_line import print_json
from mpi_runtime.show.page import Document, write
from mpi_runtime.show.terminal import harmless

FOLLOW_S = 0.5
"""Seconds between looks at an output that is followed."""
_BLOCK_BYTES = 1 << 16
EARLIER_S = 0.1
"""An output that is older than the start of its command by more than this is that of an earlier run."""


_WORDS = {"PENDING": "queued", "RUNNING": "running"}
_ORDER = "running queued ended"


class NoBatchError(LaunchError):
    """There is no such batch."""


def directory_of(name: str) -> str:
    """The directory of the output of a batch.

    Raises:
        NoBatchError: there is no such batch.
        JournalError: it cannot be read.
    """
    tried = dict.fromkeys((name, f"batch-{name}", f"batch-{Path(name).stem}"))
    for directory in tried:
        with batch_history.readable(directory):
            if Path(directory, batch_history.FOLDER).is_dir():
                return directory
    raise NoBatchError(
        f"there is no batch {name!r} here: none of {', '.join(tried)} is a directory with a "
        f"{batch_history.FOLDER!r} in it. Name the directory of its output, or change to the directory in which it was "
        "started"
    )


def name_of(directory: str) -> str:
    """The name of a batch, by the directory of its output."""
    return os.path.basename(os.path.abspath(directory)).removeprefix("batch-")


def show_status(directory: str, chosen: argparse.Namespace) -> int:
    """Print the state of a batch. Return 1 if a command has failed."""
    while True:
        history, jobs, now = batch_history.planned_history(directory), batch_history.jobs_of(directory), time.time()
        found = overview(history, now, bool(jobs))
        runs = history.session()
        parts = [(one, sum(run.ended for run in runs if run.job == one)) for one in jobs] if len(jobs) > 1 else []
        job = f"{len(jobs)} jobs" if parts else "".join(jobs)
        if chosen.json:
            print_json(facts(directory, jobs, found))
            return int(bool(found.failed))
        lines = in_lines(name_of(directory), found, job, now, parts)
        if history.damaged_bytes and not jobs:  # else the last record may be half written
            lines.append(batch_history.damage_in_words(directory, history))
        awaited = None if jobs else submitted.awaited(directory)
        if awaited is not None:
            lines.append(f"  {str(awaited).splitlines()[0]}")
        allocator, more = allocation_in_lines(directory)
        print("\n".join([*lines, *more]), flush=True)
        if not chosen.watch or not (jobs or awaited or allocator):
            return int(bool(found.failed))
        time.sleep(2)


def allocation_in_lines(directory: str) -> tuple[str, list[str]]:
    """The process that submits jobs for a batch, in words, and lines about these jobs; none without `--allocate`."""
    own = allocations.read(directory)
    if own is None:
        return "", []
    allocator = "" if own.is_over else allocations.allocator_of(directory)
    counts = Counter("ended" if one.has_ended else _WORDS.get(one.state, one.state.lower()) for one in own.jobs)
    states = ", ".join(f"{count} {word}" for word, count in sorted(counts.items(), key=lambda one: _ORDER.find(one[0])))
    more = f"{allocator} submits more" if allocator else "no process submits more: the same line continues"
    jobs = f"jobs {own.name}: {states or 'none yet'}{'' if own.is_over else f'; {more}'}"
    return allocator, [f"  queue   {line}" for line in (jobs, own.problem) if line]


def _allocation_facts(directory: str) -> dict[str, object] | None:
    own = allocations.read(directory)
    if own is None:
        return None
    allocator = "" if own.is_over else allocations.allocator_of(directory)
    return {"name": own.name, "allocator": allocator, "problem": own.problem, "jobs": own.jobs}


def facts(directory: str, jobs: Sequence[str], found: Overview) -> dict[str, object]:
    """The overview of a batch that these jobs run, for programs."""
    failed = [one.result for one in found.failed]
    return {
        "name": name_of(directory),
        "used_by": ", ".join(jobs),
        "total": found.total,
        "done": found.done,
        "waiting": found.waiting + found.skipped,
        "skipped": found.skipped,
        "failed": [
            {"name": one.name, "ending": one.ending(), "host": one.host, "output": one.stdout} for one in failed
        ],
        "running": [{"name": one.name, "host": one.host, "begin": one.time_s} for one in found.running],
        "begin": found.begin_s,
        "end": found.end_s,
        "cpu_use": found.cpu_use,
        "gpu_use": found.gpu_use,
        "left": found.left_s,
        "is_finished": found.is_finished,
        "allocation": _allocation_facts(directory),
    }


def document_of(directory: str) -> Document:
    """The page of a batch now."""
    history, is_running = batch_history.planned_history(directory), bool(batch_history.jobs_of(directory))
    return document(name_of(directory), directory, history, time.time(), is_running)


def write_report(directory: str, chosen: argparse.Namespace) -> int:
    """Write the page."""
    path = chosen.output or f"{name_of(directory)}.html"
    page = document_of(directory)
    try:
        write(path, page)
    except OSError as error:
        raise LaunchError(f"{path} cannot be written: {error.strerror}; -o names another file") from error
    print(path)
    return 0


def print_log(directory: str, chosen: argparse.Namespace) -> int:
    """Print the output of a command."""
    name = chosen.command
    history = batch_history.read_history(directory)
    names = [command.name for command in history.commands()]
    if name not in history.ends and name not in names:
        if not names:
            batch_history.planned_history(directory)  # or why none is known
        raise LaunchError(unknown("command", name, names[:NAMES_MAX]))
    is_begun = name in history.began and bool(batch_history.jobs_of(directory))
    if chosen.follow and (is_begun or name not in history.ends):
        _follow(directory, name)
    elif is_begun:
        if not _print_from(Path(directory, f"{name}.out"), history.began[name], 0):
            print(f"{name} has written nothing yet, or writes to a file of its own", file=sys.stderr)
    elif name in history.ends:
        _print_output(directory, history.ends[name])
    else:
        raise LaunchError(f"the command {name!r} has not ended: see `mpi-runtime batch status {chosen.name}`")
    return 0


def _print_output(directory: str, ended: batch_history.Ended) -> None:
    """Print the output of a command that has ended."""
    result = ended.result
    if not result.stdout:
        raise LaunchError(f"there is no output of {result.name!r}: {result.ending()}")
    blocks = open_output(directory, result, ended.packed)
    try:
        first = next(blocks, b"")
    except OSError as error:
        raise LaunchError(
            f"the output of {result.name!r} cannot be read: {error.strerror} ({error.filename or result.stdout})"
        ) from error
    _write(chain([first], blocks))


def _print_from(path: Path, began: batch_history.Began | None, position: int) -> int:
    """Print what a command has written from a position; return the next one. `began`: None if it has ended."""
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        found = os.fstat(file.fileno())
        if began is not None and not began.host and found.st_mtime < began.time_s - EARLIER_S:
            return position  # it waits for resources: this is the output of an earlier run
        file.seek(position if found.st_size >= position else 0)  # else it has begun again
        _write(iter(partial(file.read, _BLOCK_BYTES), b""))
        return file.tell()
    return position


def _write(blocks: Iterable[bytes]) -> None:
    """Print parts of an output: as they are, or what can do a terminal no harm."""
    shown = (text.encode() for text in harmless(blocks)) if sys.stdout.isatty() else blocks
    for block in shown:
        sys.stdout.buffer.write(block)
    sys.stdout.buffer.flush()


def _follow(directory: str, name: str) -> None:
    """Print the output of a command as it grows, until it has ended or no job runs the batch."""
    position = 0
    while True:
        history = batch_history.read_history(directory)
        began, ended = history.began.get(name), history.ends.get(name)
        is_over = not batch_history.jobs_of(directory) or (ended is not None and began is None)
        if is_over and ended is not None and began is None and not position:
            _print_output(directory, ended)  # it may have none
            return
        position = _print_from(Path(directory, f"{name}.out"), began, position)
        if is_over:
            return
        time.sleep(FOLLOW_S)
