"""Many calls in few messages, `f.map` and `f.starmap`: values, arguments, options."""

import itertools
import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from mpi_runtime import cluster_resources, get, get_gpu_ids, get_runtime_context, put, remote
from mpi_runtime.core.calls.mapping import Results
from mpi_runtime.errors import GetTimeoutError
from tests.e2e.shared import note, slow, square, task_id
from tests.helpers import run_program

INIT = {"num_cpus": 4, "num_gpus": 2}
pytestmark = pytest.mark.usefixtures("job")


@remote
def power(base: Any, exponent: Any = 2) -> Any:
    return base**exponent


# What comes back


def test_values_come_in_order() -> None:
    results = square.map(range(1000))
    assert len(results) == 1000
    assert list(results) == results.get() == [x * x for x in range(1000)]
    assert list(results) == [x * x for x in range(1000)], "it can be read again"


def test_index_and_slice() -> None:
    results = square.map(range(100))
    assert [results[0], results[7], results[-1], results[numpy.int64(5)]] == [0, 49, 99 * 99, 25]
    assert results[95:] == [x * x for x in range(95, 100)]
    assert results[::-50] == [99 * 99, 49 * 49]
    for index in (100, -101):
        with pytest.raises(IndexError, match="there are 100"):
            results[index]
    with pytest.raises(TypeError):
        results["a"]  # type: ignore[call-overload]
    assert 49 in results
    assert next(reversed(results)) == 99 * 99


def test_starmap() -> None:
    assert power.starmap([(2, 10), (3,), [5, 3]]).get() == [1024, 9, 125]
    assert power.starmap((n, n) for n in range(50)).get() == [n**n for n in range(50)]
    assert list(power.starmap(zip(range(9), itertools.repeat(1), strict=False))) == list(range(9))


@pytest.mark.parametrize("inputs", [[], (), range(0), iter([]), {}])
def test_nothing(inputs: Any) -> None:
    results = square.map(inputs)
    assert (len(results), list(results), results.get(), list(results.as_completed())) == (0, [], [], [])


@pytest.mark.parametrize("chunk", [1, 7, 1000, "auto"])
def test_each_way_to_cut(chunk: Any) -> None:
    assert square.map(range(100), chunk=chunk).get() == [x * x for x in range(100)]
    assert list(square.map(iter(range(100)), chunk=chunk)) == [x * x for x in range(100)]
    assert sorted(square.map(range(100), chunk=chunk).as_completed()) == [(x, x * x) for x in range(100)]


def test_a_chunk_is_a_task() -> None:
    ids = task_id.map(range(20), chunk=5).get()
    assert len(set(ids)) == 4
    assert [len(list(group)) for _, group in itertools.groupby(ids)] == [5] * 4


def test_a_hundred_thousand_calls(counts: Callable[[], dict[str, int]]) -> None:
    before = counts()["finished"]
    assert sum(square.map(range(100_000))) == sum(x * x for x in range(100_000))
    assert counts()["finished"] - before < 1000, "in few tasks"


def test_values_of_every_kind() -> None:
    @remote
    def make(n: int) -> Any:
        kinds = [None, n, str(n), bytes(n), {"n": n}, numpy.full(n, n), [put(n)], (n,), lambda: n, numpy.float64(n)]
        return kinds[n % 10]

    for values in (make.map(range(40), chunk=10).get(), list(make.map(iter(range(40))))):
        for start in (0, 10, 20, 30):
            none, number, text, data, table, array, refs, pair, function, scalar = values[start : start + 10]
            assert (none, number, text, data) == (None, start + 1, str(start + 2), bytes(start + 3))
            assert (table, pair, function(), scalar) == ({"n": start + 4}, (start + 7,), start + 8, start + 9)
            assert (array == numpy.full(start + 5, start + 5)).all()
            assert get(refs) == [start + 6]


def test_large_arrays_are_read_in_place() -> None:
    @remote
    def make(n: int) -> Any:
        return numpy.full(100_000, n)

    results = make.map(range(12), chunk=4)
    arrays = results.get()
    assert [array[-1] for array in arrays] == list(range(12))
    assert not any(array.flags.owndata or array.flags.writeable for array in arrays)
    del results
    assert [array[-1] for array in arrays] == list(range(12)), "an array keeps its memory"


def test_large_results_are_not_gathered_without_bound() -> None:
    @remote
    def make(n: int) -> Any:
        return get_runtime_context().get_task_id(), bytes(1_000_000)

    ids = [id for id, _ in make.map(range(64))]
    assert max(len(list(group)) for _, group in itertools.groupby(sorted(ids))) <= 2


def test_large_arguments_are_not_gathered_without_bound() -> None:
    @remote
    def task(array: Any) -> Any:
        return get_runtime_context().get_task_id()

    ids = task.map(numpy.ones(50_000) for _ in range(64)).get()
    assert max(len(list(group)) for _, group in itertools.groupby(sorted(ids))) <= 2


# Arguments


def test_references_stand_for_values() -> None:
    ready, later = put(3), slow.remote(0.2)
    assert square.map([1, ready, 2, ready]).get() == [1, 9, 4, 9]
    assert power.starmap([(ready, 2), (2, ready), (ready, ready), (1, later)], chunk=4).get() == [9, 8, 27, 1]

    @remote
    def same(x: Any) -> Any:
        return type(x).__name__, x

    kinds = same.map([ready, [ready], 1], chunk=3).get()
    assert kinds[0] == ("int", 3)
    assert kinds[1][0] == "list"
    assert get(kinds[1][1]) == [3]


def test_a_call_waits_for_its_own_arguments_only() -> None:
    later = slow.remote(1.5)
    results = square.map([1, later, 2], chunk=3)
    assert [results[0], results[2]] == [1, 4]
    with pytest.raises(GetTimeoutError):
        results.get(timeout=0.05)
    assert results.get() == [1, 2.25, 4]


def test_one_array_for_many_calls() -> None:
    @remote
    def pick(array: Any, index: int) -> Any:
        return float(array[index])

    array = put(numpy.arange(200_000.0))
    assert pick.starmap((array, n) for n in range(3000)).get() == list(range(3000))


def test_the_error_of_an_argument_is_that_call_s() -> None:
    @remote
    def fail() -> None:
        raise LookupError("no value")

    failed = fail.remote()
    for _ in range(2):  # at first it is not known yet
        found = square.map([1, failed, 2], chunk=3).get(return_exceptions=True)
        assert isinstance(found[1], LookupError)
        assert [found[0], found[2]] == [1, 4]


def test_results_as_arguments() -> None:
    refs = [square.remote(n) for n in range(200)]
    assert square.map(refs).get() == [n**4 for n in range(200)]


def test_wrong_arguments_are_refused_at_once() -> None:
    @remote
    def none() -> None: ...

    @remote
    def two(a: int, b: int) -> None: ...

    @remote(num_returns=2)
    def pair(a: int) -> Any:
        return a, a

    with pytest.raises(TypeError, match="too many positional"):
        none.map([1])
    with pytest.raises(TypeError, match=r"two\.remote\(\): missing a required argument: 'b'"):
        two.map([1])
    with pytest.raises(TypeError, match=r"power\.starmap\(\): element 1 does not fit.*missing.*'base'"):
        power.starmap([(1, 2), ()])
    with pytest.raises(TypeError, match=r"element 0 must be the arguments of a call, such as a tuple, not 5"):
        power.starmap([5])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="something to iterate over, such as a list, not 5"):
        square.map(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cannot serialise an argument of square"):
        square.map([1, 2, threading.Lock()], chunk=3)
    with pytest.raises(ValueError, match=r"options\(num_returns=1\)"):
        pair.map([1])
    assert pair.options(num_returns=1).map([1]).get() == [(1, 1)]


@pytest.mark.parametrize(
    ("chunk", "error"), [(0, ValueError), (-1, ValueError), ("all", TypeError), (1.5, TypeError), (True, TypeError)]
)
def test_wrong_chunks_are_refused(chunk: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="chunk must be 'auto' or"):
        square.map([1], chunk=chunk)


# Where it happens


def test_within_a_task_and_within_each_other() -> None:
    @remote
    def outer(n: int) -> Any:
        return sum(square.map(range(n)))

    assert outer.map(range(30)).get() == [sum(x * x for x in range(n)) for n in range(30)]


def test_options_hold_for_each_call() -> None:
    @remote
    def devices(x: int) -> Any:
        return get_gpu_ids(), get_runtime_context().get_task_name()

    assert devices.options(num_gpus=1, name="with one").map(range(20), chunk=5)[7][1] == "with one"
    assert {len(ids) for ids, _ in devices.options(num_gpus=2, num_cpus=2).map(range(20))} == {2}
    assert {len(ids) for ids, _ in devices.options(num_cpus=0).map(range(20))} == {0}
    assert cluster_resources()["GPU"] == 2


def test_a_function_that_refers_to_itself() -> None:
    assert tree.map([0, 1, 3, 4]).get() == [1, 2, 8, 16]


@remote
def tree(depth: int) -> Any:
    return 1 if depth == 0 else sum(tree.map([depth - 1, depth - 1]))


def test_a_child_that_comes_back_from_a_fork_makes_no_call(tmp_path: Path) -> None:
    @remote
    def fork(x: int) -> int:
        note(tmp_path / "runs", x)
        if x == 1:
            os.fork()
        return x

    assert fork.map(range(6), chunk=6).get() == list(range(6))
    assert sorted((tmp_path / "runs").read_text().split()) == list("012345")


def test_results_stay_in_their_process() -> None:
    results = square.map(range(3))
    assert isinstance(results, Results)
    assert repr(results) == "<results of 3 calls of square()>"
    with pytest.raises(TypeError, match=r"Send the values, results\.get\(\)"):
        pickle.dumps(results)


PROGRAM = """
import os, signal, sys, time
import numpy
import mpi_runtime as ray

ray.init(num_cpus=2)


@ray.remote
def square(x):
    return x * x


@ray.remote
def fill(n):
    return numpy.full(10_000, n)


@ray.remote
def dies(x):
    if x == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


assert sum(square.map(range(20_000))) == sum(x * x for x in range(20_000))
assert [array[-1] for array in fill.map(range(100))] == list(range(100))
array = ray.put(numpy.arange(100_000))
assert sum(len(one) for one in square.map([array] * 20)) == 2_000_000
found = dies.map(range(10), chunk=10).get(return_exceptions=True)
assert type(found.pop(3)).__name__ == "WorkerCrashedError" and found == [0, 1, 2, 4, 5, 6, 7, 8, 9], found
assert dict(square.map(range(100)).as_completed()) == {x: x * x for x in range(100)}
print("done")
"""


@pytest.mark.parametrize(
    "how", [{}, pytest.param({"ranks": 3, "mpi": "openmpi"}, marks=pytest.mark.mpi)], ids=["plain", "mpirun"]
)
def test_as_a_program(how: Any) -> None:
    completed = run_program(PROGRAM, **how).expect(0)
    assert completed.stdout == "done\n"
