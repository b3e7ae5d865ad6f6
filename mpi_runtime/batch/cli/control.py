"""The verbs of a batch: their options; those that change one that runs, `wait` and `list`."""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from mpi_runtime.batch.cli.options import VERBS
from mpi_runtime.batch.cli.views import directory_of, facts, name_of, print_log, show_status, write_report
from mpi_runtime.batch.file.parse import FORMS, form_of, read_text
from mpi_runtime.batch.history import allocations, submitted
from mpi_runtime.batch.history.batch_history import FOLDER, damage_in_words, jobs_of, planned_history, read_history
from mpi_runtime.batch.history.graph import Graph
from mpi_runtime.batch.history.requests import Request, leave, send
from mpi_runtime.batch.run.control import expanded
from mpi_runtime.batch.show.overview import overview
from mpi_runtime.errors import JournalError, LaunchError
from mpi_runtime.show.command_line import add_json, print_json

WAIT_S = 1.0
"""Seconds between looks at a batch that is awaited."""
ASK_S = 5.0
"""Seconds between questions to Slurm about the jobs that are to run it."""
CHANGES = ("cancel", "pause", "resume", "priority")
"""Verbs that name commands of a batch that runs."""


def perform(words: Sequence[str]) -> int:
    """Perform a verb, and return the exit code."""
    chosen = control_parser().parse_args(words)
    if chosen.verb == "list":
        return _list(chosen.json)
    functions = {"status": show_status, "report": write_report, "log": print_log, "wait": _wait}
    return functions.get(chosen.verb, _send)(directory_of(chosen.name), chosen)


def control_parser() -> argparse.ArgumentParser:
    """The arguments of the verbs below `mpi-runtime batch`."""
    parser = argparse.ArgumentParser(prog="mpi-runtime batch", allow_abbrev=False)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    made = {
        name: verbs.add_parser(name, help=what, description=f"{what.capitalize()}.", allow_abbrev=False)
        for name, what in VERBS.items()
    }
    for name, verb in made.items():
        if name != "list":
            help_name = "the file of the batch, its name, or the directory of its output"
            verb.add_argument("name", metavar="NAME", help=help_name)
        if name in ("status", "list"):
            add_json(verb)
        if name in CHANGES:
            help_names = "commands, arrays, or parts of them: train, train.7, train.3-7"
            verb.add_argument("commands", nargs="+", metavar="COMMAND", help=help_names)
    made["status"].add_argument("--watch", action="store_true", help="again every two seconds, until it has ended")
    made["report"].add_argument("-o", "--output", metavar="FILE", help="the file to write; NAME.html")
    made["log"].add_argument("command", metavar="COMMAND", help="the name of the command")
    help_follow = "what it writes from now on, too, until it has ended"
    made["log"].add_argument("--follow", action="store_true", help=help_follow)
    help_to = "the new priority: higher goes first"
    made["priority"].add_argument("--to", type=int, required=True, metavar="N", help=help_to)
    help_file = "commands to add; they may come after those of the batch"
    made["add"].add_argument("file", metavar="FILE", help=help_file)
    made["add"].add_argument("--form", choices=FORMS, help="the form of the file; by default that of its suffix")
    return parser


def _send(directory: str, chosen: argparse.Namespace) -> int:
    jobs = jobs_of(directory)
    awaited = None
    if not jobs:
        history, awaited = read_history(directory), submitted.awaited(directory)
        if awaited is None and not history.is_open:
            raise LaunchError(
                f"no job runs the batch {name_of(directory)}, and nothing is left of it: {chosen.verb} is for one that "
                f"runs or will continue. `mpi-runtime batch status {chosen.name}` shows its state"
            )
        graph = Graph()
        graph.add(history.plan.values())
        if history.is_planned and chosen.verb != "add" and (wrong := expanded(graph, tuple(chosen.commands))[1]):
            raise LaunchError(wrong)
    if chosen.verb == "add":
        form = chosen.form or form_of(chosen.file)
        text, folder = read_text(chosen.file, form), os.path.dirname(os.path.abspath(chosen.file))
        request = Request("add", text=text, form=form, folder=folder, file=chosen.file)
    else:
        request = Request(chosen.verb, tuple(chosen.commands), getattr(chosen, "to", 0))
    folder = Path(directory, FOLDER)
    try:
        if not jobs:
            leave(folder, request)
            when = "when the same line continues it"
            if awaited is not None and awaited.state != "COMPLETING":
                when = f"when {str(awaited).splitlines()[0]} starts"
            elif allocator := allocations.allocator_of(directory):
                when = f"in the next job that {allocator} submits"
            print(f"no job runs the batch {name_of(directory)} now: this is done {when}, before anything else")
            return 0
        answer = send(folder, request)
    except OSError as error:
        raise LaunchError(
            f"the request cannot be written to {folder}: {error.strerror or error}. Only the user who has started a "
            "batch may change it, and its disk must have room"
        ) from error
    if answer is None:
        raise LaunchError(
            f"{jobs[0]} has not answered: the request was withdrawn; `mpi-runtime batch status` shows more"
        )
    if not answer.is_done:
        raise LaunchError(answer.words)
    print(answer.words)
    return 0


def _wait(directory: str, chosen: argparse.Namespace) -> int:
    said = ""
    while True:
        while jobs_of(directory):
            time.sleep(WAIT_S)
        job = submitted.awaited(directory)
        if job is None:
            if not allocations.allocator_of(directory):
                break
            time.sleep(ASK_S)  # it submits more
            continue
        if job.state not in ("RUNNING", "COMPLETING") and said != (said := str(job).splitlines()[0]):
            print(f"{name_of(directory)}: {said}", file=sys.stderr, flush=True)
        time.sleep(ASK_S)
    history = planned_history(directory)
    found = overview(history, time.time(), False)
    state = f"{found.done} of {found.total} done" if history.is_planned else "no job has started it yet"
    print(f"{name_of(directory)}: {state}", file=sys.stderr)
    return int(found.done < found.total or not history.is_planned)


def _list(as_json: bool) -> int:
    code = 0
    rows: list[dict[str, object]] = []
    for journal in sorted(Path().glob(f"*/{FOLDER}")):
        directory = str(journal.parent)
        try:
            history, jobs = read_history(directory), jobs_of(directory)
        except JournalError as error:  # the others can be read
            print(f"mpi-runtime batch: {error}", file=sys.stderr)
            code = 2
            continue
        if history.plan:
            found = overview(history, time.time(), bool(jobs))
            rows.append(facts(directory, jobs, found))
            if as_json:
                continue
            state = f"run by {jobs[0] if len(jobs) == 1 else f'{len(jobs)} jobs'}" if jobs else "not running"
            failed = f", {len(found.failed)} failed" if found.failed else ""
            print(f"{name_of(directory)}: {found.done} of {found.total} done{failed}; {state}")
        elif history.damaged_bytes and not jobs:
            print(f"{name_of(directory)}: {damage_in_words(directory, history)}", file=sys.stderr)
            code = 2
    if as_json:
        print_json(rows)
    elif not rows and not code:
        print("no batches in this directory: `mpi-runtime batch FILE` runs one")
    return code
