"""Reads a batch and runs it on the ranks that are there, or only checks it."""

import argparse
import contextlib
import gc
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager

import mpi_runtime
from mpi_runtime.batch.cli.options import stated_nodes
from mpi_runtime.batch.cli.part import Part, drain_s, selection_of
from mpi_runtime.batch.cli.reading import defaults_of, directory_of, refuse, text_of
from mpi_runtime.batch.file.entries import Problem, is_refused
from mpi_runtime.batch.file.parse import JSON, Group, form_of, read_batch
from mpi_runtime.batch.file.selection import Selection
from mpi_runtime.batch.history import batch_history
from mpi_runtime.batch.history.graph import wrong_names
from mpi_runtime.batch.run.capacity import infeasible_here
from mpi_runtime.config import address, is_own_address
from mpi_runtime.errors import LaunchError
from mpi_runtime.show.live_picture import live_picture


def run_batch(options: argparse.Namespace) -> int:
    """Read the batch and run it, or only check it. Return the exit code: 2 if the batch has problems."""
    form = options.form or form_of(options.file)
    defaults = defaults_of(options)
    is_stream = options.file == "-" and form == JSON and not options.check
    groups: list[Group] = []
    problems: list[Problem] = []
    if not is_stream:
        gc.disable()  # a long list has no garbage, and the collector would take half of the time
        groups, problems = read_batch(text_of(options.file, form), form, defaults, os.path.dirname(options.file))
        problems += wrong_names(groups)
        gc.freeze()
        gc.enable()
    if options.check:
        from mpi_runtime.batch.cli.check import check  # not at the top: a run does not need it

        is_right = not is_refused(problems)
        own_file = "" if options.directory else options.file
        history = batch_history.History()
        if is_right and not options.fresh:
            history = batch_history.own_history(directory_of(options), False, own_file)
        selection = selection_of(options, groups, history, False) if is_right else Selection()
        wrong = check(options, groups, problems, drain_s(groups), history, selection)
        return refuse(options.file, wrong) if wrong else 0
    if is_refused(problems):
        return refuse(options.file, problems)
    for note in problems:
        print(note.shown(options.file), file=sys.stderr)
    if options.ranks > 1 and not options.hosts and not is_stream and not _has_ranks(groups):
        count = options.ranks
        text = f"-n {count} is the number of ranks of the batch itself, and each of its commands is one process"
        cure = f"For commands that are MPI programs, omit it and write --command-ranks {count}"
        print(f"mpi-runtime batch: note: {text}. {cure}", file=sys.stderr)
    if stated := [*stated_nodes(options), *(["--json"] if options.json else [])]:
        raise LaunchError(f"{stated[0]} is for --check")
    try:
        job = _job(options, groups)
    except (ValueError, ConnectionError) as error:  # of a flag or a variable
        raise LaunchError(str(error)) from error
    with job:
        directory = directory_of(options)
        is_joining = options.join or batch_history.used_by(directory)
        if not is_joining and (problems := infeasible_here(groups)):
            return refuse(options.file, problems)
        with live_picture(sys.stderr, is_transient=True) or contextlib.nullcontext() as live:
            return Part(options, groups, defaults, directory, is_stream, live).take()


def _has_ranks(groups: Sequence[Group]) -> bool:
    return any(command.ranks > 1 or command.launcher for group in groups for command in group.commands)


def _job(options: argparse.Namespace, groups: Sequence[Group]) -> AbstractContextManager[object]:
    """Start a job, or connect to a session: that of an option or of a variable, which has its GPUs and its end."""
    variable = address()[1]
    if not options.session and (variable in ("", "local") or not is_own_address(variable)):
        return mpi_runtime.init(num_gpus=_gpus(options), drain_s=drain_s(groups))
    for name in ("gpus_per_node", "hosts", "mpi", "requeue", "join"):
        if getattr(options, name):
            raise LaunchError(f"--{name.replace('_', '-')} is for a job of its own, and this batch runs in a session")
    return mpi_runtime.init(f"session:{options.session}" if options.session else None)


def _gpus(options: argparse.Namespace) -> int | None:
    stated = options.gpus_per_node
    if stated is not None and not stated.isdecimal():
        raise LaunchError(f"--gpus-per-node must be a number, not {stated!r}; a type is for --check")
    return None if stated is None else int(stated)
