"""What calls have that are made here and say nothing about it themselves."""

from __future__ import annotations

from mpi_runtime.scheduler.events import Where


class Inherited:
    """In an executor what its own call has, in the driver what the job has."""

    def __init__(self) -> None:
        self.namespace = ""
        """Where names of actors are looked up."""
        self.environment: dict[str, str] = {}
        """Variables, and archives: see `scratch.py`."""
        self.where: Where | None = None
        """Where calls run, if the running call captures them."""
        self.archives: dict[str, bytes] = {}
        """Objects that are archives which calls made here name, by their hashes: kept for as long as the process."""
        self.packed: dict[tuple[str, tuple[str, ...], str], str] = {}
        """The hash of what was packed here: by path, what was left out, and how."""
