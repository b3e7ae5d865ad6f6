"""`Job`: the future of a call that a job of the batch system makes; and how submissions are watched."""

import re
import time
from collections.abc import Iterable, Sequence
from concurrent import futures
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from mpi_runtime.slurm import calls, jobs, systems
from mpi_runtime.slurm.calls import BatchJob, JobError, Outcome, Submission
from mpi_runtime.slurm.commands import SlurmError
from mpi_runtime.slurm.following import LATE_S
from mpi_runtime.slurm.status import Status, task_numbers

T = TypeVar("T")
ASK_S = (1.0, 15.0)
"""Seconds: the first and the longest pause between questions about a job. The controller serves all users."""
OUTPUT_LINES = 20
"""Lines of the job's output in the error of a call without a result."""
_RESULT = re.compile(r"result-(\d+)\.pickle")


class Job(futures.Future[T]):
    """The future of a call that a job of the batch system makes. `Executor(folder).jobs()` finds it again."""

    submitted: "Submitted | None" = None
    """None: `Executor.batch` has not submitted it yet."""
    number: int = 0
    """The number of the call in its submission."""

    @property
    def folder(self) -> Path | None:
        """The directory with the calls of the submission, their results and output; None: it is not submitted yet."""
        return self.submitted.place if self.submitted is not None else None

    @property
    def job_id(self) -> str:
        """The id of the job, or of the task of an array, in the batch system; empty if it is not known."""
        return self.submitted.id_of(self.number) if self.submitted is not None else ""

    @property
    def state(self) -> str:
        """The state of the job, in Slurm's words: PENDING, RUNNING, COMPLETED ...; UNKNOWN if nothing is known."""
        status = self.status()
        return status.state if status is not None else "UNKNOWN"

    def status(self) -> Status | None:
        """Return the status of the job; None: the batch system does not know it, or does not answer."""
        return self.submitted.status(self.number) if self.submitted is not None else None

    def stdout(self) -> str:
        """Return what the job has written so far, standard error included. Calls of the same job share it."""
        return self.submitted.output(self.number) if self.submitted is not None else ""

    def cancel(self) -> bool:
        """Cancel the call and its job, even while it runs. False: it has ended, or its job makes other calls too.

        Raises:
            SlurmError: the batch system does not answer.
        """
        own = self.submitted
        if self.done() or (own is not None and own.submission.calls_per_job > 1):
            return self.cancelled()
        if own is not None and own.job is not None:
            systems.queue(own.job.system).cancel(self.job_id)
        return super().cancel()

    def running(self) -> bool:
        """Whether the job runs."""
        return not self.done() and self.state == "RUNNING"

    def end(self, outcome: Outcome) -> None:
        """Give the future the result of the call."""
        with suppress(futures.InvalidStateError):  # it was cancelled
            if outcome.error is None:
                self.set_result(outcome.value)
                return
            if outcome.trace:
                outcome.error.__cause__ = RemoteTraceback(outcome.trace)
            self.set_exception(outcome.error)


class RemoteTraceback(Exception):
    """The traceback of an error in a job, as text."""

    def __str__(self) -> str:
        return f"in the job:\n{self.args[0]}"


class Submitted:
    """A submission: its directory, its job in the batch system, and the futures of its calls."""

    def __init__(self, place: Path, submission: Submission, job: BatchJob | None, made: Sequence[Job[Any]]) -> None:
        """`job`: None if no file says which it is, because the program ended before it could write it."""
        self.place, self.submission, self.job, self.jobs = place, submission, job, made
        self.open: dict[int, Job[Any]] = dict(enumerate(made))
        """The calls that have not ended, by number."""
        self._asked_s, self._pause_s = 0.0, ASK_S[0]
        self._ended: dict[int, tuple[float, Status | None]] = {}
        """Tasks that were seen to have ended: since when, by the monotonic clock, and their status."""
        for number, one in self.open.items():
            one.submitted, one.number = self, number

    def id_of(self, number: int) -> str:
        """The id of the job that makes a call."""
        return self.job.of_task(self._task(number)) if self.job is not None else ""

    def look(self) -> None:
        """End the futures of calls that have results, and of those whose job has ended without one."""
        written = {int(found[1]) for one in self.place.iterdir() if (found := _RESULT.fullmatch(one.name))}
        for number, job in list(self.open.items()):
            if job.done() or (number in written and self._take(number)):
                del self.open[number]
        if self.open and time.monotonic() >= self._asked_s + self._pause_s:
            self._ask()
        for number, job in list(self.open.items()):
            since_s, status = self._ended.get(self._task(number), (self._asked_s, None))
            # Seen twice, since a shared file system shows a result late, and a requeued job looks ended for a moment.
            if self._asked_s >= since_s + LATE_S and not self._take(number):
                job.end(Outcome(None, JobError(self._without_result(number, status))))

    def fail(self, error: Exception) -> None:
        """End all futures: nothing more can be learnt of their calls."""
        for job in self.open.values():
            job.end(Outcome(None, JobError(f"{self.place} cannot be read: {error}")))
        self.open.clear()

    def status(self, number: int) -> Status | None:
        """Return the status of the job that makes a call; None: it is not known."""
        task = self._task(number)
        found = self._statuses() or []
        return next((one for one in found if task in (task_numbers(one) or [task])), None)

    def output(self, number: int) -> str:
        """Return what the job that makes a call has written."""
        ends = f"_{self._task(number)}.out" if self.job is not None and self.job.is_array else ".out"
        found = sorted(one for one in self.place.iterdir() if one.name.endswith(ends))
        return "".join(one.read_text(errors="replace") for one in found)

    def _task(self, number: int) -> int:
        return self.submission.task_of(number)

    def _take(self, number: int) -> bool:
        try:
            self.open[number].end(calls.read_outcome(self.place, number))
        except FileNotFoundError:
            return False
        except (OSError, JobError) as error:
            self.open[number].end(Outcome(None, error))
        return True

    def _ask(self) -> None:
        tasks = {self._task(number) for number in self.open}
        found = self._statuses()
        ended = dict.fromkeys(tasks) if found is None else _ended(found, tasks)
        self._asked_s = time.monotonic()
        self._ended = {
            task: (self._ended.get(task, (self._asked_s, None))[0], status) for task, status in ended.items()
        }
        self._pause_s = ASK_S[0] if ended else min(2 * self._pause_s, ASK_S[1])

    def _statuses(self) -> list[Status] | None:
        """What the batch system says of all tasks, nothing if it does not answer; None: it does not know the job."""
        if self.job is None:
            return None
        try:
            return jobs.statuses(self.job.id, self.job.system)
        except SlurmError as error:
            return [] if systems.is_passing(str(error)) or "has not answered" in str(error) else None

    def _without_result(self, number: int, status: Status | None) -> str:
        if self.job is None:
            return f"it is not known whether the call was submitted: there is no {self.place / calls.JOB}"
        known = f"the batch system does not know job {self.id_of(number)}"
        what = str(status).splitlines()[0] if status is not None else known
        written = "\n".join(self.output(number).splitlines()[-OUTPUT_LINES:])
        return f"the call has no result: {what}" + (f"\nThe end of the job's output:\n{written}" if written else "")


def _ended(found: Sequence[Status], tasks: Iterable[int]) -> dict[int, Status | None]:
    """The tasks that have ended. One that is not named any more has ended too, but nothing is known of it."""
    by_task = {task: one for one in found for task in task_numbers(one) or tasks}
    return {task: one for task in tasks if found and ((one := by_task.get(task)) is None or one.has_ended)}
