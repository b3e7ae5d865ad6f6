"""The file of one rank for objects that its arena has no room for."""

import errno
import fcntl
import mmap
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from mpi_runtime.core.host.machine import is_in_memory
from mpi_runtime.core.objects import spill_file
from mpi_runtime.core.objects.allocator import PAGE
from mpi_runtime.core.objects.spill_file import CHUNK, Ended, SpillFile, create

A, B = b"a" * 16, b"b" * 16


class Desk:
    """A file, and what has ended."""

    def __init__(self, directory: str) -> None:
        self.rung = threading.Semaphore(0)
        self.file = SpillFile(directory, self.rung.release)

    def ended(self) -> Ended:
        """Wait for the next."""
        assert self.rung.acquire(timeout=20)
        (ended,) = self.file.poll()
        return ended


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(str(tmp_path))
    yield desk
    desk.file.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("size", [1, 1000, CHUNK + 1])
def test_what_is_written_is_read(desk: Desk, size: int) -> None:
    data = os.urandom(size)
    desk.file.write(A, memoryview(data))
    written = desk.ended()
    assert (written.id, written.is_write, written.problem) == (A, True, "")
    target = bytearray(size)
    desk.file.read(A, written.offset, memoryview(target))
    assert desk.ended() == Ended(A, False, written.offset, "")
    assert target == data


def test_what_is_written_in_a_row_lies_in_a_row_and_room_is_used_again(desk: Desk) -> None:
    offsets = []
    for id in (A, B, A):
        desk.file.write(id, memoryview(bytes(2 << 20)))
        offsets.append(desk.ended().offset)
    assert offsets == [0, 2 << 20, 4 << 20]
    desk.file.free([offsets[1]])
    desk.file.write(B, memoryview(bytes(2 << 20)))
    assert desk.ended().offset == offsets[1]
    desk.file.free(offsets)
    assert desk.file.used == 0


def on_pages(size: int) -> mmap.mmap:
    """Memory as the arena has it."""
    data = mmap.mmap(-1, size)
    data[:] = os.urandom(1 << 12) * (size >> 12)
    return data


@pytest.mark.parametrize("can", [True, False])
def test_large_objects_go_past_the_page_cache_where_that_can_be(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, can: bool
) -> None:
    """Where it cannot be, it is tried once."""
    size, tried, write = CHUNK + (1 << 20) + PAGE, list[int](), os.pwrite

    def written(descriptor: int, data: memoryview, offset: int) -> int:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            tried.append(offset)
            if not can:
                raise OSError(errno.EINVAL, "Invalid argument")
        return write(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", written)
    data, target = on_pages(size), mmap.mmap(-1, size)
    desk.file.write(A, memoryview(data))
    first = desk.ended()
    desk.file.write(B, memoryview(b"small"))
    second = desk.ended()
    assert (first.problem, second.problem) == ("", "")
    if desk.file._direct >= 0 or not can:  # not on every file system
        assert tried == ([0, CHUNK] if can else [0])
    desk.file.read(A, first.offset, memoryview(target))
    assert desk.ended() == Ended(A, False, first.offset, "")
    assert target[:] == data[:]
    small = bytearray(5)
    desk.file.read(B, second.offset, memoryview(small))
    assert (desk.ended().problem, bytes(small)) == ("", b"small")


def test_a_full_disk_is_told_and_takes_no_room(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, size: int, percent: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(spill_file, "check_free", full)
    desk.file.write(A, memoryview(bytes(1000)))
    ended = desk.ended()
    assert ended.is_write
    assert ended.problem.endswith(": No space left on device")
    assert desk.file.used == 0


def test_a_part_of_the_disk_is_kept_for_values_that_come_back(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    total, free = 1000, 80
    monkeypatch.setattr(os, "fstatvfs", lambda _: SimpleNamespace(f_bavail=free, f_blocks=total, f_frsize=1000))
    desk.file.write(A, memoryview(bytes(1000)))
    assert desk.ended().problem.endswith("less than 10 % of this file system would be left")
    desk.file.write(A, memoryview(bytes(1000)), for_copies=True)
    assert desk.ended().problem == ""
    desk.file.write(B, memoryview(bytes(31_000)), for_copies=True)
    assert desk.ended().problem.endswith("less than 5 % of this file system would be left")


def test_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    desk = Desk(str(tmp_path / "nowhere"))
    desk.file.write(A, memoryview(b"data"))
    assert desk.ended().problem.endswith("nowhere: No such file or directory")
    desk.file.close()


def test_without_a_directory_nothing_is_written() -> None:
    desk = Desk("")
    desk.file.write(A, memoryview(b"data"))
    assert desk.ended() == Ended(A, True, -1, "no directory on a disk is configured (object_spilling_directory)")


def test_what_is_not_there_is_not_read_or_freed(desk: Desk) -> None:
    with pytest.raises(ValueError, match="are not an object"):
        desk.file.read(A, 0, memoryview(bytearray(1)))
    with pytest.raises(ValueError, match=r"nothing is at \[64\]"):
        desk.file.free([64])


def test_the_file_has_no_name_also_where_the_file_system_cannot_make_one_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_open = os.open

    def refuse(path: str, flags: int, *rest: int, **more: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "cannot")
        return real_open(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    descriptor = create(str(tmp_path))
    assert not list(tmp_path.iterdir())
    os.close(descriptor)


def test_memory_is_no_disk() -> None:
    assert is_in_memory("/dev/shm") or not os.path.ismount("/dev/shm")
    assert not is_in_memory("/proc")
