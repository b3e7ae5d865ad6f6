"""The verbs that change a batch which runs (`cancel`, `pause`, `resume`, `priority`, `add`), `wait` and `list`."""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from mpi_runtime.batch.file.parse import FORMS, form_of, read_text
from mpi_runtime.batch.memory.past import FOLDER, jobs_of, read_history
from mpi_runtime.batch.memory.requests import Request, send
from mpi_runtime.batch.show.overview import overview
from mpi_runtime.cli.batch_views import directory_of, name_of
from mpi_runtime.errors import JournalError, LaunchError

WAIT_S = 1.0
"""Seconds between looks at a batch that is awaited."""
VERBS = {
    "cancel": "end commands, or never start them; what depends on them is skipped",
    "pause": "start no command of these until they are resumed; those that run continue",
    "resume": "let paused commands start",
    "priority": "change the priority of commands that have not begun",
    "add": "add the commands of a file to a batch that runs",
    "wait": "wait until no job runs the batch; the exit code is 0 if all is done, else 1",
    "list": "list the batches of this directory",
}


def control(words: Sequence[str]) -> int:
    """Perform a verb, and return the exit code."""
    chosen = _parser().parse_args(words)
    try:
        if chosen.verb == "list":
            return _list()
        directory = directory_of(chosen.name)
        return _wait(directory) if chosen.verb == "wait" else _send(directory, chosen)
    except (JournalError, OSError) as error:
        raise LaunchError(str(error)) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mpi-runtime batch", description="Control a batch.", allow_abbrev=False)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, what in VERBS.items():
        verb = verbs.add_parser(name, help=what, description=f"{what.capitalize()}.", allow_abbrev=False)
        if name == "list":
            continue
        verb.add_argument(
            "name", metavar="NAME", help="the file of the batch, its name, or the directory of its output"
        )
        if name == "add":
            verb.add_argument(
                "file", metavar="FILE", help="the commands to add; they may come after those of the batch"
            )
            verb.add_argument("--form", choices=FORMS, help="the form of the file; by default that of its suffix")
        elif name != "wait":
            help_names = "commands, arrays, or parts of them: train, train.7, train.3-7"
            verb.add_argument("commands", nargs="+", metavar="COMMAND", help=help_names)
        if name == "priority":
            verb.add_argument("--to", type=int, required=True, metavar="N", help="the new priority: higher goes first")
    return parser


def _send(directory: str, chosen: argparse.Namespace) -> int:
    jobs = jobs_of(directory)
    if not jobs:
        raise LaunchError(f"no job runs the batch {name_of(directory)}, so `{chosen.verb}` changes nothing")
    if chosen.verb == "add":
        text, folder = read_text(chosen.file), os.path.dirname(os.path.abspath(chosen.file))
        request = Request("add", text=text, form=chosen.form or form_of(chosen.file), folder=folder, file=chosen.file)
    else:
        request = Request(chosen.verb, tuple(chosen.commands), getattr(chosen, "to", 0))
    answer = send(Path(directory, FOLDER), request)
    if answer is None:
        raise LaunchError(
            f"{jobs[0]} has not answered: the request was withdrawn; `mpi-runtime batch status` shows more"
        )
    if not answer.is_done:
        raise LaunchError(answer.words)
    print(answer.words)
    return 0


def _wait(directory: str) -> int:
    while jobs_of(directory):
        time.sleep(WAIT_S)
    found = overview(read_history(directory), time.time(), False)
    print(f"{name_of(directory)}: {found.done} of {found.total} done", file=sys.stderr)
    return int(found.done < found.total)


def _list() -> int:
    for journal in sorted(Path().glob(f"*/{FOLDER}")):
        directory = str(journal.parent)
        history, jobs = read_history(directory), jobs_of(directory)
        if history.plan:
            found = overview(history, time.time(), bool(jobs))
            state = f"run by {jobs[0] if len(jobs) == 1 else f'{len(jobs)} jobs'}" if jobs else "not running"
            failed = f", {len(found.failed)} failed" if found.failed else ""
            print(f"{name_of(directory)}: {found.done} of {found.total} done{failed}; {state}")
    return 0
