"""Files in shared memory that a killed member of a gang would leave: MPI and NCCL name them, and remove them last."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

_FOLDER = "/dev/shm/"
_DELETED = " (deleted)"
_NAMES = ("sm_segment", "vader_segment", "mpich_", "Intel_MPI", "shm_mvapich", "nccl-", "ucx_shm", "osc_rdma", "psm")
"""How the names begin: Open MPI, MPICH, Intel MPI, MVAPICH, NCCL, UCX. Programs' own files are not touched."""


def segments(pid: int) -> list[str]:
    """Return the paths of such files that a process has mapped. Call it before the process is killed."""
    found = set()
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps") as maps:  # it may have ended
        for line in maps:
            path = line.rstrip("\n").partition(_FOLDER)[2]
            if path.startswith(_NAMES) and not path.endswith(_DELETED):
                found.add(_FOLDER + path)
    return sorted(found)


def unlink(paths: Iterable[str]) -> None:
    """Remove these files. Call it when all members that use them have ended."""
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)
