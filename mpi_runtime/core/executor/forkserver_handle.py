"""Starts a forkserver, and holds the agent's end of its connection."""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import signal
import socket
import sys
import types
from collections.abc import Callable, Container, Mapping, Sequence
from typing import NamedTuple

from mpi_runtime.core.host import launchers, process_tree
from mpi_runtime.core.host.spawn import start_python

SHARED = (
    "ctypes",
    "mpi_runtime.core.objects.arena",
    "mpi_runtime.core.transport.unsent_frame",
    "mpi_runtime.show.log",
)
"""Modules that both processes need after a fork: they are loaded once, before it."""
LOOK_S = 0.5
"""Seconds between two looks at a forkserver that has not ended."""


class Handle(NamedTuple):
    """The agent's end of a forkserver."""

    socket: socket.socket
    wait: Callable[[], int]
    """Waits for its end. Returns its exit code, or the negative number of the signal that ended it."""
    pid: int

    def end(self) -> int:
        """End it: it kills all executors when it can read no more. Return the result of `wait`.

        A signal may have stopped it, or a debugger, such as one that a task has started. Then its children are killed
        here, the debugger with them, and at last the forkserver itself.
        """
        with contextlib.suppress(OSError):  # it has ended
            self.socket.shutdown(socket.SHUT_WR)
            os.kill(self.pid, signal.SIGCONT)
        looks = 0
        while process_tree.is_alive(self.pid) and looks < 2 and not self._has_closed():
            looks = looks + 1 if process_tree.is_stopped(self.pid) else 0
            for one in process_tree.descendants(self.pid) if looks else []:
                process_tree.kill_group(one)
        self.socket.close()
        if looks < 2:
            return self.wait()
        process_tree.kill_group(self.pid)
        return -signal.SIGKILL  # only a debugger elsewhere may wait for its end

    def _has_closed(self) -> bool:
        """Wait `LOOK_S` until it has closed its end of the socket. What it reports until then is not read."""
        with contextlib.suppress(OSError):
            while select.select([self.socket], [], [], LOOK_S)[0]:
                if not self.socket.recv(1 << 16):
                    return True
            return False
        return True


def start(environment: Mapping[str, str], path: Sequence[str]) -> Handle:
    """Start a forkserver in a new interpreter. `environment`: of its executors; `path`: where it finds its modules."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    code = f"from mpi_runtime.core.executor.forkserver import main; main({theirs.fileno()}, at_start)"
    # A launcher kills ranks by group; the forkserver has to live a little longer, to kill what executors started.
    try:
        process = start_python(code, [theirs.fileno()], environment, path, own_session=True)
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    return Handle(ours, process.wait, process.pid)


def load_and_fork(at_start: Container[str], more: Sequence[str] = ()) -> Handle | None:
    """Load the modules of executors, unless they are loaded, and start a forkserver as `fork` does.

    For a head that starts several, one after another. `more`: further modules.
    """
    from mpi_runtime.core.executor import forkserver

    forkserver.make_ready(more)
    return fork(at_start)


def fork(at_start: Container[str], preload: bool = True) -> Handle | None:
    """Start a forkserver as a copy of this process, which has done nothing yet: half the time of a new interpreter.

    Args:
        at_start: see `become`.
        preload: whether it loads the modules of executors at once, or when its agent has a first executor forked.

    Returns:
        None if the system allows no further process; a later `start` then raises the reason.
    """
    from mpi_runtime.core.executor.forkserver import main  # not at the top: a process that only calls `start` saves it

    for name in SHARED:
        importlib.import_module(name)

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        pid = os.fork()
    except OSError:
        ours.close()
        theirs.close()
        return None
    if not pid:
        try:
            os.setsid()
            for name in os.listdir("/proc/self/fd"):
                if int(name) > 2 and int(name) != theirs.fileno():
                    with contextlib.suppress(OSError):  # the one that lists them
                        os.close(int(name))
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # launchers may give all ranks their own
            os.closerange(3, theirs.fileno())
            sys.modules["__main__"] = types.ModuleType("__main__")  # not ours: it will be the program's
            launchers.leave_launcher(and_job=True)
            main(theirs.detach(), at_start, preload)
        finally:
            os._exit(1)
    theirs.close()
    return Handle(ours, lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), pid)
