"""`batch --check`: shows what a batch would run, and what can never run on the nodes that it would have.

These are the nodes that the command line states, else those of the user's profile for Slurm, else, inside a job, those
of the job. Otherwise this is perhaps a login host: what does not fit it gets a note.
"""

import argparse
import sys
from collections.abc import Sequence

import msgspec

import mpi_runtime
from mpi_runtime.batch.cli.options import stated_nodes
from mpi_runtime.batch.file.entries import Problem, is_refused
from mpi_runtime.batch.file.parse import Group
from mpi_runtime.batch.file.selection import Selection
from mpi_runtime.batch.history.batch_history import History
from mpi_runtime.batch.history.outlook import Outlook, changes_in_words, outlook_of
from mpi_runtime.batch.run.capacity import beyond, infeasible_here
from mpi_runtime.batch.show.overview import described
from mpi_runtime.config import environment
from mpi_runtime.errors import LaunchError
from mpi_runtime.show.command_line import print_json
from mpi_runtime.slurm import bounds, jobs
from mpi_runtime.slurm.allocation import from_environment
from mpi_runtime.slurm.script import Request

_NODES = "--nodes N --cpus-per-node N --gpus-per-node N --memory-per-node SIZE, or --profile NAME"


def check(
    options: argparse.Namespace,
    groups: Sequence[Group],
    found: Sequence[Problem],
    drain_s: float,
    history: History,
    selection: Selection,
) -> list[Problem]:
    """Show what would run, and return what cannot. Starts no command.

    Args:
        options: of the command line.
        groups: of the batch.
        found: notes and problems so far.
        drain_s: how long before the end of a job's time commands must have ended.
        history: of earlier runs.
        selection: of the commands.
    """
    request = _request(options)
    problems: list[Problem] = []
    if is_refused(found):
        pass  # the rest may follow from these
    elif request is not None:
        problems = beyond(groups, bounds.of(request), drain_s)
    else:
        try:
            with mpi_runtime.init(f"session:{options.session}" if options.session else None):
                problems = infeasible_here(groups)
        except (ValueError, ConnectionError) as error:  # of a flag or a variable
            raise LaunchError(str(error)) from error
        if not from_environment(environment()).system:
            problems = [msgspec.structs.replace(one, is_note=True) for one in problems]
    both = sorted([*found, *problems])
    outlook = Outlook() if is_refused(both) else outlook_of(groups, history, selection)
    if options.json:
        print_json({"groups": [_facts(group) for group in groups], "problems": both, "commands": _counts(outlook)})
    if is_refused(both) or options.json:
        return both if is_refused(both) else []
    for note in both:
        print(note.shown(options.file), file=sys.stderr)
    if problems:
        print(f"mpi-runtime batch: this host was checked; for the nodes of a job add {_NODES}", file=sys.stderr)
    lines = described(groups)
    if history.ends:
        lines[-1] += f": {outlook.in_words()}"
        lines += changes_in_words(outlook, history, selection.keeps_done)
    print("\n".join(lines))
    return []


def _counts(found: Outlook) -> dict[str, object]:
    return {
        "done": found.done,
        "changed": [one.name for one in found.changed],
        "after_changed": found.after_changed,
        "named": found.named,
        "failed": found.failed,
        "stay_failed": found.stay_failed,
        "cancelled": found.cancelled,
        "skipped": found.skipped,
        "new": found.new,
    }


def _facts(group: Group) -> dict[str, object]:
    first = group.commands[0] if group.commands else None
    return {
        "name": group.name,
        "commands": len(group.commands),
        "is_array": group.is_array,
        "after": group.after,
        "requests": first.demands() if first is not None else [],
        "time_limit": first.time_limit if first is not None else None,
        "expect": first.expect if first is not None else None,
        "first": first.shown() if first is not None else "",
    }


def _request(options: argparse.Namespace) -> Request | None:
    """The request that the options or the profile state; None: neither states the size of nodes."""
    try:
        request = jobs.make_request(
            options.profile,
            nodes=options.nodes,
            cpus_per_node=options.cpus_per_node,
            gpus_per_node=options.gpus_per_node,
            memory=options.memory_per_node,
        )
    except (TypeError, ValueError) as error:
        raise LaunchError(str(error)) from error
    has_size = request.cpus_per_node or request.gpus_per_node or request.memory
    return request if stated_nodes(options) or has_size else None
