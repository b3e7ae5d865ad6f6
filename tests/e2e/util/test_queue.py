"""The queue: order, limits, waiting without standing in anybody's way, and how it ends."""

import asyncio
import gc
import os
import queue as standard
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

import mpi_runtime
from mpi_runtime import get, put, remote, wait
from mpi_runtime.errors import ActorDiedError, MpiRuntimeError
from mpi_runtime.util import queue as module
from mpi_runtime.util.queue import Empty, Full, Queue
from tests.helpers import run_program, wait_until

pytestmark = pytest.mark.usefixtures("job")

INIT = {"num_cpus": 2, "resources": {"shelf": 1}}


@remote
def put_all(queue: Queue, items: list[Any]) -> None:
    for item in items:
        queue.put(item)


@remote
def take(queue: Queue, number: int, begun: Path | None = None) -> list[Any]:
    if begun is not None:
        begun.touch()
    return [queue.get() for _ in range(number)]


# Items


def test_first_in_first_out() -> None:
    queue = Queue()
    for item in (1, "two", None, [3.0]):
        queue.put(item)
    assert [queue.get() for _ in range(4)] == [1, "two", None, [3.0]]


def test_sizes() -> None:
    queue = Queue(maxsize=2)
    assert (queue.qsize(), queue.size(), len(queue)) == (0, 0, 0)
    assert queue.empty()
    assert not queue.full()
    queue.put(1)
    assert (queue.qsize(), queue.size(), len(queue)) == (1, 1, 1)
    assert not queue.empty()
    assert not queue.full()
    queue.put(2)
    assert queue.full()
    queue.get()
    assert not queue.full()


@pytest.mark.parametrize("maxsize", [0, -1])
def test_without_a_limit(maxsize: int) -> None:
    queue = Queue(maxsize)
    assert not queue.full()
    queue.put_nowait_batch(range(1000))
    queue.put_nowait(1000)
    assert not queue.full()
    assert queue.qsize() == 1001


def test_large_items() -> None:
    queue = Queue(maxsize=1)
    queue.put(numpy.arange(1_000_000))
    assert queue.get().sum() == 499_999_500_000


def test_references_as_items() -> None:
    queue = Queue()
    queue.put(put("value"))
    queue.put([put("inside")])
    assert queue.get() == "value"
    assert get(queue.get()[0]) == "inside"


# Without waiting


@pytest.mark.parametrize("take_one", [lambda q: q.get_nowait(), lambda q: q.get(block=False), lambda q: q.get(False)])
def test_get_without_waiting(take_one: Callable[[Queue], Any]) -> None:
    queue = Queue()
    with pytest.raises(Empty):
        take_one(queue)
    queue.put(1)
    assert take_one(queue) == 1
    with pytest.raises(Empty):
        take_one(queue)


@pytest.mark.parametrize(
    "put_one", [lambda q, x: q.put_nowait(x), lambda q, x: q.put(x, block=False), lambda q, x: q.put(x, False)]
)
def test_put_without_waiting(put_one: Callable[[Queue, Any], None]) -> None:
    queue = Queue(maxsize=1)
    put_one(queue, 1)
    with pytest.raises(Full, match="maxsize is 1"):
        put_one(queue, 2)
    assert queue.get() == 1
    put_one(queue, 3)
    assert queue.get() == 3


def test_errors_are_those_of_the_standard_library() -> None:
    assert issubclass(Empty, standard.Empty)
    assert issubclass(Full, standard.Full)


def test_batches_are_put_whole_or_not_at_all() -> None:
    queue = Queue(maxsize=3)
    queue.put_nowait_batch(n for n in (1, 2))
    with pytest.raises(Full, match="2 more"):
        queue.put_nowait_batch([3, 4])
    assert queue.qsize() == 2
    queue.put_nowait_batch([3])
    queue.put_nowait_batch([])
    assert queue.get_nowait_batch(3) == [1, 2, 3]
    with pytest.raises(TypeError, match="not 5"):
        queue.put_nowait_batch(5)  # type: ignore[arg-type]


def test_batches_are_taken_whole_or_not_at_all() -> None:
    queue = Queue()
    queue.put_nowait_batch([1, 2, 3])
    with pytest.raises(Empty, match="fewer than 4"):
        queue.get_nowait_batch(4)
    assert queue.get_nowait_batch(2) == [1, 2]
    assert queue.get_nowait_batch(0) == []
    assert queue.get_nowait_batch(1) == [3]
    with pytest.raises(TypeError, match="'2'"):
        queue.get_nowait_batch("2")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="-1"):
        queue.get_nowait_batch(-1)


# Waiting


def test_timeouts() -> None:
    queue = Queue(maxsize=1)
    for timeout in (0, 0.05):
        with pytest.raises(Empty):
            queue.get(timeout=timeout)
    queue.put(1, timeout=0)
    for timeout in (0, 0.05):
        with pytest.raises(Full):
            queue.put(2, timeout=timeout)
    assert queue.get(timeout=0) == 1


def test_negative_timeouts() -> None:
    queue = Queue(maxsize=1)
    with pytest.raises(ValueError, match="non-negative"):
        queue.get(timeout=-1)
    with pytest.raises(ValueError, match="non-negative"):
        queue.put(1, timeout=-1)
    queue.put(1, block=False, timeout=-1)
    assert queue.get(block=False, timeout=-1) == 1


def test_get_waits_for_an_item(tmp_path: Path) -> None:
    queue = Queue()
    taken = take.remote(queue, 1, tmp_path / "begun")
    wait_until((tmp_path / "begun").exists)
    assert wait([taken], timeout=0.2)[0] == []
    queue.put("item")
    assert get(taken, timeout=60) == ["item"]


def test_put_waits_for_room() -> None:
    queue = Queue(maxsize=2)
    done = put_all.remote(queue, [1, 2, 3, 4])
    wait_until(queue.full)
    assert wait([done], timeout=0.2)[0] == []
    assert [queue.get(timeout=60) for _ in range(4)] == [1, 2, 3, 4]
    get(done, timeout=60)


def test_who_waits_leaves_the_actor_free(tmp_path: Path) -> None:
    queue = Queue()
    taken = [take.remote(queue, 1, tmp_path / str(n)) for n in range(2)]
    wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
    assert queue.empty()
    queue.put_nowait_batch([0, 1])
    assert sorted(item for items in get(taken, timeout=60) for item in items) == [0, 1]


def test_tasks_that_wait_leave_their_cpus_to_those_they_wait_for(tmp_path: Path) -> None:
    queue = Queue()
    taken = [take.remote(queue, 5, tmp_path / str(n)) for n in range(2)]  # as many as there are CPUs
    wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
    put_all.remote(queue, list(range(10)))
    assert sorted(item for items in get(taken, timeout=60) for item in items) == list(range(10))


def test_many_producers_and_consumers() -> None:
    queue = Queue(maxsize=3)
    done = [put_all.remote(queue, [(who, n) for n in range(20)]) for who in range(3)]
    found = [take.remote(queue, 30) for _ in range(2)]
    items = get(found, timeout=60)
    assert sorted(items[0] + items[1]) == [(who, n) for who in range(3) for n in range(20)]
    for part in items:
        for who in range(3):
            mine = [n for one, n in part if one == who]
            assert mine == sorted(mine)
    get(done)


def test_an_item_that_waits_for_room_is_not_sent_over_and_over(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue(maxsize=1)
    queue.put("first")
    pickled = []

    class Item:
        def __reduce__(self) -> Any:
            pickled.append(self)
            return str, ("second",)

    monkeypatch.setattr(module, "PAUSE_MAX_S", 0.001)
    with pytest.raises(Full):
        queue.put(Item(), timeout=0.3)
    assert len(pickled) == 1
    assert queue.get() == "first"


# Coroutines


def test_coroutines_wait_for_each_other() -> None:
    queue = Queue(maxsize=1)

    async def produce() -> None:
        for n in range(5):
            await queue.put_async(n)

    async def consume() -> list[Any]:
        return [await queue.get_async() for _ in range(5)]

    async def both() -> list[Any]:
        producing = asyncio.create_task(produce())
        items = await consume()
        await producing
        return items

    assert asyncio.run(both()) == [0, 1, 2, 3, 4]


def test_coroutines_without_waiting_and_with_timeouts() -> None:
    async def work() -> None:
        queue = Queue(maxsize=1)
        with pytest.raises(Empty):
            await queue.get_async(block=False)
        with pytest.raises(Empty):
            await queue.get_async(timeout=0.05)
        await queue.put_async(1, block=False)
        with pytest.raises(Full):
            await queue.put_async(2, block=False)
        with pytest.raises(Full):
            await queue.put_async(2, timeout=0.05)
        with pytest.raises(ValueError, match="non-negative"):
            await queue.get_async(timeout=-1)
        with pytest.raises(ValueError, match="non-negative"):
            await queue.put_async(2, timeout=-1)
        assert await queue.get_async(timeout=0) == 1

    asyncio.run(work())


def test_coroutines_do_not_hold_up_others_while_the_actor_starts() -> None:
    async def work() -> None:
        first = Queue(actor_options={"resources": {"shelf": 1}})
        second = Queue(actor_options={"resources": {"shelf": 1}})  # cannot start before the first has ended
        assert first.empty()
        putting = asyncio.create_task(second.put_async("item"))
        getting = asyncio.create_task(second.get_async())
        await asyncio.sleep(0.1)
        assert not putting.done()
        first.shutdown()
        await asyncio.wait_for(putting, 60)
        assert await asyncio.wait_for(getting, 60) == "item"

    asyncio.run(work())


def test_a_coroutine_that_is_cancelled_takes_no_item_with_it() -> None:
    async def work() -> list[Any]:
        queue = Queue()
        found = []
        for n in range(40):
            getting = asyncio.create_task(queue.get_async())
            await asyncio.sleep(0.0005 * (n % 8))
            queue.put(n)
            await asyncio.sleep(0.0005 * (n // 8))
            getting.cancel()
            try:
                found.append(await getting)
            except asyncio.CancelledError:
                found.append(queue.get_nowait())
        assert queue.empty()
        return found

    assert asyncio.run(work()) == list(range(40))


# Passing it on


def test_it_is_passed_to_tasks_and_actors_and_through_itself() -> None:
    @remote
    class Front:
        def __init__(self, queue: Queue) -> None:
            self.queue = queue

        def put(self, item: Any) -> None:
            self.queue.put(item)

        def give(self) -> Queue:
            return self.queue

    queue = Queue(maxsize=2)
    front = Front.remote(queue)
    get(front.put.remote("from an actor"))
    get(put_all.remote(queue, ["from a task"]))
    again = get(front.give.remote())
    assert again.maxsize == 2
    assert again.full()
    assert again.get_nowait_batch(2) == ["from an actor", "from a task"]
    outer = Queue()
    outer.put({"queue": queue})
    outer.get()["queue"].put(1)
    assert queue.get() == 1


def test_it_can_be_pickled_by_hand() -> None:
    # In a job of its own: what is pickled by hand stays until the job ends, since nobody knows where the bytes are.
    program = """
import pickle
import mpi_runtime as ray
from mpi_runtime.util.queue import Queue

ray.init(num_cpus=1)

@ray.remote
def put_into(pickled):
    pickle.loads(pickled).put("item")

queue = Queue(maxsize=3)
ray.get(put_into.remote(pickle.dumps(queue)))
print(queue.get(timeout=0), pickle.loads(pickle.dumps(queue)).maxsize)
"""
    assert run_program(program).expect(0).stdout == "item 3\n"


# Options and ends


def test_actor_options() -> None:
    queue = Queue(actor_options={"num_cpus": 1, "resources": {"shelf": 1}, "runtime_env": {"env_vars": {"A": "1"}}})
    assert queue.empty()
    free = mpi_runtime.available_resources()
    assert (free["CPU"], free.get("shelf", 0)) == (1, 0)
    with pytest.raises(ValueError, match="nonsense"):
        Queue(actor_options={"nonsense": 1})
    broken = Queue(actor_options={"num_cpus": 100})
    with pytest.raises(MpiRuntimeError, match="100 CPU"):
        broken.put(1)


def test_it_ends_with_its_last_copy(counts: Callable[[], dict[str, int]]) -> None:
    queue = Queue()
    queue.put(1)
    copy = get(put([queue]))[0]
    del queue
    gc.collect()
    assert copy.get() == 1
    del copy
    gc.collect()
    wait_until(lambda: counts()["actors"] == 0, timeout=30)


@pytest.mark.parametrize("force", [False, True])
def test_shutdown(force: bool, tmp_path: Path) -> None:
    queue = Queue()
    taken = take.remote(queue, 1, tmp_path / "begun")
    wait_until((tmp_path / "begun").exists)
    queue.shutdown(force=force)
    for call in (queue.get, queue.get_nowait, queue.qsize, lambda: queue.put(1)):
        with pytest.raises(ActorDiedError):
            call()
    with pytest.raises(ActorDiedError):
        get(taken, timeout=60)
    queue.shutdown(force=force)


class _Slow:
    """Takes its time to arrive in the actor."""

    def __init__(self, path: Path, seconds: float) -> None:
        self.path, self.seconds = path, seconds

    def __reduce__(self) -> Any:
        return _arrive, (self.path, self.seconds)


def _arrive(path: Path, seconds: float) -> str:
    time.sleep(seconds)
    path.touch()
    return os.fspath(path)


def test_shutdown_lets_calls_end_that_were_made(tmp_path: Path) -> None:
    queue = Queue()
    assert queue.empty()
    ref = queue.actor.put.remote(_Slow(tmp_path / "arrived", 0.5))
    queue.shutdown(grace_period_s=60)
    assert get(ref) is True
    assert (tmp_path / "arrived").exists()


@pytest.mark.parametrize("options", [{"force": True, "grace_period_s": 600}, {"grace_period_s": 0.1}])
def test_shutdown_waits_no_longer_than_it_should(options: dict[str, Any], tmp_path: Path) -> None:
    queue = Queue()
    assert queue.empty()
    ref = queue.actor.put.remote(_Slow(tmp_path / "arrived", 600))
    queue.shutdown(**options)
    with pytest.raises(ActorDiedError):
        get(ref, timeout=60)


@pytest.mark.parametrize("maxsize", [float("nan"), 1.5, "3", None])
def test_a_size_that_is_no_number_of_items(maxsize: Any) -> None:
    with pytest.raises(TypeError, match="integer"):
        Queue(maxsize)


def test_a_size_below_zero_is_no_limit() -> None:
    """As with the queues of Python and of Ray."""
    queue = Queue(-1)
    queue.put_nowait_batch(list(range(100)))
    assert queue.qsize() == 100
    assert not queue.full()
    queue.shutdown()


@pytest.mark.mpi
def test_tasks_on_ranks() -> None:
    program = """
import mpi_runtime as ray
from mpi_runtime.util.queue import Empty, Queue

ray.init(num_cpus=2)

@ray.remote
def produce(queue, start):
    for n in range(start, start + 50):
        queue.put(n)

@ray.remote
def add_up(queue, number):
    return sum(queue.get() for _ in range(number))

queue = Queue(maxsize=4)
sums = [add_up.remote(queue, 50) for _ in range(2)]
for start in (0, 50):
    produce.remote(queue, start)
print(sum(ray.get(sums)))
try:
    queue.get(timeout=0.1)
except Empty:
    print("empty")
queue.shutdown()
"""
    assert run_program(program, ranks=3).expect(0).stdout == "4950\nempty\n"
