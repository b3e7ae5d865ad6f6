"""Blocks that are lost are rebuilt, as far as the stream knows how."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import numpy
import pytest

pytest.importorskip("pyarrow")
import mpi_runtime
from mpi_runtime import data
from mpi_runtime.data.splitting import Run
from mpi_runtime.data.streams.calls import Call
from mpi_runtime.data.streams.lost_blocks import DEPTH_MAX, Rebuilding, fetched
from mpi_runtime.data.streams.records import Block, Task
from mpi_runtime.data.streams.running import Running
from mpi_runtime.data.streams.storing import of_blocks, stored
from mpi_runtime.errors import ObjectLostError

pytestmark = pytest.mark.usefixtures("job")
INIT = {"num_cpus": 2, "num_gpus": 1, "object_store_memory": 200_000_000}
ROWS = 120


@mpi_runtime.remote(max_retries=0, num_cpus=0)
def lose() -> None:
    raise ObjectLostError("lost by the test")


def wide(batch: dict[str, Any]) -> dict[str, Any]:
    return {"id": batch["id"], "wide": numpy.zeros((len(batch["id"]), 20_000), "uint8")}


def named(batch: dict[str, Any]) -> dict[str, Any]:
    return {"name": batch["id"] * 2}


class Halves:
    """Makes two blocks of each."""

    def __call__(self, batch: dict[str, Any]) -> Any:
        middle = len(batch["id"]) // 2
        for part in (slice(0, middle), slice(middle, None)):
            yield {"id": batch["id"][part], "wide": numpy.zeros((len(batch["id"][part]), 200_000), "uint8")}


def ids(blocks: list[Block]) -> list[int]:
    return [row for block in blocks for row in mpi_runtime.get(block.value).column("id").to_pylist()]  # type: ignore[call-overload]


def numbers() -> data.Dataset:
    return data.range(ROWS, override_num_blocks=6)


def sevenths() -> data.Dataset:
    return data.range(ROWS, override_num_blocks=7)


@pytest.mark.parametrize(
    "ds",
    [
        pytest.param(lambda: numbers().map_batches(wide), id="tasks"),
        pytest.param(
            lambda: numbers().map_batches(wide).map_batches(Halves, concurrency=1), id="several blocks of actors"
        ),
        pytest.param(lambda: numbers().map_batches(Halves, num_gpus=1, concurrency=1), id="actors with a GPU"),
        pytest.param(
            lambda: numbers().map_batches(wide, num_gpus=0.5, memory=1000).map_batches(wide, num_gpus=1),
            id="tasks with GPUs and memory",
        ),
        pytest.param(
            lambda: numbers().map_batches(
                Halves, concurrency=1, ray_remote_args_fn=lambda: {"num_gpus": 0.1, "max_concurrency": 1}
            ),
            id="options for each call",
        ),
        pytest.param(lambda: numbers().map_batches(wide).limit(50), id="the cut block of a limit"),
        pytest.param(lambda: numbers().map_batches(wide, num_cpus=1).random_shuffle(seed=1), id="shuffle"),
        pytest.param(lambda: numbers().map_batches(wide).sort("id", descending=True), id="sort"),
        pytest.param(lambda: numbers().map_batches(wide).repartition(4), id="repartition"),
        pytest.param(lambda: numbers().map_batches(wide).repartition(50), id="repartition to more blocks"),
        pytest.param(
            lambda: numbers().map_batches(wide).zip(data.range(ROWS, override_num_blocks=7).map_batches(named)),
            id="zip",
        ),
        pytest.param(lambda: numbers().map_batches(wide).split(4)[1], id="split"),
        pytest.param(lambda: numbers().map_batches(wide).materialize().map_batches(wide), id="stored"),
    ],
)
def test_stored_blocks_are_lost(ds: Callable[[], data.Dataset], at_rest: Callable[[], None]) -> None:
    """Each block has its own rows again; readers and the consumer do not notice."""
    kept = stored(ds()._operator)
    before = ids(kept)
    for block in kept:
        block.value = None
    assert Rebuilding().rebuild(kept)
    assert ids(kept) == before
    assert not Rebuilding().rebuild(kept), "nothing is lost now"
    for block in kept[::2]:
        block.value = lose.remote()
    sources = of_blocks(kept, "kept").identity()
    assert sources == of_blocks(kept, "kept").identity()
    for block in kept[::2]:
        block.value = lose.remote()
    again = data.dataset.MaterializedDataset(of_blocks(kept, "kept"), kept)
    assert again.map_batches(lambda batch: {"id": batch["id"]}).take_all() == [{"id": row} for row in before]
    assert [row["id"] for row in again.iter_rows()] == before
    del again, kept, block
    at_rest()


@pytest.mark.parametrize("blocks", [6, 40])
def test_pieces_of_a_shuffle_are_lost_before_they_are_gathered(blocks: int) -> None:
    """Those of small blocks, of which several are cut together, too."""
    ds = data.range(ROWS, override_num_blocks=blocks).map_batches(wide).random_shuffle(seed=1, num_blocks=4)
    running = Running(ds._operator, ordered=True)
    for block in running.stream.stages[0].queues[0]:
        assert 3 < len(block.value.refs) < 7
        block.value.refs[1:3] = [lose.remote(), lose.remote()]
    found = []
    while (made := running.next()) is not None:
        found += running.table(made).column("id").to_pylist()
        running.release(made)
    assert found == [row["id"] for row in ds.iter_rows()]
    assert sorted(found) == list(range(ROWS))


@pytest.mark.parametrize("equal", [False, True])
def test_parts_of_several_readers_are_lost(equal: bool, at_rest: Callable[[], None]) -> None:
    """Rows of one block may be with two readers, and each asks for it."""
    run = Run(sevenths().map_batches(wide)._operator, 2, equal)
    found: list[list[int]] = [[], []]
    ranks = [0, 1]
    while ranks:
        for rank in list(ranks):
            part = run.next(rank)
            if part is None:
                ranks.remove(rank)
                continue
            if len(found[rank]) % 3 == rank:
                run._held[rank].value = lose.remote()
            table = fetched(lose.remote(), partial(run.rebuild, rank)).slice(*part[1:])
            found[rank] += table["id"].to_pylist()
            del table, part
    assert sorted(found[0] + found[1]) == list(range(ROWS))
    if equal:
        assert len(found[0]) == len(found[1])
    assert run.rebuild(0, True) is None, "a reader that has no block has nothing to rebuild"
    run.close()
    del run
    at_rest()


def test_what_the_program_has_forgotten_is_lost_for_good() -> None:
    of_list = stored(data.from_items([{"id": row} for row in range(ROWS)]).map_batches(wide, num_cpus=1)._operator)
    long = numbers().map_batches(wide)
    for _ in range(DEPTH_MAX):
        long = long.map_batches(wide, num_cpus=1)
    for kept in (of_list, stored(long.limit(1)._operator)):
        kept[-1].value = lose.remote()
        assert not Rebuilding().rebuild(kept)
        source = data.dataset.MaterializedDataset(of_blocks(kept, "kept"), kept)
        with pytest.raises(ObjectLostError):
            source.map(lambda row: {"id": row["id"]}).take_all()
        with pytest.raises(ObjectLostError):
            source.take_all()


def test_a_stored_block_that_the_program_still_has_is_not_rebuilt() -> None:
    source = data.from_items([{"id": row} for row in range(ROWS)])
    kept = stored(source.map_batches(wide, num_cpus=1)._operator)
    kept[0].value = None
    assert Rebuilding().rebuild(kept)
    assert ids(kept) == list(range(ROWS))


def need_less(running: Running) -> None:
    running._holders.add((1, 99))  # an actor that is being closed
    running._need_less()


def start_again(running: Running) -> None:
    for call in list(running._calls.values())[::2]:
        running._start_again(call.task)


@pytest.mark.parametrize("act", [start_again, need_less])
def test_calls_start_again_in_their_middle(act: Callable[[Running], None], at_rest: Callable[[], None]) -> None:
    """As after a loss. Each row is there once, in its order."""
    ds = numbers().map_batches(Halves, concurrency=3).map_batches(Halves, concurrency=1)
    running = Running(ds._operator, ordered=True)
    found: list[int] = []
    while (block := running.next()) is not None:
        found += running.table(block).column("id").to_pylist()
        running.release(block)
        if len(found) < ROWS // 2:
            act(running)
    assert found == list(range(ROWS))
    running.wait_closed()
    del running, block
    at_rest()


@pytest.fixture
def budget() -> Iterator[None]:
    """The stream has room for two blocks of `Halves`."""
    options = data.DataContext.get_current().execution_options
    before = options.resource_limits
    options.resource_limits = data.ExecutionResources(object_store_memory=8_000_000)
    yield
    options.resource_limits = before


def with_a_gpu(kind: str) -> data.Dataset:
    """Stages that have the GPU of this job all the time, and one that reads their blocks."""
    ds = data.range(ROWS, override_num_blocks=12)
    if kind == "actors":
        ds = ds.map_batches(Halves, num_gpus=1, concurrency=1)
    elif kind == "more actors than GPUs":
        ds = ds.map_batches(Halves, num_gpus=1, concurrency=3)
    elif kind == "two stages":
        ds = ds.map_batches(Halves, num_gpus=0.5, concurrency=1).map_batches(Halves, num_gpus=0.5, concurrency=1)
    elif kind == "tasks":
        ds = ds.map_batches(Halves().__call__, num_gpus=1)
    else:
        ds = ds.map_batches(Halves().__call__, num_gpus=0.5).map_batches(Halves, num_gpus=0.5, concurrency=1)
    return ds.map_batches(lambda batch: {"id": batch["id"]}, num_cpus=1)


def lose_what_waits(running: Running) -> None:
    """The blocks that tasks are to read, and those that some of them read, which then start again."""
    calls = list(running._calls.values())[::2]
    queued = [one for stage in running.stream.stages for queue in stage.queues for one in queue]
    for block in (*queued, *(one for call in calls for one in call.inputs)):
        block.value = block.value if block.stage < 0 else lose.remote()
    for call in calls:
        running._start_again(call.task)


KINDS = ("actors", "more actors than GPUs", "two stages", "tasks", "tasks and actors")


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("budget")
@pytest.mark.parametrize("kind", KINDS)
def test_what_has_a_gpu_gives_way_to_a_rebuild(kind: str, at_rest: Callable[[], None]) -> None:
    """All that waits in the stream is lost, and what the consumer has: each may wait for what the GPU's actors keep."""
    running = Running(with_a_gpu(kind)._operator, ordered=True)
    found: list[int] = []
    for number in count():
        if (block := running.next()) is None:
            break
        if number % 9 == 1:
            block.value = lose.remote()
        if number % 9 == 4:
            lose_what_waits(running)
        found += running.table(block).column("id").to_pylist()
        running.release(block)
    assert found == list(range(ROWS))
    del running, block
    at_rest()


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("budget")
def test_more_actors_than_gpus_in_order(at_rest: Callable[[], None]) -> None:
    """An actor that rests in its second block has the GPU, while another one is to make the first."""
    ds = data.range(2 * ROWS, override_num_blocks=12).map_batches(Halves, num_gpus=1, concurrency=2)
    assert [row["id"] for row in ds.iter_rows()] == list(range(2 * ROWS))
    at_rest()


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("budget")
def test_a_reader_of_a_shared_stream_waits_for_a_block_of_the_gpu() -> None:
    """The actors of the stream rest, since nobody asks for more."""
    ds = data.range(ROWS, override_num_blocks=12).map_batches(Halves, num_gpus=1, concurrency=1)
    run = Run(ds._operator, 1, False)
    found: list[int] = []
    for number in count():
        if run.next(0) is None:
            break
        if number % 8 == 2:
            run._held[0].value = lose.remote()
        found += fetched(run._held[0].value, partial(run.rebuild, 0))["id"].to_pylist()
    assert sorted(found) == list(range(ROWS))
    run.close()


class Half:
    """A generator of a call whose process has died between a block and what it says of it."""

    def __init__(self, *items: object) -> None:
        self.items = list(items)

    def next_ready(self, look: bool = True) -> bool:
        return bool(self.items)

    def next_ref(self, timeout: float | None, resume: bool = True) -> object:
        assert self.items, "it would wait"
        return self.items.pop(0)

    def completed(self) -> object:
        return None

    def is_finished(self) -> bool:
        return False

    def close(self) -> None:
        pass


def test_a_stream_does_not_wait_for_the_second_half_of_a_block() -> None:
    """Its call runs again only if it gets a CPU, which an actor may keep until the stream looks for that."""
    running = Running(numbers()._operator, ordered=True)
    block = mpi_runtime.put(1)
    call = Call(Task(0, [], ()), Half(block), None, (), has_cpus=True)  # type: ignore[arg-type]
    running._calls[id(call.task)] = call
    running._look()
    assert call.block == block
    assert not call.made
    running._calls.clear()
    running.close()
