"""Columns that some blocks lack: their values are missing there, and a column that no block has is an error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from mpi_runtime import data
from mpi_runtime.data.aggregate import Count, Sum, Unique

pytestmark = pytest.mark.usefixtures("job")
INIT = {"num_cpus": 2, "object_store_memory": 64_000_000}
FIRST: list[dict[str, object]] = [{"a": 1, "b": 10}, {"a": 2, "b": 20}]
SECOND: list[dict[str, object]] = [{"a": 3, "c": 30}, {"a": 4, "c": 40}]
Make = Callable[[Path], data.Dataset]


def of_csv(folder: Path) -> data.Dataset:
    for name, rows in (("1", FIRST), ("2", SECOND)):
        lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return data.read_csv(str(folder))


def of_json(folder: Path) -> data.Dataset:
    for name, rows in (("1", FIRST), ("2", SECOND)):
        (folder / f"{name}.json").write_text("\n".join(map(json.dumps, rows)) + "\n")
    return data.read_json(str(folder))


def of_items(folder: Path) -> data.Dataset:
    return data.from_items([*FIRST, *SECOND], override_num_blocks=2)


def of_union(folder: Path) -> data.Dataset:
    return data.from_items(SECOND).union(data.from_items(FIRST))


@pytest.mark.parametrize("make", [of_csv, of_json, of_items, of_union])
def test_reductions_find_missing_values_where_a_block_lacks_a_column(tmp_path: Path, make: Make) -> None:
    ds = make(tmp_path)
    assert (ds.sum("b"), ds.mean("c"), ds.min("b"), ds.max("c")) == (30, 35.0, 10, 40)
    assert ds.std("c") == pytest.approx(50**0.5)
    assert ds.sum(["b", "c", "a"]) == {"sum(b)": 30, "sum(c)": 70, "sum(a)": 10}
    assert ds.sum("b", ignore_nulls=False) is ds.mean("c", ignore_nulls=False) is None
    assert ds.sum(ignore_nulls=False) == {"sum(a)": 10, "sum(b)": None, "sum(c)": None}
    assert sorted(ds.unique("b"), key=str) == [10, 20, None]
    assert ds.aggregate(Count("b", ignore_nulls=True), Sum("c")) == {"count(b)": 2, "sum(c)": 70}
    groups = ds.groupby("a").sum("c").take_all()
    assert [row["sum(c)"] for row in groups] == [None, None, 30, 40]
    assert ds.groupby("b").count().take_all() == [
        {"b": 10, "count()": 1}, {"b": 20, "count()": 1}, {"b": None, "count()": 2},
    ]  # fmt: skip
    assert ds.groupby(["c", "b"]).aggregate(Unique("a")).count() == 4


@pytest.mark.parametrize("make", [of_csv, of_json, of_items, of_union])
def test_rows_that_lack_a_key_have_a_missing_one(tmp_path: Path, make: Make) -> None:
    ds = make(tmp_path)
    assert [row["b"] for row in ds.sort("b", descending=True).take_all()] == [20, 10, None, None]
    assert [row["c"] for row in ds.sort("c", boundaries=[35]).take_all()] == [30, 40, None, None]
    sizes = ds.groupby("b").map_groups(lambda group: {"b": group["b"][:1], "n": [len(group["a"])]})
    assert [row["n"] for row in sizes.take_all()] == [1, 1, 2]
    parts = ds.repartition(3, keys=["b"], sort=True).take_all()
    assert sorted(str(row.get("b")) for row in parts) == ["10", "20", "None", "None"]


@pytest.mark.parametrize("make", [of_csv, of_json, of_items, of_union])
def test_a_join_keeps_all_columns_and_rows(tmp_path: Path, make: Make) -> None:
    ds, other = make(tmp_path), data.from_items([{"b": 10, "x": 1}])
    assert ds.join(other, "inner", 2, on=("b",)).take_all() == [{"a": 1, "b": 10, "c": None, "x": 1}]
    left = sorted(ds.join(other, "left_outer", 2, on=("b",)).take_all(), key=lambda row: str(row["a"]))
    assert [(row["a"], row["b"], row["c"], row["x"]) for row in left] == [
        (1, 10, None, 1), (2, 20, None, None), (3, None, 30, None), (4, None, 40, None),
    ]  # fmt: skip
    right = other.join(ds, "full_outer", 2, on=("b",)).take_all()
    assert sorted((row["a"] or 0, row["c"] or 0) for row in right) == [(1, 0), (2, 0), (3, 30), (4, 40)]


def test_a_column_that_no_block_has_is_an_error_that_names_all_columns(tmp_path: Path) -> None:
    ds = of_items(tmp_path)
    calls: list[Callable[[], object]] = [
        lambda: ds.sum("y"), lambda: ds.unique("y"), lambda: ds.aggregate(Count("y")), ds.sort("y").take_all,
        ds.sort("y", boundaries=[1]).take_all, ds.groupby("y").count().take_all, ds.groupby("a").max("y").take_all,
        ds.groupby(None).max("y").take_all, ds.repartition(2, keys=["y"]).take_all,
        ds.join(ds, "inner", 2, on=("y",)).take_all,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(data.BlockValueError, match=r"no such column in the dataset: y\. It has \['a', 'b', 'c'\]"):
            call()
    for ds in (data.from_items([]), data.range(5).filter(expr="id > 9")):
        assert ds.sum("y") is ds.mean("y") is None


def test_functions_of_one_block_say_that_others_may_have_its_column(tmp_path: Path) -> None:
    ds = of_items(tmp_path)
    for wrong in (ds.select_columns("b"), ds.drop_columns("b"), ds.rename_columns({"b": "z"}), ds.filter(expr="b > 1")):
        with pytest.raises(data.BlockValueError, match=r"dataset: b\. It has \['a', 'c'\]. If other files or blocks"):
            wrong.take_all()
