"""Files that pass parts of values between hosts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mpi_runtime.core.objects import passed_files


def test_a_file_is_read_once_and_removed(tmp_path: Path) -> None:
    data = os.urandom(300_000)
    passed_files.leave(str(tmp_path), 7, data)
    assert (tmp_path / "7").stat().st_mode & 0o777 == 0o600
    found = bytearray(len(data))
    passed_files.take(str(tmp_path), 7, memoryview(found))
    assert found == data
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError):
        passed_files.take(str(tmp_path), 7, memoryview(found))


@pytest.mark.parametrize("size", [0, 9, 11])
def test_a_file_of_another_size_is_refused(tmp_path: Path, size: int) -> None:
    (tmp_path / "1").write_bytes(bytes(size))
    with pytest.raises(OSError, match=f"of 10 bytes has {size} here"):
        passed_files.take(str(tmp_path), 1, memoryview(bytearray(10)))


def test_a_file_is_never_replaced_and_none_is_made_without_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    passed_files.leave(str(tmp_path), 1, b"first")
    with pytest.raises(FileExistsError):
        passed_files.leave(str(tmp_path), 1, b"second")
    with pytest.raises(FileNotFoundError):
        passed_files.leave("", 2, b"data")
    with pytest.raises(FileNotFoundError):
        passed_files.take("", 1, memoryview(bytearray(5)))
    passed_files.drop("", 1)
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"first"]


def test_a_full_disk_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        passed_files.leave(str(tmp_path), 1, b"data")
    assert not list(tmp_path.iterdir())
