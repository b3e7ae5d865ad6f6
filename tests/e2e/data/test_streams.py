"""Streams that are stopped, killed, slow or large, and streams with several readers."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

pytest.importorskip("pyarrow")
import mpi_runtime
from mpi_runtime import data
from mpi_runtime.data.streams.running import Running, blocks_of
from tests.e2e.conftest import statistics

pytestmark = pytest.mark.usefixtures("job")
INIT = {"num_cpus": 2, "object_store_memory": 200_000_000}
MB = 1 << 20


def heavy(size: int = 4 * MB) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda batch: {"id": batch["id"], "x": [numpy.zeros(size, "uint8")] * len(batch["id"])}


def test_a_consumer_that_stops_early_leaves_nothing(at_rest: Callable[[], None]) -> None:
    ds = data.range(100_000, override_num_blocks=1000).map(lambda row: row)
    for _ in ds.iter_batches(batch_size=10):
        break
    for _ in ds.iter_rows():
        break
    rows = ds.iter_rows()
    next(rows)
    rows.close()
    at_rest()


def test_a_consumer_that_raises_leaves_nothing(at_rest: Callable[[], None]) -> None:
    def read() -> None:
        for _ in data.range(1000, override_num_blocks=100).iter_batches():
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        read()
    at_rest()


def test_memory_is_bounded_while_the_consumer_is_slow() -> None:
    """400 MB go through a budget of 80: without it they would be spilled."""
    running = Running(data.range(100, override_num_blocks=100).map_batches(heavy())._operator, ordered=True)
    seen, most = [], 0
    for block in blocks_of(running):
        time.sleep(0.01)
        most = max(most, sum(stage.used for stage in running.stream.stages))
        table = mpi_runtime.get(block.value)  # type: ignore[call-overload]
        seen += table.column("id").to_pylist()
    assert seen == list(range(100))
    assert 8 * MB < most <= 80e6 + 4 * 5 * MB


def test_memory_is_bounded_behind_one_slow_block() -> None:
    def slow(batch: dict[str, Any]) -> dict[str, Any]:
        if batch["id"][0] == 1:
            time.sleep(1.5)
        return batch

    ds = data.range(60, override_num_blocks=60).map_batches(heavy()).map_batches(slow, num_cpus=0.5)
    running = Running(ds._operator, ordered=True)
    seen, most = [], 0
    for block in blocks_of(running):
        most = max(most, sum(stage.used for stage in running.stream.stages))
        seen += mpi_runtime.get(block.value).column("id").to_pylist()  # type: ignore[call-overload]
    assert seen == list(range(60))
    assert most <= 80e6 + 6 * 5 * MB


def test_a_block_that_is_larger_than_the_budget_goes_through() -> None:
    ds = (
        data.range(3, override_num_blocks=3)
        .map_batches(heavy(90 * MB))
        .map_batches(lambda batch: {"n": [len(row) for row in batch["x"]]}, num_cpus=0.5, zero_copy_batch=True)
    )
    assert ds.sum("n") == 3 * 90 * MB


def test_one_row_becomes_many_blocks() -> None:
    def many(row: dict[str, Any]) -> Any:
        return ({"x": numpy.zeros(2 * MB, "uint8")} for _ in range(100))

    ds = data.range(2, override_num_blocks=2).flat_map(many)
    running = Running(ds._operator, ordered=False)
    rows = most = 0
    for block in blocks_of(running):
        most = max(most, sum(stage.used for stage in running.stream.stages))
        rows += block.rows
    assert rows == 200
    assert most <= 80e6 + 4 * 6 * MB


def test_actors_that_take_all_cpus_leave_room_for_reading() -> None:
    class Same:
        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            return batch

    ds = (
        data.range(50, override_num_blocks=10)
        .map_batches(Same, concurrency=2)
        .map_batches(Same, concurrency=1, num_cpus=0)
    )
    assert ds.sum("id") == 49 * 25


def test_a_data_set_in_a_task() -> None:
    @mpi_runtime.remote
    def total(ds: data.Dataset) -> object:
        return ds.sum("id")

    assert mpi_runtime.get(total.remote(data.range(100).filter(lambda row: row["id"] % 2 == 0))) == 49 * 50


def test_killed_processes_change_no_row(tmp_path: Path) -> None:
    def work(batch: dict[str, Any]) -> dict[str, Any]:
        (tmp_path / "pids" / str(os.getpid())).touch()
        time.sleep(0.02)
        return {"id": batch["id"] * 2}

    class Work:
        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            return work(batch)

    (tmp_path / "pids").mkdir()
    ends = threading.Event()
    killed: list[str] = []

    def kill() -> None:
        while not ends.wait(0.7) and len(killed) < 5:
            for path in sorted((tmp_path / "pids").iterdir())[:1]:
                path.unlink()
                os.kill(int(path.name), signal.SIGKILL)
                killed.append(path.name)

    ds = data.range(400, override_num_blocks=80).map_batches(work, max_retries=20).map_batches(Work, concurrency=2)
    killer = threading.Thread(target=kill)
    killer.start()
    try:
        ds.write_parquet(str(tmp_path / "out"))
    finally:
        ends.set()
        killer.join()
    assert killed
    rows: list[Any] = data.read_parquet(str(tmp_path / "out")).take_all()
    assert sorted(row["id"] for row in rows) == list(range(0, 1600, 4))


def shared(ds: data.Dataset, count: int, equal: bool, rounds: int = 1) -> list[list[int]]:
    """What each of some readers gets."""
    parts = ds.streaming_split(count, equal=equal)
    got: list[list[int]] = [[] for _ in parts]

    def read(rank: int) -> None:
        for _ in range(rounds):
            for batch in parts[rank].iter_batches(batch_size=7):
                got[rank] += batch["id"].tolist()  # type: ignore[index]

    threads = [threading.Thread(target=read, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got


@pytest.mark.parametrize("blocks", [1, 7, 50])
def test_readers_share_a_stream(blocks: int) -> None:
    got = shared(data.range(100, override_num_blocks=blocks), 3, equal=True)
    assert [len(rows) for rows in got] == [33, 33, 33]
    rows = sorted(row for part in got for row in part)
    assert len(set(rows)) == 99
    got = shared(data.range(100, override_num_blocks=blocks), 2, equal=False)
    assert sorted(row for part in got for row in part) == list(range(100))


def test_readers_begin_each_round_together() -> None:
    got = shared(data.range(20, override_num_blocks=4), 2, equal=True, rounds=3)
    assert [len(rows) for rows in got] == [30, 30]
    assert sorted(row for part in got for row in part) == sorted([*range(20)] * 3)


def test_a_reader_may_leave_a_round_early() -> None:
    a, b = data.range(100, override_num_blocks=10).streaming_split(2)
    seen: list[Any] = []

    def first() -> None:
        for batch in a.iter_batches(batch_size=5):
            seen.append(batch)
            break
        seen.append(sum(1 for _ in a.iter_rows()))

    thread = threading.Thread(target=first)
    thread.start()
    for _ in b.iter_batches(batch_size=5):
        break
    count = sum(1 for _ in b.iter_rows())
    thread.join()
    assert count + seen[1] == 100


def test_two_readers_of_one_part_are_refused() -> None:
    """Both would get some of its rows, and neither would know."""
    a, b = data.range(20, override_num_blocks=20).streaming_split(2, equal=True)

    @mpi_runtime.remote(num_cpus=0)
    def count(part: data.DataIterator) -> int:
        return sum(1 for _ in part.iter_rows())

    first, second = iter(a.iter_rows()), count.remote(b)
    next(first)
    mpi_runtime.get(second)
    assert mpi_runtime.get([count.remote(a), count.remote(b)]) == [10, 10]
    with pytest.raises(ValueError, match="was not read to its end"):
        list(first)
    pairs = [count.remote(part) for part in (a, a)]
    ended, _ = mpi_runtime.wait(pairs)
    with pytest.raises(ValueError, match="read twice at a time"):
        mpi_runtime.get(ended)
    assert mpi_runtime.get(count.remote(b)) == 10


def test_nothing_is_left_after_all_of_this(at_rest: Callable[[], None]) -> None:
    at_rest()
    assert statistics()["actors"] == 0


@pytest.mark.parametrize("order", ["sort", "groupby"])
def test_batches_of_sorted_rows_are_in_order(order: str) -> None:
    """Also if the first block takes the longest."""

    def slow(batch: dict[str, numpy.ndarray]) -> dict[str, numpy.ndarray]:
        if 0 in batch["id"]:
            time.sleep(1.0)
        return batch

    ds = data.range(400, override_num_blocks=8)
    ordered = ds.sort("id") if order == "sort" else ds.groupby("id").count()
    batches = ordered.map_batches(slow).iter_batches(batch_size=None, batch_format="pyarrow")
    found = [batch["id"].to_pylist() for batch in batches]  # type: ignore[index]
    assert len(found) > 1
    assert [one for batch in found for one in batch] == list(range(400))


class Slow:
    """Works long enough for another actor to be wanted."""

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.02)
        return batch


@pytest.mark.timeout(60)
@pytest.mark.parametrize("ordered", [False, True])
def test_more_actors_than_cpus(ordered: bool) -> None:
    """A call waits for no actor that has to wait for the end of the stream."""
    ds = data.range(60, override_num_blocks=30).map_batches(Slow, concurrency=3).map_batches(Slow, concurrency=2)
    ds.context.execution_options.preserve_order = ordered
    assert ds.count() == 60
    of_own = data.range(60, override_num_blocks=30).map_batches(Slow, concurrency=3, num_cpus=1)
    of_own.context.execution_options.preserve_order = ordered
    assert len(of_own.to_pandas()) == 60


@pytest.mark.timeout(60)
def test_actors_beside_others_that_have_all_cpus() -> None:
    @mpi_runtime.remote(num_cpus=2)
    class Keeper:
        def here(self) -> None:
            pass

    keeper = Keeper.remote()
    mpi_runtime.get(keeper.here.remote())
    assert data.range(60, override_num_blocks=30).map_batches(Slow, concurrency=2).sum("id") == 1770
    mpi_runtime.kill(keeper)
