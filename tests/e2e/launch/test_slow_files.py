"""Ranks that find Python and its packages on a slow file system: bounded in what they ask of it, and up in time.

Counts, not times, but for one: the default of `init(start_timeout_s)`. `benchmarks/slow_files.py` makes the files slow.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

from benchmarks.slow_files import PROGRAM, WAYS, asked, slow_files
from tests.helpers import mpi_python, run_program

MOST = {
    "python app.py": {"driver": 520, "head": 700, "worker": 545, "forkserver": 540},
    "python -m mpi_runtime app.py": {"driver": 615, "head": 700, "worker": 625, "forkserver": 175},
}
"""What a process may ask for, with Python 3.11 and Open MPI. Each module makes two of it
(`listings.py`), each room two more. Where it is passed ask whether what is new is needed before the first task."""
START_CALLS_MAX = 2000
"""With 1 820 counted. Python's own finder would make 4 050 of it: see `listings.py`."""
OTHER_PYTHON = 1.0 if sys.version_info[:2] == (3, 11) and version("numpy") >= "2" else 1.15
"""Others ask for more: of Python 3.10 fewer modules are frozen, and with 3.13 `import msgspec` loads 20 more.
So do older libraries, which come with an older numpy."""

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler (cc)")]


@pytest.mark.parametrize("way", WAYS)
def test_what_each_process_asks_for_is_bounded(way: str, tmp_path: Path) -> None:
    run(WAYS[way], tmp_path, ranks=2, delay_ms=0)
    found = asked(tmp_path)
    assert {one.role for one in found} >= MOST[way].keys(), "all are counted"
    for one in found:
        if one.role in MOST[way]:
            assert 20 < one.operations <= MOST[way][one.role] * OTHER_PYTHON, one
    assert "executor" not in {one.role for one in found}, "it has all in memory"


def test_eight_ranks_are_up_in_time(tmp_path: Path) -> None:
    """With 2 ms for each operation, within the default time; what they have waited for then is no less than that."""
    seconds = run(WAYS["python -m mpi_runtime app.py"], tmp_path, ranks=8, delay_ms=2)
    workers = [one for one in asked(tmp_path) if one.role == "worker"]
    assert len(workers) == 7
    assert seconds > max(one.operations for one in workers) * 2e-3, "they were delayed"


@pytest.mark.skipif(not shutil.which("strace"), reason="there is no strace")
def test_a_start_on_one_machine_is_bounded(tmp_path: Path) -> None:
    """All calls about files of all its processes, as `strace` counts them, Python's own start too: 147, twice."""
    (tmp_path / "app.py").write_text(PROGRAM)
    variables = {**os.environ, "PYTHONPYCACHEPREFIX": f"{tmp_path}/compiled"}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    counted = ["strace", "-f", "-c", "-e", "trace=%file", "-o", f"{tmp_path}/counts"]
    for command in ([], [], counted):  # on a busy machine the first may end before all is compiled
        subprocess.run([*command, sys.executable, f"{tmp_path}/app.py"], env=variables, check=True, capture_output=True)
    words = (tmp_path / "counts").read_text().splitlines()[-1].split()
    assert words[-1] == "total"
    assert 500 < int(words[3]) <= START_CALLS_MAX * OTHER_PYTHON, words


@pytest.mark.skipif(not shutil.which("strace"), reason="there is no strace")
def test_the_far_end_of_a_line_loads_little(tmp_path: Path) -> None:
    """Each dial starts `session pipe`. 713 calls were counted, and 1 198 when it loaded all verbs of `session`."""
    counted = ["strace", "-f", "-c", "-e", "trace=%file", "-o", f"{tmp_path}/counts"]
    words = ["-m", "mpi_runtime", "session", "pipe", "--file", f"{tmp_path}/none"]
    done = subprocess.run([*counted, sys.executable, *words], capture_output=True, text=True)
    assert "the session has ended" in done.stderr
    assert 200 < int((tmp_path / "counts").read_text().splitlines()[-1].split()[3]) <= 760 * OTHER_PYTHON


def run(way: Sequence[str], place: Path, ranks: int, delay_ms: float) -> float:
    """Run a program that starts and has one result; how long it took, in seconds."""
    mpi_python("openmpi")
    return run_program(PROGRAM, ranks=ranks, options=way, env={**slow_files(place, delay_ms)}).expect(0).seconds
