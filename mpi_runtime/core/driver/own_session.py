"""`init(nodes=...)`: a session in a batch job of its own, which ends with the program."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path

from mpi_runtime import config as configuration
from mpi_runtime.core.driver import session_jobs
from mpi_runtime.core.host.launch import detect
from mpi_runtime.errors import LaunchError

FIRST_S = 600.0
"""Seconds after its start at which the session ends if this program has not connected."""
_OF_KEEPER = ("num_cpus", "num_gpus", "object_store_memory")
"""The arguments of `init()` that the session gets."""


class OwnSession:
    """The session of this program."""

    def __init__(self, options: Mapping[str, object], arguments: Mapping[str, object]) -> None:
        """Submit its job, and wait until programs can connect.

        Args:
            options: the arguments of `init()` that are about the job.
            arguments: the others that were stated.

        Raises:
            LaunchError: the batch system refuses the job, or it has not started in `queue_timeout_s`.
            TypeError, ValueError: an option is not allowed.
        """
        if detect(configuration.environment()).size != 1:
            raise LaunchError("init(nodes=...) is for a program without a launcher: here each rank would submit a job")
        wanted = dict(options)
        profile, limit_s = wanted.pop("profile", None), wanted.pop("queue_timeout_s", None)
        if not isinstance(profile, str | None):
            raise TypeError(f"profile must be a string, not {profile!r}")
        if limit_s is not None and not (isinstance(limit_s, int | float) and 0 < limit_s < math.inf):
            raise ValueError(f"queue_timeout_s must be a number of seconds above 0, or None, not {limit_s!r}")
        words = [f"--first={FIRST_S:g}"]
        stated = [(name, arguments.get(name)) for name in _OF_KEEPER]
        words += [f"--{name.replace('_', '-')}={value}" for name, value in stated if value is not None]
        self._path, self._session = session_jobs.submit(
            f"own-{os.urandom(6).hex()}", words, profile, wanted, _cannot_exist
        )
        self._pid = os.getpid()
        try:
            session_jobs.wait(self._path, self._session, limit_s)
        except BaseException:
            session_jobs.abandon(self._path, self._session)
            raise

    @property
    def address(self) -> str:
        """The address of the session."""
        return f"session:{self._session.name}"

    def end(self) -> None:
        """End the session, unless this is a forked child of its program."""
        if os.getpid() == self._pid:
            session_jobs.discard(self._path, self._session)


def _cannot_exist(path: Path) -> None:
    raise LaunchError(f"the session file {path} exists")


def of_connection(arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments of `init()` that are not those of the session."""
    return {name: value for name, value in arguments.items() if name not in _OF_KEEPER}
