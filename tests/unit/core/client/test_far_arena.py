"""Values of another host, moved in parts: by files if both hosts share a directory, else by the line."""

from __future__ import annotations

import itertools
import os
from collections import deque
from pathlib import Path
from typing import cast

import pytest

from mpi_runtime.core.client.far_arena import FILE_BYTES, FILE_WINDOW, PART_BYTES, FarArena
from mpi_runtime.core.client.questions import Questions
from mpi_runtime.core.objects import passed_files
from mpi_runtime.core.transport.messages import Part, ReadPart, WritePart
from mpi_runtime.errors import ObjectLostError

SIZES = [0, 1, PART_BYTES, PART_BYTES + 1, FILE_BYTES, FILE_BYTES * FILE_WINDOW + 1]


class Host:
    """The other host, with memory for values; it answers when it is asked for the answer."""

    def __init__(self, size: int, directory: str) -> None:
        self.memory = bytearray(size)
        self.directory = directory
        self.asked: deque[ReadPart | WritePart] = deque()
        self.answers: dict[int, Part] = {}
        self.by_files = self.by_line = 0
        self.most = 0
        self.breaks_at = 0
        """The request at which the program is interrupted; 0: it is not."""
        self._numbers = itertools.count(1)

    def number(self) -> int:
        return next(self._numbers)

    def ask_for_part(self, asked: ReadPart | WritePart) -> None:
        self.asked.append(asked)
        if type(asked) is WritePart and asked.passed:
            self.most = max(self.most, len(os.listdir(self.directory)))

    def part(self, number: int) -> Part:
        if number == self.breaks_at:
            raise KeyboardInterrupt
        while number not in self.answers:
            asked = self.asked.popleft()
            self.answers[asked.request] = self.answer(asked)
        return self.answers.pop(number)

    def forget(self, number: int) -> None:
        pass

    def answer(self, asked: ReadPart | WritePart) -> Part:
        try:
            if type(asked) is WritePart:
                data = memoryview(bytearray(asked.passed) if asked.passed else asked.data)
                if asked.passed:
                    passed_files.take(self.directory, asked.request, data)
                    self.by_files += len(data)
                else:
                    assert len(data) <= PART_BYTES
                    self.by_line += len(data)
                self.memory[asked.offset : asked.offset + len(data)] = data
                return Part(asked.request)
            assert type(asked) is ReadPart
            found = bytes(self.memory[asked.offset : asked.offset + asked.size])
            if asked.is_passed:
                passed_files.leave(self.directory, asked.request, found)
                self.by_files += len(found)
                return Part(asked.request)
        except OSError as error:
            return Part(asked.request, problem=str(error))
        assert len(found) <= PART_BYTES
        self.by_line += len(found)
        return Part(asked.request, found)


def arena(host: Host, directory: str) -> FarArena:
    made = FarArena(len(host.memory), directory)
    made.attach(cast("Questions", host))
    return made


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("is_shared", [True, False])
def test_values_of_any_size_come_and_go(tmp_path: Path, size: int, is_shared: bool) -> None:
    directory = str(tmp_path) if is_shared else ""
    host, data = Host(size + 100, directory), os.urandom(size)
    far = arena(host, directory)
    far.write(0, 60, size + 40, [(0, b"head"), (10, data), (size + 10, b""), (size + 20, b"tail")])
    assert host.memory[60:64] == b"head"
    assert host.memory[size + 80 : size + 84] == b"tail"
    assert far.fetch("", 0, 70, size) == data
    assert (host.by_files, host.by_line) == ((2 * size, 8) if is_shared and size > PART_BYTES else (0, 2 * size + 8))
    assert not os.listdir(tmp_path)
    assert host.most <= FILE_WINDOW


@pytest.mark.parametrize("fails", ["here", "there"])
def test_the_line_takes_what_files_cannot_move(tmp_path: Path, fails: str) -> None:
    size = FILE_BYTES + PART_BYTES
    (tmp_path / "other").mkdir()
    host, data = Host(size, str(tmp_path / ("gone" if fails == "there" else "other"))), os.urandom(size)
    far = arena(host, str(tmp_path / ("gone" if fails == "here" else "other")))
    far.write(0, 0, size, [(0, data)])
    assert host.memory == data
    assert far.fetch("", 0, 0, size) == data
    assert (host.by_files, host.by_line) == (0, 2 * size)


def test_a_file_that_is_not_seen_whole_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 2 * FILE_BYTES
    host, data = Host(size, str(tmp_path)), os.urandom(size)
    host.memory[:] = data
    leave = passed_files.leave
    monkeypatch.setattr(passed_files, "leave", lambda place, number, part: leave(place, number, part[:-1]))
    assert arena(host, str(tmp_path)).fetch("", 0, 0, size) == data
    assert host.by_line == size


def test_what_an_interrupted_transfer_leaves_goes_with_the_next_one(tmp_path: Path) -> None:
    size = FILE_BYTES * FILE_WINDOW
    host, data = Host(size, str(tmp_path)), os.urandom(size)
    far = arena(host, str(tmp_path))
    far.write(0, 0, size, [(0, data)])
    for broken in range(1, FILE_WINDOW + 1):
        host.breaks_at = host.number() + broken
        with pytest.raises(KeyboardInterrupt):
            far.fetch("", 0, 0, size)
    host.breaks_at = 0
    assert far.fetch("", 0, 0, size) == data
    assert not os.listdir(tmp_path)
    assert host.by_line == 0


def test_a_value_that_neither_can_move_is_lost(tmp_path: Path) -> None:
    host = Host(0, str(tmp_path))
    host.answer = lambda asked: Part(asked.request, problem="of 9 bytes only 3 are there")  # type: ignore[method-assign]
    with pytest.raises(ObjectLostError, match="only 3 are there"):
        arena(host, str(tmp_path)).fetch("", 0, 0, 2 * PART_BYTES)
