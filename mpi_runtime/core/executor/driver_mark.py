"""The mark of calls of a driver that has connected to a session, in the environment of its specs and executors.

The entry has the number of the driver, for the scheduler, and all that executors need to know of it, so that those of a
detached actor need nobody when it has left. Calls of the program of rank 0 have no mark.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from mpi_runtime.core.transport.messages import Job, bytes_to_text
from mpi_runtime.scheduler.protocol.events import OF_DRIVER


class Home(msgspec.Struct, array_like=True):
    """Where the user code of a driver is, on whatever host it runs. Paths are encoded by `text_to_bytes`."""

    directory: bytes
    path: list[bytes]
    argv: list[bytes]
    namespace: str
    imports: list[str] = []
    """Modules that executors load first."""


def mark(number: int, home: Home) -> dict[str, str]:
    """Return the entry for specs of the driver with this number."""
    return {OF_DRIVER: f"{number} {msgspec.json.encode(home).decode()}"}


def home_of(environment: Mapping[str, str]) -> Home | None:
    """Return the home of the driver of an executor; None: it is that of the program of rank 0."""
    entry = environment.get(OF_DRIVER)
    return msgspec.json.decode(entry.partition(" ")[2], type=Home) if entry is not None else None


def home_in(job: Job) -> Home:
    """Return the home of the program of rank 0."""
    return Home(job.directory, job.path, job.argv, job.config.namespace)


_absent = ""
"""The directory of the program, if this host does not have it."""


def enter(home: Home) -> None:
    """Make the program's directory that of this process, if this host has it."""
    global _absent
    directory = bytes_to_text(home.directory)
    try:
        os.chdir(directory)
    except OSError:
        _absent = directory


def note(error: BaseException) -> str:
    """Return what to do about an error of user code, if this host has not the program's directory; else nothing."""
    if not _absent or not isinstance(error, ModuleNotFoundError):
        return ""
    return (
        f"mpi_runtime: this host has no directory {_absent}, in which the program runs. "
        "init(runtime_env={'working_dir': '.'}) sends its files to the hosts of its calls."
    )
