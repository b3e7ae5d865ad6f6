"""Frames between ranks that cannot be read are counted, and told about now and then."""

import pytest

from mpi_runtime.core.rank.bad_frames import REPORT_S, BadFrames


def test_lines_come_once_in_a_while(capsys: pytest.CaptureFixture[str]) -> None:
    now = [100.0]
    frames = BadFrames(2, lambda: now[0])
    for _ in range(3):
        frames.dropped(0, ValueError("first"))
    frames.dropped(1, ValueError("of another"))
    now[0] += REPORT_S
    frames.dropped(1, ValueError("second"))
    assert frames.counts == {0: 3, 1: 2}
    assert capsys.readouterr().err.splitlines() == [
        "mpi_runtime: rank 2: a message from rank 0 cannot be read and is dropped: first",
        "mpi_runtime: rank 2: a message from rank 1 cannot be read and is dropped; "
        "so were 3 other(s) since the last report: second",
    ]
