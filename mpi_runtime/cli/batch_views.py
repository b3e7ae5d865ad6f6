"""The verbs that show a batch: `status`, `report`, `log`. They only read its files."""

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mpi_runtime.batch.file.model import unknown
from mpi_runtime.batch.memory.graph import NAMES_MAX
from mpi_runtime.batch.memory.outputs import open_output
from mpi_runtime.batch.memory.past import FOLDER, jobs_of, read_history
from mpi_runtime.batch.show.overview import Overview, in_lines, overview
from mpi_runtime.batch.show.report import report
from mpi_runtime.cli.facts import add_json, print_json
from mpi_runtime.errors import JournalError, LaunchError

FOLLOW_S = 0.5
"""Seconds between looks at an output that is followed."""


class NoBatchError(LaunchError):
    """There is no such batch."""


def view(words: Sequence[str]) -> int:
    """Show a batch, and return the exit code."""
    parser = argparse.ArgumentParser(prog="mpi-runtime batch", description="Show a batch.", allow_abbrev=False)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, (_, what) in VERBS.items():
        verb = verbs.add_parser(name, help=what, description=f"{what.capitalize()}.", allow_abbrev=False)
        verb.add_argument(
            "name", metavar="NAME", help="the file of the batch, its name, or the directory of its output"
        )
        if name == "status":
            add_json(verb)
            verb.add_argument("--watch", action="store_true", help="again every two seconds, until it has ended")
        elif name == "report":
            verb.add_argument("-o", "--output", metavar="FILE", help="the file to write; NAME.html")
        else:
            verb.add_argument("command", metavar="COMMAND", help="the name of the command")
            verb.add_argument(
                "--follow", action="store_true", help="what it writes from now on, too, until it has ended"
            )
    chosen = parser.parse_args(words)
    directory = directory_of(chosen.name)
    try:
        return VERBS[chosen.verb][0](directory, chosen)
    except (JournalError, OSError) as error:
        raise LaunchError(str(error)) from error


def directory_of(name: str) -> str:
    """The directory of the output of a batch.

    Raises:
        NoBatchError: there is no such batch.
    """
    tried = dict.fromkeys((name, f"batch-{name}", f"batch-{Path(name).stem}"))
    for directory in tried:
        if Path(directory, FOLDER).is_dir():
            return directory
    raise NoBatchError(
        f"there is no batch {name!r} here: none of {', '.join(tried)} is a directory with a {FOLDER!r} in it. Name the "
        "directory of its output, or change to the directory in which it was started"
    )


def name_of(directory: str) -> str:
    """The name of a batch, by the directory of its output."""
    return os.path.basename(os.path.abspath(directory)).removeprefix("batch-")


def show_status(directory: str, chosen: argparse.Namespace) -> int:
    """Print the state of a batch. Return 1 if a command has failed."""
    while True:
        history, jobs, now = read_history(directory), jobs_of(directory), time.time()
        found = overview(history, now, bool(jobs))
        runs = history.session()
        parts = [(one, sum(run.ended for run in runs if run.job == one)) for one in jobs] if len(jobs) > 1 else []
        job = f"{len(jobs)} jobs" if parts else "".join(jobs)
        if chosen.json:
            print_json({"name": name_of(directory), "used_by": ", ".join(jobs), **facts(found)})
            return int(bool(found.failed))
        print("\n".join(in_lines(name_of(directory), found, job, now, parts)), flush=True)
        if not chosen.watch or not jobs:
            return int(bool(found.failed))
        time.sleep(2)


def facts(found: Overview) -> dict[str, Any]:
    """The overview for programs."""
    return {
        "total": found.total,
        "done": found.done,
        "waiting": found.waiting,
        "failed": [
            {
                "name": one.result.name,
                "ending": one.result.ending(),
                "host": one.result.host,
                "output": one.result.stdout,
            }
            for one in found.failed
        ],
        "running": [{"name": one.name, "host": one.host, "begin": one.time_s} for one in found.running],
        "begin": found.begin_s,
        "end": found.end_s,
        "cpu_use": found.cpu_use,
        "gpu_use": found.gpu_use,
        "left": found.left_s,
    }


def write_report(directory: str, chosen: argparse.Namespace) -> int:
    """Write the page."""
    path = Path(chosen.output or f"{name_of(directory)}.html")
    page = report(name_of(directory), directory, read_history(directory), time.time(), bool(jobs_of(directory)))
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise LaunchError(f"{path} cannot be written: {error.strerror}") from error
    print(path)
    return 0


def print_log(directory: str, chosen: argparse.Namespace) -> int:
    """Print the output of a command."""
    history = read_history(directory)
    if chosen.follow and chosen.command in {command.name for command in history.commands()}:
        _follow(directory, chosen.command)
        return 0
    ended = history.ends.get(chosen.command)
    if chosen.command in history.began and jobs_of(directory):
        with contextlib.suppress(FileNotFoundError):  # it waits for resources, or writes to another file
            sys.stdout.buffer.write(Path(directory, f"{chosen.command}.out").read_bytes())
    elif ended is None:
        names = [command.name for command in history.commands()]
        if chosen.command not in names:
            raise LaunchError(unknown("command", chosen.command, names[:NAMES_MAX]))
        raise LaunchError(f"the command {chosen.command!r} has not ended: see `mpi-runtime batch status {chosen.name}`")
    else:
        sys.stdout.buffer.writelines(open_output(directory, ended.result, ended.packed))
    sys.stdout.buffer.flush()
    return 0


def _follow(directory: str, name: str) -> None:
    """Print the output of a command as it grows, until it has ended or no job runs the batch."""
    path = Path(directory, f"{name}.out")
    position = 0
    is_over = False
    while True:
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size < position:
                position = 0  # it has begun again
            file.seek(position)
            sys.stdout.buffer.write(file.read())
            sys.stdout.buffer.flush()
            position = file.tell()
        if is_over:
            return
        history = read_history(directory)
        is_over = not jobs_of(directory) or (name in history.ends and name not in history.began)
        if not is_over:
            time.sleep(FOLLOW_S)


VERBS: dict[str, tuple[Callable[[str, argparse.Namespace], int], str]] = {
    "status": (show_status, "print the state of a batch, from any terminal and any host that sees its directory"),
    "report": (write_report, "write a page about all commands: charts, failures, a table"),
    "log": (print_log, "print the output of a command"),
}
