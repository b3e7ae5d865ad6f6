"""Deaths that no other code handles: of a forkserver, of a process of the launcher, of a neighbouring rank.

1. If a task starts a program in a session of its own and ends, the program becomes a child of the forkserver. If the
   forkserver is killed, it becomes a child of the agent, which kills it. If the user's program uses MPI itself, the
   agent is a thread of it, and its children may be the program's own. Then they live on.
2. If the process of MPICH's launcher on a host dies (`hydra_pmi_proxy`), its ranks get no notice, and the launcher
   waits for ever. So each rank watches the process that started it, ends with it, and ends the launcher.
3. A killed rank ends the job, unless MPI survives it. Launchers report this more or less well (that of MPICH names
   another process), and some do not end the job. So the lowest rank of a host watches the others, reports which has
   died, and ends. If the lowest itself has died, the launcher ends the others. MPICH's sometimes does not after the
   head was killed, so the others end the launcher after `LAUNCHER_LIMIT_S`.
4. With ULFM ranks survive the death of others, but not that of the head. MPI reports a death only if the process that
   the launcher started was killed by a signal. The head is a child of that process. So the ranks of its host watch it
   themselves. On other hosts MPI notices the end of its connections.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import NoReturn

from mpi_runtime.core.host.process_tree import (
    adopt_orphans,
    children,
    end_launcher,
    is_group,
    kill_group,
    kill_later,
    launchers_above,
)
from mpi_runtime.core.transport.base import HeadLostError, Transport, TransportError
from mpi_runtime.core.transport.poller import Poller

KILL_LIMIT_S = 5.0
"""How long to wait for the end of killed processes, in seconds. One that hangs in a device driver may never end."""
PAUSE_S = 0.01
LAUNCHER_LIMIT_S = 5.0
"""How long a launcher may take to end the ranks of a host whose lowest rank has died, in seconds."""


def adopt() -> None:
    """Become the parent of processes that a dead forkserver leaves. It takes 2 ms: call it after the first fork."""
    if _is_own_process():
        adopt_orphans()


def kill_left(executors: Collection[int]) -> None:
    """Kill what a dead forkserver leaves, and wait for its end: groups of executors, and children of this process."""
    end_s = time.monotonic() + KILL_LIMIT_S
    while time.monotonic() < end_s:
        own = children() if _is_own_process() else []
        living = {*own, *(pid for pid in executors if is_group(pid))}
        if not living:
            return
        for pid in living:
            kill_group(pid)
        with contextlib.suppress(ChildProcessError):
            while own and os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(PAUSE_S)


def watch_launcher(poller: Poller, rank_pid: int) -> None:
    """Raise `TransportError` from the poller when the launcher's process that has started a rank of this host ends."""
    above = launchers_above(rank_pid)
    if not above:
        return
    try:
        starter, top = os.pidfd_open(above[0]), os.pidfd_open(above[-1])
    except OSError:  # it is just ending
        return

    def fail() -> None:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(top, signal.SIGKILL)
        if rank_pid != os.getpid():
            kill_later(rank_pid)  # the driver: its thread that should end it may not get to run
        raise TransportError("the launcher's process that has started this rank is gone: the job cannot continue")

    poller.add(starter, fail)


def watch_ranks(poller: Poller, transport: Transport, library: str) -> None:
    """Raise `TransportError` from the poller when another rank of this host has died; see 3. above for the lowest.

    `library`: name and version of the MPI library.
    """
    for rank, pid in transport.neighbours.items():
        gone = _on_lowest_gone if rank < transport.rank else partial(_on_rank_gone, library)
        with contextlib.suppress(OSError):  # it is just ending, which MPI notices too
            _at_end(poller, pid, partial(gone, transport, rank))


def watch_head(poller: Poller, transport: Transport) -> None:
    """Raise `HeadLostError` from the poller when rank 0 has ended, if it was on this host."""
    pid = transport.neighbours.get(0)

    def fail() -> NoReturn:
        raise HeadLostError(transport.hostnames[0])

    if pid is not None:
        try:
            _at_end(poller, pid, fail)
        except OSError:  # it has just ended
            fail()


def _at_end(poller: Poller, pid: int, act: Callable[[], None]) -> None:
    """Call this from the poller when a process has ended. Raises OSError if it has ended before."""
    process = os.pidfd_open(pid)

    def ended() -> None:
        poller.remove(process)
        os.close(process)
        act()

    poller.add(process, ended)


def _on_rank_gone(library: str, transport: Transport, rank: int) -> None:
    if transport.has_left(rank):
        return
    command = "`mpi-runtime run --fault-tolerant`"
    cure = f"Started with {command}, the job would have continued without it."
    if not library.startswith("Open MPI v5"):
        cure = f"{library} cannot continue without it. Open MPI 5 can, if it is started with {command}."
    raise TransportError(
        f"rank {rank} on {transport.hostnames[rank]} (pid {transport.neighbours[rank]}) has died, and the job ends: it "
        f"was killed, or it crashed. `dmesg` shows whether the kernel killed it for memory. {cure}"
    )


def _on_lowest_gone(transport: Transport, rank: int) -> None:
    if not transport.has_left(rank):
        signal.signal(signal.SIGALRM, _end_all)
        signal.setitimer(signal.ITIMER_REAL, LAUNCHER_LIMIT_S)


def _end_all(number: int, frame: object) -> None:
    """Do what the launcher has not done. If it can, it ends your program with its ranks, and removes its own files."""
    end_launcher(os.getpid(), wait=True)
    os._exit(1)


def _is_own_process() -> bool:
    return threading.current_thread() is threading.main_thread()
