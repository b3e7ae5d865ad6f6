"""The options of `mpi-runtime batch FILE`, and the names of its verbs."""

import argparse
from collections.abc import Sequence

from mpi_runtime.batch.file.options import OPTIONS
from mpi_runtime.batch.file.parse import FORMS
from mpi_runtime.show.command_line import path

VERBS = {
    "status": "print the state of a batch, from any terminal and any host that sees its directory",
    "report": "write a page about all commands: charts, failures, a table",
    "log": "print the output of a command",
    "cancel": "end commands, or never start them; what depends on them is skipped",
    "pause": "start no command of these until they are resumed; those that run continue",
    "resume": "let paused commands start",
    "priority": "change the priority of commands that have not begun",
    "add": "add the commands of a file to a batch that runs",
    "wait": "wait until no job runs the batch or is submitted for it; the exit code is 0 if all is done, else 1",
    "list": "list the batches of this directory",
}
"""Verbs that show a batch, change one that runs, or wait for it: see `batch_control.py`."""


_STATED = ("profile", "nodes", "cpus_per_node", "memory_per_node")
"""Options that are for --check alone; a run has --gpus-per-node too."""


def _add_nodes(parser: argparse._ArgumentGroup) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add the options that state nodes."""
    parser.add_argument(
        "--profile", metavar="NAME", help="the nodes of a profile for Slurm; 'default', if there is one"
    )
    parser.add_argument("--nodes", type=int, metavar="COUNT", help="how many nodes there will be")
    parser.add_argument("--cpus-per-node", type=int, metavar="COUNT", help="CPUs of each")
    parser.add_argument("--memory-per-node", metavar="SIZE", help="memory of each, such as 64G")


def stated_nodes(options: argparse.Namespace) -> list[str]:
    """The options on the command line that state nodes."""
    return [f"--{name.replace('_', '-')}" for name in _STATED if getattr(options, name) is not None]


def read_options(words: Sequence[str]) -> argparse.Namespace:
    """Read a command line, which is kept as `words`."""
    options = batch_parser().parse_args(words)
    options.words = [*words]
    return options


def batch_parser() -> argparse.ArgumentParser:
    """The options of a run, with the verbs in its help."""
    verbs = [f"  {name + ' NAME' * (name != 'list'):14} {what}" for name, what in VERBS.items()]
    verbs.append("  FILE           run the commands of a file, as many at a time as the resources allow")
    made = argparse.ArgumentParser(
        prog="mpi-runtime batch",
        usage="mpi-runtime batch VERB NAME ...\n       mpi-runtime batch FILE [options] [options of commands]",
        description="\n".join(["verbs:", *verbs]),
        epilog="Options of commands are for all commands; those in the file override them. See docs/guides/batch.md.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("file", metavar="FILE", help="a command a line, TOML (.toml) or JSON lines (.jsonl); -: stdin")
    group = made.add_argument_group("how the file is read")
    group.add_argument("--check", action="store_true", help="show the graph and all problems; start no command")
    group.add_argument("--json", action="store_true", help="with --check: print JSON; docs/json.md has the fields")
    group.add_argument("--form", choices=FORMS, help="the form of the file; by default that of its suffix")
    group = made.add_argument_group("with --check: the nodes of the job; by default a profile, or this host")
    _add_nodes(group)
    group = made.add_argument_group("what is run")
    group.add_argument("--fresh", action="store_true", help="forget the results of earlier runs")
    group.add_argument("--retry-failed", action="store_true", help="run only failed commands and their followers")
    help_only = "run this command, array or range (train.3-7) alone, done or not; may be repeated"
    group.add_argument("--only", action="append", metavar="COMMAND", help=help_only)
    help_from = "run this command or array and its followers again, done or not; may be repeated"
    group.add_argument("--from", dest="begin", action="append", metavar="COMMAND", help=help_from)
    help_keep = "what is done stays done, though its text, surroundings or input have changed since"
    group.add_argument("--keep-done", action="store_true", help=help_keep)
    group.add_argument("--max-failures", type=int, metavar="COUNT", help="stop if more than this many fail; never")
    group = made.add_argument_group("where it runs")
    group.add_argument(
        "-n", "-np", "--ranks", type=int, default=1, metavar="COUNT", help="how many ranks the batch has; 1"
    )
    group.add_argument("--mpi", choices=("openmpi", "mpich", "intel"), help="take the launcher of this MPI")
    group.add_argument("--session", metavar="NAME", help="run in this session, with the resources that it has")
    help_allocate = "submit jobs while commands wait: max=8,nodes=2,time=1h,idle=5m; may be repeated"
    group.add_argument("--allocate", action="append", metavar="NAME=VALUE,...", help=help_allocate)
    group.add_argument("--allocation", default="", help=argparse.SUPPRESS)  # in the scripts of these jobs
    group.add_argument("--hosts", metavar="HOST[:RANKS],...", help="start the ranks on these hosts (by ssh)")
    group.add_argument(
        "--gpus-per-node", "--gpus", metavar="COUNT", help="GPUs of each node, there or not; those that are found"
    )
    group.add_argument("--requeue", action="store_true", help="requeue the Slurm job if its time is too short")
    help_join = "other jobs may have room for what never fits here: wait for these"
    group.add_argument("--join", action="store_true", help=help_join)
    help_idle = "a job that has joined leaves after this many seconds with nothing to do; 60"
    group.add_argument("--idle-timeout", type=float, default=60.0, metavar="SECONDS", help=help_idle)
    group = made.add_argument_group("output")
    group.add_argument("--directory", type=path, metavar="DIR", help="for the output; batch-NAME for NAME.toml")
    group.add_argument("--log-archive", action="store_true", help="keep all outputs in one file, not in a file each")
    group = made.add_argument_group("options of commands, with their defaults")
    help_ranks = "how many MPI ranks each command has: its option `ranks`"
    group.add_argument("--command-ranks", metavar="COUNT", help=help_ranks)
    for name, one in OPTIONS.items():
        if one.metavar:
            group.add_argument(f"--{name.replace('_', '-')}", dest=name, metavar=one.metavar, help=one.help)
    return made
