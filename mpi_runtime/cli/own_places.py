"""Directories that each rank of a host has for itself, as in a container for each: MPI libraries need common ones.

MPI would fail as it starts, in words that name neither. So ranks look at each other by /proc before.
"""

import contextlib
import os
import time
from collections.abc import Iterator

from mpi_runtime.core.host.process_tree import LAUNCHERS, ancestors, name_of

PLACES = ("/dev/shm", "/tmp")
"""Where MPI libraries have the messages and the files of the ranks of a host."""
OTHERS_S = 5.0
"""How long other ranks of this host are awaited, if this one has another directory than what has started it."""
_LOOK_S = 0.1


def own_places(ranks_here: int) -> list[str]:
    """The directories that other ranks of this launch on this host do not share with this one.

    `ranks_here`: how many there are. Where /proc shows no others, as in PID namespaces, none are found.
    """
    mine = _places("self")
    if ranks_here < 2 or all(_places(pid) in ({}, mine) for pid in ancestors(os.getpid())):
        return []
    end_s = time.monotonic() + OTHERS_S
    found: set[str] = set()
    while not found and time.monotonic() < end_s:
        for pid in _others():
            theirs = _places(pid)
            found |= {place for place in theirs if theirs[place] != mine.get(place)}
        time.sleep(_LOOK_S)
    return sorted(found)


def _places(pid: int | str) -> dict[str, tuple[int, int]]:
    """Which directories a process has at these paths; empty: it is gone, or of another user."""
    found: dict[str, tuple[int, int]] = {}
    for place in PLACES:
        with contextlib.suppress(OSError):
            status = os.stat(f"/proc/{pid}/root{place}")
            found[place] = (status.st_dev, status.st_ino)
    return found


def _launcher(pid: int) -> int:
    """The process of a launcher that started a process of a rank; 0: none is above it, as in Docker."""
    return next((one for one in ancestors(pid) if name_of(one) in LAUNCHERS), 0)


def _others() -> Iterator[int]:
    """Other ranks: processes of this user that run doctor under the same launcher as this one."""
    launcher = _launcher(os.getpid())
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
            is_doctor = b"doctor" in words and any(b"python" in word or b"mpi" in word for word in words[:3])
            if is_doctor and _launcher(int(name)) == launcher:
                yield int(name)
