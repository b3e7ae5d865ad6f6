"""Requests of users to a batch that runs: what each changes, and the answer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from mpi_runtime.batch.file import selection
from mpi_runtime.batch.file.entries import is_refused
from mpi_runtime.batch.file.parse import read_batch
from mpi_runtime.batch.history.graph import STARTED, WAITING, Graph, wrong_names
from mpi_runtime.batch.history.requests import Answer, Request
from mpi_runtime.batch.run.capacity import infeasible_here
from mpi_runtime.batch.run.commands import Commands

CONTROLS = ("cancel", "pause", "resume")
"""What counts for later runs of the batch, until it is finished."""
_DONE = {
    "cancel": "cancelled; when the batch is finished, the same line runs them again",
    "pause": "paused; those that have begun continue",
    "resume": "resumed",
    "priority": "with the new priority; those that have begun continue",
}
"""What requests have done to commands, in words."""


def perform(commands: Commands, request: Request, is_first: bool = False) -> Answer:
    """Do what a request says. `is_first`: nothing has started, and it is not known yet which commands are done."""
    if request.verb == "add":
        return _add(commands, request)
    names, wrong = expanded(commands.graph, request.names)
    if wrong:
        return Answer(False, wrong)
    if is_first and request.verb in CONTROLS:
        commands.note(names, request.verb)
        return Answer(True, f"{_counted(len(names))} {_DONE[request.verb]}, unless they are done")
    if request.verb not in _DONE:
        return Answer(
            False, f"the job that coordinates the batch does not know {request.verb!r}: it is of another version"
        )
    open_names = [name for name in names if commands.graph.states[name] in (WAITING, STARTED)]
    if not open_names:
        states = Counter(commands.graph.states[name] for name in names)
        return Answer(False, "nothing is left of these: " + ", ".join(f"{n} {what}" for what, n in states.items()))
    if request.verb == "cancel":
        commands.cancel(open_names)
    elif request.verb == "pause":
        commands.paused.update(open_names)
        commands.withdraw(open_names)
    elif request.verb == "resume":
        commands.paused.difference_update(open_names)
        commands.resume(open_names)
    else:
        by_name = commands.graph.commands
        for name in open_names:
            by_name[name] = msgspec.structs.replace(by_name[name], priority=request.priority)
        commands.withdraw([name for name in open_names if commands.graph.states[name] != WAITING])
    return Answer(True, f"{_counted(len(open_names))} {_DONE[request.verb]}")


def _add(commands: Commands, request: Request) -> Answer:
    # Names of their own, or the second line would have the name of the batch's second. The same file has the same names
    # again: a later run to which it is added knows what has been done.
    prefix = re.sub(r"[^A-Za-z0-9_]", "_", Path(request.file).stem) + "-"
    groups, problems = read_batch(request.text, request.form, {}, request.folder, prefix)
    problems += wrong_names(groups, commands.graph)
    problems += [] if is_refused(problems) else infeasible_here(groups)
    if is_refused(problems):
        return Answer(
            False, "\n".join(problem.shown(request.file) for problem in sorted(problems) if not problem.is_note)
        )
    commands.add_groups(groups)
    return Answer(True, f"{_counted(sum(len(group.commands) for group in groups))} added")


def _counted(count: int) -> str:
    return f"{count} command{'' if count == 1 else 's'}"


def expanded(graph: Graph, asked: Sequence[str]) -> tuple[list[str], str]:
    """The commands of a batch that names, arrays and ranges mean, and what is wrong with them."""
    return selection.expanded(asked, graph.members_of, graph.commands, graph.outcomes)
