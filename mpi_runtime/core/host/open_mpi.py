"""Open MPI before a launch: variables with which it cannot start, and what killed launchers of it have left.

With such a variable MPI itself would end each rank, with lines that do not name it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from mpi_runtime.core.host.mpiexec import Launcher
from mpi_runtime.core.host.process_tree import is_alive
from mpi_runtime.slurm.diagnosis import Finding

LIMIT_S = 60.0
"""Seconds to wait for a start of MPI."""
_COMPONENTS = ("OMPI_MCA_btl", "OMPI_MCA_mtl", "OMPI_MCA_osc", "OMPI_MCA_pml")
"""They choose parts of Open MPI, without which it cannot start."""


def broken_settings(env: Mapping[str, str]) -> Finding | None:
    """The variables with which MPI does not start on this host, though it starts without; tried only if any is set."""
    names = [name for name in _COMPONENTS if not env.get(name, "^").startswith("^")]  # excluding some breaks nothing

    def can_start(without: Sequence[str]) -> bool:
        rest = {name: text for name, text in env.items() if name not in without}
        with suppress(subprocess.TimeoutExpired):
            words = [sys.executable, "-c", "import mpi4py.MPI"]
            return not subprocess.run(words, env=rest, capture_output=True, timeout=LIMIT_S).returncode
        return False

    if not names or can_start([]) or not can_start(names):
        return None
    blamed = [name for name in names if can_start([name])] or names
    settings = " ".join(f"{name}={env[name]}" for name in blamed)
    return Finding(
        f"MPI_Init fails with {settings} in the environment, and starts without", f"unset {' '.join(blamed)}"
    )


def clear_sessions(launcher: Launcher) -> None:
    """Remove the session directories, `ompi.PID`, of this user's launchers on this host that do not run any more.

    `prterun` removes its own only at its end. A file in the directory has the name of the host. So those of a container
    that shares the directory but has process ids of its own are left alone.
    """
    if launcher.kind != "openmpi":
        return
    host = os.uname().nodename
    for path in Path(tempfile.gettempdir()).glob("ompi.*"):
        pid = path.name.removeprefix("ompi.")
        with suppress(OSError):
            is_ours = pid.isdecimal() and not path.is_symlink() and path.stat().st_uid == os.geteuid()
            names = {f"pmix.{name}.tool.{pid}" for name in (host, host.partition(".")[0])}
            if is_ours and names & {*os.listdir(path)} and not is_alive(int(pid)):
                shutil.rmtree(path, ignore_errors=True)
