"""Steps of asynchronous functions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy
import pytest

pyarrow = pytest.importorskip("pyarrow")
from mpi_runtime.data.options import step  # noqa: E402
from mpi_runtime.data.steps import (  # noqa: E402
    BATCHES,
    BATCHES_AT_ONCE,
    FILTER,
    FLAT,
    ROWS,
    ROWS_AT_ONCE,
    BlockError,
    Chain,
    Header,
    Meta,
    Step,
    run,
)
from mpi_runtime.data.streams import coroutines  # noqa: E402
from mpi_runtime.data.streams.coroutines import in_order  # noqa: E402


async def others_end() -> None:
    """Wait for calls that were cancelled. asyncio would complain of those that are left behind with a closed loop."""
    await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)


@pytest.fixture(autouse=True)
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A loop that ends with the test, in place of one that lasts as long as the process."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    monkeypatch.setattr(coroutines, "_loops", [loop])
    yield
    asyncio.run_coroutine_threadsafe(others_end(), loop).result(60)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


INPUTS = [pyarrow.table({"x": list(range(start, start + 25))}) for start in (0, 25, 50)]


def rows(*steps: Step) -> list[int]:
    made = run(Chain(steps, 1 << 20), Header(("first", "second", "third"), (0,)), INPUTS)
    return [row for block in made if not isinstance(block, Meta) for row in block.column("x").to_pylist()]


class Counts:
    """How many calls run at a time, of which later ones end first."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.loops: set[object] = set()

    async def __call__(self, item: dict[str, Any]) -> dict[str, Any]:
        self.now += 1
        self.most = max(self.most, self.now)
        self.loops.add(asyncio.get_running_loop())
        await asyncio.sleep(0.001 * (75 - int(numpy.max(item["x"]))) / 10)
        self.now -= 1
        return item


@pytest.mark.parametrize(("kind", "most"), [(ROWS, ROWS_AT_ONCE), (BATCHES, BATCHES_AT_ONCE)])
def test_calls_run_at_the_same_time_and_keep_their_order(kind: str, most: int) -> None:
    """Over the bounds of blocks too, and in one loop for all calls of an instance."""
    counts = Counts()
    for _ in range(2):
        assert rows(Step(kind, "counts", counts, batch_size=2 if kind == BATCHES else None)) == list(range(75))
    assert counts.most == most
    assert len(counts.loops) == 1


async def twice(row: dict[str, int]) -> AsyncIterator[dict[str, int]]:
    for _ in range(2):
        await asyncio.sleep(0)
        yield row


async def none_or_two(row: dict[str, int]) -> list[dict[str, int]]:
    return [row] * 2 * (row["x"] % 2)


def plain(row: dict[str, int]) -> dict[str, int]:
    return {"x": row["x"] + 1}


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (Step(ROWS, "twice", twice), [row for row in range(75) for _ in range(2)]),
        (Step(FLAT, "twice", twice), [row for row in range(75) for _ in range(2)]),
        (Step(FLAT, "none_or_two", none_or_two), [row for row in range(1, 75, 2) for _ in range(2)]),
    ],
)
def test_several_rows_of_one(made: Step, expected: list[int]) -> None:
    assert rows(made) == expected
    assert rows(Step(ROWS, "plain", plain), made, Step(ROWS, "plain", plain))


def test_an_error_names_the_row_though_others_run_ahead() -> None:
    async def fails(row: dict[str, int]) -> dict[str, int]:
        if row["x"] == 30:
            raise ValueError("bad")
        await asyncio.sleep(0.01)
        return row

    with pytest.raises(BlockError, match="fails has failed at row 30 of second: ValueError: bad"):
        rows(Step(ROWS, "fails", fails))


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_a_call_that_ends_the_process(error: BaseException) -> None:
    """The thread of the loop lives on."""

    async def exits(row: dict[str, int]) -> dict[str, int]:
        raise error

    with pytest.raises(type(error)):
        rows(Step(ROWS, "exits", exits))
    assert rows(Step(ROWS, "counts", Counts())) == list(range(75))


def test_who_reads_no_further_cancels_what_runs() -> None:
    began, cancelled = threading.Semaphore(0), threading.Semaphore(0)
    asked: list[int] = []

    async def first_only(item: int) -> int:
        while not item and len(asked) < 4:  # a call that ends before others begin is returned before them
            await asyncio.sleep(0.001)
        if item:
            began.release()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                cancelled.release()
                raise
        return item

    def items() -> Iterator[tuple[int, int]]:
        for item in range(100):
            asked.append(item)
            yield item, item

    calls = in_order(first_only, items(), most=4, is_flat=False)
    name, results = next(calls)
    assert (name, results()) == (0, [0])
    assert len(asked) <= 8
    for _ in range(3):
        assert began.acquire(timeout=60)
    calls.close()
    for _ in range(3):
        assert cancelled.acquire(timeout=60)


def test_only_functions_of_rows_and_batches_may_be_asynchronous() -> None:
    assert step(FLAT, "flat_map", twice).is_async
    assert step(ROWS, "map", Counts).is_async
    with pytest.raises(TypeError, match=r"filter\(\) takes no asynchronous function, as map, map_batches, flat_map do"):
        step(FILTER, "filter", twice)
