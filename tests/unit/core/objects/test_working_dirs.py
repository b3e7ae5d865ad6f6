"""Directories as one value: what is packed, what is left out, what is refused; and where they are unpacked."""

import fcntl
import io
import os
import stat
import zipfile
from pathlib import Path

import pytest

from mpi_runtime.core.executor import scratch
from mpi_runtime.core.objects import working_dirs
from mpi_runtime.errors import RuntimeEnvSetupError


def fill(directory: Path, *names: str) -> Path:
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text of {name}")
    return directory


def names(data: bytes) -> list[str]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.namelist()


def made(**entries: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in entries.items():
            archive.writestr(name, text)
    return buffer.getvalue()


# What these expect is what `git check-ignore` says.
@pytest.mark.parametrize(
    ("lines", "path", "is_directory", "decided"),
    [
        (["*.log"], "a.log", False, True), (["*.log"], "deep/a.log", False, True), (["*.log"], "a.logs", False, None),
        (["/a"], "a", False, True), (["/a"], "b/a", False, None), (["b/a"], "b/a", False, True),
        (["b/a"], "c/b/a", False, None), (["a/"], "a", False, None), (["a/"], "a", True, True),
        (["*", "!a"], "a", False, False), (["!a", "*"], "a", False, True), (["# a", ""], "# a", False, None),
        ([r"\#a"], "#a", False, True), ([r"\!a"], "!a", False, True), (["a "], "a", False, True),
        ([r"a\ "], "a ", False, True), (["a?c"], "abc", False, True), (["a?c"], "a/c", False, None),
        (["[!a-c]x"], "dx", False, True), (["[!a-c]x"], "bx", False, None), (["[]x]"], "]", False, True),
        (["**/x"], "a/b/x", False, True), (["**/x"], "x", False, True), (["a/**"], "a/b/c", False, True),
        (["a/**"], "a", True, None), (["a/**/b"], "a/b", False, True), (["a/**/b"], "a/x/y/b", False, True),
        (["a**b"], "axyb", False, True), (["a.b"], "axb", False, None), (["[z-a]"], "a", False, None),
    ],
)  # fmt: skip
def test_patterns(lines: list[str], path: str, is_directory: bool, decided: bool | None) -> None:
    assert working_dirs.decide(working_dirs.read_patterns(lines), path, is_directory) is decided


def test_what_is_packed(tmp_path: Path) -> None:
    top = fill(
        tmp_path / "top", "a.py", "b/c.py", "b/d.log", "b/keep.log", "data/x.csv", ".git/config", "b/__pycache__/c.pyc"
    )
    (top / ".gitignore").write_text("*.log\n")
    (top / "b" / ".gitignore").write_text("!keep.log\n")
    (top / "empty").mkdir()
    os.mkfifo(top / "pipe")
    (top / "link.py").symlink_to(top / "a.py")
    (top / "round").symlink_to(top)
    fill(tmp_path / "outside", "o.py")
    (top / "outside").symlink_to(tmp_path / "outside")
    (top / "nowhere").symlink_to(tmp_path / "nothing")
    data = working_dirs.pack_directory(str(top), ["/data/"])
    found = [".gitignore", "a.py", "b/.gitignore", "b/c.py", "b/keep.log", "empty/", "link.py", "outside/o.py"]
    assert names(data) == found
    os.utime(top / "a.py", (0, 0))
    assert working_dirs.pack_directory(str(top), ["/data/"]) == data, "the same content makes the same bytes"
    assert names(working_dirs.pack_directory(str(top / "b"), ["*.log"], inside="b"))[:2] == ["b/.gitignore", "b/c.py"]
    (top / "a.py").chmod(0o755)
    into = tmp_path / "into"
    into.mkdir()
    working_dirs.unpack(memoryview(working_dirs.pack_directory(str(top), [])), str(into))
    assert (into / "b" / "c.py").read_text() == "text of b/c.py"
    modes = {name: stat.S_IMODE((into / name).stat().st_mode) for name in ("a.py", "b", "b/c.py", "empty")}
    assert modes == {"a.py": 0o700, "b": 0o700, "b/c.py": 0o600, "empty": 0o700}


def test_what_cannot_be_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="nowhere"):
        working_dirs.pack_directory(str(tmp_path / "nowhere"), [])
    with pytest.raises(ValueError, match=r"no\.py"):
        working_dirs.pack_file(str(tmp_path / "no.py"))
    monkeypatch.setattr(working_dirs, "CONTENT_BYTES_MAX", 1000)
    (tmp_path / "small").write_bytes(b"x" * 10)
    working_dirs.pack_directory(str(tmp_path), [])
    (tmp_path / "large").write_bytes(b"x" * 900)
    (tmp_path / "larger").write_bytes(b"x" * 950)
    with pytest.raises(RuntimeEnvSetupError, match=r"The largest files are larger .*, large .*, small .*excludes"):
        working_dirs.pack_directory(str(tmp_path), [])
    assert names(working_dirs.pack_directory(str(tmp_path), ["larger"])) == ["large", "small"]


def test_a_name_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    fill(tmp_path, "here/a", "at/ünï\u2028", "at/new\nline", "at/-dash")
    (tmp_path / "here/bad\udcff").touch()
    with pytest.raises(ValueError, match=r"'here/bad\\udcff' is not UTF-8.*excludes"):
        working_dirs.pack_directory(str(tmp_path), [])
    archive = working_dirs.pack_directory(str(tmp_path), ["bad*"])
    working_dirs.unpack(archive, str(tmp_path / "there"))
    assert sorted(os.listdir(tmp_path / "there/at")) == ["-dash", "new\nline", "ünï\u2028"]


@pytest.mark.parametrize("name", ["../out", "a/../../out", "/out", "a/.."])
def test_nothing_is_unpacked_outside(name: str, tmp_path: Path) -> None:
    data = made(**{"good": "1", name: "2"})
    (tmp_path / "own.zip").write_bytes(data)
    with pytest.raises(ValueError, match="outside of the target directory"):
        working_dirs.read_zip(str(tmp_path / "own.zip"))
    into = tmp_path / "into"
    into.mkdir()
    with pytest.raises(ValueError, match="outside of the target directory"):
        working_dirs.unpack(data, str(into))
    assert list(into.iterdir()) == []
    assert not (tmp_path / "out").exists()


def test_links_in_a_zip_file_are_no_way_out(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        link = zipfile.ZipInfo("link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, str(tmp_path))
    into = tmp_path / "into"
    into.mkdir()
    working_dirs.unpack(buffer.getvalue(), str(into))
    assert not (into / "link").is_symlink()


def test_zip_files_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "own.zip"
    path.write_bytes(made(a="1"))
    assert working_dirs.read_zip(str(path)) == path.read_bytes()
    monkeypatch.setattr(working_dirs, "CONTENT_BYTES_MAX", 1000)
    path.write_bytes(made(a="1" * 2000))
    with pytest.raises(RuntimeEnvSetupError, match=r"holds 0\.0 MB"):
        working_dirs.read_zip(str(path))
    path.write_bytes(b"none")
    with pytest.raises(ValueError, match="cannot be read as a zip file"):
        working_dirs.read_zip(str(path))


# Where they are unpacked.


def test_the_directory_of_a_job_goes_with_the_last_that_holds_it(tmp_path: Path) -> None:
    directory = scratch.directory_of(str(tmp_path), "job", "host/name")
    assert directory == str(tmp_path / f"mpi_runtime-{os.geteuid()}" / "job@host_name")
    first, second = scratch.enter(directory), scratch.enter(directory)
    (Path(directory) / "hash").mkdir()
    scratch.leave(directory, first)
    scratch.clean(scratch.directory_of(str(tmp_path), "next", "host/name"))
    assert (Path(directory) / "hash").is_dir()
    scratch.leave(directory, second)
    assert list(tmp_path.iterdir()) == []
    scratch.leave(directory)


def test_what_dead_jobs_left_on_this_host_is_removed(tmp_path: Path) -> None:
    def directory(job: str, host: str = "here") -> Path:
        return Path(scratch.directory_of(str(tmp_path), job, host))

    for dead in (directory("dead"), directory("elsewhere", "there"), directory("going-half")):
        os.close(scratch.enter(str(dead)))
        fill(dead / "hash", "file")
    (directory("going-half") / "lock").unlink()
    held = scratch.enter(str(directory("alive")))
    scratch.clean(str(directory("next")))
    assert sorted(path.name for path in directory("x").parent.iterdir()) == ["alive@here", "elsewhere@there"]
    scratch.leave(str(directory("alive")), held)
    scratch.clean(str(directory("next", "there")))
    assert list(tmp_path.iterdir()) == []


def test_a_directory_of_others_is_not_used(tmp_path: Path) -> None:
    directory = scratch.directory_of(str(tmp_path), "job", "host")
    parent = Path(directory).parent
    parent.mkdir()
    parent.chmod(0o755)
    with pytest.raises(PermissionError, match="MPI_RUNTIME_SCRATCH_DIR"):
        scratch.enter(directory)
    parent.rmdir()
    parent.symlink_to(tmp_path)
    with pytest.raises(PermissionError, match="alone"):
        scratch.enter(directory)
    scratch.clean(directory)
    assert parent.is_symlink()
    with pytest.raises(FileNotFoundError):
        scratch.enter(scratch.directory_of(str(tmp_path / "nowhere"), "job", "host"))


def test_without_locks_only_the_own_directory_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, how: int) -> None:
        raise OSError("no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    other, own = (scratch.directory_of(str(tmp_path), job, "host") for job in ("other", "own"))
    os.close(scratch.enter(other))
    lock = scratch.enter(own)
    scratch.clean(own)
    scratch.leave(own, lock)
    assert os.path.isdir(other)
    assert not os.path.exists(own)
