"""The files in /dev/shm by which MPI libraries share memory within a host.

Their names go as soon as all ranks of the host have opened them: a rank that is killed takes none away, and the memory
would stay until the host starts anew.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

_FOLDER = "/dev/shm/"
_MPICH, _OPEN_MPI = "mpich_shm", "sm_segment"
_DELETED = " (deleted)"


def unlink_shared_files() -> None:
    """Take away the names of those that this process has opened."""
    for path in _mapped((_MPICH, _OPEN_MPI)):
        if not path.endswith(_DELETED):
            with suppress(FileNotFoundError):
                os.unlink(path)


def name_own_file(library_version: str, local_rank: int) -> None:
    """Give the name of the one that this rank has made to an empty file, where MPI_Finalize takes it away.

    Open MPI 6 does, and prints a page if there is no such name.

    Args:
        library_version: what the MPI library calls itself.
        local_rank: of this process, among those of its host as MPI sees it.
    """
    version = re.match(r"Open MPI v(\d+)", library_version)
    if version and int(version[1]) >= 6:
        for path in _mapped((_OPEN_MPI,)):
            if path.endswith(f".{local_rank}{_DELETED}"):
                with suppress(FileExistsError):
                    os.close(os.open(path.removesuffix(_DELETED), os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _mapped(names: tuple[str, ...]) -> set[str]:
    with open("/proc/self/maps") as maps:
        found = (line.rstrip("\n").partition(_FOLDER) for line in maps)
        return {folder + name for _, folder, name in found if folder and name.startswith(names)}
