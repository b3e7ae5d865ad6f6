"""Programs with streams that are started by a launcher, or killed and started again: each row is written once."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
from pyarrow import parquet

from tests.helpers import start_program, wait_until

PROGRAM = """
import os, sys, time
from pathlib import Path
import mpi_runtime
from mpi_runtime import data

folder = Path(sys.argv[1])
(folder / "pids").mkdir(exist_ok=True)

def work(batch):
    (folder / "pids" / str(os.getpid())).touch()
    time.sleep(0.03)
    return {"id": batch["id"] * 2}

class Work:
    def __call__(self, batch):
        return work(batch)

with mpi_runtime.init(num_cpus=2):
    ds = data.range(300, override_num_blocks=60).map_batches(work, max_retries=20).map_batches(Work, concurrency=2)
    ds.write_parquet(str(folder / "out"))
    print("ranks", mpi_runtime.nodes()[0]["ranks"])
"""
FILES = 60


def written(folder: Path) -> list[Path]:
    return list((folder / "out").glob("*.parquet"))


def check(folder: Path) -> None:
    """Each row once, and no file that was being written."""
    rows = [row for path in written(folder) for row in parquet.read_table(path)["id"].to_pylist()]
    assert sorted(rows) == list(range(0, 1200, 4))
    assert {path.suffix for path in (folder / "out").iterdir()} == {".parquet"}


def test_a_driver_that_is_killed_and_started_again(tmp_path: Path) -> None:
    with start_program(PROGRAM, str(tmp_path)) as first:
        wait_until(lambda: len(written(tmp_path)) >= 5, what="files were written")
        os.kill(first.pid, signal.SIGKILL)
        first.finish().expect(-signal.SIGKILL)
    assert 5 <= len(written(tmp_path)) < FILES
    with start_program(PROGRAM, str(tmp_path)) as second:
        second.finish().expect()
    check(tmp_path)


def test_three_ranks_whose_executors_are_killed(tmp_path: Path) -> None:
    killed: set[int] = set()
    with start_program(PROGRAM, str(tmp_path), ranks=3) as program:
        wait_until(lambda: written(tmp_path), what="a file was written")
        while program.process.poll() is None and len(killed) < 3:
            for pid in sorted(int(path.name) for path in (tmp_path / "pids").iterdir()):
                if pid not in killed and os.path.exists(f"/proc/{pid}"):
                    os.kill(pid, signal.SIGKILL)
                    killed.add(pid)
                    break
            time.sleep(0.5)
        ended = program.finish().expect()
    assert "ranks [0, 1, 2]" in ended.stdout
    assert killed
    check(tmp_path)
