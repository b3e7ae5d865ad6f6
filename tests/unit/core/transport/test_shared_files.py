"""The files of MPI libraries in /dev/shm, without MPI."""

import mmap
import os
from pathlib import Path

import pytest

from mpi_runtime.core.host import mpi_files
from mpi_runtime.core.transport.mpi_libraries import name_own_file, unlink_shared_files


@pytest.mark.parametrize(
    ("version", "is_named"),
    [
        ("Open MPI v6.0.0rc2, package: Debian OpenMPI, ident: 6.0.0rc2", True),
        ("Open MPI v10.1.0, package: another", True),
        ("Open MPI v5.0.11, package: Open MPI", False),
        ("MPICH Version:      5.0.2", False),
    ],
)
def test_names_go_and_open_mpi_6_finds_its_own_at_the_end(version: str, is_named: bool) -> None:
    name = f"/dev/shm/sm_segment.{os.uname().nodename}.{os.getuid()}.test{os.getpid()}"
    paths = [Path(f"{name}.{local_rank}") for local_rank in range(2)]
    maps = []
    try:
        for path in paths:
            with path.open("w+b") as file:
                file.truncate(4096)
                maps.append(mmap.mmap(file.fileno(), 4096))
        unlink_shared_files()
        assert not any(path.exists() for path in paths)
        made = [name_own_file(version, 1) for _ in range(2)]
        mpi_files.sweep()
        assert [path.exists() for path in paths] == [False, is_named]
        assert not is_named or paths[1].stat().st_size == 0
        assert made[1] == -1
        if is_named:
            os.close(made[0])
    finally:
        for one in maps:
            one.close()
        for path in paths:
            path.unlink(missing_ok=True)
