"""What the command line of a batch names: its file, its commands, the directory of its output; what is wrong there."""

import argparse
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from mpi_runtime.batch.cli.options import batch_parser
from mpi_runtime.batch.cli.part import drain_s
from mpi_runtime.batch.file.entries import COMMANDS_MAX, LINE_MAX, TEXT_BYTES_MAX, Problem
from mpi_runtime.batch.file.options import OPTIONS, read_command
from mpi_runtime.batch.file.parse import LINES, Group, form_of, read_batch, read_text
from mpi_runtime.batch.file.raw_bytes import text_with
from mpi_runtime.batch.history.graph import wrong_names
from mpi_runtime.batch.run.capacity import beyond
from mpi_runtime.batch.run.stream import lines_of
from mpi_runtime.errors import LaunchError
from mpi_runtime.slurm.bounds import Bounds


def directory_of(options: argparse.Namespace) -> str:
    """The directory of the output."""
    name = Path(options.file).stem if options.file != "-" else "stdin"
    return options.directory or f"batch-{name}"


def problems_of(words: Sequence[str], bounds: Bounds) -> tuple[str, list[str]]:
    """Check a batch before it is submitted, without a job. Returns its name and its problems.

    `words` are those of its command line, `bounds` the most that the job will have.
    """
    options = batch_parser().parse_args(words)
    problems = checked(options, bounds)[1]
    return Path(options.file).stem, [problem.shown(options.file) for problem in sorted(problems) if not problem.is_note]


def checked(options: argparse.Namespace, bounds: Bounds) -> tuple[list[Group], list[Problem]]:
    """The commands of a batch, and what is wrong with them in a job that has at most this."""
    form = options.form or form_of(options.file)
    groups, problems = read_batch(
        text_of(options.file, form), form, defaults_of(options), os.path.dirname(options.file)
    )
    return groups, problems + (wrong_names(groups) or beyond(groups, bounds, drain_s(groups)))


def defaults_of(options: argparse.Namespace) -> dict[str, object]:
    """The options for all commands on the command line, checked."""
    stated = vars(options)
    found = {name: stated[name] for name, one in OPTIONS.items() if one.metavar and stated[name] is not None}
    found |= {} if stated["command_ranks"] is None else {"ranks": stated["command_ranks"]}
    _, wrong = read_command("true", found, {})
    if wrong:
        raise LaunchError("; ".join(f"--{message.replace('_', '-', 1)}" for _, message in wrong))
    return found


def text_of(path: str, form: str) -> str:
    """Read the file of a batch in this form, or standard input."""
    if path != "-":
        return read_text(path, form)
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape" if form == LINES else "strict")
    found, room = [], TEXT_BYTES_MAX
    for line in lines_of(sys.stdin):
        found.append(line)
        room -= len(line)
        if room < 0 or len(found) > COMMANDS_MAX or len(line) > LINE_MAX:
            raise LaunchError(
                f"standard input has more than {COMMANDS_MAX} lines, {TEXT_BYTES_MAX >> 20} MiB, or "
                f"{LINE_MAX >> 20} MiB in a line, the most that a batch can have: split it"
            )
    text = "".join(found)
    return text_with(text.encode(errors="surrogateescape")) if form == LINES else text


def refuse(path: str, problems: Sequence[Problem]) -> int:
    """Print what is wrong with a batch, and return the exit code."""
    for problem in sorted(problems):
        print(problem.shown(path), file=sys.stderr)
    number = sum(not problem.is_note for problem in problems)
    count = f"{number} problem{'' if number == 1 else 's'}"
    print(f"mpi-runtime batch: {count}; nothing was started", file=sys.stderr)
    return 2
