"""Settings that calls made here inherit."""

from __future__ import annotations

from mpi_runtime.scheduler.events import Where


class Inherited:
    """In an executor the settings of its call, in the driver those of the job."""

    def __init__(self, namespace: str = "", environment: dict[str, str] | None = None) -> None:
        self.namespace = namespace
        """The default namespace of names."""
        self.environment = environment or {}
        """Variables, and archives: see `scratch.py`."""
        self.where: Where | None = None
        """The place of calls, if the running call captures them."""
        self.archives: dict[str, bytes] = {}
        """Archives that calls made here name, by their hashes. They are kept until the process ends."""
        self.packed: dict[tuple[str, tuple[str, ...], str], str] = {}
        """The hash of each packed path, by path, excludes and way of packing."""
