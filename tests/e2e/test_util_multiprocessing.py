"""The pool: what `multiprocessing` says a pool does, on actors.

What a pool of threads does as well is asked of the standard library's own too.
"""

import functools
import gc
import itertools
import multiprocessing
import multiprocessing.pool
import operator
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mpi_runtime
from mpi_runtime.errors import ActorDiedError, MpiRuntimeError, TaskCancelledError
from mpi_runtime.util.multiprocessing import AsyncResult, Pool, TimeoutError
from tests.helpers import run_program, wait_until

pytestmark = pytest.mark.usefixtures("job")

LONG_S = 30.0
"""More than anything here takes, unless it hangs."""
BOTH = pytest.mark.parametrize(
    "make", [pytest.param(multiprocessing.pool.ThreadPool, id="standard"), pytest.param(Pool)]
)
Make = Callable[..., Any]


class OwnError(Exception):
    def __init__(self, text: str, *, code: int) -> None:
        super().__init__(text)
        self.code = code


def fail(code: int) -> None:
    raise OwnError("mine", code=code)


def fail_at_three(n: int) -> int:
    if n == 3:
        raise OwnError("three", code=n)
    return n


def next_or_code(results: Iterator[int]) -> int:
    try:
        return next(results)
    except OwnError as error:
        return -error.code


def is_open(path: str) -> bool:
    end = time.monotonic() + LONG_S
    while not os.path.exists(path):
        assert time.monotonic() < end
        time.sleep(0.01)
    return True


def pid(_: object = None) -> int:
    return os.getpid()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """A file for which `is_open` waits: made with `touch`, and at the end in any case."""
    path = tmp_path / "gate"
    yield path
    path.touch()


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
        time.sleep(0.2)
        before = last
        assert before < 50
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


# Processes


def test_each_process_is_an_actor(gate: Path) -> None:
    with Pool(3) as pool:
        waiting = [pool.apply_async(lambda path: is_open(path) and os.getpid(), (str(gate),)) for _ in range(3)]
        gate.touch()
        pids = {result.get(LONG_S) for result in waiting}
        assert len(pids | {os.getpid()}) == 4
        assert set(pool.map(pid, range(30), 1)) <= pids
        assert pool.apply(lambda: mpi_runtime.get_runtime_context().get_actor_id()) is not None


def test_there_is_one_for_each_cpu(counts: Callable[[], dict[str, int]]) -> None:
    with Pool():
        wait_until(lambda: counts()["actors"] == 4)


def test_there_may_be_more_than_cpus_and_other_tasks_run(gate: Path) -> None:
    with Pool(6) as pool:
        waiting = [pool.apply_async(is_open, (str(gate),)) for _ in range(6)]
        touch = mpi_runtime.remote(lambda path: Path(path).touch())
        mpi_runtime.get(touch.remote(str(gate)), timeout=LONG_S)
        assert all(result.get(LONG_S) for result in waiting)


def test_no_call_waits_behind_another_while_a_process_is_idle(gate: Path) -> None:
    with Pool(2) as pool:
        closed = pool.apply_async(is_open, (str(gate),))
        assert [pool.apply(abs, (-n,)) for n in range(20)] == list(range(20))
        assert not closed.ready()
        gate.touch()


counter = 0
settings: dict[str, int] = {}


def set_up(start: int, name: str = "name") -> None:
    global counter
    counter = start
    settings[name] = start


def count(_: object = None) -> tuple[int, dict[str, int]]:
    global counter
    counter += 1
    return counter, settings


def count_by_helper(_: object) -> int:
    return count()[0]


class Counting:
    def __call__(self, _: object) -> int:
        return count()[0]

    def method(self, _: object) -> int:
        return count()[0]


def test_the_initializer_s_variables_are_found_by_all_functions() -> None:
    with Pool(1, set_up, (10,)) as pool:
        assert pool.apply(count) == (11, {"name": 10})
        assert pool.map(count_by_helper, range(3), 1) == [12, 13, 14]
        assert list(pool.imap(functools.partial(count_by_helper), range(2))) == [15, 16]
        assert pool.map(Counting(), [0]) == [17]
        assert pool.map(Counting().method, [0]) == [18]
        assert pool.map(lambda _: counter, [0]) == [18]
    assert (counter, settings) == (0, {})


def test_each_process_is_initialised() -> None:
    with Pool(3, initializer=set_up, initargs=iter([5, "here"])) as pool:
        assert all(value > 5 and found == {"here": 5} for value, found in pool.map(count, range(12), 1))


def test_an_initializer_that_raises() -> None:
    with Pool(1, initializer=fail, initargs=(7,)) as pool:
        for _ in range(3):
            with pytest.raises(ActorDiedError, match="OwnError: mine"):
                pool.apply(abs, (1,))


def test_processes_are_replaced_after_their_tasks() -> None:
    with Pool(1, set_up, (0,), maxtasksperchild=2) as pool:
        seen = pool.map(lambda _: (os.getpid(), count()[0]), range(6), 1)
        assert [value for _, value in seen] == [1, 2] * 3
        assert len({pid for pid, _ in seen}) == 3
        # A chunk is one task.
        assert pool.map(count_by_helper, range(6), 6) == [1, 2, 3, 4, 5, 6]


def test_without_such_a_limit_they_stay() -> None:
    with Pool(1) as pool:
        assert len(set(pool.map(pid, range(20), 1))) == 1


def test_a_process_that_dies_is_replaced() -> None:
    with Pool(1) as pool:
        first = pool.apply(pid)
        with pytest.raises(ActorDiedError):
            pool.apply(os._exit, (3,))
        assert pool.apply(pid) != first


def test_another_actor_s_death_does_not_end_the_process() -> None:
    @mpi_runtime.remote
    class Mortal:
        def die(self) -> None:
            os._exit(1)

    def meet() -> None:
        mpi_runtime.get(Mortal.remote().die.remote())

    with Pool(1) as pool:
        first = pool.apply(pid)
        with pytest.raises(ActorDiedError):
            pool.apply(meet)
        assert pool.apply(pid) == first


def test_the_remote_traceback_is_the_cause() -> None:
    with Pool(1) as pool:
        with pytest.raises(OwnError) as caught:
            pool.apply(fail, (1,))
        assert isinstance(caught.value.__cause__, MpiRuntimeError)
        assert "in fail" in str(caught.value.__cause__)


def test_options_of_the_actors() -> None:
    with Pool(2, ray_remote_args={"num_cpus": 2}) as pool:
        pool.map(abs, [1, 2], 1)
        assert "CPU" not in mpi_runtime.available_resources()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"processes": 0}, ValueError, "process"),
        ({"maxtasksperchild": 0}, ValueError, "maxtasksperchild"),
        ({"maxtasksperchild": 1.5}, ValueError, "maxtasksperchild"),
        ({"initializer": 1}, TypeError, "initializer"),
    ],
    ids=str,
)
def test_arguments_of_a_pool_are_checked(arguments: Any, error: type[Exception], text: str) -> None:
    for make in (Pool, multiprocessing.Pool):  # the standard one starts nothing before it has looked at them
        with pytest.raises(error, match=f"(?i){text}"):
            make(**arguments)


def test_options_that_there_are_not() -> None:
    with pytest.raises(ValueError, match="num_cpu"):
        Pool(1, ray_remote_args={"num_cpu": 1})


# The end


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
        time.sleep(0.3)  # what was begun has ended by now, if this is to test anything
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


def add_up_joined(pool: Pool) -> int:
    result = pool.map_async(abs, range(-10, 0))
    pool.close()
    pool.join()
    return sum(result.get())


def add_up_waited(pool: Pool) -> int:
    result = pool.starmap_async(abs, [(n,) for n in range(-10, 0)])
    result.wait()
    return sum(result.get(0))


@pytest.mark.parametrize(
    "way",
    [
        lambda pool: sum(pool.map(abs, range(-10, 0))),
        lambda pool: sum(pool.apply(abs, (n,)) for n in range(-10, 0)),
        lambda pool: sum(pool.imap(abs, range(-10, 0))),
        lambda pool: sum(pool.imap_unordered(abs, range(-10, 0), 3)),
        add_up_joined,
        add_up_waited,
    ],
    ids=["map", "apply", "imap", "imap_unordered", "join", "wait"],
)
def test_a_pool_in_a_task(way: Callable[[Pool], int]) -> None:
    """Each process of the pools takes a CPU: there are some only if the tasks give up their own while they wait."""

    @mpi_runtime.remote
    def total() -> int:
        with Pool(1, ray_remote_args={"num_cpus": 1}) as pool:
            return way(pool)

    assert mpi_runtime.get([total.remote() for _ in range(5)], timeout=LONG_S) == [55] * 5


def test_the_names_of_the_standard_library() -> None:
    assert TimeoutError is multiprocessing.TimeoutError
    ours = {name for name in dir(Pool) if not name.startswith("_")}
    theirs = {name for name in dir(multiprocessing.pool.Pool) if not name.startswith("_")} - {"Process"}
    assert ours == theirs


RANKS = """
import os
import mpi_runtime
from mpi_runtime.util.multiprocessing import Pool

state = None


class OwnError(Exception):
    pass


def set_up(value):
    global state
    state = value


def work(n):
    if n < 0:
        raise OwnError(n)
    return n * state, mpi_runtime.get_runtime_context().get_rank()


mpi_runtime.init(num_cpus=3)
with Pool(initializer=set_up, initargs=(10,), maxtasksperchild=5) as pool:
    results = pool.map(work, range(60), chunksize=2)
    assert [value for value, _ in results] == [10 * n for n in range(60)]
    assert {rank for _, rank in results} <= {1, 2}
    assert [value for value, _ in pool.imap(work, range(30))] == [10 * n for n in range(30)]
    try:
        pool.apply(work, (-1,))
    except OwnError as error:
        print("raised", *error.args)
pool.join()
print(state)
"""

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


@pytest.mark.mpi
def test_on_ranks() -> None:
    assert run_program(RANKS, ranks=3).expect(0).stdout == "raised -1\nNone\n"


def test_the_job_ends_before_the_pool() -> None:
    assert run_program(ENDS).expect(0).stdout == "False\n" * 4
