"""Output waits for its reader as long as that takes anything, and nobody else waits with it."""

import os
import select
import threading
import time
from collections.abc import Iterator

import pytest

from mpi_runtime.core.head import printer
from mpi_runtime.core.head.printer import LAG_BYTES_MAX, Printer
from tests.helpers import wait_until


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def read(descriptor: int, size: int, at_a_time: int = 1 << 16) -> bytes:
    found = b""
    while len(found) < size:
        found += os.read(descriptor, at_a_time)
    return found


def test_lines_get_their_origin(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    printing = Printer(lambda _: None, streams=(writer, writer))
    printing.print(1, b"(f) ", b"one\ntwo\n")
    printing.close(lambda: True)
    assert os.read(reader, 100) == b"(f) one\n(f) two\n"


def test_who_floods_is_told_to_wait(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    said: list[bool] = []
    printing = Printer(said.append, streams=(writer, writer))
    line = b"x" * 65535 + b"\n"
    for _ in range(2 * LAG_BYTES_MAX // len(line)):
        printing.print(1, b"", line)
    assert said == [True]
    assert printing.turn() is not None
    read(reader, 2 * LAG_BYTES_MAX)
    printing.close(lambda: True)
    assert printing.turn() is None
    assert said == [True, False]


def test_a_slow_reader_gets_all(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes longer than a stall may last, but always a little."""
    monkeypatch.setattr(printer, "STALL_S", 2.0)
    reader, writer = pipe
    size = 300_000
    printing = Printer(lambda _: None, streams=(writer, writer))
    printing.print(1, b"", b"y" * (size - 1) + b"\n")
    got: list[int] = []

    def slowly() -> None:
        while sum(got) < size:
            time.sleep(0.05)
            got.append(len(os.read(reader, 4096)))

    thread = threading.Thread(target=slowly)
    start = time.monotonic()
    thread.start()
    printing.close(lambda: True)
    assert time.monotonic() - start > 2.0
    thread.join()
    assert sum(got) == size


def test_nobody_reads(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(printer, "STALL_S", 0.5)
    reader, writer = pipe
    printing = Printer(lambda _: None, streams=(writer, writer))
    printing.print(1, b"", b"z" * (1 << 20) + b"\n")
    printing.close(lambda: True)
    assert "bytes of output of tasks are lost" in capfd.readouterr().err
    read(reader, 1 << 20)  # so that the thread can end


def test_a_driver_that_is_gone_waits_for_nothing(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    printing = Printer(lambda _: None, streams=(writer, writer))
    printing.print(1, b"", b"z" * (1 << 20) + b"\n")
    start = time.monotonic()
    printing.close(lambda: False)
    assert time.monotonic() - start < printer.STALL_S
    read(reader, 1 << 20)


def test_lines_stay_whole_though_others_write_to_the_same_pipe(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    printing = Printer(lambda _: None, streams=(writer, writer))
    theirs = threading.Thread(target=lambda: [os.write(writer, b"theirs\n") for _ in range(5000)])
    expected = [b"(f pid=1) %06d" % number for number in range(40_000)]
    printing.print(1, b"(f pid=1) ", b"".join(b"%06d\n" % number for number in range(40_000)))
    theirs.start()
    wait_until(lambda: not select.select([], [writer], [], 0)[1])  # the pipe is full, and both wait for room in it
    lines = read(reader, sum(len(line) + 1 for line in expected) + 5000 * 7, at_a_time=1000).splitlines()
    theirs.join()
    printing.close(lambda: True)
    assert [line for line in lines if line != b"theirs"] == expected


def test_a_pipe_that_another_process_has_made_non_blocking_gets_all(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    os.set_blocking(writer, False)
    printing = Printer(lambda _: None, streams=(writer, writer))
    size = 1 << 20
    printing.print(1, b"", b"z" * (size - 1) + b"\n")
    wait_until(lambda: not select.select([], [writer], [], 0)[1])
    assert read(reader, size) == b"z" * (size - 1) + b"\n"
    printing.close(lambda: True)


def test_output_waits_for_room_on_a_full_disk(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    full = os.open("/dev/full", os.O_WRONLY)
    printing = Printer(lambda _: None, streams=(full, full))
    printing.print(1, b"", b"first\n")
    os.dup2(writer, full)  # now it has room
    printing.print(1, b"", b"second\n")
    printing.close(lambda: True)
    os.close(full)
    assert os.read(reader, 100) == b"first\nsecond\n"
