"""Programs with streams that are started by a launcher, or killed and started again: each row is written once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
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

with mpi_runtime.init(num_cpus=2, journal=sys.argv[2] if sys.argv[2:] else None):
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


@pytest.mark.parametrize("journal", [(), ("journal",)], ids=["plain", "journal"])
def test_a_driver_that_is_killed_and_started_again(tmp_path: Path, journal: tuple[str, ...]) -> None:
    words = (str(tmp_path), *(str(tmp_path / name) for name in journal))
    with start_program(PROGRAM, *words) as first:
        wait_until(lambda: len(written(tmp_path)) >= 5, what="files were written")
        os.kill(first.pid, signal.SIGKILL)
        first.finish().expect(-signal.SIGKILL)
    assert 5 <= len(written(tmp_path)) < FILES
    with start_program(PROGRAM, *words) as second:
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


DIES = """
import os, sys
from pathlib import Path
import mpi_runtime
from mpi_runtime import data

folder = Path(sys.argv[1])

def work(batch):
    if len(list(folder.iterdir())) < 6:
        (folder / str(os.getpid())).touch()
        os._exit(3)
    return batch

class Work:
    __call__ = staticmethod(work)

with mpi_runtime.init(num_cpus=1):
    data.DataContext.get_current().enable_progress_bars = False
    print(data.range(4).map_batches(work).sum("id"), len(list(folder.iterdir())))
    for path in folder.iterdir():
        path.unlink()
    try:
        data.range(4).map_batches(Work, concurrency=1, max_retries=2).sum("id")
    except mpi_runtime.exceptions.ActorUnavailableError:
        print(len(list(folder.iterdir())))
"""


def test_a_block_on_which_processes_die(tmp_path: Path) -> None:
    """Where processes die by chance a block has bad luck several times. `max_retries` is the most, also of a class."""
    with start_program(DIES, str(tmp_path)) as program:
        assert program.finish().expect().stdout == "6 6\n3\n"


CONSTRUCTOR = """
import os, sys
from pathlib import Path
import mpi_runtime
from mpi_runtime import data

folder = Path(sys.argv[1])

class Work:
    def __init__(self):
        if len(list(folder.iterdir())) < int(sys.argv[2]):
            (folder / str(os.getpid())).touch()
            os._exit(3)

    def __call__(self, batch):
        return batch

with mpi_runtime.init(num_cpus=1):
    print(data.range(4).map_batches(Work, concurrency=1, max_retries=2).sum("id"))
"""


def test_a_class_whose_constructor_ends_its_process(tmp_path: Path) -> None:
    """It is started again as often as calls are, and then the stream says why it ends."""
    with start_program(CONSTRUCTOR, str(tmp_path), "2") as program:
        assert program.finish().expect().stdout == "6\n"
    with start_program(CONSTRUCTOR, str(tmp_path), "100") as program:
        ended = program.finish().expect(1)
    assert "map_batches(Work) has failed: its process has ended" in ended.stderr
    assert len(list(tmp_path.iterdir())) < 100


SHUFFLES = """
import os, sys, time
from pathlib import Path
import mpi_runtime
from mpi_runtime import data

folder = Path(sys.argv[1])
(folder / "pids").mkdir(exist_ok=True)

def work(batch):
    (folder / "pids" / str(os.getpid())).touch()
    time.sleep(0.02)
    return {"id": batch["id"] * 2}

class Work:
    def __call__(self, batch):
        return work(batch)

with mpi_runtime.init(num_cpus=2):
    ds = data.range(600, override_num_blocks=60).map_batches(work, batch_size=10).map_batches(Work, concurrency=2)
    ds = {"random_shuffle": lambda: ds.random_shuffle(seed=1), "sort": lambda: ds.sort("id")}[sys.argv[2]]()
    ds.map_batches(work, batch_size=20).write_parquet(str(folder / "out"))
"""


@pytest.mark.parametrize("method", ["random_shuffle", "sort"])
def test_executors_are_killed_by_chance_before_during_and_after_an_exchange(tmp_path: Path, method: str) -> None:
    chance = random.Random(1)
    kills = 0
    with start_program(SHUFFLES, str(tmp_path), method) as program:
        wait_until((tmp_path / "pids").exists, what="the program has begun")
        while program.process.poll() is None and kills < 20:
            time.sleep(chance.uniform(0.2, 0.8))
            pids = sorted(int(path.name) for path in (tmp_path / "pids").iterdir())
            if running := [pid for pid in pids if os.path.exists(f"/proc/{pid}")]:
                os.kill(chance.choice(running), signal.SIGKILL)
                kills += 1
        program.finish().expect()
    assert kills > 3
    rows = [row for path in written(tmp_path) for row in parquet.read_table(path)["id"].to_pylist()]
    assert sorted(rows) == list(range(0, 600 * 8, 8))
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".parquet"}


INTERRUPTED = """
import os, signal, sys
import mpi_runtime
from mpi_runtime import data

class Interrupts:
    "Ctrl-C while pandas is being imported, which takes a second."

    def find_spec(self, name, *others):
        if name == "pandas.core.api":
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

with mpi_runtime.init(num_cpus=2):
    ds = data.range(300, override_num_blocks=60).map_batches(lambda batch: batch)
    sys.meta_path.insert(0, Interrupts())
    ds.write_parquet(sys.argv[1])
    print("it was lost")
"""


def test_ctrl_c_at_the_first_block(tmp_path: Path) -> None:
    """pyarrow imports pandas when it first converts something, and clears what the import raises."""
    with start_program(INTERRUPTED, str(tmp_path)) as program:
        ended = program.finish().expect(-signal.SIGINT)
    assert not ended.stdout
    assert {path.suffix for path in tmp_path.iterdir()} <= {".parquet"}


FILLS = """
import sys
import numpy
import mpi_runtime
from mpi_runtime import data

def widened(batch):
    random = numpy.random.default_rng(int(batch["id"][0]))
    return {"id": batch["id"], "x": random.integers(0, 255, (len(batch["id"]), 100_000), numpy.uint8)}

with mpi_runtime.init(num_cpus=2):
    data.range(60, override_num_blocks=12).map_batches(widened).write_parquet(sys.argv[1])
"""
"""Writes 12 files, 6 MB in all."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 3 MB."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", mounted], check=False, capture_output=True
    )
    if mount.returncode:
        pytest.skip(f"no disk can be mounted here: {mount.stderr.decode().strip()}")
    yield mounted
    # A thread of pyarrow may have a file open for a moment, in this process.
    subprocess.run(["umount", "--lazy", mounted], check=True)


SPILLS = """
import sys
import numpy
import mpi_runtime
from mpi_runtime import data

def widened(batch):
    return {"id": batch["id"], "x": numpy.zeros((len(batch["id"]), 1_000_000), numpy.uint8)}

with mpi_runtime.init(num_cpus=2, object_store_memory=40_000_000, object_spilling_directory=sys.argv[1]):
    ds = data.range(100, override_num_blocks=20).map_batches(widened).random_shuffle(seed=1)
    print(ds.map_batches(lambda batch: {"id": batch["id"]}).sum("id"))
"""


def test_a_disk_that_is_full_of_what_is_to_be_shuffled(disk: Path) -> None:
    """The error names the disk and what to do, and the disk is empty again."""
    with start_program(SPILLS, str(disk)) as program:
        ended = program.finish()
    assert ended.returncode == 1
    assert not ended.stdout
    assert "ObjectStoreFullError" in ended.stderr
    assert "start with a larger object store" in ended.stderr
    assert f"Nothing can be written to disk: {disk}" in ended.stderr
    assert not [*disk.iterdir()]


def test_a_disk_that_is_full(disk: Path) -> None:
    """The error says so, no part of a file stays, and a run with more room writes each row once."""
    with start_program(FILLS, str(disk)) as first:
        failed = first.finish()
    assert failed.returncode == 1
    assert "No space left on device" in failed.stderr
    assert "write_parquet has failed" in failed.stderr
    kept = [path for path in disk.iterdir() if path.suffix == ".parquet"]
    for path in kept:
        assert parquet.read_table(path).num_rows
    assert set(disk.iterdir()) == set(kept)
    subprocess.run(["mount", "-o", "remount,size=30m", disk], check=True)
    with start_program(FILLS, str(disk)) as second:
        second.finish().expect()
    rows = [row for path in disk.iterdir() for row in parquet.read_table(path)["id"].to_pylist()]
    assert sorted(rows) == list(range(60))


ALIKE = """
import sys
from pathlib import Path
import mpi_runtime
from mpi_runtime import data

folder = Path(sys.argv[1])

def fails(batch):
    "When two tasks are here, both fail."
    (folder / str(batch["id"][0])).touch()
    while len(list(folder.iterdir())) < 2:
        pass
    raise ValueError("bad")

with mpi_runtime.init(num_cpus=2):
    for _ in range(5):
        try:
            data.range(40, override_num_blocks=8).map_batches(fails).take_all()
        except mpi_runtime.data.BlockValueError as error:
            print("one error")
        for path in folder.iterdir():
            path.unlink()
"""


def test_tasks_that_fail_alike_are_one_error(tmp_path: Path) -> None:
    """The others are not logged as errors that nobody has read."""
    with start_program(ALIKE, str(tmp_path)) as program:
        ended = program.finish().expect()
    assert ended.stdout == "one error\n" * 5
    assert "unhandled" not in ended.stderr
