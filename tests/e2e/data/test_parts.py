"""Rows by their places or their keys: parts, samples, data sets side by side; columns of expressions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

pyarrow = pytest.importorskip("pyarrow")
pytest.importorskip("pandas")

from mpi_runtime import data  # noqa: E402
from mpi_runtime.data.aggregate import (  # noqa: E402
    AsList,
    MissingValuePercentage,
    Sum,
    ValueCounter,
    ZeroPercentage,
)
from mpi_runtime.data.datasource import names  # noqa: E402
from mpi_runtime.data.expressions import col, lit, udf  # noqa: E402

pytestmark = pytest.mark.usefixtures("job")
INIT = {"num_cpus": 2, "object_store_memory": 64_000_000}


def column(ds: data.Dataset, name: str = "id") -> list[Any]:
    return [row[name] for row in ds.take_all()]


@pytest.mark.parametrize("blocks", [1, 2, 7, 20])
def test_parts_are_in_the_order_of_rows(blocks: int) -> None:
    ds = data.range(20, override_num_blocks=blocks)
    for parts in (ds.split(3), ds.split_at_indices([0, 4, 20]), ds.split_proportionately([0.1, 0.3])):
        assert [row for part in parts for row in column(part)] == list(range(20))
    assert [part.count() for part in ds.split(3, equal=True)] == [6, 6, 6]
    assert [part.count() for part in ds.split(30)].count(0) == 10
    assert [part.count() for part in ds.split_at_indices([25, 30])] == [20, 0, 0]
    assert [part.count() for part in data.range(3).split_proportionately([0.01, 0.01])] == [1, 1, 1]


def test_a_part_without_rows_has_columns() -> None:
    nothing, all_ = data.range(5).split_at_indices([0])
    assert nothing.take_all() == []
    assert nothing.columns() == all_.columns() == ["id"]
    assert nothing.sort("id").take_all() == []
    assert data.range(0).split(2)[1].count() == 0


def test_parts_that_are_refused() -> None:
    ds = data.range(5)
    for wrong in (0, -1, 1.5):
        with pytest.raises(ValueError, match="split"):
            ds.split(wrong)  # type: ignore[arg-type]
    for places in ([], [-1], [3, 1]):
        with pytest.raises(ValueError, match="places"):
            ds.split_at_indices(places)
    for shares in ([], [0.0], [0.7, 0.3], [-0.1]):
        with pytest.raises(ValueError, match="parts"):
            ds.split_proportionately(shares)


def test_shares_of_a_column_are_the_same_in_training_and_test() -> None:
    ds = data.from_items([{"id": n, "label": "abc"[n % 3 if n < 30 else 0]} for n in range(60)], override_num_blocks=5)
    train, test = ds.train_test_split(0.2, stratify="label")
    assert {label: column(test, "label").count(label) for label in "abc"} == {"a": 8, "b": 2, "c": 2}
    assert sorted(column(train) + column(test)) == list(range(60))
    assert train.columns() == ["id", "label"]
    train, test = ds.train_test_split(30, stratify="label")
    assert test.count() == 30
    with pytest.raises(ValueError, match="either"):
        ds.train_test_split(0.2, stratify="label", shuffle=True)


@pytest.mark.parametrize(("blocks", "others"), [(1, 5), (4, 3), (5, 1), (10, 10)])
def test_data_sets_are_side_by_side(blocks: int, others: int) -> None:
    squares = data.range(10, override_num_blocks=others).map(lambda row: {"square": row["id"] ** 2, "id": -row["id"]})
    both = data.range(10, override_num_blocks=blocks).zip(squares)
    assert both.count() == 10
    assert both.take_all() == [{"id": n, "square": n**2, "id_1": -n} for n in range(10)]
    arrays = data.from_numpy(numpy.ones((10, 2, 2)))
    assert both.zip(arrays, arrays).take_batch(10)["data_1"].shape == (10, 2, 2)  # type: ignore[index]
    assert data.range(0).zip(data.range(0)).take_all() == []


def test_data_sets_of_different_lengths_are_not_joined() -> None:
    with pytest.raises(ValueError, match="not 3 and 4"):
        data.range(3).zip(data.range(4)).take_all()


def test_a_sample() -> None:
    ds = data.range(4000, override_num_blocks=8)
    first, again, other = (column(ds.random_sample(0.25, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert 800 < len(first) < 1200
    assert first == sorted(set(first))
    blocks = {row // 500 for row in first}
    assert blocks == set(range(8))
    offsets = [{row % 500 for row in first if row // 500 == block} for block in range(8)]
    assert offsets[0] != offsets[1]
    assert column(ds.random_sample(0.5)) != column(ds.random_sample(0.5))
    assert (ds.random_sample(0).count(), ds.random_sample(1).count()) == (0, 4000)
    with pytest.raises(TypeError, match="fraction"):
        ds.random_sample("half")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="fraction"):
        ds.random_sample(1.1)


def test_equal_keys_are_in_one_block() -> None:
    rows = [{"k": "ab"[n % 2] if n % 5 else None, "x": float(n % 3) if n % 2 else n % 3, "n": n} for n in range(60)]
    ds = data.from_items(rows, override_num_blocks=6)
    parts = ds.repartition(4, keys=["k", "x"], sort=True).materialize()
    assert parts.num_blocks() <= 4
    assert sorted(column(parts, "n")) == list(range(60))

    def keys(table: Any) -> Any:
        assert table.equals(table.sort_by([("k", "ascending"), ("x", "ascending")]))
        return {"keys": [repr(key) for key in {(str(row["k"]), float(row["x"])) for row in table.to_pylist()}]}

    found = column(parts.map_batches(keys, batch_size=None, batch_format="pyarrow"), "keys")
    assert len(found) == len(set(found)) == 9
    one = data.from_items([{"k": 1}, {"k": 1.0}], override_num_blocks=2).repartition(5, keys=["k"])
    sizes = one.map_batches(lambda batch: {"n": [len(batch["k"])]}, batch_size=None)
    assert column(sizes, "n") == [2]
    with pytest.raises(ValueError, match="no such column in the dataset: y"):
        ds.repartition(2, keys="y").take_all()


def test_more_reductions() -> None:
    ds = data.from_items([{"k": n % 2, "x": [0, 1, None, 1][n % 4]} for n in range(16)], override_num_blocks=5)
    found = ds.aggregate(MissingValuePercentage("x"), ZeroPercentage("x"), ZeroPercentage("x", ignore_nulls=False))
    assert found is not None
    assert list(found.values()) == [25.0, pytest.approx(100 / 3), 25.0]
    rows = ds.groupby("k").aggregate(AsList("x"), ValueCounter("x")).take_all()
    assert [sorted(row["list(x)"], key=str) for row in rows] == [[0] * 4 + [None] * 4, [1] * 8]  # type: ignore[call-overload]
    assert [row["value_counter(x)"] for row in rows] == [
        {"values": [0], "counts": [4]}, {"values": [1], "counts": [8]},
    ]  # fmt: skip
    lists = data.from_items([{"x": numpy.ones(2)}, {"x": numpy.zeros(2)}], override_num_blocks=2)
    found = lists.aggregate(AsList("x"))
    assert found is not None
    assert [one.tolist() for one in found["list(x)"]] == [[1, 1], [0, 0]]


def test_a_column_that_is_not_there_is_a_value_error_and_a_block_error() -> None:
    ds = data.range(10)
    calls: list[Callable[[], object]] = [
        ds.sort("y").take_all, ds.groupby("y").count().take_all, ds.groupby("id").sum("y").take_all,
        lambda: ds.unique("y"), lambda: ds.sum("y"), lambda: ds.aggregate(Sum("y")),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ValueError, match=r"no such column in the dataset: y\. It has"):
            call()
    with pytest.raises(data.BlockValueError):
        ds.groupby("y").count().take_all()
    with pytest.raises(data.BlockError):
        ds.groupby("y").count().take_all()


def test_expressions() -> None:
    ds = data.from_items([{"a": n, "b": None if n == 2 else n / 2, "t": f"x{n}"} for n in range(4)])
    made = {
        "sum": 1 + col("a") * 2, "share": col("a") / 2, "floor": col("a") // 2, "rest": (col("a") - 3) % 2,
        "upper": col("t").str.upper(), "length": col("t").str.len(), "is": (col("a") > 0) & ~col("b").is_null(),
        "one": lit("x"), "negative": -col("a"), "root": col("a").power(2), "text": col("a").cast(pyarrow.string()),
    }  # fmt: skip
    rows = ds.with_columns(made).take_all()
    assert [list(row.values())[3:] for row in rows] == [
        [1, 0.0, 0, 1, "X0", 2, False, "x", 0, 0, "0"],
        [3, 0.5, 0, 0, "X1", 2, True, "x", -1, 1, "1"],
        [5, 1.0, 1, 1, "X2", 2, False, "x", -2, 4, "2"],
        [7, 1.5, 1, 0, "X3", 2, True, "x", -3, 9, "3"],
    ]
    again = ds.with_column("a", col("a") + 1).with_column("a", col("a") * 10)
    assert column(again, "a") == [10, 20, 30, 40]
    assert again.count() == 4
    assert column(ds.filter(expr=(col("a") >= 1) & (col("t") != "x3")), "a") == [1, 2]
    assert column(ds.filter(expr=col("a").is_in([0, 3]) | col("b").is_null()), "a") == [0, 2, 3]
    assert column(ds.filter(expr=col("a").not_in([0]) & col("b").is_not_null()), "a") == [1, 3]


def test_expressions_of_functions_times_and_lists() -> None:
    @udf()
    def doubled(values: Any) -> Any:
        return [value.as_py() * 2 for value in values]

    table = pyarrow.table({"when": pyarrow.array([0], pyarrow.timestamp("s")), "l": [[1, 2, 3]], "n": [4]})
    ds = data.from_arrow(table).with_columns(
        {"year": col("when").dt.year(), "length": col("l").list.len(), "twice": doubled(col("n"))}
    )
    assert list(ds.take(1)[0].values())[3:] == [1970, 3, 8]


def test_expressions_that_are_refused() -> None:
    ds = data.range(3)
    with pytest.raises(TypeError, match="no truth"):
        bool(col("id") > 1)
    with pytest.raises(AttributeError, match="map_batches"):
        col("id").explode()
    with pytest.raises(AttributeError, match=r"pyarrow\.compute"):
        col("id").str.no_such_function()
    with pytest.raises(TypeError, match="expression"):
        ds.with_column("x", 5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no such column in the dataset: y"):
        ds.filter(expr=col("y") > 1).take_all()


def test_another_expression_has_files_of_its_own(tmp_path: Path) -> None:
    ds = data.range(3, override_num_blocks=1)
    for factor in (1, 2, 2):
        names._written.clear()  # as in another run
        ds.with_column("x", col("id") * factor).write_csv(str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 2


def test_blocks_with_exactly_so_many_rows() -> None:
    ds = data.range(23, override_num_blocks=5).repartition(target_num_rows_per_block=4, strict=True)
    assert [block.rows for block in ds.materialize()._kept] == [4, 4, 4, 4, 4, 3]
    assert [row["id"] for row in ds.take_all()] == list(range(23))
    assert data.range(3).repartition(target_num_rows_per_block=40, strict=True).count() == 3
    assert data.range(3).filter(expr="id > 5").repartition(target_num_rows_per_block=4, strict=True).columns() == ["id"]
    assert data.from_items([]).schema() is None
    for empty in (data.range(0), data.from_items([])):
        assert empty.repartition(3).take_all() == []
        assert empty.repartition(target_num_rows_per_block=4, strict=True).take_all() == []


def test_bytes_of_a_data_set_that_is_not_stored() -> None:
    assert data.range(1000, override_num_blocks=3).size_bytes() == 8000
    assert data.range(10).filter(expr="id < 0").size_bytes() == 0


def test_settings_for_a_while() -> None:
    others = data.DataContext.get_current().copy()
    with data.DataContext.current(others):
        assert data.DataContext.get_current() is others
    assert data.DataContext.get_current() is not others
    others.retried_io_errors.append("x")
    assert data.DataContext().retried_io_errors == []
