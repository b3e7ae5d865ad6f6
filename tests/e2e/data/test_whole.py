"""What needs all rows at once: shuffles, orders, groups and divisions."""

from __future__ import annotations

import math
import os
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

pytest.importorskip("pyarrow")
pandas = pytest.importorskip("pandas")

import mpi_runtime  # noqa: E402
from mpi_runtime import data  # noqa: E402
from mpi_runtime.data.aggregate import AggregateFn, Count, CountDistinct, Max, Mean, Min, Quantile, Std, Sum  # noqa: E402
from mpi_runtime.data.streams.running import Running  # noqa: E402
from mpi_runtime.util.state import list_objects  # noqa: E402

pytestmark = pytest.mark.usefixtures("job")
INIT = {"num_cpus": 2, "object_store_memory": 64_000_000}


def column(ds: data.Dataset, name: str = "id") -> list[Any]:
    return [row[name] for row in ds.take_all()]


@pytest.mark.parametrize("blocks", [1, 7])
def test_a_shuffle_keeps_all_rows_and_changes_their_order(blocks: int) -> None:
    ds = data.range(500, override_num_blocks=blocks)
    first, again, other = (column(ds.random_shuffle(seed=seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert sorted(first) == sorted(other) == list(range(500)) != first
    assert column(ds.random_shuffle()) != column(ds.random_shuffle())
    assert ds.random_shuffle().count() == 500
    assert ds.repartition(3, shuffle=True).materialize().num_blocks() <= 3
    assert sorted(column(ds.randomize_block_order(seed=3))) == list(range(500))


def test_a_shuffle_moves_rows_between_blocks() -> None:
    half = column(data.range(1000, override_num_blocks=10).random_shuffle(seed=0))[:500]
    assert 150 < sum(value >= 500 for value in half) < 350


@pytest.mark.parametrize("blocks", [1, 9])
@pytest.mark.parametrize("descending", [False, True])
def test_rows_are_sorted(blocks: int, descending: bool) -> None:
    values = random.Random(0).sample(range(1000), 300)
    ds = data.from_items([{"x": value} for value in values], override_num_blocks=blocks)
    assert column(ds.sort("x", descending), "x") == sorted(values, reverse=descending)
    assert ds.sort("x").take(1) == [{"x": min(values)}]


def test_several_columns_have_directions_of_their_own() -> None:
    rows = [{"a": n % 3, "b": str(n % 5), "n": n} for n in range(60)]
    ds = data.from_items(rows, override_num_blocks=6).sort(["a", "b"], descending=[True, False])
    assert ds.take_all() == sorted(rows, key=lambda row: (-row["a"], row["b"]))  # type: ignore[operator]


@pytest.mark.parametrize("descending", [False, True])
def test_missing_values_are_last(descending: bool) -> None:
    ds = data.from_items([{"x": value} for value in [3, None, 1, None, 2]], override_num_blocks=5)
    assert column(ds.sort("x", descending), "x") == [*sorted([1, 2, 3], reverse=descending), None, None]


def test_columns_that_are_not_there_and_those_without_order() -> None:
    ds = data.range(10)
    for wrong in (ds.sort("y"), ds.groupby("y").count(), ds.groupby("id").sum("y")):
        with pytest.raises(data.BlockValueError, match="no such column in the dataset: y"):
            wrong.take_all()
    with pytest.raises(TypeError, match="no order"):
        data.from_items([{"x": [1]}, {"x": [2]}]).sort("x").take_all()
    with pytest.raises(ValueError, match="name of a column"):
        ds.sort([])
    with pytest.raises(ValueError, match="descending"):
        ds.sort("id", descending=[True, False])
    with pytest.raises(TypeError, match="AggregateFn"):
        ds.aggregate("sum")  # type: ignore[arg-type]


def test_data_sets_without_rows() -> None:
    nothing = data.range(10).filter(lambda row: False)
    assert nothing.random_shuffle().take_all() == nothing.sort("id").take_all() == []
    assert nothing.groupby("id").count().take_all() == []
    assert nothing.groupby("id").map_groups(lambda batch: batch).take_all() == []
    assert nothing.unique("id") == []
    assert nothing.sort("id").to_pandas().columns.tolist() == ["id"]
    assert data.range(0).sort("id").take_all() == []


@pytest.mark.parametrize("blocks", [1, 8])
def test_groups_are_reduced(blocks: int) -> None:
    rows = [{"k": "abc"[n % 3], "x": n, "y": float(n) if n % 4 else None} for n in range(100)]
    ds = data.from_items(rows, override_num_blocks=blocks)
    frame = pandas.DataFrame(rows)
    grouped = frame.groupby("k")
    assert ds.groupby("k").count().take_all() == [{"k": k, "count()": len(part)} for k, part in grouped]
    for kind in ("sum", "min", "max", "mean", "std"):
        found = getattr(ds.groupby("k"), kind)(["x", "y"]).to_pandas()
        assert found.columns.tolist() == ["k", f"{kind}(x)", f"{kind}(y)"]
        wanted = getattr(grouped, kind)()
        for name in "xy":
            assert numpy.allclose(found[f"{kind}({name})"], wanted[name])
    assert ds.groupby("k").sum().take(1)[0].keys() == {"k", "sum(x)", "sum(y)"}
    several = ds.groupby("k").aggregate(
        Count("y", ignore_nulls=True),
        Quantile("x"),
        CountDistinct("k"),
        Sum("y", ignore_nulls=False),
        Min("x", alias_name="m"),
    )
    first = several.take(1)[0]
    part = grouped.get_group("a")
    assert first == {
        "k": "a", "count(y)": int(part["y"].count()), "quantile(x)": part["x"].median(), "count_distinct(k)": 1,
        "sum(y)": None, "m": 0,
    }  # fmt: skip


def test_keys_may_be_several_or_missing() -> None:
    rows = [{"a": n % 2, "b": None if n % 3 else 1.5, "n": n} for n in range(12)]
    ds = data.from_items(rows, override_num_blocks=5)
    assert ds.groupby(["a", "b"]).count().take_all() == [
        {"a": 0, "b": 1.5, "count()": 2}, {"a": 0, "b": None, "count()": 4},
        {"a": 1, "b": 1.5, "count()": 2}, {"a": 1, "b": None, "count()": 4},
    ]  # fmt: skip
    nan = data.from_numpy([numpy.array([math.nan, 1.0]), numpy.array([math.nan])])
    assert [row["count()"] for row in nan.groupby("data").count().take_all()] == [1, 2]
    assert ds.groupby(None).count().take_all() == [{"count()": 12}]


def longer(a: Any, b: Any) -> Any:
    return max(a, b, key=len)


def test_a_reduction_of_functions() -> None:
    longest: Any = AggregateFn(
        init=lambda key: "", accumulate_row=lambda a, row: longer(a, row["s"]),
        merge=longer, finalize=lambda a: str(a).upper(), name="longest",
    )  # fmt: skip
    ds = data.from_items([{"k": n % 2, "s": "ab"[n % 2] * n} for n in range(20)], override_num_blocks=6)
    assert ds.groupby("k").aggregate(longest).take_all() == [
        {"k": 0, "longest": "A" * 18},
        {"k": 1, "longest": "B" * 19},
    ]
    assert ds.aggregate(longest, Count()) == {"longest": "B" * 19, "count()": 20}
    with pytest.raises(ValueError, match="either"):
        AggregateFn(init=lambda key: 0, merge=longer, name="x")


def test_reductions_of_all_rows() -> None:
    ds = data.range(100, override_num_blocks=7)
    found = ds.aggregate(Sum("id"), Min("id"), Max("id"), Mean("id"), Std("id"))
    assert found is not None
    deviation = found.pop("std(id)")
    assert found == {"sum(id)": 4950, "min(id)": 0, "max(id)": 99, "mean(id)": 49.5}
    assert abs(deviation - 29.011491975882016) < 1e-9  # type: ignore[operator]
    twice = ds.aggregate(Sum("id"), Sum("id", ignore_nulls=False))
    assert twice == {"sum(id)": 4950, "sum(id)_2": 4950}
    assert ds.groupby(None).aggregate(Count(), Count()).take_all() == [{"count()": 100, "count()_2": 100}]
    numbers = data.from_numpy([numpy.array([1.0]), numpy.array([math.nan, 2.0])])
    assert numbers.aggregate(Sum("data"), Mean("data"), Max("data"), Count("data", ignore_nulls=True)) == {
        "sum(data)": None, "mean(data)": None, "max(data)": 2.0, "count(data)": 3,
    }  # fmt: skip
    values = data.from_items([{"x": value} for value in [2, None, 1, 2]], override_num_blocks=4)
    assert values.unique("x") == [2, None, 1]
    assert values.unique("x", ignore_nulls=True) == [2, 1]
    mixed = data.from_items([{"x": 1}, {"x": 1.0}, {"x": 2.5}, {"x": 2}], override_num_blocks=4)
    assert mixed.unique("x") == [1, 2.5, 2], "an integer and a float of another block may be equal"


def test_functions_and_classes_get_whole_groups() -> None:
    ds = data.range(300, override_num_blocks=9).map(lambda row: {"k": row["id"] % 7, "id": row["id"]})

    def count(batch: dict[str, Any], more: int = 0) -> dict[str, Any]:
        assert len(set(batch["k"])) == 1
        return {"k": batch["k"][:1], "n": [len(batch["id"]) + more]}

    class Counter:
        def __init__(self, more: int) -> None:
            self.more = more

        def __call__(self, batch: Any) -> Any:
            yield count(batch, self.more)

    wanted = [{"k": k, "n": len(range(k, 300, 7))} for k in range(7)]
    assert ds.groupby("k").map_groups(count).take_all() == wanted
    assert ds.groupby("k").map_groups(count, num_cpus=0.5, fn_kwargs={"more": 1}).sum("n") == 307
    assert ds.groupby("k").map_groups(Counter, concurrency=2, fn_constructor_args=[2]).sum("n") == 314
    frames = ds.groupby("k").map_groups(lambda frame: frame.head(1), batch_format="pandas")
    assert column(frames, "id") == list(range(7))


def test_rows_for_a_test() -> None:
    ds = data.range(10, override_num_blocks=3)
    train, test = ds.train_test_split(0.25)
    assert (column(train), column(test)) == (list(range(7)), [7, 8, 9])
    train, test = ds.train_test_split(4, shuffle=True, seed=1)
    assert sorted(column(train) + column(test)) == list(range(10))
    assert test.count() == 4
    assert column(test) != [6, 7, 8, 9]
    for wrong in (0, 10, 1.5, -1):
        with pytest.raises(ValueError, match="test_size"):
            ds.train_test_split(wrong)
    with pytest.raises(TypeError, match="test_size"):
        ds.train_test_split("all")  # type: ignore[arg-type]


def wide(batch: dict[str, Any]) -> dict[str, Any]:
    return {"id": (batch["id"] * 7919) % 2003, "x": numpy.ones((len(batch["id"]), 131_072), "uint8")}


def test_four_times_the_store_is_shuffled_and_sorted(at_rest: Callable[[], None]) -> None:
    """262 MB through a store of 64."""
    ds = data.range(2003, override_num_blocks=50).map_batches(wide)
    mixed = ds.random_shuffle(seed=0).map_batches(lambda batch: {"id": batch["id"], "n": batch["x"].sum(axis=1)})
    rows = mixed.take_all()
    assert sorted(row["id"] for row in rows) == list(range(2003))  # type: ignore[type-var]
    assert {row["n"] for row in rows} == {131_072}
    assert column(ds.sort("id", descending=True).select_columns("id")) == list(range(2003))[::-1]
    at_rest()


def short(batch: dict[str, Any]) -> dict[str, Any]:
    return {"id": (batch["id"] * 7919) % 24_001, "x": numpy.ones((len(batch["id"]), 1000), "uint8")}


@pytest.mark.parametrize("method", ["random_shuffle", "sort", "groupby", "repartition", "join"])
def test_pieces_of_short_rows_lie_in_the_store(method: str, at_rest: Callable[[], None]) -> None:
    """24 MB. The head would keep all of it, and the program too: no budget counts that, and no disk takes it."""
    ds = data.range(24_001, override_num_blocks=30).map_batches(short)
    names = ds.map_batches(lambda batch: {"id": batch["id"], "half": batch["id"] // 2})
    mixed = {
        "random_shuffle": lambda: ds.random_shuffle(seed=0),
        "sort": lambda: ds.sort("id"),
        "groupby": lambda: ds.groupby("id").map_groups(lambda batch: batch),
        "repartition": lambda: ds.repartition(40, keys=["id"]),
        "join": lambda: ds.join(names, "inner", 40, on=("id",)),
    }[method]()
    running = Running(mixed._operator, ordered=False)
    try:
        found = list_objects(limit=10_000)
        stored = [one.object_size for one in found if one.node_ids or one.is_spilled]
        assert sum(stored) > 24_000_000
        assert sum(one.object_size for one in found) - sum(stored) < 1_000_000
        rows = 0
        while (block := running.next()) is not None:
            rows += block.rows
            running.release(block)
        assert rows == 24_001
    finally:
        running.close()
    del running, block
    at_rest()


def test_a_killed_process_changes_no_row(tmp_path: Path, at_rest: Callable[[], None]) -> None:
    def slow(batch: dict[str, Any]) -> dict[str, Any]:
        (tmp_path / str(os.getpid())).touch()
        return batch

    ends = threading.Event()
    killed: list[str] = []

    def kill() -> None:
        while not ends.wait(0.4) and len(killed) < 6:
            for path in sorted(tmp_path.iterdir())[:1]:
                path.unlink()
                killed.append(path.name)
                os.kill(int(path.name), signal.SIGKILL)

    ds = data.range(60_000, override_num_blocks=40).map_batches(slow, max_retries=20)
    killer = threading.Thread(target=kill)
    killer.start()
    try:
        for seed in range(3):
            mixed = ds.random_shuffle(seed=seed).map_batches(slow, max_retries=20)
            assert sorted(column(mixed)) == list(range(60_000))
            assert column(mixed.sort("id")) == list(range(60_000))
    finally:
        ends.set()
        killer.join()
    assert killed
    at_rest()


def test_an_order_in_a_task() -> None:
    @mpi_runtime.remote
    def least(ds: data.Dataset) -> Any:
        return ds.sort("id", descending=True).take(2)

    assert mpi_runtime.get(least.remote(data.range(50))) == [{"id": 49}, {"id": 48}]
