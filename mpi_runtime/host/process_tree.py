"""The tree of processes: which of ours the kernel gives to whom, and takes with whom; which launcher is above."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable

LAUNCHERS = ("prterun", "prted", "orterun", "orted", "mpirun", "mpiexec", "mpiexec.hydra", "hydra_pmi_proxy")
"""As their processes are named that are parents of ranks. Slurm's is not among them: Slurm ends what it has begun."""
RANK_LIMIT_S = 10.0
"""How long the rank may take to end before its launcher is ended."""
LAUNCHER_PAUSE_S = 0.5
DESCRIPTORS_MAX = 1 << 20


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies, so that nothing outlives even kill -9."""
    PR_SET_PDEATHSIG = 1
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans(yes: bool = True) -> None:
    """Have the kernel give this process the descendants whose parents end, instead of giving them to one above."""
    PR_SET_CHILD_SUBREAPER = 36
    _prctl(PR_SET_CHILD_SUBREAPER, int(yes))


def _prctl(option: int, value: int) -> None:
    import ctypes  # not at the top: agents load this module too

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value)


def children() -> list[int]:
    """All children of this process, whichever thread has them; none where the kernel was built without telling."""
    found: list[int] = []
    for thread in os.listdir("/proc/self/task"):
        found += map(int, _read(f"/proc/self/task/{thread}/children").split())
    return found


def open_files(pid: int) -> set[str]:
    """How /proc calls what a process has open; nothing for one that is gone, or may not be looked into."""
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):  # closed meanwhile
                found.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    return found


def is_group(pid: int) -> bool:
    """Whether any process of a group is left."""
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # of another user's, by a program that changes its user
    return True


def kill_group(pid: int) -> None:
    """Kill a process and all of its group; before it has made its own group, only itself."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


# The launcher.


def end_launcher(pid: int, wait: bool) -> None:
    """End the launcher that has started a process, as far up as it is on this host.

    It waits for its processes on other hosts, and may do so for ever.

    Args:
        pid: of the rank.
        wait: whether to let the rank end first, and the launcher show what it has said.
    """
    above = launchers_above(pid)
    if not above:
        return
    if not wait:
        _signal(above, signal.SIGKILL)
        return
    if os.fork():
        return
    os.setsid()  # the launcher may end what belongs to the rank
    os.closerange(0, DESCRIPTORS_MAX)  # others wait for the end of these: the driver, executors, the launcher
    end_s = time.monotonic() + RANK_LIMIT_S
    while _name(pid) and time.monotonic() < end_s:
        time.sleep(0.05)
    # By the second signal Open MPI's waits for nobody any more.
    for number in (0, signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        _signal(above, number)
        time.sleep(LAUNCHER_PAUSE_S)
    os._exit(0)


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def launchers_above(pid: int) -> list[int]:
    """The processes of a launcher that have started a process, from the nearest up, as far as they are on this host."""
    found = []
    parent = _parent(pid)
    while _name(parent) in LAUNCHERS:
        found.append(parent)
        parent = _parent(parent)
    return found


def _parent(pid: int) -> int:
    """0 where it has ended."""
    stat = _read(f"/proc/{pid}/stat")
    return int(stat.rpartition(")")[2].split()[1]) if stat else 0


def _name(pid: int) -> str:
    """What `ps` calls it; empty where it has ended."""
    name, _, rest = _read(f"/proc/{pid}/stat").partition("(")[2].rpartition(")")
    return "" if not rest or rest.split()[0] in "ZX" else name


def _read(path: str) -> str:
    """The content of a file of the kernel's; empty where what it tells of is gone."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
