"""The verbs that show a batch, where nobody reads their output or it cannot be written."""

import os
import subprocess
import sys
from pathlib import Path

from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.run.program import run_program
from tests.unit.cli import test_batch_verbs as verbs

journal = verbs.journal


def test_nobody_reads_the_rest_of_a_log(journal: Path) -> None:
    """As with `batch log jobs b | head -1`."""
    Path("batch-jobs/b.out").write_bytes(b"line\n" * 100_000)
    reader, writer = os.pipe()
    os.close(reader)
    words = [sys.executable, "-m", "mpi_runtime", "batch", "log", "jobs", "b"]
    try:
        done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_directory_without_batches(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mpi_runtime", "batch", "list"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "no batches in this directory: `mpi-runtime batch FILE` runs one\n"
    done = subprocess.run([*words, "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_a_program_that_cannot_write_its_output_has_none(tmp_path: Path) -> None:
    place = tmp_path / "a.out"
    place.mkdir()
    made = Command(text="true", name="a", stdout=str(place), stderr=str(place))
    ending = run_program(made, dict(os.environ), (), True)
    assert (ending.problem, ending.has_output) == (f"it could not be started: Is a directory ({place})", False)
    place.rmdir()
    assert run_program(made, dict(os.environ), (), True).has_output
