"""Workarounds for MPI libraries: Open MPI is kept from yielding, and files in /dev/shm lose their names.

Open MPI yields the processor when a poll finds nothing and the host has more ranks than cores: docs/decisions/0304
says why ours must not, between MPI_Init and MPI_Finalize. Open MPI has no switch for this, but one of its libraries has
a function.

MPI libraries share memory within a host by files in /dev/shm. Their names are removed as soon as all ranks of the host
have opened them: a killed rank removes none. UCX removes the names of its files (`ucx_shm_posix_*`) itself, as soon as
it has made one. What a rank leaves that is killed before, the next job removes (`host/mpi_files.py`).
"""

from __future__ import annotations

import ctypes
import os
import re
from contextlib import suppress

from mpi_runtime.core.host.process_tree import DELETED, mapped_files


def set_yields(yields: bool) -> bool:
    """Have Open MPI yield the processor when it finds nothing to do, or not. Return whether it did before.

    Does nothing and returns False if another MPI is loaded, or an Open MPI without this function.
    """
    for path in [one for one in mapped_files() if "/libopen-pal.so" in one]:
        with suppress(OSError, AttributeError):
            function = ctypes.CDLL(path).opal_progress_set_yield_when_idle
            function.argtypes, function.restype = [ctypes.c_bool], ctypes.c_bool
            return bool(function(yields))
    return False


_MPICH, _OPEN_MPI = "/dev/shm/mpich_shm", "/dev/shm/sm_segment"


def unlink_shared_files() -> None:
    """Remove the names of the files that this process has opened."""
    for path in mapped_files():
        if path.startswith((_MPICH, _OPEN_MPI)) and not path.endswith(DELETED):
            with suppress(FileNotFoundError):
                os.unlink(path)


def name_own_file(library_version: str, local_rank: int) -> int:
    """Put an empty file in the place of the one that this rank made: Open MPI 6 removes that name in MPI_Finalize.

    It prints a page if there is no such file. `local_rank`: among the ranks of this host, as MPI sees it.

    Returns:
        The descriptor; -1: no file was made. It stays open, since other jobs remove files that no process uses.
    """
    version = re.match(r"Open MPI v(\d+)", library_version)
    if version and int(version[1]) >= 6:
        for path in mapped_files():
            if path.startswith(_OPEN_MPI) and path.endswith(f".{local_rank}{DELETED}"):
                with suppress(FileExistsError):
                    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                    return os.open(path.removesuffix(DELETED), flags, 0o600)
    return -1
