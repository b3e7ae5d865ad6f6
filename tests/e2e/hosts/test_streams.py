"""Streams of rows on two hosts, of which one loses a rank, or is cut off: each row is written once."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
from pyarrow import parquet

from tests.e2e.hosts.test_rank_loss import ULFM, worker
from tests.helpers import wait_until
from tests.hosts.lab import Lab

pytestmark = [pytest.mark.mpi, pytest.mark.hosts, pytest.mark.timeout(240)]
PROGRAM = """
import os, sys, time
import numpy
import mpi_runtime
from mpi_runtime import data

def work(batch):
    time.sleep(0.05)
    open(f"{sys.argv[2]}/{os.uname().nodename}", "a").close()
    rows = len(batch["id"])
    return {"id": batch["id"] * 2, "wide": numpy.zeros((rows, int(sys.argv[4])), numpy.uint8)}

class Work:
    def __call__(self, batch):
        return work(batch)

mpi_runtime.init(num_cpus=2, num_gpus=1, heartbeat_timeout_s=5)
data.DataContext.get_current().enable_progress_bars = False
ds = data.range(600, override_num_blocks=60)
if sys.argv[3] == "two GPU stages":
    for _ in range(2):
        ds = ds.map_batches(Work, num_gpus=0.5, concurrency=2, scheduling_strategy="SPREAD")
elif sys.argv[3] == "GPU tasks":
    ds = ds.map_batches(work, num_gpus=0.5, scheduling_strategy="SPREAD")
    ds = ds.map_batches(Work, num_gpus=1, concurrency=(1, 2))
elif sys.argv[3] == "host2":
    ds = ds.map_batches(Work, resources={"node:host2": 0.001}).map_batches(work, num_cpus=1)
else:
    ds = ds.map_batches(work, scheduling_strategy="SPREAD")
    ds = ds.map_batches(Work, concurrency=3, scheduling_strategy="SPREAD")
if sys.argv[3] == "random_shuffle":
    ds = ds.random_shuffle(seed=1)
elif sys.argv[3] == "repartition":
    ds = ds.repartition(25).zip(data.range(600).map(lambda row: {"other": row["id"]}))
if sys.argv[3] == "streaming_split":
    import threading
    from pyarrow import parquet
    os.makedirs(sys.argv[1])
    def read(part, number):
        for count, batch in enumerate(part.iter_batches(batch_size=10, batch_format="pyarrow")):
            parquet.write_table(batch, f"{sys.argv[1]}/{number}_{count}.parquet")
    parts = ds.map_batches(work, batch_size=10).streaming_split(2, equal=True)
    threads = [threading.Thread(target=read, args=(part, number)) for number, part in enumerate(parts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
else:
    ds.map_batches(work, batch_size=10).write_parquet(sys.argv[1])
print("ranks", sorted(rank for node in mpi_runtime.nodes() for rank in node["ranks"]), flush=True)
"""
ROWS = list(range(0, 600 * 8, 8))


def rows(folder: Path) -> list[int]:
    assert {path.suffix for path in folder.iterdir()} == {".parquet"}
    return sorted(row for path in folder.iterdir() for row in parquet.read_table(path)["id"].to_pylist())


def arguments(lab: Lab, method: str, width: int) -> tuple[tuple[str, ...], Path, Path]:
    """Words of the program, and where it notes its hosts and writes its rows; all hosts see these directories."""
    folder = lab.place / f"{method}{width}"
    seen, out = folder / "seen", folder / "out"
    seen.mkdir(parents=True)
    return (str(out), str(seen), method, str(width)), seen, out


METHODS = ["map_batches", "random_shuffle", "repartition", "streaming_split", "two GPU stages", "GPU tasks"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("width", [1, 20_000])
@pytest.mark.dies("rank with ulfm")
def test_a_host_is_gone_and_what_is_left_has_fewer_cpus_than_actors(method: str, width: int, two_hosts: Lab) -> None:
    """The stream ends as if nothing had happened. Small blocks are not lost, and large ones are rebuilt."""
    words, seen, out = arguments(two_hosts, method, width)
    with two_hosts.mpirun(PROGRAM, *words, ranks={"host1": 1, "host2": 1}, options=ULFM) as program:
        wait_until((seen / "host2").exists, what="host2 works")
        os.kill(worker(program, 1), signal.SIGKILL)
        completed = program.finish(timeout=120).expect(0)
    assert completed.stdout == "ranks [0]\n"
    assert rows(out) == ROWS


@pytest.mark.dies("rank with ulfm")
def test_a_function_whose_only_host_is_gone_ends_the_stream(two_hosts: Lab) -> None:
    """The error says what it needs."""
    words, seen, _ = arguments(two_hosts, "host2", 20_000)
    with two_hosts.mpirun(PROGRAM, *words, ranks={"host1": 1, "host2": 1}, options=ULFM) as program:
        wait_until((seen / "host2").exists, what="host2 works")
        os.kill(worker(program, 1), signal.SIGKILL)
        completed = program.finish(timeout=120)
    assert completed.returncode == 1
    assert "node:host2" in completed.stderr
    assert "no node owns that much" in completed.stderr
