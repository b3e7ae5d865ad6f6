"""The program of a job that `Executor` has submitted: `-m mpi_runtime.slurm.call_program DIRECTORY TASK`.

It makes the calls of its task that have no result yet: a job that starts again continues.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from mpi_runtime.slurm import calls, walltime
from mpi_runtime.slurm.calls import DelayedSubmission, JobError, Outcome, Submission
from mpi_runtime.slurm.commands import SlurmError

Checkpoint = Callable[..., DelayedSubmission | None]


class _Current:
    """The call that runs, for the thread that is woken before the job's time ends."""

    def __init__(self, place: Path, submission: Submission) -> None:
        self._place, self._submission = place, submission
        self.number = 0
        self.call: DelayedSubmission | None = None

    def save(self) -> None:
        """Let the call write its checkpoint, and queue the job again."""
        call, number = self.call, self.number
        checkpoint: Checkpoint | None = getattr(call.fn, "checkpoint", None) if call is not None else None
        if call is None or checkpoint is None:
            return
        if call.requeues >= self._submission.max_requeues:
            print(f"mpi-runtime: the call has continued {call.requeues} times, its max_requeues", file=sys.stderr)
            return
        following = checkpoint(*call.args, **call.kwargs)
        if following is None:
            following = call
        following.requeues = call.requeues + 1
        calls.write_continued(self._place, number, following)
        try:
            walltime.requeue()
        except SlurmError as error:
            print(f"mpi-runtime: {error}", file=sys.stderr)


def main(place: Path, task: int) -> int:
    """Make the calls of a task. Return the exit code of the job: 1 if a call has raised."""
    submission = calls.read(place)
    sys.path[:] = list(dict.fromkeys([*submission.path, *sys.path]))
    current = _Current(place, submission)
    walltime.before_walltime(submission.checkpoint_s, current.save)
    code = 0
    for number in submission.calls_of(task):
        if calls.result(place, number).exists():  # of an earlier life of this job
            continue
        outcome = _called(place, submission, number, current)
        calls.write_outcome(place, number, outcome)
        if outcome.error is not None:
            print(outcome.trace or outcome.error, file=sys.stderr)
            code = 1
    return code


def _called(place: Path, submission: Submission, number: int, current: _Current) -> Outcome:
    try:
        os.chdir(submission.cwd)
        call = calls.read_call(place, submission, number)
        current.number, current.call = number, call
        return Outcome(call.fn(*call.args, **call.kwargs))
    except KeyboardInterrupt:
        raise  # the job is to be queued again, or ends
    except Exception as error:
        return calls.failed(error)
    except BaseException as error:  # the caller would end by what ends a program
        return calls.failed(JobError(f"the call has ended its program by {error!r}"))
    finally:
        current.call = None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
