"""The verb `batch`: run the commands of a file, on this machine or on all ranks."""

import argparse
import contextlib
import gc
import os
import sys
import threading
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import mpi_runtime
from mpi_runtime.batch.file.entries import Problem, is_refused
from mpi_runtime.batch.file.model import OPTIONS, read_command
from mpi_runtime.batch.file.parse import FORMS, JSON, Group, form_of, read_batch
from mpi_runtime.batch.file.selection import Selection, select
from mpi_runtime.batch.memory.graph import wrong_names
from mpi_runtime.batch.memory.past import BatchJournal, source_of
from mpi_runtime.batch.run.capacity import beyond, infeasible, node_resources
from mpi_runtime.batch.run.loop import TIME_IS_OVER, BatchRun
from mpi_runtime.batch.show.live import live_view
from mpi_runtime.cli.batch_check import add_options, check, stated_nodes
from mpi_runtime.cli.leftovers import clear_sessions
from mpi_runtime.cli.run import installed_launcher
from mpi_runtime.config import environment
from mpi_runtime.errors import JournalError, LaunchError
from mpi_runtime.host.launch import detect
from mpi_runtime.host.launchers import child_environment
from mpi_runtime.host.mpiexec import launch_command
from mpi_runtime.journal.claim import TakenOverError
from mpi_runtime.slurm.bounds import Bounds
from mpi_runtime.slurm.commands import SlurmError
from mpi_runtime.slurm.walltime import before_walltime, end_time_at_start, lead_s, requeue

VIEWS = ("status", "report", "log")
"""Verbs that show a batch."""
_NO_FLAGS = ("name", "after", "ranks", "mpi")
"""Options that are not for all commands."""
METAVARS = {
    "num_cpus": "CPUS", "num_gpus": "GPUS", "memory": "SIZE", "resources": "NAME=AMOUNT,...",
    "alternatives": "REQUEST|REQUEST", "output_limit": "SIZE", "time_limit": "TIME", "expect": "TIME", "grace": "TIME",
    "priority": "NUMBER", "group": "NAME", "group_weight": "WEIGHT", "group_limit": "COUNT", "env": "NAME=TEXT,...",
    "shell": "SHELL", "cwd": "DIR", "stdin": "FILE", "stdout": "FILE", "stderr": "FILE", "retries": "COUNT",
    "retry_codes": "CODE,...", "retry_delay": "TIME", "success_codes": "CODE,...", "on_failure": "skip|continue|stop",
    "pin": "true|false", "keep_workdir": "true|false", "ranks_per_node": "COUNT",
}  # fmt: skip
"""What the value of each option is, for help on the command line."""
END_S = 20.0
"""Running commands are ended this long, and the longest grace, before the job's time is over: time for the journal."""
_ON_RANK_0 = ("-m", "mpi_runtime", "-m", "mpi_runtime.cli.batch")


def batch(words: Sequence[str]) -> int:
    """Run a batch: start its ranks, or become one of the ranks that a launcher has started. Or show a batch."""
    if words and words[0] in VIEWS:
        from mpi_runtime.cli.batch_views import view  # not at the top: a run does not need it

        return view(words)
    if words and not os.path.exists(words[0]) and (near := get_close_matches(words[0], VIEWS, 1)):
        raise LaunchError(f"there is no file {words[0]!r}; did you mean `mpi-runtime batch {near[0]}`?")
    options = _parser().parse_args(words)
    if options.ranks < 1:
        raise LaunchError(f"-n must be 1 or more, not {options.ranks}")
    if options.max_failures is not None and options.max_failures < 0:
        raise LaunchError(f"--max-failures must be 0 or more, not {options.max_failures}")
    env = environment()
    launch = detect(env)
    is_rank = launch.size != 1
    if not is_rank and (options.check or (options.ranks == 1 and not options.hosts)):
        try:
            return run_batch(options)
        except JournalError as error:
            raise LaunchError(str(error)) from error
    if options.file == "-":
        if launch.rank > 0:
            return 2
        raise LaunchError("standard input is read without a launcher only: mpirun does not pass on its end to ranks")
    command = [sys.executable, *_ON_RANK_0, *words]
    if not is_rank:
        launcher = installed_launcher(options.mpi)
        clear_sessions(launcher)
        command = launch_command(launcher, command, options.ranks, options.hosts, False, env)
        env = child_environment(env)
    os.execve(command[0], command, env)
    raise AssertionError("execve does not return")


def run_batch(options: argparse.Namespace) -> int:
    """Read the batch and run it, or only check it. Return the exit code: 2 if the batch has problems."""
    form = options.form or form_of(options.file)
    defaults = _defaults(options)
    is_stream = options.file == "-" and form == JSON and not options.check
    groups: list[Group] = []
    problems: list[Problem] = []
    if not is_stream:
        gc.disable()  # a long list has no garbage, and the collector would take half of the time
        groups, problems = read_batch(_read(options.file), form, defaults, os.path.dirname(options.file))
        problems += wrong_names(groups)
        gc.freeze()
        gc.enable()
    if options.check:
        wrong = check(options, groups, problems, _drain_s(groups))
        return _refuse(options.file, wrong) if wrong else 0
    if is_refused(problems):
        return _refuse(options.file, problems)
    for note in problems:
        print(note.shown(options.file), file=sys.stderr)
    if stated := [*stated_nodes(options), *(["--json"] if options.json else [])]:
        raise LaunchError(f"{stated[0]} is for --check")
    try:
        job = mpi_runtime.init(num_gpus=_gpus(options), drain_s=_drain_s(groups))
    except ValueError as error:  # of a flag or a variable
        raise LaunchError(str(error)) from error
    with job:
        if problems := infeasible(groups, node_resources()):
            return _refuse(options.file, problems)
        name = Path(options.file).stem if options.file != "-" else "stdin"
        directory = options.directory or f"batch-{name}"
        own_file = "" if options.directory else options.file
        with contextlib.closing(BatchJournal(directory, options.fresh, own_file)) as journal:
            selection = _selection(options, groups, journal, is_stream)
            with live_view() as live:
                say = live.say if live is not None else _say
                run = BatchRun(directory, say, journal, selection, options.log_archive, live, options.max_failures)
                _watch_time(run, groups)
                try:
                    source = source_of(directory, options.file)
                    code = run.run(groups, sys.stdin if is_stream else None, defaults, source)
                except KeyboardInterrupt:
                    say("interrupted again: running commands are killed; the same line continues later")
                    return 130
                except TakenOverError as error:
                    raise LaunchError(f"{error.strerror}. Running commands were ended: that job runs them") from error
                except OSError as error:
                    raise LaunchError(
                        f"the journal or the outputs in {directory} cannot be written: {error.strerror or error}. "
                        "Running commands were ended. Free some space, and run the same line again: it continues"
                    ) from error
    if code == TIME_IS_OVER and options.requeue and not run.is_hopeless:
        _requeue()
    return code


def _gpus(options: argparse.Namespace) -> int | None:
    stated = options.gpus_per_node
    if stated is not None and not stated.isdecimal():
        raise LaunchError(f"--gpus-per-node must be a number, not {stated!r}; a type is for --check")
    return None if stated is None else int(stated)


def _watch_time(run: BatchRun, groups: Sequence[Group]) -> None:
    """End the batch in order before the job's time is over, or on SIGTERM."""
    drain_s = _drain_s(groups)

    def end() -> None:
        run.end_in_time()
        threading.Event().wait(drain_s)  # SIGTERM ends the process when this returns: it has ended by then

    before_walltime(lead_s(drain_s, end_time_at_start()), end)


def _drain_s(groups: Sequence[Group]) -> float:
    """Return how long before the end of the job's time the batch begins to end."""
    return END_S + max((command.grace for group in groups for command in group.commands), default=0.0)


def _requeue() -> None:
    try:
        requeue()
    except SlurmError as error:
        print(f"mpi-runtime batch: the job is not queued again: {error}", file=sys.stderr)


def _selection(
    options: argparse.Namespace, groups: Sequence[Group], journal: BatchJournal, is_stream: bool
) -> Selection:
    """The commands of this run.

    Raises:
        LaunchError: a name is unknown, or the commands come from standard input.
    """
    if not (options.retry_failed or options.only or options.begin):
        return Selection()
    if is_stream:
        raise LaunchError("--retry-failed, --only and --from are for files: lines of standard input arrive later")
    failed = journal.history.failed()
    found, wrong = select(groups, failed, options.only or (), options.begin or (), options.retry_failed)
    if wrong:
        raise LaunchError("; ".join(wrong))
    return found


def problems_of(words: Sequence[str], bounds: Bounds) -> tuple[str, list[str]]:
    """Check a batch before it is submitted, without a job. Returns its name and its problems.

    Args:
        words: of a command line of `mpi-runtime batch`.
        bounds: the most that the job will have.

    Raises:
        LaunchError: the file cannot be read, or an option is wrong.
    """
    options = _parser().parse_args(words)
    form = options.form or form_of(options.file)
    groups, problems = read_batch(_read(options.file), form, _defaults(options), os.path.dirname(options.file))
    problems += wrong_names(groups) or beyond(groups, bounds, _drain_s(groups))
    return Path(options.file).stem, [problem.shown(options.file) for problem in sorted(problems) if not problem.is_note]


def _defaults(options: argparse.Namespace) -> dict[str, Any]:
    """The options for all commands on the command line.

    Raises:
        LaunchError: an option is wrong.
    """
    stated = vars(options)
    found = {name: stated[name] for name in OPTIONS if name not in _NO_FLAGS and stated[name] is not None}
    found |= {} if stated["command_ranks"] is None else {"ranks": stated["command_ranks"]}
    _, wrong = read_command("true", found, {})
    if wrong:
        raise LaunchError("; ".join(f"--{message.replace('_', '-', 1)}" for _, message in wrong))
    return found


def _read(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise LaunchError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise LaunchError(f"{path} is not text in UTF-8: byte {error.start} is wrong") from error


def _refuse(path: str, problems: Sequence[Problem]) -> int:
    for problem in sorted(problems):
        print(problem.shown(path), file=sys.stderr)
    number = sum(not problem.is_note for problem in problems)
    count = f"{number} problem{'' if number == 1 else 's'}"
    print(f"mpi-runtime batch: {count}; nothing was started", file=sys.stderr)
    return 2


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mpi-runtime batch",
        usage="mpi-runtime batch VERB NAME ...\n       mpi-runtime batch FILE [options] [options of commands]",
        description=_verbs_in_words(),
        epilog="Options of commands are for all commands; those in the file override them. docs/batch.md has examples.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", help="a command a line, TOML (.toml) or JSON lines (.jsonl); -: stdin")
    group = parser.add_argument_group("how the file is read")
    group.add_argument("--check", action="store_true", help="show the graph and all problems; start no command")
    group.add_argument("--json", action="store_true", help="with --check: print JSON; docs/json.md has the fields")
    group.add_argument("--form", choices=FORMS, help="the form of the file; by default that of its suffix")
    group = parser.add_argument_group("with --check: the nodes of the job; by default a profile, or this host")
    add_options(group)
    group = parser.add_argument_group("what is run")
    group.add_argument("--fresh", action="store_true", help="forget the results of earlier runs")
    group.add_argument("--retry-failed", action="store_true", help="run only failed commands and their followers")
    help_only = "run this command or array alone, done or not; may be repeated"
    group.add_argument("--only", action="append", metavar="COMMAND", help=help_only)
    help_from = "run this command or array and its followers again, done or not; may be repeated"
    group.add_argument("--from", dest="begin", action="append", metavar="COMMAND", help=help_from)
    group.add_argument("--max-failures", type=int, metavar="COUNT", help="stop if more than this many fail; never")
    group = parser.add_argument_group("where it runs")
    group.add_argument("-n", "-np", "--ranks", type=int, default=1, metavar="COUNT", help="how many ranks; 1")
    group.add_argument("--mpi", choices=("openmpi", "mpich"), help="take the launcher of this MPI")
    group.add_argument("--hosts", metavar="HOST[:RANKS],...", help="start the ranks on these hosts (by ssh)")
    group.add_argument(
        "--gpus-per-node", "--gpus", metavar="COUNT", help="GPUs of each node, there or not; those that are found"
    )
    group.add_argument("--requeue", action="store_true", help="requeue the Slurm job if its time is too short")
    group = parser.add_argument_group("output")
    group.add_argument("--directory", metavar="DIR", help="where output is written; batch-NAME for NAME.toml")
    group.add_argument("--log-archive", action="store_true", help="keep all outputs in one file, not in a file each")
    group = parser.add_argument_group("options of commands, with their defaults")
    help_ranks = "how many MPI ranks each command has: its option `ranks`"
    group.add_argument("--command-ranks", metavar="COUNT", help=help_ranks)
    for name, (_, what) in OPTIONS.items():
        if name not in _NO_FLAGS:
            group.add_argument(f"--{name.replace('_', '-')}", dest=name, metavar=METAVARS[name], help=what)
    return parser


def _verbs_in_words() -> str:
    from mpi_runtime.cli.batch_views import VERBS  # not at the top: a run does not need it

    verbs = "\n".join(f"  {name + ' NAME':12} {what}" for name, (_, what) in VERBS.items())
    return f"verbs:\n{verbs}\n  FILE         run the commands of a file, as many at a time as the resources allow"


if __name__ == "__main__":
    try:
        sys.exit(run_batch(_parser().parse_args()))
    except (JournalError, LaunchError) as error:
        print(f"mpi-runtime batch: {error}", file=sys.stderr)
        sys.exit(2)
