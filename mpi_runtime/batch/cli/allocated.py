"""`batch FILE --allocate`: submits jobs that run the batch, while commands wait."""

import argparse
import os
import sys
from collections.abc import Sequence

from mpi_runtime.batch.allocate.allocator import Allocator
from mpi_runtime.batch.allocate.demand import jobs_for
from mpi_runtime.batch.allocate.spec import Spec, read_spec
from mpi_runtime.batch.cli.part import selection_of
from mpi_runtime.batch.cli.reading import checked, directory_of, refuse
from mpi_runtime.batch.file.entries import is_refused
from mpi_runtime.batch.file.parse import Group
from mpi_runtime.batch.file.selection import Selection
from mpi_runtime.batch.history import batch_history
from mpi_runtime.batch.history.outlook import begun, left_of
from mpi_runtime.batch.show.overview import described
from mpi_runtime.errors import LaunchError
from mpi_runtime.show.numbers import plural
from mpi_runtime.slurm import Request, SlurmError, bounds, jobs, script
from mpi_runtime.slurm.allocation import AllocationError

SHORT_S = 60
"""A time below it was probably meant as hours and minutes."""
_OF_ONE_RUN = {"--fresh": False, "--retry-failed": False, "--keep-done": False, "--only": True, "--from": True}
"""Flags that only the job which begins a run follows, and whether they have a value."""
_OF_THIS_PROCESS = {"--allocate": True, "--idle-timeout": True, "--join": False, "--check": False}
_NOT_HERE = ("ranks", "mpi", "session", "hosts", "requeue", "json")
"""Options of a run that say where it runs; here `--allocate` does."""


def allocate(options: argparse.Namespace) -> int:
    """Submit jobs until nothing is left of the batch; with `--check`, show what would be submitted."""
    for name in _NOT_HERE:
        if getattr(options, name) not in (None, False, 1):
            raise LaunchError(f"--{name} is for a batch in this job, and --allocate runs it in jobs of its own")
    if options.file == "-":
        raise LaunchError("--allocate needs a file: the jobs do not have this standard input")
    try:
        spec = read_spec(options.allocate)
    except ValueError as error:
        raise LaunchError(f"--allocate: {error}") from None
    try:
        request = jobs.make_request(spec.profile, **spec.request, name=f"batch-{os.path.basename(options.file)}")
        size = bounds.of(request)
        if request.requeue:
            raise LaunchError("the profile has requeue = true, and --allocate submits a job again by itself")
        return _allocate(options, spec, request, size)
    except AllocationError:
        raise
    except (SlurmError, ValueError, TypeError) as error:
        raise LaunchError(str(error)) from None


def _allocate(options: argparse.Namespace, spec: Spec, request: Request, size: bounds.Bounds) -> int:
    stated = bool(options.gpus_per_node)
    groups, problems = checked(options, size._replace(gpus=float("inf")) if stated else size)
    if is_refused(problems):
        return refuse(options.file, problems)
    for problem in problems:
        print(problem.shown(options.file), file=sys.stderr)
    directory = directory_of(options)
    own_file = "" if options.directory else options.file
    history = batch_history.own_history(directory, options.fresh, own_file)
    if options.fresh:
        history = batch_history.History()
    selection = selection_of(options, groups, history, False)
    words, flags = job_words(options, spec)
    if options.check:
        return _show((groups, selection, history), spec, request, size, [*words, *flags])
    if bounds.seconds(request.time) < SHORT_S and (note := script.time_note(request)):
        _say(note)
    try:
        return Allocator(directory, spec, request, (words, flags), (groups, selection), _say).run()
    except OSError as error:  # before the first job; a later one is logged
        raise LaunchError(
            f"the directory of the batch cannot be written: {error.strerror or error} ({error.filename or directory}). "
            "No job was submitted"
        ) from error


def job_words(options: argparse.Namespace, spec: Spec) -> tuple[list[str], list[str]]:
    """The program of a job: the words that all jobs have, and those for the job that begins the run."""
    words, flags = ["-m", "mpi_runtime.batch"], list[str]()
    rest = iter(options.words)
    for word in rest:
        name, equals, _ = word.partition("=")
        for known, found in ((_OF_ONE_RUN, flags), (_OF_THIS_PROCESS, [])):
            if name in known:
                found += [word, *([next(rest)] if known[name] and not equals else [])]
                break
        else:
            words.append(word)
    idle_s = options.idle_timeout if spec.idle_s is None else spec.idle_s
    return [*words, "--join", "--idle-timeout", f"{idle_s:g}"], flags


def _show(
    batch: tuple[Sequence[Group], Selection, batch_history.History],
    spec: Spec,
    request: Request,
    size: bounds.Bounds,
    words: Sequence[str],
) -> int:
    groups, selection, history = batch
    left = left_of(begun(history, groups, selection))
    count = min(spec.max, spec.queued or spec.max, jobs_for(left, size))
    print("\n".join(described(groups)))
    if not left.ready and not left.waiting:
        print("nothing would be submitted: all commands are done")
        return 0
    print(
        f"{plural(len(left.ready), 'command')} may start at once: {plural(count, 'job')} would be submitted first, and "
        f"{spec.max} at a time at most. Each:\n"
    )
    print(script.text(request, tuple(words)), end="")
    return 0


def _say(line: str) -> None:
    print(f"mpi-runtime batch: {line}", file=sys.stderr, flush=True)
