"""Requests of users to a batch that runs: what each changes, and the answer."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from mpi_runtime.batch.file.entries import is_refused, unknown
from mpi_runtime.batch.file.parse import read_batch
from mpi_runtime.batch.history.graph import NAMES_MAX, STARTED, WAITING, Graph, wrong_names
from mpi_runtime.batch.history.requests import Answer, Request
from mpi_runtime.batch.run.capacity import infeasible_here
from mpi_runtime.batch.run.ends import Ends

_RANGE = re.compile(r"(.+)\.(\d{1,9})-(\d{1,9})")
_DONE = {
    "cancel": "cancelled; when the batch is finished, the same line runs them again",
    "pause": "paused; those that have begun continue",
    "resume": "resumed",
    "priority": "with the new priority; those that have begun continue",
}
"""What requests have done to commands, in words."""


def perform(run: Ends, request: Request) -> Answer:
    """Do what a request says."""
    if request.verb == "add":
        return _add(run, request)
    names, wrong = _expanded(run.graph, request.names)
    if wrong:
        return Answer(False, wrong)
    if request.verb not in _DONE:
        return Answer(
            False, f"the job that coordinates the batch does not know {request.verb!r}: it is of another version"
        )
    open_names = [name for name in names if run.graph.states[name] in (WAITING, STARTED)]
    if not open_names:
        return Answer(False, "all of these have ended")
    if request.verb == "cancel":
        run.cancel(open_names)
    elif request.verb == "pause":
        run.paused.update(open_names)
        run.withdraw(open_names)
    elif request.verb == "resume":
        run.paused.difference_update(open_names)
        run.resume(open_names)
    else:
        commands = run.graph.commands
        for name in open_names:
            commands[name] = msgspec.structs.replace(commands[name], priority=request.priority)
        run.withdraw([name for name in open_names if run.graph.states[name] != WAITING])
    return Answer(True, f"{_counted(len(open_names))} {_DONE[request.verb]}")


def _add(run: Ends, request: Request) -> Answer:
    # Names of their own, or the second line would have the name of the batch's second. The same file has the same names
    # again: a later run to which it is added knows what has been done.
    prefix = re.sub(r"[^A-Za-z0-9_]", "_", Path(request.file).stem) + "-"
    groups, problems = read_batch(request.text, request.form, {}, request.folder, prefix)
    problems += wrong_names(groups, run.graph)
    problems += [] if is_refused(problems) else infeasible_here(groups)
    if is_refused(problems):
        return Answer(
            False, "\n".join(problem.shown(request.file) for problem in sorted(problems) if not problem.is_note)
        )
    run.add_groups(groups)
    return Answer(True, f"{_counted(sum(len(group.commands) for group in groups))} added")


def _counted(count: int) -> str:
    return f"{count} command{'' if count == 1 else 's'}"


def _expanded(graph: Graph, asked: tuple[str, ...]) -> tuple[list[str], str]:
    """The commands that names, arrays and ranges of arrays (`train.3-7`) mean, and what is wrong with them."""
    found: dict[str, None] = {}
    for name in asked:
        members = graph.members_of(name)
        if members is None and (parts := _RANGE.fullmatch(name)):
            last = min(int(parts[3]), int(parts[2]) + len(graph.commands))  # further ones are unknown
            members = [f"{parts[1]}.{number}" for number in range(int(parts[2]), last + 1)]
            members = members if members and all(one in graph.commands for one in members) else None
        if members is None:
            return [], unknown("command or array", name, [*graph.outcomes][:NAMES_MAX])
        found |= dict.fromkeys(members)
    return [*found], ""
