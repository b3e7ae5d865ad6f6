"""The pool's processes: how many, what they are set up with, when they are replaced, what they run in."""

import functools
import multiprocessing
import multiprocessing.pool
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mpi_runtime
from mpi_runtime.errors import ActorDiedError, MpiRuntimeError
from mpi_runtime.util.multiprocessing import Pool
from tests.e2e.shared import LONG_S, OwnError, fail, is_open
from tests.helpers import run_program, wait_until

pytestmark = pytest.mark.usefixtures("job")


def pid(_: object = None) -> int:
    return os.getpid()


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
    with pytest.raises(ActorDiedError, match="OwnError: mine"):
        Pool(2, initializer=fail, initargs=(7,))


def fail_the_second_time(path: Path) -> None:
    if path.exists():
        fail(7)
    path.touch()


def test_an_initializer_that_raises_in_a_later_process(tmp_path: Path) -> None:
    with Pool(1, fail_the_second_time, (tmp_path / "first",), maxtasksperchild=1) as pool:
        assert (tmp_path / "first").exists()
        assert pool.apply(abs, (-1,)) == 1
        for _ in range(2):
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


@pytest.mark.mpi
def test_on_ranks() -> None:
    assert run_program(RANKS, ranks=3).expect(0).stdout == "raised -1\nNone\n"


@pytest.mark.parametrize("processes", [10**6, 1025])
def test_more_processes_than_a_job_can_have_are_refused(processes: int) -> None:
    with pytest.raises(ValueError, match=f"processes={processes}: the job has 4 CPUs, .* not of calls"):
        Pool(processes)
