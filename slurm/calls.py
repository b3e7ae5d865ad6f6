"""The files of calls that `Executor` submits: what is called, where, and what came of it.

Each submission has a directory in the user's folder:

- `submission.json`: what all its calls have in common
- `calls.pickle`: the calls, one behind the other
- `job.json`: the job of the batch system that makes them
- `call-3.pickle`: call 3 as it continues after its checkpoint, in place of the first one
- `result-3.pickle`: what call 3 has returned or raised

Files are written beside and renamed, so they are whole or not there. Pickles are loaded only from files of this user.
"""

import dataclasses
import json
import os
import pickle
import platform
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle  # pyright: ignore[reportMissingTypeStubs]

SUBMISSION, CALLS, JOB = "submission.json", "calls.pickle", "job.json"
PYTHON = ".".join(platform.python_version_tuple()[:2])


class JobError(RuntimeError):
    """A job has ended without a result of the call, or the result cannot be read. The message has what is known."""


class DelayedSubmission:
    """A call that continues another one: what a method `checkpoint` returns.

    Args:
        fn: what to call.
        *args: its arguments.
        **kwargs: its named arguments.
    """

    def __init__(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self.fn, self.args, self.kwargs = fn, args, kwargs
        self.requeues = 0
        """How often the call has continued after a checkpoint."""

    @property
    def name(self) -> str:
        """The name of the function."""
        return getattr(self.fn, "__name__", type(self.fn).__name__)


for _public in (JobError, DelayedSubmission):
    _public.__module__ = "mpi_runtime.slurm"  # files that outlive this version name them


@dataclass(frozen=True, kw_only=True)
class Submission:
    """What all calls of a submission have in common."""

    ends: Sequence[int]
    """Where each call ends in the file of calls, in bytes."""
    calls_per_job: int
    """How many calls one job, or one task of an array, makes."""
    max_requeues: int
    """How often a call may continue after its checkpoint."""
    checkpoint_s: float
    """How many seconds before the end of the job's time `checkpoint` is called."""
    cwd: str
    """Where the calls run."""
    path: Sequence[str]
    """Where their modules are searched for."""
    python: str = PYTHON
    """The version of Python that has written the calls."""

    @property
    def tasks(self) -> int:
        """The number of jobs, or of tasks of an array."""
        return -(-len(self.ends) // self.calls_per_job)

    def task_of(self, number: int) -> int:
        """The task of the array that makes a call. Tasks count from 1: Grid Engine has no task 0."""
        return number // self.calls_per_job + 1

    def calls_of(self, task: int) -> range:
        """The numbers of the calls of a task."""
        first = (task - 1) * self.calls_per_job
        return range(first, min(first + self.calls_per_job, len(self.ends)))


class BatchJob(NamedTuple):
    """The job of a submission."""

    id: str
    system: str
    """The batch system, by its name."""
    is_array: bool

    def of_task(self, task: int) -> str:
        """The id of the job, or of one task of the array."""
        return f"{self.id}_{task}" if self.is_array else self.id


class Outcome(NamedTuple):
    """What came of a call."""

    value: Any
    error: BaseException | None = None
    trace: str = ""
    """The traceback of the error, as text: tracebacks cannot be pickled."""


def write(place: Path, calls: Sequence[DelayedSubmission], **common: Any) -> Submission:
    """Write the calls of a submission into a new directory. `common`: fields of `Submission`.

    Raises:
        TypeError: a function or an argument cannot be serialised. The message names the call.
    """
    pieces = [_dumped(call) for call in calls]
    found = Submission(
        ends=list(accumulate(map(len, pieces))),
        cwd=os.getcwd(),
        path=[os.path.abspath(one) for one in sys.path],
        **common,
    )
    place.mkdir(mode=0o700)
    _replace(place / CALLS, b"".join(pieces))
    _replace(place / SUBMISSION, json.dumps(dataclasses.asdict(found)).encode())
    return found


def _dumped(call: DelayedSubmission) -> bytes:
    try:
        return _dumps(call)
    except Exception as error:
        raise TypeError(f"a call of {call.name} cannot be serialised for a job: {error}") from error


def _dumps(value: object) -> bytes:
    text: bytes = cloudpickle.dumps(value)  # pyright: ignore[reportUnknownMemberType]
    return text


def read(place: Path) -> Submission:
    """Return what the calls of a submission have in common."""
    return Submission(**json.loads((place / SUBMISSION).read_text()))


def read_call(place: Path, submission: Submission, number: int) -> DelayedSubmission:
    """Return a call, as it continues after its checkpoint.

    Raises:
        JobError: it cannot be loaded here.
    """
    if submission.python != PYTHON:
        raise JobError(
            f"the call was written by Python {submission.python}, and this is {PYTHON}. State another python="
        )
    try:
        text = _own(_continued(place, number))
    except FileNotFoundError:
        start = submission.ends[number - 1] if number else 0
        text = _own(place / CALLS, start, submission.ends[number])
    try:
        call: DelayedSubmission = pickle.loads(text)
    except Exception as error:
        raise JobError(
            f"call {number} cannot be loaded on {platform.node()}: {type(error).__name__}: {error}"
        ) from error
    return call


def write_continued(place: Path, number: int, call: DelayedSubmission) -> None:
    """Write a call as it continues after its checkpoint."""
    _replace(_continued(place, number), _dumps(call))


def write_job(place: Path, job: BatchJob) -> None:
    """Write which job makes the calls."""
    _replace(place / JOB, json.dumps(job._asdict()).encode())


def read_job(place: Path) -> BatchJob | None:
    """Return the job that makes the calls; None: it is not known."""
    try:
        return BatchJob(**json.loads((place / JOB).read_text()))
    except FileNotFoundError:
        return None


def write_outcome(place: Path, number: int, outcome: Outcome) -> None:
    """Write what came of a call. What cannot be serialised becomes an error that states it."""
    try:
        text = _dumps(tuple(outcome))
    except Exception as error:
        lost = outcome.error if outcome.error is not None else outcome.value
        found = JobError(f"a {type(lost).__name__} from the call cannot be serialised: {error}\n{outcome.trace}")
        text = _dumps(tuple(Outcome(None, found)))
    _replace(result(place, number), text)


def read_outcome(place: Path, number: int) -> Outcome:
    """Return what came of a call.

    Raises:
        FileNotFoundError: it has not ended.
    """
    text = _own(result(place, number))
    try:
        outcome = Outcome(*pickle.loads(text))
    except Exception as error:
        return Outcome(None, JobError(f"{result(place, number)} cannot be loaded: {type(error).__name__}: {error}"))
    return outcome


def failed(error: BaseException) -> Outcome:
    """What came of a call that has raised."""
    return Outcome(None, error, "".join(traceback.format_exception(error)))


def result(place: Path, number: int) -> Path:
    """The file of what came of a call."""
    return place / f"result-{number}.pickle"


def _continued(place: Path, number: int) -> Path:
    return place / f"call-{number}.pickle"


def _own(path: Path, start: int = 0, end: int | None = None) -> bytes:
    """Read a part of a file of this user: what another user has written is not loaded."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_uid != os.geteuid():
            raise JobError(f"{path} belongs to another user, so its contents are not loaded")
        file.seek(start)
        return file.read() if end is None else file.read(end - start)


def _replace(path: Path, text: bytes) -> None:
    beside = path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}")
    with open(beside, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
