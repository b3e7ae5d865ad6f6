"""The tree of processes: children and orphans, which processes die together, the launcher above a rank."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Iterable, Iterator

from mpi_runtime.core.host.libc import libc
from mpi_runtime.core.host.machine import read

LAUNCHERS = ("prterun", "prted", "orterun", "orted", "mpirun", "mpiexec", "mpiexec.hydra", "hydra_pmi_proxy")
"""Names of processes of launchers that are parents of ranks, without Slurm's, because Slurm ends its processes."""
RANK_LIMIT_S = 10.0
"""Seconds that a rank may take to end before its launcher, or without a launcher the rank itself, is killed."""
LAUNCHER_PAUSE_S = 0.5
DESCRIPTORS_MAX = 1 << 20
DELETED = " (deleted)"
PR_SET_PDEATHSIG = 1


def die_with_parent(yes: bool = True) -> None:
    """Make the kernel kill this process when its parent dies, even by kill -9; or no longer."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL if yes else 0)


def continue_without_parent() -> None:
    """Make the kernel continue this process, if it is stopped, when its parent dies: it may have to clean up."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGCONT)


def adopt_orphans(yes: bool = True) -> None:
    """Make this process the new parent of descendants that lose their parents; or leave them to one above."""
    PR_SET_CHILD_SUBREAPER = 36
    _prctl(PR_SET_CHILD_SUBREAPER, int(yes))


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        libc().prctl(option, value)


def children(pid: int | str = "self", root: str = "") -> list[int]:
    """Return the children of all threads of a process; none if it has ended, or the kernel was built without this list.

    `root`: has /proc.
    """
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"{root}/proc/{pid}/task"):
            found += map(int, read(f"{root}/proc/{pid}/task/{thread}/children").split())
    return found


def descendants(pid: int, root: str = "") -> list[int]:
    """Return the children of a process, theirs and so on; without those that have ended."""
    found = [pid]
    for one in found:  # which grows meanwhile
        found += children(one, root)
    return found[1:]


def open_files(pid: int) -> set[str]:
    """Return /proc's names for the open files of a process; none if it has ended or is not accessible."""
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):  # closed meanwhile
                found.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    return found


def mapped_files(pid: int | str = "self") -> set[str]:
    """Return the files that a process has mapped, removed ones with `DELETED` behind; none if it is not accessible."""
    fields = (line.split(maxsplit=5) for line in read(f"/proc/{pid}/maps").split("\n"))
    return {line[5] for line in fields if len(line) == 6}


def has_variable(pid: int, name: str, value: str) -> bool:
    """Whether a process was started with this variable; not if it has ended or is not accessible."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        return f"{name}={value}".encode() in file.read().split(b"\0")
    return False


def is_exiting(pid: int) -> bool:
    """Whether a process has lost its memory, and so its environment, but may still have files and children."""
    return read(f"/proc/{pid}/statm").startswith("0 ")


def is_group(pid: int) -> bool:
    """Whether a process group has any process left."""
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # a process of another user: a program has changed its user
    return True


def kill_group(pid: int) -> None:
    """Kill a process and its group. If it has not made its own group yet, only the process is killed."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def kill_tagged(name: str, value: str) -> None:
    """Kill all processes of this host that were started with this variable, and that this user may see."""
    pids = map(int, filter(str.isdigit, os.listdir("/proc")))
    _signal((pid for pid in pids if has_variable(pid, name, value)), signal.SIGKILL)


# The launcher.


def end_launcher(pid: int, wait: bool) -> None:
    """End the processes of the launcher on this host that started a rank.

    Left alone, the launcher would wait for its processes on other hosts, maybe for ever.

    Args:
        pid: of the rank.
        wait: whether to let the rank end first, so that the launcher can forward its last output.
    """
    above = launchers_above(pid)
    if not above:
        return
    if not wait:
        _signal(above, signal.SIGKILL)
        return
    if os.fork():
        return
    _wait_alone(pid)
    # After the second SIGTERM Open MPI's launcher no longer waits for its processes.
    for number in (0, signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        if any(map(is_alive, above)):
            _signal(above, number)
            time.sleep(LAUNCHER_PAUSE_S)
    os._exit(0)


def kill_later(pid: int) -> None:
    """Kill a process that does not end in time, from a child: C code in it may let no thread run."""
    if os.fork():
        return
    _wait_alone(pid)
    _signal([pid] if name_of(pid) else [], signal.SIGKILL)
    os._exit(0)


def _wait_alone(pid: int) -> None:
    """In a forked child: wait until a process has ended, for `RANK_LIMIT_S` at most."""
    os.setsid()  # the launcher may kill the session of the rank
    os.closerange(0, DESCRIPTORS_MAX)  # driver, executors and launcher wait until these are closed
    end_s = time.monotonic() + RANK_LIMIT_S
    while name_of(pid) and time.monotonic() < end_s:
        time.sleep(0.05)


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def launchers_above(pid: int) -> list[int]:
    """Return the processes of a launcher above a process on this host, the nearest first."""
    return list(itertools.takewhile(lambda one: name_of(one) in LAUNCHERS, ancestors(pid)))


def ancestors(pid: int) -> Iterator[int]:
    """Yield the parent of a process, its parent and so on, up to the first process of the host or of its container."""
    while (pid := _parent(pid)) > 0:
        yield pid


def _parent(pid: int) -> int:
    """Return the pid of the parent; 0 if the process has ended."""
    stat = read(f"/proc/{pid}/stat")
    return int(stat.rpartition(")")[2].split()[1]) if stat else 0


def describe_end(status: int) -> str:
    """Return how a process ended, in words that follow its name, from its wait status."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        known = {one.value: f"{one.name}: " for one in signal.Signals}  # real-time signals have no name of their own
        return f"was killed by signal {number} ({known.get(number, '')}{signal.strsignal(number)})"
    return f"exited with code {os.WEXITSTATUS(status)}"


def is_alive(pid: int) -> bool:
    """Whether a process has not ended."""
    return bool(name_of(pid))


def is_stopped(pid: int) -> bool:
    """Whether a signal or a debugger has stopped a process."""
    return read(f"/proc/{pid}/stat").rpartition(")")[2][1:2] in ("T", "t")


def name_of(pid: int) -> str:
    """Return the name that `ps` shows; empty if the process has ended."""
    name, _, rest = read(f"/proc/{pid}/stat").partition("(")[2].rpartition(")")
    return "" if not rest or rest.split()[0] in "ZX" else name
