"""Finding a session by its address: `session:NAME`, `slurm:JOB` or `auto`.

A session is near if its door is on this host, in the network namespace of this program. One on another host is found by
its file, and reached by ssh or srun (`far.py`).
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import NamedTuple

from mpi_runtime import config as configuration
from mpi_runtime.core.client import current
from mpi_runtime.core.driver.head_handle import is_beside_mpi
from mpi_runtime.core.host.launch import detect
from mpi_runtime.core.transport.hello import address_of
from mpi_runtime.core.transport.local import reached
from mpi_runtime.errors import LaunchError
from mpi_runtime.files import session_files
from mpi_runtime.show import log

_START = "start one with `mpi-runtime session start{}`"


class Found(NamedTuple):
    """A session, and a connection to its door."""

    path: Path
    session: session_files.Session
    end: socket.socket | None
    """None: the session is on another host, and was not dialled."""

    def close(self) -> None:
        """Do not connect."""
        if self.end is not None:
            self.end.close()


def find(address: str, variable: str = "") -> Found | None:
    """Return the session at an address, with a connection to its door; None: this program starts a job of its own.

    `variable`: the one that has the address; empty: it is an argument of `init()`.

    Raises:
        ValueError: this is not an address.
        ConnectionError: there is no such session, or several. The message lists them.
        LaunchError: this program cannot be a driver of a session.
    """
    if address == "local":
        return None
    if not configuration.is_own_address(address):
        if variable == configuration.RAY_ADDRESS:
            text = f"the variable {variable} is {address!r}, a cluster of Ray: ignored, since this is not Ray"
            log.say(log.line(log.WARNING, log.START, text), quiet=False)
            return None
        raise ValueError(
            f"{variable or 'init(address)'} is {address!r}; it may be 'local', or for a session that "
            "`mpi-runtime session start` has started: 'session:NAME', 'auto', 'slurm:JOB'. A job of several ranks: "
            "`mpirun -n N python app.py`."
        )
    if current.aside() is not None:
        raise LaunchError(f"{address!r}: calls with own_scheduler=True bring their own job, and connect to no other.")
    if is_beside_mpi():
        raise LaunchError(
            f"{address!r}: this program has started MPI itself, and cannot connect to a session. Connect in another "
            "process."
        )
    if address == "auto":
        return _only()
    if address.startswith("slurm:"):
        return _named(_of_job(address))
    return _named(address.removeprefix("session:"))


def _of_job(address: str) -> str:
    """Return the name of the session in the batch job of an address."""
    known = session_files.all_of()
    for _, session in known:
        if session.job == address.removeprefix("slurm:"):
            return session.name
    raise ConnectionError(
        f"init({address!r}): no session of this user is in this job; {_START.format('')}.{_elsewhere(known)}"
    )


def _only() -> Found | None:
    """Return the only session of this user on this host."""
    known = session_files.all_of()
    found = [one for path, session in known if (one := _reached(path, session)) is not None]
    if len(found) == 1:
        return found[0]
    for one in found:
        one.close()
    if not found:
        found = [Found(path, session, None) for path, session in known if _is_far(path, session)]
        if len(found) == 1 and detect(configuration.environment()).size == 1:
            return found[0]
    if found:
        names = "".join(f"\n  init('session:{one.session.name}')  {_in_words(one.session)}" for one in found)
        here = "" if found[0].end is None else " on this host"
        raise ConnectionError(f"init('auto'): {len(found)} sessions of this user run{here}; name one:{names}")
    if detect(configuration.environment()).size != 1:
        return None  # the launcher has started ranks for this program, which are its cluster
    raise ConnectionError(
        f"init('auto'): no session of this user runs on this host; {_START.format('')}.{_elsewhere(known)}"
    )


def _named(name: str) -> Found:
    try:
        known = session_files.all_of(name)
    except LaunchError as error:
        raise ValueError(f"init('session:{name}'): {error}") from None
    found = [one for path, session in known if (one := _reached(path, session)) is not None]
    for one in found[1:]:
        one.close()
    if not found:
        found = [Found(path, session, None) for path, session in known if _is_far(path, session)]
    if found:
        return found[0]
    where = f"init('session:{name}'): "
    if not known:
        others = session_files.all_of()
        raise ConnectionError(
            f"{where}there is no session of this name; {_START.format(f' --name {name}')}.{_elsewhere(others)}"
        )
    raise ConnectionError(f"{where}{'; '.join(_why_not(path, session) for path, session in known)}.")


def _is_far(path: Path, session: session_files.Session) -> bool:
    """Whether a session is to be dialled."""
    is_elsewhere = session.is_open and session.host != os.uname().nodename
    return is_elsewhere and not (session.job and _why_not_in_job(path, session))


def _reached(path: Path, session: session_files.Session) -> Found | None:
    if not session.is_open:
        return None
    try:
        return Found(path, session, reached(address_of(session.secret)))
    except TimeoutError:
        raise ConnectionError(
            f"the session {session.name!r} does not answer: its head is very busy, or stopped"
        ) from None
    except OSError:
        return None


def _why_not(path: Path, session: session_files.Session) -> str:
    """Return why a session with a file cannot be reached, and what to do."""
    here = os.uname().nodename
    if session.job and (why := _why_not_in_job(path, session)):
        return why
    if session_files.is_dead(session):
        return f"the session was killed; `mpi-runtime session start --name {session.name}` starts it again"
    if not session.is_open:
        return f"the session is still starting: {session_files.LOG_WORDS.format(session.name)}"
    if session.host != here:
        return f"the session runs on {session.host}, and this program on {here}: init('session:{session.name}')"
    return "the session has no door here: it runs in another container or network namespace of this host"


def _why_not_in_job(path: Path, session: session_files.Session) -> str:
    """Return why a session cannot be reached if its batch job has not begun, or has ended; else nothing."""
    from mpi_runtime.core.driver import session_jobs  # not at the top: others need no batch system

    job = session_jobs.status(path, session)
    if job is not None and not job.has_ended and not session.is_open:
        return f"the session has not started. {str(job).splitlines()[0]}"
    if (job is not None and job.has_ended) or session_jobs.is_dead(path, session):
        why = str(job).splitlines()[0] if job is not None else f"its batch job {session.job} has ended"
        return f"the session has ended: {why}"
    return ""


def _elsewhere(known: list[tuple[Path, session_files.Session]]) -> str:
    lines = [f"\n  {session.name}: {_how_or_why_not(path, session)}" for path, session in known]
    return " There are files of:" + "".join(lines) if lines else ""


def _how_or_why_not(path: Path, session: session_files.Session) -> str:
    """Return how to reach a session that was not asked for, or why it cannot be reached."""
    try:
        found = _reached(path, session)
    except (ConnectionError, LaunchError) as error:
        return str(error)
    if found is None:
        return _why_not(path, session)
    found.close()
    return f"it runs on this host: init('session:{session.name}')"


def _in_words(session: session_files.Session) -> str:
    where = f"on {session.host}, " if session.host != os.uname().nodename else ""
    return f"{where}since {time.strftime('%d %b %H:%M', time.localtime(session.begun_s))}, pid {session.pid}"
