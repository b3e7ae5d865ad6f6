"""Lines of ranks that arrive at the same time are written by rank; nothing waits long, and nothing is held for ever."""

from __future__ import annotations

from threading import Event

import pytest

from mpi_runtime.batch.run import ranks
from mpi_runtime.batch.run.ranks import Ordered


def test_lines_are_written_in_the_order_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "HOLD_S", 1000)
    written: list[tuple[int, bytes]] = []
    lines = Ordered(lambda stream, data: written.append((stream, data)))
    for number, rank in enumerate((2, 0, 1, 0, 2)):
        lines.take(1 + number % 2, b"%d of %d\n" % (number, rank), rank)
    assert not written
    lines.flush()
    assert [data.split()[-1] for _, data in written] == [b"0", b"0", b"1", b"2", b"2"]
    assert [data[:1] for _, data in written] == [b"1", b"3", b"2", b"0", b"4"]
    lines.flush()
    assert len(written) == 5


def test_lines_are_written_soon_and_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "HOLD_S", 0.01)
    is_written = Event()
    lines = Ordered(lambda stream, data: is_written.set())
    lines.take(1, b"a\n", 0)
    assert is_written.wait(60)
    monkeypatch.setattr(ranks, "HOLD_S", 1000)
    is_written.clear()
    lines.take(1, bytes(ranks.HELD_BYTES_MAX), 0)
    assert not is_written.is_set()
    lines.take(1, b"b", 0)
    assert is_written.is_set()


def test_an_error_of_the_file_ends_nothing() -> None:
    def full(stream: int, data: bytes) -> None:
        raise OSError(28, "no space left")

    lines = Ordered(full)
    lines.take(1, b"a\n", 0)
    lines.flush()
    assert lines.error is not None
    assert lines.error.errno == 28
