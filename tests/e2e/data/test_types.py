"""Values of special types, and data sets without any: reductions, columns of objects and arrays, and their files."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any

import numpy
import pytest

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
pandas = pytest.importorskip("pandas")

from mpi_runtime import data  # noqa: E402
from mpi_runtime.data import columns  # noqa: E402
from mpi_runtime.data.aggregate import Mean, Std, Sum  # noqa: E402
from mpi_runtime.data.expressions import col  # noqa: E402

pytestmark = pytest.mark.usefixtures("job")
INIT = {"num_cpus": 2, "object_store_memory": 64_000_000}


def of(*values: object, blocks: int = 2) -> data.Dataset:
    return data.from_items([{"x": value, "n": n} for n, value in enumerate(values)], override_num_blocks=blocks)


def column(ds: data.Dataset, name: str = "x") -> list[Any]:
    return [row[name] for row in ds.take_all()]


def ragged() -> data.Dataset:
    """Arrays of several shapes, two in each block."""
    return of(*(numpy.full((2, 2 + n % 3), n, numpy.float32) for n in range(6)), blocks=3)


def test_reductions_of_large_integers_decimals_and_booleans() -> None:
    large = 2**62
    ds = of(large, large, 5, large)
    assert (ds.sum("x"), ds.max("x"), ds.min("x")) == (3 * large + 5, large, 5)
    assert ds.mean("x") == (3 * large + 5) / 4
    assert ds.std("x") == pytest.approx(large / 2)
    found = ds.aggregate(Sum("x"), Mean("x"), Std("x"))
    assert found == {"sum(x)": 3 * large + 5, "mean(x)": (3 * large + 5) / 4, "std(x)": pytest.approx(large / 2)}
    assert of(2**63 + 1, 1, None, 7).max("x") == 2**63 + 1
    money = of(Decimal("1.10"), Decimal("0.50"), None, Decimal("1.10"))
    assert (money.sum("x"), money.min("x"), money.mean("x")) == (Decimal("2.70"), Decimal("0.50"), Decimal("0.90"))
    assert money.std("x") == pytest.approx(0.12**0.5)
    assert of(True, False, None, True).sum("x") == 2
    assert of(True, False, True, True).mean("x") == 0.75


@pytest.mark.parametrize("kind", ["sum", "mean", "std"])
def test_what_cannot_be_added_is_an_error_in_words(kind: str) -> None:
    ds = of("b", None, "a", "b")
    assert (ds.min("x"), ds.max("x")) == ("a", "b")
    with pytest.raises(data.BlockError, match=rf"{kind}\(\) needs numbers, and the column 'x' has the type string"):
        getattr(ds, kind)("x")


def test_objects_have_missing_values_and_different_ones() -> None:
    ds = of(PurePosixPath("b"), PurePosixPath("a"), None, PurePosixPath("b"))
    assert ds.unique("x") == [PurePosixPath("b"), PurePosixPath("a"), None]
    assert column(ds.filter(expr=col("x").is_null())) == [None]
    assert column(ds.map_batches(lambda batch: batch)) == column(ds)
    names = of(uuid.UUID(int=1), uuid.UUID(int=2), None, uuid.UUID(int=1))
    assert column(names.map_batches(lambda batch: batch)) == column(names)


def test_blocks_of_objects_and_of_numbers_become_one() -> None:
    ds = of(1, "a", None, 1)
    assert column(ds.repartition(1)) == ds.to_pandas()["x"].tolist() == [1, "a", None, 1]
    assert [list(batch["x"]) for batch in ds.iter_batches(batch_size=4)] == [[1, "a", None, 1]]  # type: ignore[index]


def test_arrays_without_an_axis_are_values() -> None:
    assert column(of(numpy.array(3), numpy.array(2.5), blocks=1)) == [3, 2.5]


def test_arrays_of_several_shapes_pass_through_all_operations() -> None:
    wanted = [(2, 2 + n % 3) for n in range(6)]
    ds = ragged()
    for form in ("numpy", "pandas"):
        assert [one.shape for one in column(ds.map_batches(lambda batch: batch, batch_format=form))] == wanted
    assert [one.shape for one in column(ds.sort("n", descending=True))] == wanted[::-1]
    assert [one.shape for one in ds.to_pandas()["x"]] == wanted
    [batch] = ds.iter_batches(batch_size=6)
    assert [one.shape for one in batch["x"]] == wanted  # type: ignore[index]
    groups = ds.groupby("n").map_groups(lambda group: {"x": [str(group["x"][0].shape)]})
    assert column(groups) == list(map(str, wanted))


def test_a_process_that_begins_with_a_file_reads_its_arrays_and_objects(tmp_path: Path) -> None:
    """No other column of these types was in the process before."""
    values = [numpy.zeros((1, 2)), numpy.ones((2, 1))]
    table = pyarrow.table({"x": columns.of_values(values), "y": columns.of_values([PurePosixPath("a"), None])})
    parquet.write_table(table, tmp_path / "a.parquet")
    rows = data.read_parquet(str(tmp_path)).take_all()
    assert [row["x"].shape for row in rows] == [(1, 2), (2, 1)]
    assert [row["y"] for row in rows] == [PurePosixPath("a"), None]


def test_images_of_several_sizes_are_read_again(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    (tmp_path / "in").mkdir()
    for n, shape in enumerate([(4, 6, 3), (4, 6, 3), (3, 3, 3)]):
        pillow.fromarray(numpy.full(shape, n, numpy.uint8)).save(tmp_path / "in" / f"{n}.png")
    data.read_images(str(tmp_path / "in")).repartition(1).write_parquet(str(tmp_path / "out"))
    found = column(data.read_parquet(str(tmp_path / "out")), "image")
    assert sorted((one.shape, one.dtype, one.max()) for one in found) == [
        ((3, 3, 3), numpy.uint8, 2), ((4, 6, 3), numpy.uint8, 0), ((4, 6, 3), numpy.uint8, 1),
    ]  # fmt: skip


def test_integers_that_no_float_can_have_are_an_error_that_names_file_and_column(tmp_path: Path) -> None:
    for name, values in (("a", [2**53 + 1, 5]), ("b", [0.5])):
        parquet.write_table(pyarrow.table({"x": values, "y": values}), tmp_path / f"{name}.parquet")
    with pytest.raises(data.BlockValueError, match=r"a\.parquet has failed.*column 'x' has the type int64.*double"):
        data.read_parquet(str(tmp_path), columns=["x"]).take_all()


def test_a_zip_of_different_numbers_of_rows_is_an_error_for_count_too() -> None:
    ds = data.range(5).zip(data.range(4))
    for call in (ds.count, ds.take_all):
        with pytest.raises(ValueError, match="not 5 and 4"):
            call()
    assert data.range(5).zip(data.range(5)).count() == 5


NOTHING: list[Callable[[], data.Dataset]] = [
    lambda: data.from_items([]), lambda: data.range(0), lambda: data.range(5).limit(0),
    lambda: data.range(5).filter(lambda row: False), lambda: data.from_pandas(pandas.DataFrame()),
]  # fmt: skip


@pytest.mark.parametrize("make", NOTHING)
def test_no_rows_at_all(make: Callable[[], data.Dataset]) -> None:
    ds, others = make(), data.range(3)
    for made in (
        ds.select_columns("id"), ds.drop_columns("id"), ds.rename_columns({"id": "x"}), ds.filter(expr="id > 1"),
        ds.with_column("x", col("id") + 1), ds.add_column("x", lambda batch: batch["id"]), ds.sort("id"),
        ds.groupby("id").count(), ds.groupby("id").map_groups(lambda group: group), ds.repartition(2, keys=["id"]),
        ds.zip(ds), ds.join(others, "inner", 2, on=("id",)), ds.join(others, "left_outer", 2, on=("id",)),
    ):  # fmt: skip
        assert made.take_all() == []
    assert ds.sum("id") is ds.mean("id") is ds.max("id") is None
    assert ds.unique("id") == []
    for joined in (ds.join(others, "right_outer", 2, on=("id",)), others.join(ds, "left_outer", 2, on=("id",))):
        assert sorted(column(joined, "id")) == [0, 1, 2]
    assert data.range(0).columns() == ["id"]


def test_a_file_without_rows_does_not_hinder_others(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[]")
    (tmp_path / "b.json").write_text('[{"x": 1, "y": 2}]')
    (tmp_path / "c.json").write_text("")
    assert data.read_json(str(tmp_path / "c.json")).take_all() == []
    ds = data.read_json(str(tmp_path))
    assert ds.select_columns("x").take_all() == [{"x": 1}]
    assert ds.filter(expr="x == 1").drop_columns("y").take_all() == [{"x": 1}]


def test_groups_by_a_column_whose_name_is_empty() -> None:
    ds = data.from_items([{"": 1, "v": 2}, {"": 1, "v": 3}, {"": 2, "v": 4}])
    assert ds.groupby("").sum("v").take_all() == [{"": 1, "sum(v)": 5}, {"": 2, "sum(v)": 4}]


def test_functions_of_a_block_without_any_value() -> None:
    ds = of({"a": 1}, None)
    assert column(ds.with_column("y", col("x").struct.field("a")), "y") == [1, None]
    assert column(of("a", None).with_column("y", col("x").str.upper()), "y") == ["A", None]
    assert column(of(2**60, 1).with_column("y", col("x") / 2), "y") == [2.0**59, 0.5]


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    two = numpy.int64(2)
    ds = data.range(numpy.int64(10), override_num_blocks=1)
    assert ds.count() == 10
    assert ds.limit(two).count() == len(ds.take(two)) == 2
    assert ds.repartition(two).materialize().num_blocks() == 2
    assert [part.count() for part in ds.split(two)] == [5, 5]
    assert [part.count() for part in ds.train_test_split(two)] == [8, 2]
    assert [part.count() for part in ds.split_at_indices(numpy.array([3]).tolist())] == [3, 7]
    assert len(list(ds.iter_batches(batch_size=two))) == 5
    assert column(ds.map_batches(lambda batch: {"n": [len(batch["id"])]}, batch_size=two), "n") == [2] * 5
    assert ds.random_sample(numpy.float32(1)).count() == 10
    ds.write_parquet(str(tmp_path), max_rows_per_file=two)
    assert len(list(tmp_path.glob("*.parquet"))) == 5
    with pytest.raises(ValueError, match=r"not 2\.5"):
        ds.limit(2.5)  # type: ignore[arg-type]


def test_names_that_rows_cannot_have() -> None:
    ds = data.range(2, override_num_blocks=1)
    for wrong in (ds.map(lambda row: {1: row["id"]}), ds.map_batches(lambda batch: {1: batch["id"]})):  # type: ignore[dict-item]
        with pytest.raises(data.BlockValueError, match="the name of a column must be a string, not 1"):
            wrong.take_all()
    with pytest.raises(data.BlockValueError, match=r"must return a batch.*not Series"):
        ds.map_batches(lambda frame: frame["id"], batch_format="pandas").take_all()
    twice = pyarrow.Table.from_arrays([pyarrow.array([1]), pyarrow.array([2])], names=["a", "a"])
    ds = data.from_arrow(twice)
    for call in (ds.take_all, ds.map_batches(lambda batch: batch).take_all):
        with pytest.raises(ValueError, match="several columns have the name 'a'"):
            call()
    assert ds.rename_columns(["a", "b"]).take_all() == [{"a": 1, "b": 2}]


def test_an_index_with_a_name_is_a_column_also_if_it_is_a_range() -> None:
    ds = data.range(3, override_num_blocks=1)
    assert column(ds.map_batches(lambda frame: frame.set_index("id"), batch_format="pandas"), "id") == [0, 1, 2]
    frame = pandas.DataFrame({"x": [5, 6]}, index=pandas.RangeIndex(2, name="i"))
    assert data.from_pandas(frame).take_all() == [{"x": 5, "i": 0}, {"x": 6, "i": 1}]


def test_a_column_that_is_named_twice_in_an_order() -> None:
    assert column(data.range(3).sort(["id", "id"], descending=True), "id") == [2, 1, 0]
    assert data.range(2).groupby(["id", "id"]).count().take_all() == [{"id": 0, "count()": 1}, {"id": 1, "count()": 1}]
