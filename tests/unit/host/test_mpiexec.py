"""Launchers by what they say of themselves."""

from pathlib import Path

import pytest

from mpi_runtime.errors import LaunchError
from mpi_runtime.host import mpiexec
from mpi_runtime.host.mpiexec import Launcher, launch_command


@pytest.mark.parametrize(
    ("says", "kind", "version"),
    [
        ("mpirun (Open MPI) 5.0.11\n\nReport bugs to", "openmpi", "Open MPI 5.0.11"),
        ("mpiexec (OpenRTE) 4.1.4\n\nReport bugs to", "openmpi", "Open MPI 4.1.4"),
        ("HYDRA build details:\n    Version:  4.0.2\n", "mpich", "MPICH 4.0.2"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.15", "intel", "Intel MPI 2021.15"),
        ("another one", "other", "another one"),
    ],
)
def test_a_launcher_is_known_by_its_version(says: str, kind: str, version: str, tmp_path: Path) -> None:
    path = tmp_path / "mpiexec"
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\n")
    path.chmod(0o755)
    assert mpiexec._identify(str(path)) == Launcher(str(path), kind, version)


def test_ulfm_needs_open_mpi_5() -> None:
    five = Launcher("mpirun", "openmpi", "Open MPI 5.0.11")
    assert "--with-ft" in launch_command(five, ["app"], 2, fault_tolerant=True)
    for other in (Launcher("mpiexec", "openmpi", "Open MPI 4.1.4"), Launcher("mpiexec", "mpich", "MPICH 5.0.2")):
        with pytest.raises(LaunchError, match=f"--fault-tolerant needs Open MPI 5; mpiexec is {other.version}"):
            launch_command(other, ["app"], 2, fault_tolerant=True)
