"""Files that MPI libraries leave: which are removed, and which are not."""

from __future__ import annotations

import mmap
import os
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import shared_memory
from pathlib import Path

import pytest

from mpi_runtime.core.host import mpi_files

OWN = os.getpid()
LEFT = [
    f"sm_segment.some.host.{os.getuid()}.7f{OWN:06x}.0",
    f"vader_segment.host.{os.getuid()}.7e{OWN:06x}.13",
    f"mpich_shm_{OWN:x}_0",
    f"mpich_shar_tmp{OWN}",
    f"ucx_shm_posix_{OWN:x}",
    f"Intel_MPI_{OWN % 1_000_000:06}",
    f"nccl-{OWN % 1_000_000:06}",
    f"sem.mp-{OWN % 100_000_000:08}",
    f"osc_rdma.host.{OWN:x}.1",
    f"psm3_shm.{os.getuid()}.{OWN}",
]
OTHERS = [
    f"mpich_{OWN}",
    f"nccl-tests.{OWN}",
    f"my_sm_segment.{OWN}",
    f"sm_segment.{OWN}",
    f"psm_{OWN}",
    f"Intel_MPI_results_{OWN}",
]


def short(name: str) -> str:
    """The name of a test, the same in every process."""
    return re.split(r"\d", name)[0]


@pytest.fixture
def shared() -> Iterator[Path]:
    folder = Path(mpi_files.FOLDER)
    yield folder
    for name in (*LEFT, *OTHERS):
        with suppress(FileNotFoundError):
            (folder / name).unlink()


@pytest.mark.parametrize("name", LEFT, ids=short)
def test_a_file_goes_when_no_process_has_it(name: str, shared: Path) -> None:
    path = shared / name
    with path.open("wb+") as file:
        file.truncate(mmap.PAGESIZE)
        mpi_files.sweep()
        assert path.exists()
        memory = mmap.mmap(file.fileno(), mmap.PAGESIZE)
    mpi_files.sweep()
    assert path.exists()
    memory.close()
    mpi_files.sweep()
    assert not path.exists()


@pytest.mark.parametrize("name", OTHERS, ids=short)
def test_files_of_programs_stay(name: str, shared: Path) -> None:
    (shared / name).touch()
    mpi_files.sweep()
    assert (shared / name).exists()


def test_shared_memory_of_python_stays() -> None:
    """Its names begin with `psm_`, and a block may be in no process's memory for a while."""
    block = shared_memory.SharedMemory(create=True, size=1)
    block.close()
    try:
        mpi_files.sweep()
        assert os.path.exists(f"{mpi_files.FOLDER}/{block.name}")
    finally:
        block.unlink()


def test_what_is_no_file_of_this_user_stays(shared: Path, tmp_path: Path) -> None:
    link, directory, pipe, of_another = (shared / name for name in LEFT[:4])
    (tmp_path / "file").touch()
    link.symlink_to(tmp_path / "file")
    directory.mkdir()
    os.mkfifo(pipe)
    of_another.touch()
    if os.geteuid() == 0:
        os.chown(of_another, 65534, 65534)
    mpi_files.sweep()
    try:
        assert [one.is_symlink() or one.exists() for one in (link, directory, pipe)] == [True] * 3
        assert of_another.exists() == (os.geteuid() == 0)
    finally:
        directory.rmdir()


def test_a_process_may_open_a_file_at_any_moment(shared: Path, tmp_path: Path) -> None:
    """The kernel sends a signal to who holds a lease; by default it would end this process."""
    path, goes_on = shared / LEFT[0], tmp_path / "goes on"
    goes_on.touch()
    opening = threading.Event()

    def open_it() -> None:
        while not opening.is_set():
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))

    thread = threading.Thread(target=open_it)
    thread.start()
    for _ in range(3000):
        mpi_files.sweep()
    opening.set()
    thread.join()


@pytest.mark.parametrize("hostname", ["node", "node.of.a.site"])
def test_session_directories_go_unless_their_job_has_files(
    hostname: str, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", hostname, "", "", "")))
    top = tmp_path / f"ompi.node.{os.geteuid()}"
    job = int(f"7f{OWN:06x}", 16)
    for name in (str(job), "4711", "4712/0", "4713/0"):
        (top / "jf.0" / name).mkdir(parents=True)
    (top / "jf.0" / "4713" / "0" / "output-x").touch()
    foreign = tmp_path / f"ompi.other.{os.geteuid()}" / "jf.0" / "4711"
    foreign.mkdir(parents=True)
    with (shared / LEFT[0]).open("w"):
        mpi_files.sweep()
        assert sorted(os.listdir(top / "jf.0")) == sorted([str(job), "4713"])
    (top / "jf.0" / "4713" / "0" / "output-x").unlink()
    mpi_files.sweep()
    assert os.listdir(tmp_path) == [f"ompi.other.{os.geteuid()}"]
    assert foreign.exists()


def test_a_session_directory_that_another_user_could_have_made_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    real = tmp_path / "elsewhere" / "jf.0" / "4711"
    real.mkdir(parents=True)
    (tmp_path / f"ompi.{os.uname().nodename}.{os.geteuid()}").symlink_to(tmp_path / "elsewhere")
    mpi_files.sweep()
    assert real.exists()
