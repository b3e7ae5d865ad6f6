"""Files of MPI libraries, NCCL and multiprocessing that no process uses: their makers ended without removing them.

The libraries share memory within a host by files in `/dev/shm`. A process that is killed, or ends without MPI_Finalize,
leaves its files. With Open MPI 5 a process that no launcher has started, such as a task that imports `mpi4py.MPI`,
leaves them after MPI_Finalize too, and a session directory. The number of its job is in both names.

The names do not tell whose they are. But the kernel grants a read lease only on a file that no process has open for
writing, or mapped from such a descriptor, and the processes of other containers count too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import stat
from collections.abc import Container

from mpi_runtime import config as configuration

FOLDER = "/dev/shm"
_NAMES = re.compile(
    r"(sm|vader)_segment\..+\.\d+\.(?P<job>[0-9a-f]+)\.\d+"  # Open MPI 5, 4
    r"|sem\.mp-\w{8}"  # semaphores of multiprocessing: the process that would remove them is killed with its parent
    r"|mpich_sh(m|ar)_\w+|ucx_shm_posix_[0-9a-f]+|Intel_MPI_\w{6}|nccl-\w{6}|osc_rdma\..+|psm[23]?_shm\..+"
)


def sweep() -> None:
    """Remove such files of this user, also those of other programs. Call it when processes have ended."""
    used: set[int] = set()
    with contextlib.suppress(OSError):  # this host has no such directory
        for name in os.listdir(FOLDER):
            if (found := _NAMES.fullmatch(name)) and not _remove_unused(f"{FOLDER}/{name}") and found["job"]:
                used.add(int(found["job"], 16))
    own = os.uname().nodename
    for host in {own, own.partition(".")[0]}:
        _remove_sessions(f"ompi.{host}.{os.geteuid()}", used)


def _remove_unused(path: str) -> bool:
    """Remove a file if it belongs to this user and no process uses it. Return whether it was removed."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return False
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGCHLD)  # a process that opens it now waits; SIGIO would end this one
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        os.unlink(path)
    except OSError:  # a process uses it
        return False
    finally:
        os.close(file)
    return True


def _remove_sessions(name: str, used: Container[int]) -> None:
    """Remove the session directories of processes that Open MPI has started without a launcher, but for these jobs.

    A directory with files stays. A process that is in MPI_Init may lose its empty one: it does without.
    """
    top = f"{configuration.temporary_directory()}/{name}"
    with contextlib.suppress(OSError):  # the directory does not exist, or files remain in it
        found = os.lstat(top)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():  # another user has made it
            return
        for job in os.listdir(f"{top}/jf.0"):
            if job.isdecimal() and int(job) not in used:
                with contextlib.suppress(OSError):
                    for rank in os.listdir(f"{top}/jf.0/{job}"):
                        os.rmdir(f"{top}/jf.0/{job}/{rank}")
                    os.rmdir(f"{top}/jf.0/{job}")
        os.rmdir(f"{top}/jf.0")
        os.rmdir(top)
