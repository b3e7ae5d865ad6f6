"""Sessions in jobs of a batch system: submitted, waited for, asked about, ended.

The job runs `mpi-runtime session keep` as the program of rank 0. Its files lie beside the session file, and its program
runs in the directory in which it was submitted.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mpi_runtime.errors import LaunchError
from mpi_runtime.files import session_files
from mpi_runtime.files.session_files import Session
from mpi_runtime.slurm import following, jobs, script
from mpi_runtime.slurm.commands import SlurmError
from mpi_runtime.slurm.status import Status

END_LIMIT_S = 60.0
"""Seconds that a session may take to end in order. Then its job is cancelled."""
OUTPUT_LINES = 20
"""The last lines of the output of a session that did not start."""
LOOK_S = 0.2


def submit(
    name: str, words: Sequence[str], profile: str | None, options: Mapping[str, object], claim: Callable[[Path], None]
) -> tuple[Path, Session]:
    """Submit the job of a session. Return the path of its file, and the content.

    Args:
        name: of the session.
        words: further options of `session keep`.
        profile: a name in the file of profiles; None: its `[default]`.
        options: fields of `Request`.
        claim: raises an error if a session has this file, and removes the file of one that has ended.

    Raises:
        LaunchError: the batch system refuses the job, or an option is not allowed.
    """
    try:
        request = jobs.make_request(profile, name=f"session-{name}", **options)
        if request.array is not None:
            raise ValueError("a session has no array: each task would be the same session")
        path = session_files.path_of(name, jobs.cluster(request.system))
        session = made(path, request.system, claim)
        try:
            request = replace(request, setup=(f"cd {shlex.quote(os.getcwd())}", *request.setup))
            text = script.text(request, ("-m", "mpi_runtime", "session", "keep", "--file", str(path), *words))
            session.job = jobs.submit_script(text, str(path.parent), request.system)
            try:
                session.output = jobs.status(session.job, request.system).output or ""
                session_files.write(path, session)
            except BaseException:
                jobs.cancel(session.job, request.system)
                raise
        except BaseException:
            session_files.forget(path, session)
            raise
    except (SlurmError, ValueError, TypeError, OSError) as error:
        raise LaunchError(str(error)) from error
    return path, session


def made(path: Path, system: str, claim: Callable[[Path], None]) -> Session:
    """Make the file of a new session. `system` as in `session_files.new`, `claim` as in `submit`.

    Raises:
        OSError: it cannot be made.
    """
    while True:
        with contextlib.suppress(FileExistsError):
            found = session_files.new(path, system)
            _discard_files(path)
            return found
        claim(path)


def _discard_files(path: Path) -> None:
    """Remove the files of earlier jobs of a session."""
    name = re.escape(path.name.removesuffix(session_files.SUFFIX))
    for one in path.parent.glob("session-*"):
        if re.fullmatch(rf"session-{name}-\d+\.(out|exit)", one.name):
            with contextlib.suppress(OSError):
                one.unlink()


def wait(path: Path, made: Session, limit_s: float | None = None) -> Session:
    """Wait until programs can connect to a session, with a line about its job.

    Raises:
        LaunchError: it has ended before, or the time is over. Its job is cancelled then, and its file removed.
    """

    def is_open() -> bool:
        found = _read(path, made)
        return found is None or found.is_open

    try:
        now = following.wait(made.job, is_open, limit_s)
    except SlurmError as error:
        raise LaunchError(str(error)) from error
    found = _read(path, made)
    if found is not None and found.is_open and not now.has_ended:
        return found
    why = session_files.end_of(path, made)
    output = _output(path, made) if now.has_ended or found is None else []
    abandon(path, made)
    if now.has_ended or found is None:
        words = f"the session {made.name!r} has not started{f': {why}' if why else ''}"
        raise LaunchError("\n".join([f"{words}. {str(now).splitlines()[0]}. Its output:", *output]))
    raise LaunchError(
        f"the job {made.job} of the session {made.name!r} has not started in {limit_s:g} s, and was cancelled: "
        f"{str(now).splitlines()[0]}"
    )


def _output(path: Path, made: Session) -> list[str]:
    with contextlib.suppress(OSError):
        return session_files.output_of(path, made).read_text(errors="replace").splitlines()[-OUTPUT_LINES:]
    return []


def _read(path: Path, made: Session) -> Session | None:
    """Return the present content of a session file; None: it is gone, or another session has its name."""
    try:
        found = session_files.read(path)
    except FileNotFoundError:
        return None
    return found if found.secret == made.secret else None


def abandon(path: Path, made: Session) -> None:
    """Cancel the job of a session, and forget it."""
    with contextlib.suppress(SlurmError):
        jobs.cancel(made.job, made.system)
    session_files.forget(path, made)


def end(path: Path, made: Session) -> None:
    """End a session, and wait until its job has ended.

    Raises:
        LaunchError: the batch system does not answer, or this is another cluster.
    """
    check_is_here(path, made)
    try:
        jobs.end(made.job, made.system)
        until_s = time.monotonic() + END_LIMIT_S
        while not jobs.has_ended(made.job, made.system):
            if time.monotonic() > until_s:
                until_s = time.monotonic() + END_LIMIT_S
                jobs.cancel(made.job, made.system)
            time.sleep(LOOK_S)
    except SlurmError as error:
        raise LaunchError(str(error)) from error
    session_files.forget(path, made)


def discard(path: Path, made: Session) -> None:
    """End a session that belongs to one program, and remove its files."""
    end(path, made)
    _discard_files(path)
    session_files.forget_end(path)


def is_here(path: Path, made: Session) -> bool:
    """Whether the batch system of a session is that of this host. It may not answer."""
    with contextlib.suppress(SlurmError):
        return session_files.directory(jobs.cluster(made.system)) == path.parent
    return False


def check_is_here(path: Path, made: Session) -> None:
    """Raise LaunchError if a session is one of another cluster, or its batch system does not answer."""
    if not is_here(path, made):
        raise LaunchError(
            f"the session {made.name!r} runs in job {made.job} of the cluster {path.parent.name}, whose batch system "
            "does not answer here: give the command there"
        )


def is_dead(path: Path, session: Session) -> bool:
    """Whether a session is known to have ended, by its process or its batch system."""
    if session_files.is_dead(session):
        return True
    if not session.job or not is_here(path, session):
        return False
    with contextlib.suppress(SlurmError):
        return jobs.has_ended(session.job, session.system)
    return False


def status(path: Path, session: Session) -> Status | None:
    """Return the status of the job of a session; None: it has none, or its batch system does not answer."""
    if session.job and is_here(path, session):
        with contextlib.suppress(SlurmError):
            return jobs.status(session.job, session.system)
    return None
