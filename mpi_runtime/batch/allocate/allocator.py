"""The process that submits jobs while commands of a batch wait. It runs no command, and may be killed at any time."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from mpi_runtime.batch.allocate.demand import SOON_S, mean_of, wanted
from mpi_runtime.batch.allocate.spec import Spec
from mpi_runtime.batch.allocate.streak import Streak
from mpi_runtime.batch.file.parse import Group
from mpi_runtime.batch.file.selection import Selection
from mpi_runtime.batch.history import allocations, batch_history, requests, submitted
from mpi_runtime.batch.history.allocations import AllocatedJob, Allocation
from mpi_runtime.batch.history.journal import is_in, process_in_words
from mpi_runtime.batch.history.outlook import Left, begun, left_of
from mpi_runtime.errors import JournalError, LaunchError
from mpi_runtime.files import segments
from mpi_runtime.files.claim import JournalInUseError, TakenOverError
from mpi_runtime.show.numbers import plural
from mpi_runtime.slurm import SlurmError, bounds, jobs, script, systems
from mpi_runtime.slurm.request import Request
from mpi_runtime.slurm.walltime import allocation as own_job

LOOK_S = 1.0
"""Seconds between looks at the journal."""
ASK_S = 5.0
"""Seconds between questions to the batch system."""
REST = 9.0
"""Times as long as a look took it rests: of a long list a look takes seconds of a host that others use too."""
REFUSED_MAX = 10
"""The allocator ends after as many refusals in a row, if no job is left."""
BACK_OFF_S = 5.0, 300.0
"""Seconds until a refused submission is tried again: after the first refusal, and at most."""
ENDS_MAX = 200
"""The duration of a command is the mean of as many that ended last."""


class Allocator:
    """Submits jobs for one batch."""

    def __init__(
        self,
        directory: str,
        spec: Spec,
        request: Request,
        words: tuple[list[str], list[str]],
        batch: tuple[Sequence[Group], Selection],
        say: Callable[[str], None],
    ) -> None:
        """Become the process that submits jobs for this batch.

        `request` is that for a job. `words` are those of a job: first those that all jobs have, then those for the job
        that begins the run. `batch`: the commands of the file, and which of them run.

        Raises:
            JournalError: the journal cannot be used.
            LaunchError: another process is it, or jobs are left that were submitted for other flags.
            OSError: the directory cannot be written to.
        """
        self._directory, self._spec, self._words, self._say = directory, spec, words[0], say
        self._groups, self._selection = batch
        try:
            self._claim = allocations.take(directory, process_in_words(own_job().job))
        except JournalInUseError as error:
            raise LaunchError(
                f"{allocations.allocator_of(directory) or 'another process'} submits jobs for this batch already: "
                f"`mpi-runtime batch status {directory}` shows them. To submit others, end that process first"
            ) from error
        try:
            self._history = batch_history.own_history(directory, "--fresh" in words[1], "")
            self._allocation = self._resumed(words[1])
        except BaseException:
            self._claim.release()
            raise
        self._request = replace(request, name=self._allocation.name)
        self._size = bounds.of(self._request)
        self._read: object = None
        self._asked_s = self._next_s = -ASK_S
        self._refused = self._ends = 0
        self._streak = Streak()
        self._progress_s = -SOON_S
        self._needless = set[str]()
        """Jobs that were cancelled while they waited: all that was left ran."""
        self._said = ""

    def _resumed(self, flags: list[str]) -> Allocation:
        """The allocation that an earlier process has left, or a new one."""
        found = allocations.read(self._directory)
        if found is not None and not found.is_over and flags and flags != found.flags:
            if living := found.living():
                raise LaunchError(
                    f"{plural(len(living), 'job')} of the batch are left, as {living[0].job}: {' '.join(flags)} is for "
                    f"a new run. Continue without it, or end them first: {_cancel(living)}"
                )
            found = None
        if found is not None and not found.is_over:
            found.problem = ""
            return found
        history = self._history
        name = f"{script.safe_name(Path(self._directory).name)}-{os.urandom(3).hex()}"
        name = f"batch-{name}" if name[0].isdigit() else name  # Grid Engine takes no digit there
        is_finished = history.finished is not None or not history.is_planned
        return Allocation(name, history.since, is_finished, flags)

    def run(self) -> int:
        """Submit jobs until nothing is left of the batch, and return its exit code."""
        try:
            while True:
                begin_s = time.thread_time()
                code = self._turn()
                if code is not None:
                    return code
                self._rest(max(LOOK_S, REST * (time.thread_time() - begin_s)))
        except KeyboardInterrupt:
            self._say_what_stays()
            return 130
        finally:
            self._claim.release()

    def _rest(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            time.sleep(min(LOOK_S, left_s))
            self._beat()

    def _beat(self) -> None:
        try:
            self._claim.beat()
        except TakenOverError as error:
            raise LaunchError(f"another process submits jobs for this batch now: {error.strerror}") from error
        except OSError as error:
            self._say_once(f"the claim cannot be written: {error.strerror or error}")

    def _turn(self) -> int | None:
        """Look at the batch and at its jobs, and submit what is missing. Return the exit code at the end."""
        if self._look() and self._allocation.is_finished(self._history):
            return self._finish()
        now_s = time.monotonic()
        if now_s - self._asked_s < ASK_S:
            return None
        self._asked_s = now_s
        if not self._ask():
            return None
        if self._look() and self._allocation.is_finished(self._history):
            return self._finish()
        self._note_progress()
        left = self._left()
        if not (self._allocation.jobs or self._allocation.has_begun(self._history) or left.ready or left.waiting):
            self._say("there is nothing to do, so no job is submitted: all commands are done")
            return 0
        self._cancel_needless(left)
        states = [one.state for one in self._allocation.living()]
        waiting = states.count("PENDING")
        running = len(states) - waiting - states.count("COMPLETING")
        if self._streak.is_enough:
            return 1 if not states else None
        queued = self._spec.queued or self._spec.max
        count = wanted(left, self._size, self._spec.max, queued, running, waiting, self._mean_s())
        if self._allocation.flags and not self._allocation.has_begun(self._history):
            count = min(count, 1 - len(states))  # one begins the run as the flags say, and the others join it
        if count > 0 and now_s >= self._next_s:
            return self._submit(count, len(left.ready), running, waiting)
        if not running and waiting:
            self._say_why()
        if not states and not left.ready and not left.running and (not left.waiting or self._has_requests()):
            # It records that nothing is left, or does what users have left for it.
            return self._submit(1, 0, 0, 0) if now_s >= self._next_s else None
        return None

    def _look(self) -> bool:
        """Read the journal again if it has changed. Return whether it could be read."""
        try:
            paths = segments.paths(Path(self._directory, batch_history.FOLDER))
            seen = [(path, path.stat().st_size) for path in paths]
            if seen != self._read:
                self._history = batch_history.read_history(self._directory)
                self._read = seen
            return True
        except (OSError, JournalError) as error:
            self._say_once(f"the journal cannot be read now: {error}")
            return False

    def _left(self) -> Left:
        if self._allocation.has_begun(self._history):
            return left_of(self._history, self._is_gone())
        history = batch_history.History() if "--fresh" in self._allocation.flags else self._history
        return left_of(begun(history, self._groups, self._selection))

    def _is_gone(self) -> Callable[[str], bool]:
        """Whether a process that has begun commands is known to have ended: they may start."""
        if self._history.began and all(one.state == "PENDING" for one in self._allocation.living()):
            others = batch_history.jobs_of(self._directory)
            return lambda process: process not in others
        ended = [one.job for one in self._allocation.jobs if one.has_ended]
        return lambda process: any(is_in(job, process) for job in ended)

    def _mean_s(self) -> float | None:
        """How long a command takes. Not known if none has ended for a while: those before say nothing then."""
        if time.monotonic() - self._progress_s > SOON_S:
            return None
        return mean_of(one.result.end - one.result.start for one in self._history.all_ends[-ENDS_MAX:])

    def _has_requests(self) -> bool:
        """Whether a user has left a request for the next job."""
        folder = Path(self._directory, batch_history.FOLDER)
        with contextlib.suppress(OSError):
            return bool(requests.pending(folder, os.listdir(folder)))
        return False

    def _ask(self) -> bool:
        """Learn what has become of the jobs. Return whether the batch system has answered."""
        own = self._allocation
        try:
            living = jobs.living(own.name, self._request.system)
        except SlurmError as error:
            if not systems.can_wait(str(error)):
                raise
            self._say_once(f"{error}; asked again every {ASK_S:g} s")
            return False
        before = msgspec.json.encode(own)
        known = {one.job: one for one in own.jobs}
        for job in living.keys() - known.keys():  # the process that submitted it was killed then
            self._say(f"job {job} of this batch is found in the queue")
            self._note(job)
        for one in own.jobs:
            if one.job in living:  # also one that has ended, and was requeued
                one.state, one.has_ended = living[one.job], False
            elif not one.has_ended:
                self._ended(one)
        if msgspec.json.encode(own) != before:
            self._write()
        return True

    def _ended(self, one: AllocatedJob) -> None:
        """Note that a job has ended, and whether it was of use."""
        try:
            found = jobs.status(one.job, self._request.system)
            state, words = found.state, str(found)
            if not found.has_ended:
                one.state = state  # the list that lacks it is older, or not of all partitions
                return
        except SlurmError as error:
            if systems.can_wait(str(error)):
                return  # asked again
            state, words = "ENDED", f"job {one.job} has ended ({error})"
        self._look()
        one.has_ended, one.state = True, state
        one.commands = sum(run.ended for run in self._history.runs if is_in(one.job, run.job))
        with contextlib.suppress(OSError):
            submitted.forget(self._directory, one.job)
        self._say(f"{words.splitlines()[0]}; {plural(one.commands, 'command')} ended in it")
        self._note_progress()
        if one.commands:
            self._streak = Streak()
        elif not self._had_nothing_to_do(one) and (problem := self._streak.add(state, words)):
            self._allocation.problem = problem
            self._say(f"{problem}\nWhen the cause is gone, the same line continues")

    def _had_nothing_to_do(self, one: AllocatedJob) -> bool:
        """Whether a job in which no command has ended was still in order."""
        if one.job in self._needless or self._allocation.is_finished(self._history):
            return True
        return one.state == "COMPLETED" and not self._left().ready

    def _note_progress(self) -> None:
        """If commands have ended since the last look, jobs are of use again."""
        before, self._ends = self._ends, len(self._history.all_ends)
        if before == self._ends:
            return
        self._progress_s = time.monotonic()
        if self._streak:
            self._streak, self._allocation.problem = Streak(), ""
            self._write()

    def _submit(self, count: int, ready: int, running: int, waiting: int) -> int | None:
        """Submit jobs, or say why that is refused. Return an exit code if there is no hope."""
        own = self._allocation
        if not own.jobs:
            allocations.write(self._directory, own)  # else no other process would know the name of these jobs
        flags = own.flags if not own.has_begun(self._history) else []
        text = script.text(self._request, (*self._words, *flags, "--allocation", own.name))
        found = []
        try:
            for _ in range(count):
                self._beat()  # a busy controller answers late, and each answer may take a minute
                found.append(jobs.submit_script(text, system=self._request.system))
                self._note(found[-1])
                self._write()
        except SlurmError as error:
            self._refused += 1
            is_hopeless = not own.jobs and not systems.can_wait(str(error))
            if is_hopeless or (self._refused >= REFUSED_MAX and not own.living()):
                raise LaunchError(f"{error}\nNo job of this batch is left; the same line tries again") from error
            pause_s = min(BACK_OFF_S[0] * 2 ** (self._refused - 1), BACK_OFF_S[1])
            self._next_s = time.monotonic() + pause_s
            own.problem = f"a job was refused, and is tried again after {pause_s:g} s: {error}"
            self._say(own.problem)
            self._write()
        else:
            self._refused = 0
            if own.problem:
                own.problem = ""
                self._write()
        if found:
            state = f"{ready} commands may start, {running} jobs run, {waiting + len(found)} wait"
            self._say(f"submitted: {plural(len(found), 'job')}, {', '.join(found)}; {state}")
        return None

    def _note(self, job: str) -> None:
        self._allocation.jobs.append(AllocatedJob(job, time.time()))
        try:
            submitted.note(self._directory, [job])
        except OSError as error:  # `batch wait` does not know of it, then
            self._say_once(f"a job cannot be noted: {error.strerror or error}")

    def _cancel_needless(self, left: Left) -> None:
        """Cancel jobs that wait in the queue, if no command waits for them."""
        waiting = [one.job for one in self._allocation.living() if one.state == "PENDING"]
        if not waiting or left.ready or left.waiting:
            return
        try:
            jobs.cancel_waiting(waiting, self._request.system)
            self._needless.update(waiting)
            self._say_once(f"all that is left runs: cancelled {', '.join(waiting)}, which waited in the queue")
        except SlurmError as error:
            self._say_once(f"jobs that wait in the queue cannot be cancelled: {error}")

    def _finish(self) -> int:
        """Nothing is left: cancel what waits, and return the exit code of the batch."""
        own = self._allocation
        assert self._history.finished is not None
        try:
            living = jobs.living(own.name, self._request.system)
            jobs.cancel_waiting([job for job, state in living.items() if state == "PENDING"], self._request.system)
        except SlurmError as error:
            self._say(f"jobs that wait in the queue cannot be cancelled, and will have nothing to do: {error}")
        for one in own.jobs:
            one.commands = sum(run.ended for run in self._history.runs if is_in(one.job, run.job))
            one.state = one.state if one.has_ended else "ENDED"
            one.has_ended = True
        own.is_over, own.problem = True, ""
        self._write()
        failed = self._history.finished.exit_code
        self._say(
            f"nothing is left of the batch, after {plural(len(own.jobs), 'job')}"
            + (f"; see `mpi-runtime batch status {self._directory}`" if failed else "")
        )
        return failed

    def _say_why(self) -> None:
        """Say why the first job waits."""
        first = next(one.job for one in self._allocation.living() if one.state == "PENDING")
        with contextlib.suppress(SlurmError):
            self._say_once(str(jobs.status(first, self._request.system)).splitlines()[0])

    def _say_what_stays(self) -> None:
        self._ask()  # the interrupt may have met a submission
        living = self._allocation.living()
        if not living:
            self._say("interrupted: no job is left; the same line continues")
            return
        running = sum(one.state != "PENDING" for one in living)
        self._say(
            f"interrupted: {running} jobs run and continue, {len(living) - running} wait in the queue and will start; "
            f"no more are submitted. The same line continues; `mpi-runtime batch status {self._directory}` shows them; "
            f"to end them: {_cancel(living, self._request.system)}"
        )

    def _say_once(self, words: str) -> None:
        if words != self._said:
            self._said = words
            self._say(words)

    def _write(self) -> None:
        try:
            allocations.write(self._directory, self._allocation)
        except OSError as error:
            self._say_once(f"the record of the jobs cannot be written: {error.strerror or error}")


def _cancel(living: Sequence[AllocatedJob], system: str | None = None) -> str:
    return " ".join([jobs.cancel_command(system), *(one.job for one in living)])
