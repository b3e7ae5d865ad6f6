"""The progress line: it appears for long work, follows it, and goes."""

import pytest

from mpi_runtime.core.head.progress import PAUSE_S, Progress


def test_a_line_for_long_work_alone() -> None:
    counts = (0, 0, 0)
    lines: list[str] = []
    progress = Progress(lambda: counts, lines.append)
    assert progress.turn(0.0) == PAUSE_S
    counts = (100, 0, 0)
    progress.turn(1.0)
    counts = (100, 98, 2)
    progress.turn(2.0)
    assert lines == [], "it was done soon"
    for step in range(12):
        counts = (300, 98 + 10 * step, 2 + step)
        progress.turn(3.0 + step / 2)
        assert progress.turn(3.1 + step / 2) == pytest.approx(PAUSE_S - 0.1)
    assert lines[0] == "[#####!..................] 44 of 200 calls ended, 4 failed, 22 a second, about 7.09 s left"
    assert lines[-1].startswith(
        "[#############!..........] 121 of 200 calls ended, 11 failed, 22 a second, about 3.59 s"
    )
    counts = (300, 280, 20)
    progress.turn(20.0)
    assert lines[-1] == ""
    before = len(lines)
    progress.turn(30.0)
    assert len(lines) == before
