"""Session directories that killed launchers of Open MPI have left."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from mpi_runtime.core.host.mpiexec import Launcher
from mpi_runtime.core.host.open_mpi import clear_sessions

HOST = os.uname().nodename


def test_those_of_launchers_that_do_not_run_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen(["true"])
    ended.wait()
    dead, alive = ended.pid, os.getpid()

    def session(pid: int | str, host: str = HOST) -> Path:
        path = tmp_path / f"ompi.{pid}"
        (path / "1").mkdir(parents=True)
        (path / f"pmix.{host}.tool.{pid}").touch()
        return path

    gone, stays = (
        session(dead),
        [session(alive), session("vm.0"), session(dead + 1 if dead + 1 != alive else 1, "other")],
    )
    (tmp_path / "ompi.link").symlink_to(tmp_path)
    clear_sessions(Launcher("mpiexec", "mpich", "MPICH 5"))
    assert gone.exists()
    clear_sessions(Launcher("mpirun", "openmpi", "Open MPI 5"))
    assert not gone.exists()
    assert all(path.exists() for path in stays)
