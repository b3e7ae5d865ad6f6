"""Batches that a shell writes into a pipe."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "script",
    [
        '{} <(echo "echo hi")',
        'echo "echo hi" | {} /dev/stdin',
        'echo "echo hi" > jobs; {} /dev/stdin < jobs',
        "{} <(true)",
    ],
)
def test_pipes_of_a_shell(tmp_path: Path, script: str) -> None:
    code = (
        "import sys; from mpi_runtime.batch.file.parse import read_text; print(read_text(sys.argv[1], 'lines'), end='')"
    )
    command = script.format(f'{sys.executable} -c "{code}"')
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("echo hi\n" if "hi" in script else "", "")
