"""Jobs of batch systems: submit them, and ask for their status."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mpi_runtime.slurm import profiles, script, systems
from mpi_runtime.slurm.commands import SlurmError
from mpi_runtime.slurm.environment import environment
from mpi_runtime.slurm.request import Request
from mpi_runtime.slurm.status import Granted, Status, table, task_number, task_numbers
from mpi_runtime.slurm.systems import flux, lives
from mpi_runtime.slurm.systems.slurm import facts_of
from mpi_runtime.slurm.systems.system import Queue

__all__ = [
    "VARIABLES", "Granted", "Status", "cancel", "cancel_command", "cancel_waiting", "check_program", "cluster", "end",
    "facts_of", "granted", "has_ended", "living", "make_request",
    "status", "statuses", "submit", "submit_script", "table", "task_numbers",
]  # fmt: skip
VARIABLES = (profiles.FILE, script.WARN_S, lives.LIFE, flux.PLACE)
"""The variables that this package reads, or that its batch scripts set."""
_ID = re.compile(r"\d+(_\d+|\+\d+)?")
"""A job, a task of an array, or a part of a heterogeneous job."""


def make_request(profile: str | None = None, **options: Any) -> Request:
    """Return the request of a profile and these options. Options that are None count as not given.

    Raises:
        ValueError, TypeError: the profile or an option does not exist, or a value is not allowed.
    """
    given = {name: value for name, value in options.items() if value is not None}
    profiles.check_names(given, "submit()")
    wanted = profiles.merged(profiles.read(profiles.path(environment()), profile), given)
    fields: dict[str, Any] = {"system": systems.present(environment()), **wanted}
    request = Request(**fields)
    return systems.queue(request.system).complete(request)


def submit(program: str | Sequence[str], *, profile: str | None = None, cwd: str | None = None, **options: Any) -> str:
    """Submit a program to the batch system and return the id of its job.

    Args:
        program: the program, "app.py", or a list with its arguments: ["app.py", "argument"], ["-m", "package.module"].
        profile: a name in the file of profiles; None: its `[default]`.
        cwd: the directory in which the job runs and writes its output; None: the present one. All nodes must see it.
        **options: the fields of `Request`, such as nodes=2, gpus_per_node=4, time="1:00:00". They come before a
            profile.

    Raises:
        SlurmError: the batch system refused, or no nodes can ever run the job. The message says why.
        ValueError, TypeError: an option is not allowed, or the program is not a file.
    """
    words = (program,) if isinstance(program, str) else tuple(program)
    request = make_request(profile, **options)
    check_program(request, words, cwd)
    return submit_script(script.text(request, words), cwd, request.system)


def check_program(request: Request, program: tuple[str, ...], cwd: str | None = None) -> None:
    """Raise ValueError if the program is not a file of the job's directory, as far as this host can tell."""
    word = program[0] if program else ""
    if not word or word in ("-m", "-c") or Path(cwd or ".", word).exists():
        return
    if (parts := word.split())[1:] and Path(cwd or ".", parts[0]).exists():
        raise ValueError(f"there is no file {word!r}: a program with arguments is a list, {parts}")
    moves = any(re.search(r"\bcd\b|\bpushd\b", line) for line in request.setup)
    moves = moves or any(re.match(r"--chdir|-D", option) for option in request.sbatch)
    if not moves and not (request.array is not None and script.TASK in word):
        raise ValueError(f"there is no file {word!r} in {Path(cwd or '.').resolve()}, where the job would look for it")


def submit_script(text: str, cwd: str | None = None, system: str = "slurm") -> str:
    """Submit a batch script and return the id of its job.

    Raises:
        SlurmError: the batch system refused, or no nodes can ever run it. The message says why.
    """
    return systems.queue(system).submit(text, cwd)


def cancel_waiting(jobs: Sequence[str], system: str | None = None) -> None:
    """Cancel those of these jobs that have not started; jobs that run are left alone.

    Raises:
        SlurmError: the batch system does not answer.
    """
    if jobs:
        _queue(system).cancel_waiting(jobs)


def status(job: str | int, system: str | None = None) -> Status:
    """Return the status of a job, or of one task of an array ("12_3").

    `system`: the batch system, by its name; None: that of this job, or else the one that is installed.

    Raises:
        SlurmError: the batch system does not know the job, or does not answer; or the job is an array: see `statuses`.
    """
    found = statuses(job, system)
    if len(found) > 1:
        raise SlurmError(f"job {job} is an array: ask for one of its tasks, as {found[0].job}, or for statuses({job})")
    return found[0]


def statuses(job: str | int, system: str | None = None) -> list[Status]:
    """Return the status of each task of an array, in order. Tasks that wait together are one entry.

    For other jobs the list has one entry. `system` as in `status`.

    Raises:
        SlurmError: the batch system does not know the job, or does not answer.
    """
    name = _as_printed(str(job))
    if not _ID.fullmatch(name):
        raise SlurmError(f"{str(job)!r} is not the id of a job: ids are like 4711, or 4711_3 for a task of an array")
    return sorted(_queue(system).statuses(name), key=task_number)


def living(name: str, system: str | None = None) -> dict[str, str]:
    """Return the state of each job of this name that has not ended, by id. Few users have jobs of such a name.

    Raises:
        SlurmError: the batch system does not answer.
    """
    return _queue(system).living(name)


def granted(job: str | int) -> dict[str, Granted]:
    """Return the resources of a running job on each of its nodes, by name; empty if they are not stated.

    Raises:
        SlurmError: the batch system does not know the job, or does not answer.
    """
    return _queue(None).granted(str(job))


def has_ended(job: str, system: str | None = None) -> bool:
    """Return whether a job has ended. One that the batch system does not know any more has.

    Raises:
        SlurmError: the batch system does not answer.
    """
    try:
        return all(one.has_ended for one in statuses(job, system))
    except SlurmError as error:
        if any(words in str(error).lower() for words in _queue(system).UNKNOWN):
            return True
        raise


def end(job: str, system: str | None = None) -> None:
    """Cancel a job that waits, and have the program of one that runs end in order, if the batch system can.

    Raises:
        SlurmError: the batch system does not answer.
    """
    _queue(system).end(job)


def cancel(job: str, system: str | None = None) -> None:
    """Cancel a job, whatever its state.

    Raises:
        SlurmError: the batch system does not answer.
    """
    _queue(system).cancel(job)


def cluster(system: str | None = None) -> str:
    """Return the name of the cluster; empty: it has none.

    Raises:
        SlurmError: the batch system does not answer.
    """
    return _queue(system).cluster()


def cancel_command(system: str | None = None) -> str:
    """Return the command that ends a job, for people."""
    return _queue(system).CANCEL


def _as_printed(job: str) -> str:
    """Return the id for 4711.server and 4711[3].server of PBS, 4711[3] of LSF, and ƒ2ocEvDUtBb of Flux."""
    found = re.fullmatch(r"(\d+)(?:\[(\d*)\])?(?:\.[\w.-]+)?", job)
    return flux.decimal(job) if found is None else "_".join(filter(None, found.groups()))


def _queue(system: str | None) -> Queue:
    """The batch system of this name, else that of the profile `[default]`, of this job, or the one installed here."""
    env = environment()
    try:
        return systems.queue(system or profiles.read(profiles.path(env), None).get("system") or systems.present(env))
    except ValueError as error:  # of the file of profiles
        raise SlurmError(str(error)) from None
