"""Output waits for its reader as long as that takes anything, and nobody else waits with it."""

import os
import threading
import time
from collections.abc import Iterator

import pytest

from mpi_runtime.processes import printer
from mpi_runtime.processes.printer import LAG_BYTES_MAX, Printer


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def read(descriptor: int, size: int) -> bytes:
    found = b""
    while len(found) < size:
        found += os.read(descriptor, 1 << 16)
    return found


def test_lines_get_their_origin(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    printing = Printer(lambda _: None)
    printing.print(writer, b"(f) ", b"one\ntwo\n")
    printing.close(lambda: True)
    assert os.read(reader, 100) == b"(f) one\n(f) two\n"


def test_who_floods_is_told_to_wait(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    said: list[bool] = []
    printing = Printer(said.append)
    line = b"x" * 65535 + b"\n"
    for _ in range(2 * LAG_BYTES_MAX // len(line)):
        printing.print(writer, b"", line)
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
    printing = Printer(lambda _: None)
    printing.print(writer, b"", b"y" * (size - 1) + b"\n")
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
    printing = Printer(lambda _: None)
    printing.print(writer, b"", b"z" * (1 << 20) + b"\n")
    printing.close(lambda: True)
    assert "bytes of what tasks wrote are lost" in capfd.readouterr().err
    read(reader, 1 << 20)  # so that the thread can end


def test_a_driver_that_is_gone_waits_for_nothing(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    printing = Printer(lambda _: None)
    printing.print(writer, b"", b"z" * (1 << 20) + b"\n")
    start = time.monotonic()
    printing.close(lambda: False)
    assert time.monotonic() - start < printer.STALL_S
    read(reader, 1 << 20)
