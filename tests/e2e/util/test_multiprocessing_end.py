"""The end of a pool: closed, terminated, forgotten, or with its job."""

import gc
import itertools
import multiprocessing
import multiprocessing.pool
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime.errors import TaskCancelledError
from mpi_runtime.util.multiprocessing import Pool
from tests.e2e.shared import LONG_S, is_open
from tests.helpers import run_program, wait_until

pytestmark = pytest.mark.usefixtures("job")

BOTH = pytest.mark.parametrize(
    "make", [pytest.param(multiprocessing.pool.ThreadPool, id="standard"), pytest.param(Pool)]
)
Make = Callable[..., Any]


@BOTH
@pytest.mark.parametrize("end", ["close", "terminate"])
def test_an_ended_pool_takes_nothing(make: Make, end: str) -> None:
    pool = make(1)
    getattr(pool, end)()
    for name in ("apply", "apply_async"):
        with pytest.raises(ValueError, match="not running"):
            getattr(pool, name)(int)
    for name in ("map", "map_async", "starmap", "starmap_async", "imap", "imap_unordered"):
        with pytest.raises(ValueError, match="not running"):
            getattr(pool, name)(abs, [1])
    with pytest.raises(ValueError, match="not running"), pool:
        pass
    pool.join()
    getattr(pool, end)()
    pool.join()


@BOTH
def test_join_asks_for_an_end_first(make: Make) -> None:
    with make(1) as pool, pytest.raises(ValueError, match="running"):
        pool.join()


@BOTH
def test_close_lets_calls_go_on(make: Make, gate: Path) -> None:
    pool = make(1)
    seen: list[bool] = []
    results = [pool.apply_async(is_open, (str(gate),), callback=seen.append) for _ in range(4)]
    pool.close()
    gate.touch()
    pool.join()
    assert seen == [True] * 4
    assert [result.get(0) for result in results] == [True] * 4


def test_join_lets_the_processes_end(at_rest: Callable[[], None]) -> None:
    pool = Pool(3)
    pool.map(abs, range(10))
    pool.close()
    pool.join()
    at_rest()
    assert pool is not None


@pytest.mark.parametrize("leave", [Pool.terminate, lambda pool: pool.__exit__(None, None, None)], ids=["", "context"])
def test_terminate_ends_everything_at_once(leave: Callable[[Pool], None], gate: Path) -> None:
    said: list[Any] = []
    pool = Pool(2)
    done = pool.apply_async(abs, (-1,))
    done.wait(LONG_S)
    results: list[Any] = [
        pool.apply_async(is_open, (str(gate),), callback=said.append, error_callback=said.append) for _ in range(5)
    ]
    results.append(pool.map_async(is_open, [str(gate)] * 10, 1, said.append, said.append))
    iterators = [pool.imap(is_open, itertools.repeat(str(gate))), pool.imap_unordered(is_open, [str(gate)])]
    leave(pool)
    pool.join()
    for result in results:
        with pytest.raises(TaskCancelledError):
            result.get(LONG_S)
    for iterator in iterators:
        with pytest.raises(TaskCancelledError):
            iterator.next(LONG_S)
    assert done.get(0) == 1
    assert said == []


def test_a_running_imap_is_not_taken_for_complete_when_it_is_terminated() -> None:
    with Pool(1) as pool:
        results = pool.imap(abs, itertools.count())
        assert next(results) == 0
        assert pool.apply(abs, (-1,)) == 1  # behind all that was begun, which has ended by now
    with pytest.raises(TaskCancelledError):
        list(results)


def test_a_pool_that_is_forgotten_ends(at_rest: Callable[[], None]) -> None:
    gc.collect()
    gc.disable()  # by itself, not by the collector of cycles
    try:
        assert Pool(2).apply(abs, (-1,)) == 1
        wait_until(lambda: not [one for one in threading.enumerate() if one.name.startswith("mpi_runtime pool")])
        at_rest()
    finally:
        gc.enable()


def test_a_pool_cannot_be_passed_on() -> None:
    with Pool(1) as pool:
        with pytest.raises(NotImplementedError):
            pickle.dumps(pool)
        with pytest.raises(TypeError):
            pool.apply(print, (pool,))


ENDS = """
import time
import mpi_runtime
from mpi_runtime.util.multiprocessing import Pool

mpi_runtime.init(num_cpus=1)
pool = Pool(1)
results = [pool.apply_async(time.sleep, (60,)) for _ in range(3)]
mpi_runtime.shutdown()
for result in results:
    result.wait(30)
    print(result.successful())
pool.terminate()
pool.join()
print(mpi_runtime.is_initialized())
pool = Pool(1)
pool.apply_async(time.sleep, (60,))
"""


def test_the_job_ends_before_the_pool() -> None:
    assert run_program(ENDS).expect(0).stdout == "False\n" * 4
