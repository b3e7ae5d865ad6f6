"""The pool of actors: who works on what, in which order results come, and what happens to calls that fail."""

import os
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

import mpi_runtime
from mpi_runtime import ActorHandle, get, kill, put, remote
from mpi_runtime.errors import ActorDiedError, TaskError
from mpi_runtime.util import ActorPool, actor_pool
from tests.e2e.shared import is_open
from tests.helpers import run_program, wait_until

pytestmark = pytest.mark.usefixtures("job")


@remote
class Worker:
    def same(self, value: Any) -> Any:
        return value

    def same_after(self, value: Any, gate: Path) -> Any:
        is_open(gate)
        return value

    def fail(self, value: Any) -> Any:
        raise KeyError(value)

    def touch(self, path: Path) -> None:
        path.touch()

    @mpi_runtime.method(num_returns=2)
    def both(self, value: int) -> Any:
        return value, -value

    def pid(self) -> int:
        return os.getpid()


def same(worker: ActorHandle, value: Any) -> Any:
    return worker.same.remote(value)


def fail(worker: ActorHandle, value: Any) -> Any:
    return worker.fail.remote(value)


def pool_of(number: int) -> ActorPool:
    return ActorPool([Worker.remote() for _ in range(number)])


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A file on which `same_after` waits."""
    return tmp_path / "gate"


# Order


def test_map_keeps_the_order_of_the_values(gate: Path) -> None:
    def work(worker: ActorHandle, value: int) -> Any:
        if value == 0:
            return worker.same_after.remote(value, gate)
        if value == 1:
            return worker.touch.remote(gate)
        return worker.same.remote(value)

    assert list(pool_of(2).map(work, range(8))) == [0, None, *range(2, 8)]


def test_map_unordered_gives_what_is_there_first(gate: Path) -> None:
    def work(worker: ActorHandle, value: int) -> Any:
        return worker.same_after.remote(value, gate) if value == 0 else worker.same.remote(value)

    results = pool_of(2).map_unordered(work, range(6))
    assert sorted(next(results) for _ in range(5)) == [1, 2, 3, 4, 5]
    gate.touch()
    assert list(results) == [0]


def test_map_takes_any_iterable_and_none() -> None:
    pool = pool_of(1)
    assert list(pool.map(same, (n for n in "abc"))) == ["a", "b", "c"]
    assert list(pool.map(same, [])) == []
    assert list(pool.map_unordered(same, [])) == []


@pytest.mark.parametrize("name", ["map", "map_unordered"])
def test_map_starts_work_before_it_is_iterated_over(name: str, tmp_path: Path) -> None:
    results = getattr(pool_of(1), name)(lambda worker, value: worker.touch.remote(value), [tmp_path / "begun"])
    wait_until((tmp_path / "begun").exists)
    assert list(results) == [None]


@pytest.mark.parametrize("name", ["map", "map_unordered"])
def test_map_forgets_earlier_results_but_their_calls_run(name: str, tmp_path: Path) -> None:
    pool = pool_of(1)
    pool.submit(same, "first")
    pool.submit(fail, "second")
    pool.submit(lambda worker, path: worker.touch.remote(path), tmp_path / "third")
    assert list(getattr(pool, name)(same, [1, 2])) == [1, 2]
    assert (tmp_path / "third").exists()
    assert not pool.has_next()


def test_get_next_and_get_next_unordered(gate: Path) -> None:
    pool = pool_of(2)
    pool.submit(lambda worker, value: worker.same_after.remote(value, gate), "slow")
    pool.submit(same, "quick")
    assert pool.get_next_unordered() == "quick"
    gate.touch()
    assert pool.get_next_unordered() == "slow"
    pool.submit(same, "a")
    pool.submit(same, "b")
    assert [pool.get_next(), pool.get_next()] == ["a", "b"]


def test_get_next_is_refused_behind_a_later_result(gate: Path) -> None:
    pool = pool_of(2)
    pool.submit(lambda worker, value: worker.same_after.remote(value, gate), "slow")
    pool.submit(same, "quick")
    assert pool.get_next_unordered() == "quick"
    with pytest.raises(ValueError, match=r"get_next\(\) is not allowed after get_next_unordered\(\)"):
        pool.get_next()
    gate.touch()
    assert pool.get_next_unordered() == "slow"
    pool.submit(same, "later")
    assert pool.get_next() == "later"


# Submitting


def test_calls_wait_for_a_free_actor() -> None:
    pool = pool_of(2)
    assert pool.has_free()
    for value in range(5):
        pool.submit(same, value)
    assert not pool.has_free()
    assert [pool.get_next() for _ in range(3)] == [0, 1, 2]
    assert not pool.has_free()
    assert [pool.get_next() for _ in range(2)] == [3, 4]
    assert pool.has_free()


def test_an_actor_has_one_call_at_a_time() -> None:
    given: list[ActorHandle] = []

    def note(worker: ActorHandle, value: Any) -> Any:
        given.append(worker)
        return worker.same.remote(value)

    pool = pool_of(2)
    for value in range(4):
        pool.submit(note, value)
    assert len(given) == 2
    assert len(set(given)) == 2
    pool.get_next()
    assert len(given) == 3
    assert list(pool.map(note, [])) == []


def test_several_return_values() -> None:
    pool = pool_of(2)

    def both(worker: ActorHandle, value: int) -> Any:
        return worker.both.remote(value)

    assert list(pool.map(both, [1, 2, 3])) == [[1, -1], [2, -2], [3, -3]]
    assert sorted(pool.map_unordered(both, [1, 2, 3])) == [[1, -1], [2, -2], [3, -3]]


def test_a_function_that_raises_does_not_cost_an_actor() -> None:
    pool = pool_of(1)
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda _, value: 1 // value, 0)
    with pytest.raises(TypeError, match="it returned 5"):
        pool.submit(lambda _, value: value, 5)
    assert not pool.has_next()
    pool.submit(same, 1)
    assert pool.get_next() == 1


@pytest.mark.parametrize("name", ["map", "map_unordered"])
def test_a_function_that_raises_later_does_so_in_its_place(name: str) -> None:
    pool = pool_of(1)
    results = getattr(pool, name)(same, ["a", Lock(), "c"])  # a lock cannot be serialised
    assert next(results) == "a"
    with pytest.raises(TypeError, match="serialise"):
        next(results)
    assert pool.get_next() == "c"
    assert not pool.has_next()


# Nothing left, and time-outs


def test_nothing_left() -> None:
    pool = pool_of(1)
    assert not pool.has_next()
    pool.submit(same, 1)
    assert pool.has_next()
    assert pool.get_next() == 1
    assert not pool.has_next()
    with pytest.raises(StopIteration, match="No results"):
        pool.get_next()
    with pytest.raises(StopIteration, match="No results"):
        pool.get_next_unordered(timeout=0)


@pytest.mark.parametrize("name", ["get_next", "get_next_unordered"])
def test_a_timeout_leaves_the_result_to_be_asked_for_again(name: str, gate: Path) -> None:
    pool = pool_of(1)
    get_one = getattr(pool, name)
    pool.submit(lambda worker, value: worker.same_after.remote(value, gate), "late")
    for timeout in (0, 0.05):
        with pytest.raises(TimeoutError, match="a later call can return it"):
            get_one(timeout=timeout)
    assert pool.has_next()
    assert not pool.has_free()
    gate.touch()
    assert get_one(timeout=60) == "late"


@pytest.mark.parametrize("name", ["get_next", "get_next_unordered"])
def test_a_timeout_may_forget_the_result(name: str, gate: Path) -> None:
    pool = pool_of(1)
    get_one = getattr(pool, name)
    pool.submit(lambda worker, value: worker.same_after.remote(value, gate), "late")
    pool.submit(same, "next")
    with pytest.raises(TimeoutError, match="dropped"):
        get_one(timeout=0.05, ignore_if_timedout=True)
    gate.touch()
    assert get_one() == "next"
    assert not pool.has_next()
    assert pool.has_free()


# Failures


@pytest.mark.parametrize("name", ["get_next", "get_next_unordered"])
def test_an_actor_is_back_after_a_call_that_failed(name: str) -> None:
    pool = pool_of(1)
    pool.submit(fail, "reason")
    pool.submit(same, "next")
    with pytest.raises(KeyError, match="reason") as caught:
        getattr(pool, name)()
    assert isinstance(caught.value, TaskError)
    assert getattr(pool, name)() == "next"
    assert pool.has_free()
    assert not pool.has_next()


def test_an_actor_that_died_says_so() -> None:
    worker = Worker.remote()
    pool = ActorPool([worker])
    kill(worker)
    pool.submit(same, 1)
    with pytest.raises(ActorDiedError):
        pool.get_next()
    assert pool.pop_idle() == worker
    pool.push(Worker.remote())
    assert list(pool.map(same, [1, 2])) == [1, 2]


# Actors come and go


def test_pop_idle() -> None:
    workers = [Worker.remote() for _ in range(2)]
    pool = ActorPool(workers)
    pool.submit(same, 1)
    idle = pool.pop_idle()
    assert idle is not None
    assert idle in workers
    assert get(idle.same.remote(2)) == 2
    assert pool.pop_idle() is None
    assert pool._idle_actors == []  # the name in Ray: alibi reads it
    assert pool.get_next() == 1
    (other,) = {*workers} - {idle}
    assert pool.pop_idle() == other
    assert not pool.has_free()


def test_push_gives_the_actor_calls_that_wait(gate: Path) -> None:
    pool = ActorPool([])
    assert not pool.has_free()
    pool.submit(same, "waits")
    assert not pool.has_next()
    pool.push(Worker.remote())
    assert pool.get_next() == "waits"
    pool.push(Worker.remote())
    pool.submit(lambda worker, value: worker.same_after.remote(value, gate), 0)
    pool.submit(lambda worker, path: worker.touch.remote(path), gate)
    assert pool.get_next() == 0


def test_push_of_an_actor_that_is_there() -> None:
    worker = Worker.remote()
    pool = ActorPool([worker])
    again = get(put([worker]))[0]
    with pytest.raises(ValueError, match="in this ActorPool already"):
        pool.push(again)
    pool.submit(same, 1)
    with pytest.raises(ValueError, match="in this ActorPool already"):
        pool.push(again)
    assert pool.get_next() == 1


def test_where_it_is_found() -> None:
    assert ActorPool is actor_pool.ActorPool


@pytest.mark.mpi
def test_actors_on_ranks() -> None:
    program = """
import os
import mpi_runtime as ray
from mpi_runtime.util import ActorPool

ray.init(num_cpus=3)

@ray.remote
class Worker:
    def square(self, x):
        return x * x

pool = ActorPool([Worker.remote() for _ in range(3)])
print(list(pool.map(lambda worker, x: worker.square.remote(x), range(20))) == [x * x for x in range(20)])
print(sum(pool.map_unordered(lambda worker, x: worker.square.remote(x), range(20))))
"""
    assert run_program(program, ranks=3).expect(0).stdout == "True\n2470\n"
