"""Clears session directories of killed launchers: Open MPI's `prterun` removes its own only at its end."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from mpi_runtime.host.mpiexec import Launcher
from mpi_runtime.host.process_tree import is_alive


def clear_sessions(launcher: Launcher) -> None:
    """Remove the session directories, `ompi.PID`, of this user's launchers on this host that do not run any more.

    A file in the directory has the name of the host. So those of a container that shares the directory but has process
    ids of its own are left alone.
    """
    if launcher.kind != "openmpi":
        return
    host = os.uname().nodename
    for path in Path(tempfile.gettempdir()).glob("ompi.*"):
        pid = path.name.removeprefix("ompi.")
        with contextlib.suppress(OSError):
            is_ours = pid.isdecimal() and not path.is_symlink() and path.stat().st_uid == os.geteuid()
            names = {f"pmix.{name}.tool.{pid}" for name in (host, host.partition(".")[0])}
            if is_ours and names & {*os.listdir(path)} and not is_alive(int(pid)):
                shutil.rmtree(path, ignore_errors=True)
