"""The program of a job that `Executor` has submitted: `-m mpi_runtime.slurm.call_program DIRECTORY TASK`.

It makes the calls of its task that have no result yet: a job that starts again continues.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import FrameType

from mpi_runtime.slurm import calls, walltime
from mpi_runtime.slurm.calls import DelayedSubmission, JobError, Outcome, Submission
from mpi_runtime.slurm.commands import SlurmError

Checkpoint = Callable[..., DelayedSubmission | None]


_STOP = signal.SIGRTMIN + 3
"""Stops a call while its checkpoint is saved. SIGUSR1 and SIGUSR2 belong to batch systems and to libraries."""
_COMPILED_S = 10.0
"""Seconds that a call may spend in compiled code before its checkpoint is saved beside it."""
_PAUSE_S = 0.05


class _Current:
    """The call that runs, for the thread that is woken before the job's time ends.

    The checkpoint is saved in the main thread, by a signal handler: so the call stands still, and cannot change what is
    being saved. It stands still until the job ends.
    """

    def __init__(self, place: Path, submission: Submission) -> None:
        self._place, self._submission = place, submission
        self.number = 0
        self.call: DelayedSubmission | None = None
        self._saved: Future[bool] = Future()
        self._stands_still = False
        signal.signal(_STOP, self._on_stop)

    def save(self) -> None:
        """Stop the call, let it write its checkpoint, and queue the job again. Not in the main thread."""
        saved = self._saved = Future()
        self._stands_still = True
        signal.pthread_kill(threading.main_thread().ident or 0, _STOP)
        end_s = time.monotonic() + _COMPILED_S
        while not (saved.running() or saved.done()) and time.monotonic() < end_s:
            time.sleep(_PAUSE_S)
        try:
            if self._write() if saved.cancel() else saved.result():
                walltime.requeue()
        except SlurmError as error:
            print(f"mpi-runtime: {error}", file=sys.stderr)
        finally:
            self._stands_still = False

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        if not self._saved.set_running_or_notify_cancel():
            return
        try:
            again = self._write()
        except BaseException as error:
            self._saved.set_exception(error)
            if isinstance(error, KeyboardInterrupt):
                raise
        else:
            self._saved.set_result(again)  # from here on `requeue` may interrupt
        while self._stands_still:  # until `requeue` interrupts it
            time.sleep(_PAUSE_S)

    def _write(self) -> bool:
        """Write where the call continues. Return whether the job is to be queued again."""
        call, number = self.call, self.number
        checkpoint: Checkpoint | None = getattr(call.fn, "checkpoint", None) if call is not None else None
        if call is None or checkpoint is None:
            return False
        if call.requeues >= self._submission.max_requeues:
            print(f"mpi-runtime: the call has continued {call.requeues} times, its max_requeues", file=sys.stderr)
            return False
        following = checkpoint(*call.args, **call.kwargs)
        if following is None:
            following = call
        following.requeues = call.requeues + 1
        calls.write_continued(self._place, number, following)
        return True


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
