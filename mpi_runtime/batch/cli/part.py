"""A job's part in a batch: it runs the batch, or joins the job that does."""

import argparse
import contextlib
import math
import shlex
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from mpi_runtime.batch.elastic import files
from mpi_runtime.batch.file.parse import Group
from mpi_runtime.batch.file.selection import Selection, select
from mpi_runtime.batch.history import batch_history, submitted
from mpi_runtime.batch.history.journal import BatchJournal, is_next_of
from mpi_runtime.batch.history.outlook import changes_in_words, names_in_words, outlook_of
from mpi_runtime.batch.run.commands import Setting
from mpi_runtime.batch.run.loop import BatchRun
from mpi_runtime.batch.run.member_run import MemberRun
from mpi_runtime.batch.run.running import TIME_IS_OVER, TURN_S, Place
from mpi_runtime.batch.run.stream import lines_of
from mpi_runtime.errors import HeadDiedError, LaunchError
from mpi_runtime.files.claim import JournalInUseError, TakenOverError
from mpi_runtime.files.writing import is_full
from mpi_runtime.show.live_picture import LivePicture
from mpi_runtime.slurm.commands import SlurmError
from mpi_runtime.slurm.walltime import allocation, before_walltime, end_time_at_start, lead_s, requeue

SIBLING_S = 20.0
"""How long a job waits until one that was submitted with it has recorded what their run is to do."""
END_S = 20.0
"""Running commands are ended this long, and the longest grace, before the job's time is over: time for the journal."""


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
        self._drain_s = drain_s(groups)
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
            "--from": options.begin, "--keep-done": options.keep_done, "standard input": self._is_stream,
        }  # fmt: skip
        wrong = [flag for flag, is_set in stated.items() if is_set]
        if wrong and not self._runs:
            has_journal = Path(self._directory, batch_history.FOLDER).is_dir()
            jobs = batch_history.jobs_of(self._directory) if has_journal else []
            self._is_new = not jobs or not self._has_followed_its_flags()
            if not jobs:
                return None  # also if a job was killed on another host
            if self._is_new:
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

    def _has_followed_its_flags(self) -> bool:
        """Whether flags that are for one run were followed: by an earlier life, or by a job submitted with this one."""
        own = allocation()
        if own.restarts:
            return True
        limit_s = time.monotonic() + SIBLING_S
        while len(submitted.together(self._directory, own.job)) > 1 and time.monotonic() < limit_s:
            if is_next_of((own.job, 0), batch_history.read_history(self._directory), self._directory):
                return True
            time.sleep(TURN_S)
        return False

    def _run(self, place: Place | None) -> int:
        options = self._options
        own_file = "" if options.directory else options.file
        if place is None:
            is_fresh = options.fresh and not self._runs
            name = options.allocation
            journal = BatchJournal(self._directory, is_fresh, own_file, is_new=self._is_new, allocation=name)
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
                    selection = selection_of(options, groups, journal.history, self._is_stream)
                    self._announce(journal.history, selection)
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
                again=_again(options),
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

    def _announce(self, history: batch_history.History, selection: Selection) -> None:
        """Say first what will run again although it is done."""
        if not history.ends:
            return
        found = outlook_of(self._groups, history, selection)
        for line in changes_in_words(found, history, selection.keeps_done):
            self._say(line)
        if selection.keeps_done and found.moved:
            raise LaunchError(
                f"--keep-done keeps what is done by its name: {names_in_words(found.moved)} are other commands now"
            )

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


def drain_s(groups: Sequence[Group]) -> float:
    """Return how long before the end of the job's time the batch begins to end."""
    return END_S + max((command.grace for group in groups for command in group.commands), default=0.0)


def _again(options: argparse.Namespace) -> str:
    """The line that runs again what has failed; empty: standard input cannot be read again."""
    if options.file == "-":
        return ""
    words = [word for word in options.words if word not in ("--fresh", "--retry-failed")]
    if allocation().system:
        words = ["submit", "--batch", options.file, "...", "--", *(word for word in words if word != options.file)]
    else:
        words = ["batch", *words]
    return shlex.join(["mpi-runtime", *words, "--retry-failed"])


def _requeue() -> None:
    try:
        requeue()
    except SlurmError as error:
        print(f"mpi-runtime batch: the job is not queued again: {error}", file=sys.stderr)


def selection_of(
    options: argparse.Namespace, groups: Sequence[Group], history: batch_history.History, is_stream: bool
) -> Selection:
    """The commands of this run. Names that are unknown, and standard input, are refused."""
    if not (options.retry_failed or options.only or options.begin):
        return Selection(keeps_done=options.keep_done)
    if is_stream:
        raise LaunchError("--retry-failed, --only and --from are for files: lines of standard input arrive later")
    failed = history.failed()
    found, wrong = select(groups, failed, options.only or (), options.begin or (), options.retry_failed)
    if wrong:
        raise LaunchError("; ".join(wrong))
    return msgspec.structs.replace(found, keeps_done=options.keep_done)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
