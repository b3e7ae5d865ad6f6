"""Marks in output: whose the lines after them are."""

import io
import os

import pytest

from mpi_runtime.core.agent import output_lines as rank_lines
from mpi_runtime.core.executor import output
from mpi_runtime.core.executor.fork_messages import MARK

F, G = MARK + b"f\n", MARK + b"g\n"


@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        (b"a\nb\n", [(b"a\nb\n", b"x")]),
        (F + b"a\nb\n", [(b"a\nb\n", b"f")]),
        (b"a\n" + F + b"b\n" + G, [(b"a\n", b"x"), (b"b\n", b"f"), (b"", b"g")]),
        (b"no end" + F + b"b\n", [(b"no end\n", b"x"), (b"b\n", b"f")]),
        (F + G + b"a\n", [(b"a\n", b"g")]),
        (b"\x1emrt-writ\n", [(b"\x1emrt-writ\n", b"x")]),
    ],
)
def test_lines_are_split_at_marks(lines: bytes, parts: list[tuple[bytes, bytes]]) -> None:
    assert list(rank_lines.split(lines, b"x")) == parts
    assert rank_lines.unmarked(lines) == b"".join(part for part, _ in parts)


def test_a_mark_comes_with_the_first_line_and_then_with_each_change() -> None:
    read_end, write_end = os.pipe()
    stream = output.Output(write_end)
    stream.pipe = write_end
    text = io.TextIOWrapper(stream, line_buffering=True, write_through=True)
    stream.begin(b"f")
    stream.begin(b"g")  # nothing was written
    text.write("a\n")
    text.write("b\n")
    stream.begin(b"g")
    stream.begin(b"f")
    os.write(write_end, b"of a program\n")
    assert os.read(read_end, 1000) == G + b"a\nb\n" + F + b"of a program\n"
    os.close(read_end)
    os.close(write_end)
