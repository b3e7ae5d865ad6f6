"""The verb `batch`: run the commands of a file, on this machine or on all ranks."""

import argparse
import contextlib
import gc
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

import mpi_runtime
from mpi_runtime.batch.cli.options import VERBS, batch_parser, stated_nodes
from mpi_runtime.batch.elastic import files
from mpi_runtime.batch.file.entries import COMMANDS_MAX, LINE_MAX, TEXT_BYTES_MAX, Problem, is_refused
from mpi_runtime.batch.file.options import OPTIONS, read_command
from mpi_runtime.batch.file.parse import JSON, Group, form_of, read_batch, read_text
from mpi_runtime.batch.file.selection import Selection, select
from mpi_runtime.batch.history import batch_history
from mpi_runtime.batch.history.graph import wrong_names
from mpi_runtime.batch.history.journal import BatchJournal
from mpi_runtime.batch.run.capacity import beyond, infeasible_here
from mpi_runtime.batch.run.commands import Setting
from mpi_runtime.batch.run.loop import BatchRun
from mpi_runtime.batch.run.member_run import MemberRun
from mpi_runtime.batch.run.running import TIME_IS_OVER, TURN_S, Place
from mpi_runtime.batch.run.stream import END, lines_of
from mpi_runtime.config import environment
from mpi_runtime.errors import HeadDiedError, LaunchError
from mpi_runtime.extend import (
    check_ranks,
    clear_sessions,
    detect,
    die_with_parent,
    environment_of_launcher,
    installed_launcher,
    launch_command,
)
from mpi_runtime.files.claim import JournalInUseError, TakenOverError
from mpi_runtime.files.writing import is_full
from mpi_runtime.show.live_picture import LivePicture, live_picture
from mpi_runtime.slurm.bounds import Bounds
from mpi_runtime.slurm.commands import SlurmError
from mpi_runtime.slurm.walltime import before_walltime, end_time_at_start, lead_s, requeue

END_S = 20.0
"""Running commands are ended this long, and the longest grace, before the job's time is over: time for the journal."""
_RELAY_BYTES = 1 << 16
_ON_RANK_0 = ("-m", "mpi_runtime", "-m", "mpi_runtime.batch")


def batch(words: Sequence[str]) -> int:
    """Run a batch: start its ranks, or become one of the ranks that a launcher has started. Or show a batch."""
    if words and words[0] in VERBS:
        from mpi_runtime.batch.cli.control import perform  # not at the top: a run does not need it

        return perform(words)
    if words and not os.path.exists(words[0]) and (near := get_close_matches(words[0], VERBS, 1)):
        raise LaunchError(f"there is no file {words[0]!r}; did you mean `mpi-runtime batch {near[0]}`?")
    options = batch_parser().parse_args(words)
    check_ranks(options.ranks)
    if options.max_failures is not None and options.max_failures < 0:
        raise LaunchError(f"--max-failures must be 0 or more, not {options.max_failures}")
    env = environment()
    launch = detect(env)
    is_rank = launch.size != 1
    if not is_rank and (options.check or (options.ranks == 1 and not options.hosts)):
        return run_batch(options)
    if options.file == "-":
        if launch.rank > 0:
            return 2
        if is_rank:
            raise LaunchError(
                "a launcher does not pass the end of standard input on to ranks: start them with "
                f"mpi-runtime batch -n {launch.size} -"
            )
        _relay_stdin()
    command = [sys.executable, *_ON_RANK_0, *words]
    if not is_rank:
        launcher = installed_launcher(options.mpi)
        clear_sessions(launcher)
        command = launch_command(launcher, command, options.ranks, options.hosts, False, env)
        env = environment_of_launcher(env)
    os.execve(command[0], command, env)
    raise AssertionError("execve does not return")


def _relay_stdin() -> None:
    """Give standard input an end that launchers pass on: a child copies it, and adds the line `END`."""
    read, write = os.pipe()
    if os.fork():
        os.dup2(read, 0)
        os.close(read)
        os.close(write)
        return
    try:
        die_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the batch handles it
        os.close(read)
        last = b"\n"
        while chunk := os.read(0, _RELAY_BYTES):
            os.write(write, chunk)
            last = chunk[-1:]
        os.write(write, (b"" if last == b"\n" else b"\n") + f"{END}\n".encode())
    finally:
        os._exit(0)


def run_batch(options: argparse.Namespace) -> int:
    """Read the batch and run it, or only check it. Return the exit code: 2 if the batch has problems."""
    form = options.form or form_of(options.file)
    defaults = _defaults(options)
    is_stream = options.file == "-" and form == JSON and not options.check
    groups: list[Group] = []
    problems: list[Problem] = []
    if not is_stream:
        gc.disable()  # a long list has no garbage, and the collector would take half of the time
        groups, problems = read_batch(_text(options.file), form, defaults, os.path.dirname(options.file))
        problems += wrong_names(groups)
        gc.freeze()
        gc.enable()
    if options.check:
        from mpi_runtime.batch.cli.check import check  # not at the top: a run does not need it

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
        directory = directory_of(options)
        is_joining = options.join or batch_history.used_by(directory)
        if not is_joining and (problems := infeasible_here(groups)):
            return _refuse(options.file, problems)
        with live_picture(sys.stderr, is_transient=True) or contextlib.nullcontext() as live:
            return Part(options, groups, defaults, directory, is_stream, live).take()


def directory_of(options: argparse.Namespace) -> str:
    """The directory of the output."""
    name = Path(options.file).stem if options.file != "-" else "stdin"
    return options.directory or f"batch-{name}"


class Part:
    """This job's part in a batch: it runs it, or joins the job that does."""

    def __init__(
        self,
        options: argparse.Namespace,
        groups: list[Group],
        defaults: dict[str, object],
        directory: str,
        is_stream: bool,
        live: LivePicture | None,
    ) -> None:
        self._options, self._groups, self._defaults = options, groups, defaults
        self._directory, self._is_stream, self._live = directory, is_stream, live
        self._say = live.say if live is not None else _say
        self._end_s = end_time_at_start()
        self._drain_s = _drain_s(groups)
        self._runs: list[BatchRun | MemberRun] = []
        """The last one is running."""
        self._has_joined = self._is_new = False
        """Whether the batch is that of other jobs; whether it cannot be, as what is to run was chosen."""

    def take(self) -> int:
        """Take part until the batch has ended, or this job must; return the exit code."""
        before_walltime(lead_s(self._drain_s, self._end_s), self._end_in_time)
        return self._ended(self._run_or_join())  # a requeue interrupts this thread: not as Ctrl-C below

    def _run_or_join(self) -> int:
        place: Place | None = None
        while True:
            try:
                if place is None and (found := self._joined()) is not None:
                    if isinstance(found, int):
                        return found
                    place = found
                return self._run(place)
            except TakenOverError:  # noqa: PERF203  (once in the life of a job)
                self._say("another job coordinates the batch now, because this one stood still: this one joins it")
                place = None
            except JournalInUseError:  # jobs that start at the same time
                time.sleep(TURN_S)
            except KeyboardInterrupt:
                self._say("interrupted again: running commands are killed; the same line continues later")
                return 130
            except HeadDiedError as error:
                raise LaunchError(f"{error} Run the same line again: it continues") from error
            except OSError as error:
                advice = "Free some space" if is_full(error) else "See that it is there and may be written"
                raise LaunchError(
                    f"the journal or the outputs in {self._directory} cannot be written: {error.strerror or error}. "
                    f"Running commands were ended. {advice}, and run the same line again: it continues"
                ) from error

    def _joined(self) -> int | Place | None:
        """Take part as a member; None: no job coordinates the batch."""
        options = self._options
        stated = {
            "--fresh": options.fresh, "--retry-failed": options.retry_failed, "--only": options.only,
            "--from": options.begin, "standard input": self._is_stream,
        }  # fmt: skip
        wrong = [flag for flag, is_set in stated.items() if is_set]
        if wrong and not self._runs:
            self._is_new = True
            if not Path(self._directory, batch_history.FOLDER).is_dir() or not (
                jobs := batch_history.jobs_of(self._directory)
            ):
                return None  # also if a job was killed on another host
            raise LaunchError(
                f"the batch in {self._directory} is in use by {jobs[0]}, and a job can join it only without "
                f"{wrong[0]}: wait until it has ended, or name another directory"
            )
        job = batch_history.used_by(self._directory)
        if not job and not self._runs:
            return None
        batch_history.own_history(
            self._directory, False, "" if options.directory else options.file
        )  # not that of another file
        self._say(f"the batch is run by {job}: this job joins it")
        self._has_joined = True
        run = MemberRun(self._directory, self._say, options.idle_timeout, self._drain_at())
        self._runs.append(run)
        return run.run()

    def _run(self, place: Place | None) -> int:
        options = self._options
        own_file = "" if options.directory else options.file
        if place is None:
            is_fresh = options.fresh and not self._runs
            journal = BatchJournal(self._directory, is_fresh, own_file, is_new=self._is_new)
        else:
            journal = BatchJournal(self._directory, role=batch_history.SUCCESSOR, claim=place.claim)
        with contextlib.closing(journal):
            history = journal.history
            if history.damaged_bytes and place is None:
                self._say(batch_history.damage_in_words(self._directory, history))
            groups, source = self._groups, batch_history.source_of(self._directory, options.file)
            if place is None and journal.is_late and history.finished is not None:
                self._say(
                    "the batch is finished for which this job was submitted, so the job has nothing to do; submit "
                    "it again to run what has failed"
                )
                return history.finished.exit_code
            selection = history.selection
            if journal.is_successor:
                groups, source = [*history.plan.values()], history.source  # the file may be another now
                if place is None:
                    self._has_joined = True
                    self._say("other jobs run the batch, and their coordinator is gone: this job takes its place")
            else:
                if not journal.continues:
                    selection = _selection(options, groups, journal, self._is_stream)
                if not self._runs:
                    files.clear(journal.path)
            setting = Setting(
                self._directory,
                self._say,
                journal,
                selection,
                is_packed=options.log_archive,
                live=self._live,
                failures_max=math.inf if options.max_failures is None else options.max_failures,
                end_s=self._drain_at(),
                place=place,
                idle_s=options.idle_timeout if options.join else None,
            )
            run = BatchRun(setting)
            self._runs.append(run)
            try:
                return run.run(groups, lines_of(sys.stdin) if self._is_stream else None, self._defaults, source)
            except TakenOverError:
                run.give_up()
                raise

    def _drain_at(self) -> float | None:
        return None if self._end_s is None else self._end_s - lead_s(self._drain_s, self._end_s)

    def _end_in_time(self) -> None:
        while not self._runs:
            time.sleep(0.1)
        self._runs[-1].end_in_time()
        threading.Event().wait(self._drain_s)  # SIGTERM ends the process when this returns: it has ended by then

    def _ended(self, code: int) -> int:
        if not self._runs:
            return code  # there was nothing to do
        run = self._runs[-1]
        is_useful = not run.is_hopeless if isinstance(run, BatchRun) else run.has_run
        if code == TIME_IS_OVER and self._options.requeue and is_useful:
            _requeue()
        history = batch_history.read_history(self._directory) if code in (0, 1) and self._has_joined else None
        # Without a plan the directory is gone, or cannot be read.
        if history is not None and history.is_planned and (left := batch_history.not_in_plan(history, self._groups)):
            more = f" and {len(left) - 1} more" if len(left) > 1 else ""
            self._say(
                f"{self._options.file} differs from the batch that this job has joined: {left[0]}{more} are new or "
                "changed, and were not run; when the batch has ended, the same line runs them"
            )
            return 1
        return code


def _gpus(options: argparse.Namespace) -> int | None:
    stated = options.gpus_per_node
    if stated is not None and not stated.isdecimal():
        raise LaunchError(f"--gpus-per-node must be a number, not {stated!r}; a type is for --check")
    return None if stated is None else int(stated)


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
    """The commands of this run. Names that are unknown, and standard input, are refused."""
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

    `words` are those of its command line, `bounds` the most that the job will have.
    """
    options = batch_parser().parse_args(words)
    form = options.form or form_of(options.file)
    groups, problems = read_batch(_text(options.file), form, _defaults(options), os.path.dirname(options.file))
    problems += wrong_names(groups) or beyond(groups, bounds, _drain_s(groups))
    return Path(options.file).stem, [problem.shown(options.file) for problem in sorted(problems) if not problem.is_note]


def _defaults(options: argparse.Namespace) -> dict[str, object]:
    """The options for all commands on the command line, checked."""
    stated = vars(options)
    found = {name: stated[name] for name, one in OPTIONS.items() if one.metavar and stated[name] is not None}
    found |= {} if stated["command_ranks"] is None else {"ranks": stated["command_ranks"]}
    _, wrong = read_command("true", found, {})
    if wrong:
        raise LaunchError("; ".join(f"--{message.replace('_', '-', 1)}" for _, message in wrong))
    return found


def _text(path: str) -> str:
    if path != "-":
        return read_text(path)
    found, room = [], TEXT_BYTES_MAX
    for line in lines_of(sys.stdin):
        found.append(line)
        room -= len(line)
        if room < 0 or len(found) > COMMANDS_MAX or len(line) > LINE_MAX:
            raise LaunchError(
                f"standard input has more than {COMMANDS_MAX} lines, {TEXT_BYTES_MAX >> 20} MiB, or "
                f"{LINE_MAX >> 20} MiB in a line, the most that a batch can have: split it"
            )
    return "".join(found)


def _refuse(path: str, problems: Sequence[Problem]) -> int:
    for problem in sorted(problems):
        print(problem.shown(path), file=sys.stderr)
    number = sum(not problem.is_note for problem in problems)
    count = f"{number} problem{'' if number == 1 else 's'}"
    print(f"mpi-runtime batch: {count}; nothing was started", file=sys.stderr)
    return 2


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
