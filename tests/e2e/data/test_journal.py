"""Programs with a journal that write files, are killed, and run again: what is written is not recreated."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("pyarrow")
from pyarrow import parquet

from mpi_runtime.data.files.finished import FOLDER, Plan, Unit
from mpi_runtime.files import segments
from tests.helpers import run_program, start_program, wait_until

PROGRAM = """
import os, sys, time
from pathlib import Path
import mpi_runtime
from mpi_runtime import data

folder, kind = Path(sys.argv[1]), sys.argv[2]
(folder / "made").mkdir()

class Work:
    def __call__(self, batch):
        (folder / "made" / "_".join(map(str, batch["id"]))).touch()
        time.sleep(0.2)
        if (folder / "amid").exists() and len("_".join(os.listdir(folder / "made")).split("_")) > 60:
            time.sleep(4)  # it is to be killed before it is done, but what is made has to be written
        return {"id": batch["id"] * 2}

def in_halves(batch):
    yield {"id": batch["id"][:3]}
    yield {"id": batch["id"][3:]}

def tasks():
    return data.range(120, override_num_blocks=24).map_batches(lambda batch: Work()(batch))

def batches():
    "Blocks of two rows, of which each actor gets three or more."
    data.DataContext.get_current().target_max_block_size = 16
    return data.range(120, override_num_blocks=24).map_batches(in_halves).map_batches(Work, batch_size=3)

def stored():
    "Blocks that pass to the actors without a task, four of them for each batch."
    return data.from_items([{"id": i} for i in range(120)], override_num_blocks=60).map_batches(Work, batch_size=8)

def union():
    return data.range(60, override_num_blocks=12).union(
        data.range(120, override_num_blocks=24).filter(expr="id >= 60")
    ).map_batches(Work, batch_size=4)

with mpi_runtime.init(num_cpus=2, journal=str(folder / "journal")):
    globals()[kind]().write_parquet(str(folder / "out"))
"""


def records(folder: Path) -> list[Unit]:
    """The units that the journal has."""
    bodies = msgspec.msgpack.Decoder(Plan | Unit)
    found = [
        body
        for path in (folder / "journal" / FOLDER).glob("[!.]*")
        for body in segments.bodies_in(path.read_bytes(), bodies)[0]
    ]
    return [body for body in found if isinstance(body, Unit)]


def rows_of(folder: Path, files: list[Path]) -> list[int]:
    return [row for path in files for row in parquet.read_table(path)["id"].to_pylist()]


def made(folder: Path) -> set[int]:
    """The rows that functions of the last run have got."""
    found = {int(row) for path in (folder / "made").iterdir() for row in path.name.split("_")}
    shutil.rmtree(folder / "made")
    return found


def kill_amid(folder: Path, kind: str) -> None:
    """Run the program until two more units are recorded."""
    wanted = len(records(folder)) + 2
    (folder / "amid").touch()
    with start_program(PROGRAM, str(folder), kind) as program:
        wait_until(lambda: len(records(folder)) >= wanted, timeout=100, what="units were recorded")
        os.kill(program.pid, signal.SIGKILL)
        program.finish().expect(-signal.SIGKILL)
    (folder / "amid").unlink()


@pytest.mark.parametrize("kind", ["tasks", "batches", "stored", "union"])
def test_killed_twice(tmp_path: Path, kind: str) -> None:
    kept: set[int] = set()
    for _ in range(2):
        kill_amid(tmp_path, kind)
        assert not made(tmp_path) & kept
        names = [file.name for unit in records(tmp_path) for file in unit.files]
        kept = {row // 2 for row in rows_of(tmp_path, [tmp_path / "out" / name for name in names])}
        assert kept
    with start_program(PROGRAM, str(tmp_path), kind) as program:
        ended = program.finish().expect()
    assert "are not recreated: the journal has their" in ended.stderr
    assert made(tmp_path) == set(range(120)) - kept
    assert sorted(rows_of(tmp_path, [*(tmp_path / "out").iterdir()])) == list(range(0, 240, 2))
    with start_program(PROGRAM, str(tmp_path), kind) as program:
        program.finish().expect()
    assert not made(tmp_path)


CHANGES = """
import os, shutil, sys
from pathlib import Path
import mpi_runtime
from mpi_runtime import data

folder = Path(sys.argv[1])
out = folder / "out"
factor, bad = 1, -1

class Work:
    def __call__(self, batch):
        (folder / "made" / "_".join(map(str, batch["id"]))).touch()
        if bad in batch["id"]:
            raise ValueError("bad")
        return {"id": batch["id"] * factor}

def run(change=lambda ds: ds, cpus=1, blocks=4):
    (folder / "made").mkdir()
    with mpi_runtime.init(num_cpus=cpus, journal=str(folder / "journal")):
        change(data.read_csv(folder / "in", override_num_blocks=blocks)).map_batches(Work).write_parquet(out)
    found = sorted(row for path in (folder / "made").iterdir() for row in path.name.split("_"))
    shutil.rmtree(folder / "made")
    return found

(folder / "in").mkdir()
for i in range(4):
    (folder / "in" / f"{i}.csv").write_text(f"id\\n{i}\\n")
def files():
    print("first", run())
    print("again", run())
    sorted(out.iterdir())[1].unlink()
    sorted(out.iterdir())[2].write_bytes(b"")
    print("a file is gone, and one is another", run())
    os.utime(folder / "in" / "0.csv")
    print("an input is newer", run())

def classes():
    global factor
    print("first", run())
    factor = 3
    print("another class", run())
    factor = 1
    print("the class from before", run())
    print("files", len(list(out.iterdir())))

def cpus():
    for i in range(4, 9):
        (folder / "in" / f"{i}.csv").write_text(f"id\\n{i}\\n")
    print("first", run(blocks=None))
    print("with more CPUs", run(cpus=3, blocks=None))
    kept = sorted(out.iterdir())[0]
    kept.unlink()
    print("a file is gone", run(cpus=2, blocks=None))
    os.utime(folder / "in" / "0.csv")
    print("an input is newer", run(cpus=3, blocks=None), len(list(out.iterdir())))
    print("with fewer CPUs", run(blocks=None), len(list(out.iterdir())))
    print("a number of blocks", run(blocks=2), len(list(out.iterdir())))

def never():
    "What is never recorded: what needs other rows, and failures."
    global bad
    print("a limit", run(lambda ds: ds.limit(9)), run(lambda ds: ds.limit(9)))
    print("a sort", run(lambda ds: ds.sort("id")), run(lambda ds: ds.sort("id")))
    shutil.rmtree(out)
    print("blocks of two rows", run(lambda ds: ds.repartition(target_num_rows_per_block=2)), len(list(out.iterdir())))
    data.DataContext.get_current().max_errored_blocks = 1
    bad = 2
    print("a failure", run(), run())

globals()[sys.argv[2]]()
"""
EVERY = ["0", "1", "2", "3"]
NINE = [str(i) for i in range(9)]
LINES = {
    "files": [
        f"first {EVERY}", "again []", "a file is gone, and one is another ['1', '3']", f"an input is newer {EVERY}",
    ],
    "classes": [f"first {EVERY}", f"another class {EVERY}", f"the class from before {EVERY}", "files 4"],
    "cpus": [
        f"first {NINE}", "with more CPUs []", "a file is gone ['0', '1']", f"an input is newer {NINE} 9",
        "with fewer CPUs [] 9", f"a number of blocks {NINE} 2",
    ],
    "never": [
        f"a limit {EVERY} {EVERY}", f"a sort {EVERY} {EVERY}", f"blocks of two rows {EVERY} 2",
        f"a failure {EVERY} ['2']",
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", LINES)
def test_what_has_changed_is_made_again(tmp_path: Path, kind: str) -> None:
    with start_program(CHANGES, str(tmp_path), kind) as program:
        assert program.finish(timeout=120).expect().stdout.splitlines() == LINES[kind]


def test_a_journal_of_an_older_version_continues() -> None:
    """Its plan has a digest alone."""
    body = msgspec.msgpack.encode([1, b"digest"])
    assert msgspec.msgpack.Decoder(Plan | Unit).decode(body) == Plan(b"digest")


INTERRUPTED = """
import sys
from pathlib import Path
import mpi_runtime
from mpi_runtime import data
from mpi_runtime.data.streams.running import Running

folder, moment = Path(sys.argv[1]), int(sys.argv[2])
reads, table = iter(range(1000)), Running.table

def interrupted(self, block):
    "Ctrl-C just after a block was taken, and before its files are known."
    if next(reads) == moment:
        raise KeyboardInterrupt
    return table(self, block)

Running.table = interrupted
with mpi_runtime.init(num_cpus=2, journal=str(folder / "journal")):
    try:
        data.range(40, override_num_blocks=20).map(lambda row: {"id": row["id"] * 2}).write_parquet(str(folder / "out"))
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_an_interrupt_between_a_block_and_its_files_loses_no_row(tmp_path: Path) -> None:
    for moment in (0, 7, 19):
        run_program(INTERRUPTED, str(tmp_path), str(moment)).expect(0)
    run_program(INTERRUPTED, str(tmp_path), "-1").expect(0)
    assert sorted(rows_of(tmp_path, [*(tmp_path / "out").iterdir()])) == list(range(0, 80, 2))
