"""Files in shared memory that a killed member of a gang would leave: MPI and NCCL name them, and remove them last."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from mpi_runtime.host.process_tree import DELETED, mapped_files, open_files

_FOLDER = "/dev/shm/"
_NAMES = ("sm_segment", "vader_segment", "mpich_", "Intel_MPI", "shm_mvapich", "nccl-", "ucx_shm", "osc_rdma", "psm")
"""How the names begin: Open MPI, MPICH, Intel MPI, MVAPICH, NCCL, UCX. Programs' own files are not touched."""
_CLOCK_S = 2.0
"""Seconds by which times of files may be behind: some systems count in coarse steps."""


def segments(pid: int) -> list[str]:
    """Return the paths of such files that a process has mapped. Call it before the process is killed."""
    named = tuple(_FOLDER + name for name in _NAMES)
    return sorted(path for path in mapped_files(pid) if path.startswith(named) and not path.endswith(DELETED))


def unlink(paths: Iterable[str]) -> None:
    """Remove these files. Call it when all members that use them have ended."""
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)


def sweep(since_s: float) -> None:
    """Remove such files of this user that no process uses. Call it when a member has died by itself, or all have.

    Older files than `since_s`, in seconds since the epoch, are not touched.
    """
    with contextlib.suppress(OSError):
        candidates = {
            path for name in os.listdir(_FOLDER) if name.startswith(_NAMES) and _is_new(path := _FOLDER + name, since_s)
        }
        if candidates:
            unlink(sorted(candidates - _in_use()))


def _is_new(path: str, since_s: float) -> bool:
    with contextlib.suppress(OSError):
        status = os.stat(path)
        return status.st_uid == os.getuid() and status.st_ctime >= since_s - _CLOCK_S
    return False


def _in_use() -> set[str]:
    """Return the files in shared memory that processes have open or mapped."""
    found: set[str] = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        found.update(path for path in open_files(int(pid)) if path.startswith(_FOLDER))
        found.update(segments(int(pid)))
    return found
