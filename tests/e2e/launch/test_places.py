"""Places that are missing, full or read-only, and users that the system does not know: it runs, or says what to do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mpi_runtime.config import state_directory
from tests.helpers import mpi_python
from tests.hosts.namespaces import missing

PROGRAM = """
import mpi_runtime as ray
ray.init(num_cpus=1, quiet=True)
print("got", ray.get(ray.remote(lambda: "value").remote()))
"""
needs_mounts = pytest.mark.skipif(bool(missing(["unshare", "mount"], "util-linux")), reason="mounts take root")


def tried(script: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script of bash in mounts of its own, beside the program in app.py."""
    (folder / "app.py").write_text(PROGRAM)
    words = ["unshare", "-m", "bash", "-c", script] if "mount" in script else ["bash", "-c", script]
    environment = {**os.environ, "PYTHON": sys.executable, **env}
    return subprocess.run(words, cwd=folder, env=environment, timeout=100, check=False, capture_output=True, text=True)


@needs_mounts
@pytest.mark.parametrize("options", ["ro", "size=4k"])
def test_a_home_that_cannot_be_written_to(tmp_path: Path, options: str) -> None:
    fill = "head -c 4096 /dev/zero > home/x;" if options != "ro" else ""
    mount = f"mkdir home; mount -t tmpfs -o {options} none home; {fill} export HOME=$PWD/home;"
    assert tried(f"{mount} exec $PYTHON app.py", tmp_path).stdout == "got value\n"
    (tmp_path / "home").rmdir()
    done = tried(f"{mount} exec $PYTHON -m mpi_runtime session start --name places", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("mpi-runtime session: ")
    assert "XDG_STATE_HOME=DIR names another place" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_user_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As containers with `--user` have it: files about sessions have an absolute path, the same in each directory."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", str)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert state_directory() == f"{tmp_path}/mpi_runtime-state-{os.getuid()}"


@needs_mounts
@pytest.mark.mpi
@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_a_small_shared_memory_is_named_before_ranks_fail(tmp_path: Path, mpi: str) -> None:
    script = "mount -t tmpfs -o size=64k none /dev/shm; exec $MPI_PYTHON -m mpi_runtime run -n 2 app.py"
    done = tried(script, tmp_path, MPI_PYTHON=str(mpi_python(mpi)))
    why = "/dev/shm has room for 64.0 KiB, and MPI needs about 16.0 MiB there for each rank: start the container with"
    assert done.stderr.startswith(f"mpi-runtime run: {why}"), done.stderr
    assert tried("mount -t tmpfs -o size=64k none /dev/shm; exec $PYTHON app.py", tmp_path).stdout == "got value\n"


@needs_mounts
@pytest.mark.mpi
def test_no_room_for_temporary_files(tmp_path: Path) -> None:
    mount = "mkdir full; mount -t tmpfs -o size=4k none full; head -c 4096 /dev/zero > full/x; export TMPDIR=$PWD/full;"
    assert tried(f"{mount} exec $PYTHON app.py", tmp_path).stdout == "got value\n"
    (tmp_path / "full").rmdir()
    done = tried(f"{mount} exec $PYTHON -m mpi_runtime run -n 2 app.py", tmp_path)
    assert f"mpi-runtime run: {tmp_path}/full has room for 0" in done.stderr
    assert "set TMPDIR to another directory" in done.stderr


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_temporary_directory_that_is_missing(tmp_path: Path, ranks: int) -> None:
    done = tried(f"exec $PYTHON -m mpi_runtime run -n {ranks} app.py", tmp_path, TMPDIR=f"{tmp_path}/nowhere")
    assert (done.returncode, done.stdout) == (0, "got value\n"), done.stderr


@needs_mounts
@pytest.mark.mpi
def test_a_host_and_paths_with_long_names(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 200) / ("e" * 200) / ("f" * 200)
    folder.mkdir(parents=True)
    script = (
        f"mount --make-rprivate /; hostname {'h' * 63}; $PYTHON app.py; exec $PYTHON -m mpi_runtime run -n 2 app.py"
    )
    (folder / "app.py").write_text(PROGRAM)
    words = ["unshare", "-m", "-u", "bash", "-c", script]
    environment = {**os.environ, "PYTHON": sys.executable, "TMPDIR": str(folder)}
    done = subprocess.run(words, cwd=folder, env=environment, timeout=100, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "got value\n" * 2), done.stderr


UNKNOWN = "unshare --user --map-user=54321 --map-group=54321 env -u HOME -u USER -u LOGNAME"


@needs_mounts
@pytest.mark.mpi
def test_a_user_that_the_system_does_not_know(tmp_path: Path) -> None:
    """As `docker run --user 54321` has it."""
    assert tried(f"exec {UNKNOWN} $PYTHON app.py", tmp_path).stdout == "got value\n"
    done = tried(f"exec {UNKNOWN} $PYTHON -m mpi_runtime run -n 2 app.py", tmp_path)
    assert (done.returncode, done.stdout) == (0, "got value\n"), done.stderr
    (tmp_path / "jobs.txt").write_text("id -u\n")
    done = tried(f"exec {UNKNOWN} $PYTHON -m mpi_runtime batch jobs.txt --directory out", tmp_path)
    assert (done.returncode, (tmp_path / "out/line-1.out").read_text()) == (0, "54321\n"), done.stderr
    assert "~" not in os.listdir(tmp_path)


@pytest.mark.mpi
def test_files_that_are_for_their_user_alone(tmp_path: Path) -> None:
    done = tried("umask 077; $PYTHON app.py; exec $PYTHON -m mpi_runtime run -n 2 app.py", tmp_path)
    assert (done.returncode, done.stdout) == (0, "got value\n" * 2), done.stderr
