"""What the command prints where letters are missing, or nobody reads it."""

import os
import subprocess
import sys

from mpi_runtime.cli import main


def test_a_terminal_without_utf_8_gets_other_letters() -> None:
    assert main.main(["version"]) == 0
    text = "24\u202f000 calls, 5 µs \u2013 é \udcff"
    assert text.encode("ascii", "mpi_runtime") == rb"24 000 calls, 5 us - \xe9 \udcff"
    assert "é\udcff".encode(errors="mpi_runtime") == "é\\udcff".encode()


def test_output_that_nobody_reads_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    words = [sys.executable, "-m", "mpi_runtime", "completion", "bash"]
    try:
        done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")
