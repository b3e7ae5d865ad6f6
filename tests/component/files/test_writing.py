"""What a killed process leaves of a file that it was writing."""

import os
import signal
from pathlib import Path

from mpi_runtime.files import writing


def test_what_a_killed_process_has_left_is_found_by_nobody(tmp_path: Path) -> None:
    """Those who look for names with a beginning do not see it, and the only writer of a name removes it."""
    for is_only_writer in (False, True):
        if not (child := os.fork()):
            with writing.beside(tmp_path / "part-1", is_only_writer=is_only_writer) as place:
                os.mkdir(place)
                os.kill(os.getpid(), signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert (len(os.listdir(tmp_path)), [*tmp_path.glob("part-*")]) == (2, [])
    with writing.beside(tmp_path / "part-1", is_only_writer=True) as place:
        Path(place).write_text("whole")
    assert len(os.listdir(tmp_path)) == 2
    assert (tmp_path / "part-1").read_text() == "whole"
