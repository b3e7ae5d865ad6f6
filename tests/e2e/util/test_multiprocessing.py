"""The pool's calls and results: what `multiprocessing` says a pool does, on actors.

What a pool of threads does as well is asked of the standard library's own too.
"""

import itertools
import multiprocessing
import multiprocessing.pool
import operator
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime import cluster_resources
from mpi_runtime.util.multiprocessing import (
    AsyncResult,
    Pool,
    TimeoutError,
    cpu_count,
    current_process,
    freeze_support,
)
from tests.e2e.shared import LONG_S, OwnError, fail, is_open
from tests.helpers import wait_until

pytestmark = pytest.mark.usefixtures("job")

BOTH = pytest.mark.parametrize(
    "make", [pytest.param(multiprocessing.pool.ThreadPool, id="standard"), pytest.param(Pool)]
)
Make = Callable[..., Any]


def fail_at_three(n: int) -> int:
    if n == 3:
        raise OwnError("three", code=n)
    return n


def next_or_code(results: Iterator[int]) -> int:
    try:
        return next(results)
    except OwnError as error:
        return -error.code


# Calls, as in the standard library


@BOTH
def test_apply(make: Make) -> None:
    with make(2) as pool:
        assert pool.apply(divmod, (17, 5)) == (3, 2)
        assert pool.apply(dict, ([("a", 1)],), {"func": 2, "method": 3}) == {"a": 1, "func": 2, "method": 3}
        assert pool.apply(dict) == {}
        assert pool.apply_async(pow, (2, 5)).get(LONG_S) == 32


@BOTH
@pytest.mark.parametrize("chunksize", [None, 1, 3, 100])
def test_map(make: Make, chunksize: int | None) -> None:
    with make(2) as pool:
        assert pool.map(abs, range(-10, 0), chunksize) == list(range(10, 0, -1))
        assert pool.map_async(abs, iter([-1, 2]), chunksize=chunksize).get(LONG_S) == [1, 2]
        assert pool.starmap(pow, [(2, 3), (3, 2)], chunksize) == [8, 9]
        assert pool.starmap_async(pow, iter([(2, 3, 5)]), chunksize=chunksize).get(LONG_S) == [3]


@BOTH
def test_nothing_to_do(make: Make) -> None:
    with make(2) as pool:
        assert pool.map(abs, []) == []
        assert pool.starmap(abs, iter(())) == []
        assert list(pool.imap(abs, [])) == []
        assert list(pool.imap_unordered(abs, [], 5)) == []
        assert pool.map_async(abs, []).successful()


@BOTH
@pytest.mark.parametrize("chunksize", [1, 4])
def test_imap(make: Make, chunksize: int) -> None:
    with make(2) as pool:
        results = pool.imap(abs, range(-50, 0), chunksize)
        assert iter(results) is results
        assert [next(results), next(results)] == [50, 49]
        assert list(results) == list(range(48, 0, -1))
        with pytest.raises(StopIteration):
            next(results)
        assert sorted(pool.imap_unordered(abs, range(-50, 0), chunksize)) == list(range(1, 51))


@BOTH
def test_imap_unordered_gives_first_what_is_there_first(make: Make, gate: Path) -> None:
    open_gate = gate.with_name("open")
    open_gate.touch()
    with make(2) as pool:
        results = pool.imap_unordered(lambda path: (is_open(path), path)[1], [str(gate), str(open_gate)])
        assert next(results) == str(open_gate)
        gate.touch()
        assert next(results) == str(gate)


@BOTH
def test_what_is_raised_is_of_the_user_s_class(make: Make) -> None:
    with make(2) as pool:
        calls: list[Callable[[], Any]] = [
            lambda: pool.apply(fail, (5,)),
            lambda: pool.map(fail, [5]),
            lambda: next(pool.imap(fail, [5])),
        ]
        for call in calls:
            with pytest.raises(OwnError, match=r"^mine$") as caught:
                call()
            assert type(caught.value) is OwnError
            assert caught.value.code == 5


@BOTH
def test_one_failure_fails_the_map_and_not_the_pool(make: Make) -> None:
    with make(2) as pool:
        result = pool.map_async(fail_at_three, range(6), 1)
        result.wait(LONG_S)
        assert not result.successful()
        with pytest.raises(OwnError):
            result.get()
        assert pool.map(fail_at_three, range(3)) == [0, 1, 2]


@BOTH
@pytest.mark.parametrize("name", ["imap", "imap_unordered"])
def test_after_a_failure_imap_goes_on(make: Make, name: str) -> None:
    with make(2) as pool:
        results = getattr(pool, name)(fail_at_three, range(6))
        seen = [next_or_code(results) for _ in range(6)]
        assert sorted(seen) == [-3, 0, 1, 2, 4, 5]
        assert name == "imap_unordered" or seen == [0, 1, 2, -3, 4, 5]


@BOTH
@pytest.mark.parametrize("name", ["imap", "imap_unordered"])
def test_what_the_iterable_raises_comes_out(make: Make, name: str) -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise OwnError("no more", code=3)

    with make(2) as pool:
        with pytest.raises(OwnError):
            pool.map(abs, items())
        results = getattr(pool, name)(abs, items())
        seen = [next_or_code(results) for _ in range(3)]
        assert sorted(seen) == [-3, 1, 2]
        assert name == "imap_unordered" or seen == [1, 2, -3]


@BOTH
def test_chunks_out_of_bounds(make: Make) -> None:
    with make(1) as pool:
        for name in ("imap", "imap_unordered"):
            with pytest.raises(ValueError, match=r"(?i)chunksize"):
                getattr(pool, name)(abs, [1], 0)


# Results


@BOTH
def test_a_result_that_is_awaited(make: Make, gate: Path) -> None:
    with make(1) as pool:
        result = pool.apply_async(is_open, (str(gate),))
        assert not result.ready()
        with pytest.raises(ValueError, match="ready"):
            result.successful()
        with pytest.raises(multiprocessing.TimeoutError):
            result.get(timeout=0.05)
        result.wait(0.05)
        assert not result.ready()
        gate.touch()
        result.wait()
        assert result.ready()
        assert result.successful()
        assert result.get(0) is True
        failed = pool.apply_async(fail, (1,))
        failed.wait(LONG_S)
        assert failed.ready()
        assert not failed.successful()


@BOTH
def test_an_iterator_that_is_awaited(make: Make, gate: Path) -> None:
    with make(1) as pool:
        results = pool.imap(is_open, [str(gate)])
        with pytest.raises(multiprocessing.TimeoutError):
            results.next(timeout=0.05)
        gate.touch()
        assert results.next(LONG_S) is True


@BOTH
def test_callbacks(make: Make) -> None:
    seen: list[Any] = []
    caller = threading.get_ident()

    def note(value: Any) -> None:
        seen.append((value, os.getpid(), threading.get_ident() != caller))

    def never(value: Any) -> None:
        seen.append(("never", value))

    with make(2) as pool:
        pool.apply_async(abs, (-1,), callback=note, error_callback=never).get(LONG_S)
        pool.map_async(abs, [-1, -2], 1, note, never).get(LONG_S)
        pool.starmap_async(pow, [(2, 2)], callback=note, error_callback=never).get(LONG_S)
        # `get` returns when the callback has returned.
        assert seen == [(value, os.getpid(), True) for value in (1, [1, 2], [4])]
        seen.clear()
        for result in (
            pool.apply_async(fail, (1,), callback=never, error_callback=note),
            pool.map_async(fail, [1, 1], 1, never, note),
            pool.starmap_async(fail, [(1,)], callback=never, error_callback=note),
        ):
            result.wait(LONG_S)
        assert [(type(error), *rest) for error, *rest in seen] == [(OwnError, os.getpid(), True)] * 3


def test_no_callback_runs_in_the_caller_s_thread() -> None:
    """It may hold a lock that the callback takes; also where the call could not even be sent."""
    seen: list[Any] = []
    lock = threading.Lock()

    def note(value: Any) -> None:
        with lock:
            seen.append(type(value))

    with Pool(2) as pool:
        with lock:
            results: list[AsyncResult[Any]] = [pool.apply_async(print, (threading.Lock(),), error_callback=note)]
            results += [pool.apply_async(int, callback=note) for _ in range(50)]
        for result in results:
            result.wait(LONG_S)
    assert sorted(kind.__name__ for kind in seen) == ["TypeError"] + ["int"] * 50


def test_a_callback_that_raises_is_reported_and_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda arguments: said.append(arguments.exc_type))
    with Pool(1) as pool:
        assert pool.apply_async(abs, (-1,), callback=fail).get(LONG_S) == 1
        assert pool.apply(abs, (-2,)) == 2
    assert said == [OwnError]


def test_a_callback_may_give_the_pool_more() -> None:
    with Pool(1) as pool:
        more: list[AsyncResult[int]] = []
        pool.apply_async(abs, (-1,), callback=lambda value: more.append(pool.apply_async(abs, (value - 5,)))).get(
            LONG_S
        )
        assert more[0].get(LONG_S) == 4


# Iterables without end


@pytest.mark.parametrize("name", ["imap", "imap_unordered"])
def test_imap_takes_only_so_much(name: str) -> None:
    taken = itertools.count()
    last = 0

    def take() -> int:
        nonlocal last
        last = next(taken)
        return last

    with Pool(2) as pool:
        results = getattr(pool, name)(abs, iter(take, -1), 3)
        wait_until(lambda: last >= 10)
        for _ in range(3):  # whatever was begun before has ended by then, and more would have been taken for it
            assert pool.apply(abs, (-1,)) == 1
        assert last < 50
        seen = [next(results) for _ in range(300)]
        assert len(set(seen)) == 300
        assert 300 <= last + 1 < 400
        assert name == "imap_unordered" or seen == list(range(300))


@BOTH
def test_one_imap_feeds_another(make: Make) -> None:
    with make(2) as pool:
        assert list(pool.imap(operator.neg, pool.imap(abs, range(-100, 0)))) == list(range(-100, 0))


@BOTH
def test_join_has_imap_do_all_though_nobody_takes_the_results(make: Make, tmp_path: Path) -> None:
    pool = make(2)
    results = pool.imap(abs, range(-100, 0))
    pool.imap_unordered(Path.touch, [tmp_path / str(number) for number in range(60)])
    pool.close()
    pool.join()
    assert len(list(tmp_path.iterdir())) == 60
    assert list(results) == list(range(100, 0, -1))


def test_the_names_of_the_standard_library() -> None:
    assert TimeoutError is multiprocessing.TimeoutError
    ours = {name for name in dir(Pool) if not name.startswith("_")}
    theirs = {name for name in dir(multiprocessing.pool.Pool) if not name.startswith("_")} - {"Process"}
    assert ours == theirs


def test_one_changed_import_brings_the_names_beside_the_pool() -> None:
    assert cpu_count() == int(cluster_resources()["CPU"])
    assert current_process() is multiprocessing.current_process()
    assert freeze_support is multiprocessing.freeze_support
    with Pool() as pool:
        assert len(set(pool.map(_pid, range(4 * cpu_count()), chunksize=1))) <= cpu_count()


def _pid(_: int) -> int:
    return os.getpid()
