"""dask on tasks."""

import importlib
import operator
import os
import random
import sys
from collections.abc import Callable
from typing import Any

import dask
import dask.array
import dask.bag
import numpy as np
import pytest
from dask._task_spec import Alias, DataNode, List, Task, TaskRef

import mpi_runtime
from mpi_runtime.errors import MpiRuntimeError, WorkerCrashedError
from mpi_runtime.util.dask import enable_dask_on_mpi_runtime, mpi_runtime_dask_get
from tests.e2e.shared import OwnError, fail
from tests.helpers import run_program

pytestmark = pytest.mark.usefixtures("job")

compute: Any = dask.compute  # which has no types


def add(first: int, second: int) -> int:
    return first + second


# Graphs


def test_a_graph_of_tuples() -> None:
    graph: dict[Any, Any] = {
        "x": 1,
        "y": (add, "x", 10),
        ("z", 0): (sum, ["x", "y", (add, "y", "y")]),
        "nested": [["x"], ["y", [("z", 0)]]],
        "same": ("z", 0),
        "constant": "no key",
        "none": None,
    }
    assert mpi_runtime_dask_get(graph, "y") == 11
    assert mpi_runtime_dask_get(graph, ("z", 0)) == 34
    assert mpi_runtime_dask_get(graph, ["x", [("z", 0), "same"], []]) == (1, (34, 34), ())
    assert mpi_runtime_dask_get(graph, ["nested", "constant", "none"]) == ([[1], [11, [34]]], "no key", None)


def test_a_graph_of_nodes() -> None:
    graph = {
        "x": DataNode("x", 1),
        "y": Task("y", add, TaskRef("x"), 10),
        "list": Task("list", sum, List(TaskRef("x"), TaskRef("y"), Task(None, add, TaskRef("y"), 1))),
        "alias": Alias("alias", "list"),
        "by name": Task("by name", add, first=TaskRef("alias"), second=1),
    }
    assert mpi_runtime_dask_get(graph, ["x", "y", "list", "alias", "by name"]) == (1, 11, 24, 24, 25)


def test_the_same_as_dask_s_own_scheduler() -> None:
    numbers = random.Random(7)
    graph: dict[Any, Any] = {("n", 0): 1}
    for index in range(1, 120):
        others = [("n", numbers.randrange(index)) for _ in range(numbers.randrange(4))]
        graph["n", index] = numbers.choice([(sum, others), (sum, [1, *others]), others[0] if others else index])
    keys = list(graph)
    assert mpi_runtime_dask_get(graph, keys) == dask.get(graph, keys)


def test_only_what_is_needed_is_computed() -> None:
    graph = {"x": 1, "bad": (fail, "x"), "worse": (fail, "missing"), "good": (add, "x", "x")}
    assert mpi_runtime_dask_get(graph, "good") == 2


def test_keys_that_there_are_not() -> None:
    with pytest.raises(KeyError, match="no key 'other'"):
        mpi_runtime_dask_get({"x": 1}, ["x", "other"])
    with pytest.raises(KeyError, match="no key 'other'"):
        mpi_runtime_dask_get({"x": Task("x", abs, TaskRef("other"))}, "x")


def test_what_lies_between_stays_in_the_store_and_goes_when_it_is_not_needed(at_rest: Callable[[], None]) -> None:
    graph = {"large": (np.ones, 500_000), "twice": (add, "large", "large"), "sum": (np.sum, "twice")}
    assert mpi_runtime_dask_get(graph, "sum") == 1_000_000
    at_rest()


# Collections


def test_delayed() -> None:
    increment = dask.delayed(lambda n: n + 1)
    total = dask.delayed(sum)([increment(n) for n in range(20)])
    with enable_dask_on_mpi_runtime():
        assert total.compute() == 210
    assert compute({"a": [total, 5]}, total, scheduler=mpi_runtime_dask_get) == ({"a": [210, 5]}, 210)


def test_tasks_run_in_executors() -> None:
    pids = compute(*[dask.delayed(os.getpid, pure=False)() for _ in range(10)], scheduler=mpi_runtime_dask_get)
    assert os.getpid() not in pids


def test_bag() -> None:
    bag = dask.bag.from_sequence(range(100), npartitions=7)
    with enable_dask_on_mpi_runtime():
        assert bag.map(lambda n: n * n).filter(lambda n: n % 2).sum().compute() == sum(n * n for n in range(1, 100, 2))
        assert sorted(bag.frequencies().compute())[:2] == [(0, 1), (1, 1)]
        assert dict(bag.foldby(lambda n: n % 3, operator.add, 0).compute())[0] == sum(range(0, 100, 3))
        assert bag.take(3) == (0, 1, 2)


def test_array() -> None:
    values = np.random.default_rng(0).random((60, 40))
    array = dask.array.from_array(values, chunks=(17, 13))
    with enable_dask_on_mpi_runtime():
        assert np.allclose((array @ array.T).compute(), values @ values.T)
        assert np.allclose(array.mean(axis=0).compute(), values.mean(axis=0))
        assert np.array_equal(array[::3, 5].compute(), values[::3, 5])
        assert np.allclose(dask.array.linalg.svd(array.rechunk((30, 40)))[1].compute(), np.linalg.svd(values)[1])


def test_data_frame() -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frames = importlib.import_module("dask.dataframe")
    plain = pandas.DataFrame({"key": [n % 4 for n in range(40)], "value": range(40)})
    with enable_dask_on_mpi_runtime():
        frame = frames.from_pandas(plain, npartitions=5)
        assert frame.groupby("key").value.sum().compute().to_dict() == plain.groupby("key").value.sum().to_dict()
        assert frame.shuffle("key").compute().value.sum() == plain.value.sum()
        assert len(frame.merge(plain, on="key").compute()) == len(plain.merge(plain, on="key"))


def test_enabled_for_good_and_not_any_more() -> None:
    pid = dask.delayed(os.getpid, pure=False)()
    with dask.config.set(scheduler="sync"):
        enable_dask_on_mpi_runtime()
        assert pid.compute() != os.getpid()
    with enable_dask_on_mpi_runtime():
        assert pid.compute() != os.getpid()
    assert dask.config.get("scheduler", None) is None


def test_persist() -> None:
    with enable_dask_on_mpi_runtime():
        array = (dask.array.ones(1000, chunks=100) + 1).persist()
        assert array.sum().compute() == 2000


def test_options_are_those_of_the_tasks() -> None:
    free = dask.delayed(mpi_runtime.available_resources, pure=False)()
    assert "CPU" not in free.compute(scheduler=mpi_runtime_dask_get, ray_remote_args={"num_cpus": 4})
    with pytest.raises(ValueError, match="num_cpu"):
        free.compute(scheduler=mpi_runtime_dask_get, ray_remote_args={"num_cpu": 4})


# What fails


def test_what_is_raised_is_of_the_user_s_class() -> None:
    good = dask.delayed(abs)(-1)
    bad = dask.delayed(add)(dask.delayed(fail)(5), good)
    with pytest.raises(OwnError, match=r"^mine$") as caught:
        compute(good, bad, scheduler=mpi_runtime_dask_get)
    assert type(caught.value) is OwnError
    assert caught.value.code == 5
    assert isinstance(caught.value.__cause__, MpiRuntimeError)
    assert "in fail" in str(caught.value.__cause__)


def test_a_process_that_dies() -> None:
    with pytest.raises(WorkerCrashedError):
        dask.delayed(os._exit)(3).compute(scheduler=mpi_runtime_dask_get, ray_remote_args={"max_retries": 0})


def test_a_graph_in_a_task_finds_cpus() -> None:
    @mpi_runtime.remote
    def total(n: int) -> int:
        with enable_dask_on_mpi_runtime():
            found: int = dask.delayed(sum)([dask.delayed(abs)(-m) for m in range(n)]).compute()
        return found

    assert mpi_runtime.get([total.remote(5) for _ in range(6)], timeout=30) == [10] * 6


def test_without_dask_the_import_names_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask", None)
    monkeypatch.delitem(sys.modules, "mpi_runtime.util.dask")
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'dask>=2024.12'"):
        importlib.import_module("mpi_runtime.util.dask")


RANKS = """
import dask, dask.array
import mpi_runtime
from mpi_runtime.util.dask import enable_dask_on_mpi_runtime

mpi_runtime.init(num_cpus=2)
with enable_dask_on_mpi_runtime():
    array = dask.array.arange(10_000, chunks=1000)
    print(int((array * array).sum().compute()))
    ranks = dask.compute(*[dask.delayed(mpi_runtime.get_runtime_context().get_rank, pure=False)() for _ in range(9)])
    assert set(ranks) <= {1, 2}, ranks
"""


@pytest.mark.mpi
def test_on_ranks() -> None:
    assert run_program(RANKS, ranks=3).expect(0).stdout == f"{sum(n * n for n in range(10_000))}\n"
