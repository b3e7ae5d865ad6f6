"""`Executor`: a `concurrent.futures.Executor` whose calls are jobs of the batch system. `job.py` has its futures."""

import math
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from mpi_runtime.slurm import calls, jobs, script, systems
from mpi_runtime.slurm.calls import DelayedSubmission
from mpi_runtime.slurm.commands import SlurmError
from mpi_runtime.slurm.job import Job, Submitted
from mpi_runtime.slurm.script import TASK

T = TypeVar("T")
PROGRAM = ("-m", "mpi_runtime.slurm.call_program")
LOOK_S = 0.2
"""Seconds between looks at the directories of results."""


class Executor(futures.Executor):
    """Calls functions in jobs of the batch system, from the login node or anywhere else where jobs can be submitted.

    Each call is a job, or calls are tasks of an array (`map_array`, `batch`). Function, arguments and result are
    pickled into files in a folder that all nodes see. If this program ends, calls continue: `jobs()` of another
    program with the same folder finds them and their results. In a job the function is the program of rank 0. It may
    call `mpi_runtime.init()`, and so use all nodes of the job.

    A callable with a method `checkpoint` can take longer than a job may. Shortly before the end of the job's time, or
    at a preemption, `checkpoint` is called in a thread of its own with the arguments of the call, and the job is
    queued again. It returns the `DelayedSubmission` with which the call continues; None: the callable itself and the
    arguments, as they are then.

    Args:
        folder: where calls, results and output are kept. All nodes must see it.
        profile: a name in the file of profiles; None: its `[default]`.
        **options: see `update_parameters`.

    Raises:
        ValueError, TypeError: an option does not exist, or a value is not allowed.
    """

    def __init__(self, folder: str | Path, *, profile: str | None = None, **options: Any) -> None:
        self.folder = Path(folder).absolute()
        self._profile = profile
        self._parameters: _Parameters = _Parameters()
        self._options: dict[str, Any] = {}
        self._batch: list[tuple[DelayedSubmission, Job[Any]]] | None = None
        self._watch = _Watch()
        self._is_shut = False
        self.update_parameters(**options)

    def update_parameters(self, **options: Any) -> None:
        """Change options of the calls that are submitted from now on.

        Args:
            **options: the fields of `Request`, such as nodes=2, gpus_per_node=4, time="1:00:00"; and
                `calls_per_job`: how many calls of an array one task makes, one after the other (1), for short calls;
                `array_parallelism`: how many tasks of an array run at a time, None for no limit;
                `max_requeues`: how often a call continues after its checkpoint (3);
                `checkpoint_s`: how many seconds before the end of the job's time `checkpoint` is called (60).

        Raises:
            ValueError, TypeError: an option does not exist, or a value is not allowed.
        """
        own: dict[str, Any] = {name: options.pop(name) for name in _Parameters.names() & options.keys()}
        if "array" in options:
            raise ValueError("array cannot be stated: calls of map_array() and batch() are tasks of an array")
        merged = {**self._options, **options}
        jobs.make_request(self._profile, **merged)
        self._parameters, self._options = replace(self._parameters, **own), merged

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Job[T]:
        """Submit a call, as a job of its own, and return its future.

        Raises:
            SlurmError: the batch system refused.
            TypeError: the function or an argument cannot be serialised.
            RuntimeError: the executor was shut down.
        """
        self._check_open()
        call, job = DelayedSubmission(fn, *args, **kwargs), Job[T]()
        if self._batch is not None:
            self._batch.append((call, job))
        else:
            self._submit([call], [job], is_array=False)
        return job

    def map_array(self, fn: Callable[..., T], *iterables: Iterable[Any]) -> list[Job[T]]:
        """Submit a call for each element of the iterables, as `map` does, in arrays of jobs. Return their futures."""
        with self.batch():
            return [self.submit(fn, *args) for args in zip(*iterables, strict=False)]

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        """Return the results of `map_array` in order. `chunksize` counts if it is more than `calls_per_job`.

        Raises:
            TimeoutError: a result was not there `timeout` seconds after the call of `map`.
        """
        end_s = None if timeout is None else time.monotonic() + timeout
        before = self._parameters
        self._parameters = replace(before, calls_per_job=max(chunksize, before.calls_per_job))
        try:
            found = self.map_array(fn, *iterables)
        finally:
            self._parameters = before
        return (job.result(None if end_s is None else end_s - time.monotonic()) for job in found)

    @contextmanager
    def batch(self) -> Generator[None]:
        """Calls that are submitted in this context are tasks of arrays, submitted at its end; none if it raises."""
        self._check_open()
        if self._batch is not None:
            yield  # the outer one submits
            return
        pairs = self._batch = []
        try:
            try:
                yield
            finally:
                self._batch = None
            size = self._array_max() * self._parameters.calls_per_job
            for first in range(0, len(pairs), size):
                some = pairs[first : first + size]
                self._submit([call for call, _ in some], [job for _, job in some], is_array=True)
        except BaseException:
            for job in (job for _, job in pairs if job.submitted is None):
                job.cancel()  # else who has it would wait for ever
            raise

    def _array_max(self) -> int:
        system = jobs.make_request(self._profile, **self._options).system
        most = systems.queue(system).ARRAY_MAX
        if most == 1 and self._parameters.array_parallelism is not None:
            raise ValueError(f"array_parallelism needs arrays of jobs, and {system} has none")
        return most

    def jobs(self) -> list[Job[Any]]:
        """Return the futures of all calls in the folder, in the order of submission, also those of other programs."""
        known = {one.place: one for one in self._watch.all}
        found = sorted(path.parent for path in self.folder.glob(f"*/{calls.SUBMISSION}"))
        for place in (one for one in found if one not in known):
            submission = calls.read(place)
            known[place] = Submitted(place, submission, calls.read_job(place), [Job() for _ in submission.ends])
            self._watch.add(known[place])
        return [job for place in found for job in known[place].jobs]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls. `wait`: until all have ended. `cancel_futures`: cancel those that have not ended."""
        self._is_shut = True
        open_jobs = [job for one in self._watch.all for job in one.jobs if not job.done()]
        for job in open_jobs if cancel_futures else ():
            job.cancel()
        if wait:
            futures.wait(open_jobs)

    def _check_open(self) -> None:
        if self._is_shut:
            raise RuntimeError("this executor was shut down: make another one with the same folder")

    def _submit(self, some: Sequence[DelayedSubmission], made: list[Job[Any]], is_array: bool) -> None:
        own = self._parameters
        place = self.folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**9:09d}-{uuid.uuid4().hex[:4]}"
        self.folder.mkdir(parents=True, exist_ok=True)
        submission = calls.write(
            place,
            some,
            calls_per_job=own.calls_per_job if is_array else 1,
            max_requeues=own.max_requeues,
            checkpoint_s=own.checkpoint_s,
        )
        options = {"name": some[0].name, **self._options}
        is_array = is_array and submission.tasks > 1  # PBS has no array of one task
        if is_array:
            limit = f"%{own.array_parallelism}" if own.array_parallelism else ""
            options["array"] = f"1-{submission.tasks}{limit}"
        program = (*PROGRAM, str(place), TASK if is_array else "1")
        try:
            request = jobs.make_request(self._profile, **options)
            job_id = jobs.submit_script(script.text(request, program), str(place), request.system)
        except (SlurmError, ValueError):
            shutil.rmtree(place, ignore_errors=True)
            raise
        job = calls.BatchJob(job_id, request.system, is_array)
        calls.write_job(place, job)
        self._watch.add(Submitted(place, submission, job, made))


@dataclass(frozen=True)
class _Parameters:
    """Options of `Executor` that are not those of a job: see `update_parameters`."""

    calls_per_job: int = 1
    array_parallelism: int | None = None
    max_requeues: int = 3
    checkpoint_s: float = 60.0

    def __post_init__(self) -> None:
        for name, least in (("calls_per_job", 1), ("array_parallelism", 1), ("max_requeues", 0)):
            value = getattr(self, name)
            is_right = isinstance(value, int) and not isinstance(value, bool) and value >= least
            if not is_right and not (name == "array_parallelism" and value is None):
                raise ValueError(f"{name} must be a whole number, {least} or more, not {value!r}")
        stated = cast(object, self.checkpoint_s)  # a caller may state anything
        if not isinstance(stated, (int, float)) or not 0 <= stated < math.inf:
            raise ValueError(f"checkpoint_s must be a finite number of seconds, 0 or more, not {self.checkpoint_s!r}")

    @classmethod
    def names(cls) -> set[str]:
        """The names of these options."""
        return {field.name for field in fields(cls)}


class _Watch:
    """The thread that looks for results. It ends when no call is open, and with the program."""

    def __init__(self) -> None:
        self.all: list[Submitted] = []
        self._open: list[Submitted] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, submitted: Submitted) -> None:
        """Watch a submission until all its calls have ended."""
        with self._lock:
            self.all.append(submitted)
            self._open.append(submitted)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="mpi_runtime executor", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            with self._lock:
                watched = list(self._open)
            for one in watched:
                _look(one)
            with self._lock:
                self._open = [one for one in self._open if one.open]
                if not self._open:
                    self._thread = None
                    return
            time.sleep(LOOK_S)


def _look(submitted: Submitted) -> None:
    try:
        submitted.look()
    except Exception as error:  # such as a directory that is gone: nothing else would end these futures
        submitted.fail(error)
