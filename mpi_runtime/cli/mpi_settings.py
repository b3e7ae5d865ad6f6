"""Variables of Open MPI with which MPI cannot start, for `run` and `doctor`.

MPI itself would end each rank, with lines that do not name the variable.
"""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

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
