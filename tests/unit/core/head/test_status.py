"""Status lines stand below other output on a terminal, and are lines from time to time where there is none."""

import os
import pty

import pytest

from mpi_runtime.core.head import status
from mpi_runtime.core.head.status import Status, line, split, terminal


def drawn(written: list[bytes]) -> list[str]:
    """What is drawn last: the lines below the cursor."""
    assert written[-1].endswith(b"\x1b8")
    return written[-1].removesuffix(b"\x1b8").decode().split("\n")[1:]


def test_status_is_told_from_other_output() -> None:
    lines = b"one\n" + line("a", "5 of 10", False) + b"two\n" + line("b", "", True) + b"\n"
    assert split(lines) == (b"one\ntwo\n\n", [(b"a", b"5 of 10", False), (b"b", b"", True)])
    assert split(line("a", "several\nlines", False)) == (b"", [(b"a", b"several lines", False)])


def test_a_line_that_somebody_has_begun_is_kept() -> None:
    assert split(b"begun " + line("a", "text", False)) == (b"begun \n", [(b"a", b"text", False)])


def test_what_only_looks_like_a_status_is_output() -> None:
    for text in (status.MARK + b"\n", status.MARK + b"a\n", status.MARK + b"a other\n"):
        assert split(text) == (text, [])


def test_on_a_terminal_each_has_a_line_below_the_rest() -> None:
    written: list[bytes] = []
    shown = Status(written.append, lambda: (40, 24))
    assert shown.wait_s() is None
    shown.take(b"(f) ", (b"a", b"1", False))
    shown.take(b"(g) ", (b"b", b"5", False))
    assert shown.wait_s() is not None
    assert written == []
    shown.draw()
    assert drawn(written) == ["(f) 1", "(g) 5"]
    assert shown.wait_s() is None
    shown.take(b"(f) ", (b"a", b"2", False))
    assert shown.wait_s() is not None
    shown.draw()
    assert drawn(written) == ["(f) 2", "(g) 5"]


def test_they_make_room_for_other_output_and_come_back() -> None:
    written: list[bytes] = []
    shown = Status(written.append, lambda: (40, 24))
    shown.hide()
    assert written == []
    shown.take(b"", (b"a", b"1", False))
    shown.draw()
    shown.hide()
    assert written[-1] == b"\x1b[J"
    shown.hide()
    assert len(written) == 2
    assert shown.wait_s() is not None
    shown.draw()
    assert drawn(written) == ["1"]


def test_the_last_one_stays_as_a_line() -> None:
    written: list[bytes] = []
    shown = Status(written.append, lambda: (40, 24))
    shown.take(b"", (b"a", b"1", False))
    shown.draw()
    shown.take(b"", (b"a", b"done", True))
    assert written[-2:] == [b"\x1b[J", b"done\n"]
    assert shown.wait_s() is None


def test_those_of_a_process_that_was_killed_are_forgotten() -> None:
    written: list[bytes] = []
    shown, lines = Status(written.append, lambda: (40, 24)), Status(written.append, None)
    for one in (shown, lines):
        one.take(b"", (b"a", b"1", False), 7)
        one.take(b"", (b"b", b"2", False), 8)
    shown.draw()
    shown.ended(7)
    assert written[-1] == b"\x1b[J"
    shown.draw()
    assert drawn(written) == ["2"]
    lines.ended(8)
    assert [len(lines._written_s), len(shown._texts)] == [1, 1]


def test_they_fit_the_terminal() -> None:
    written: list[bytes] = []
    shown = Status(written.append, lambda: (10, 6))
    for number in range(9):
        shown.take(b"", (str(number).encode(), "ä".encode() * 30, False))
    shown.draw()
    assert drawn(written) == ["ä" * 9] * 3 + ["... and 6"]


def test_without_a_terminal_they_are_lines_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    shown = Status(written.append, None)
    for number in range(100):
        shown.take(b"(f) ", (b"a", str(number).encode(), False))
    assert written == []
    monkeypatch.setattr(status, "LINE_PAUSE_S", 0.0)
    shown.take(b"(f) ", (b"a", b"100", False))
    monkeypatch.undo()
    shown.take(b"(f) ", (b"a", b"101", False))
    shown.take(b"(f) ", (b"a", b"102", True))
    assert written == [b"(f) 100\n", b"(f) 102\n"]
    assert shown.wait_s() is None


def test_what_is_a_terminal() -> None:
    ours, theirs = pty.openpty()
    try:
        size = terminal(theirs)
        assert size is not None
        assert size() == (80, 24)  # it says nothing
    finally:
        os.close(ours)
        os.close(theirs)
    reader, writer = os.pipe()
    try:
        assert terminal(writer) is None
    finally:
        os.close(reader)
        os.close(writer)
