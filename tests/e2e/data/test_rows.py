"""Data sets in a job: what transformations make of rows, and the forms in which rows are read."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

pytest.importorskip("pyarrow")
pandas = pytest.importorskip("pandas")
import pyarrow  # noqa: E402

from mpi_runtime import data  # noqa: E402
from mpi_runtime.errors import InfeasibleResourceError, TaskError  # noqa: E402

pytestmark = pytest.mark.usefixtures("job")


def ids(ds: data.Dataset) -> list[Any]:
    return [row["id"] for row in ds.take_all()]


def test_a_range() -> None:
    ds = data.range(1000, override_num_blocks=7)
    assert ds.count() == 1000
    assert ids(ds) == list(range(1000))
    assert ids(data.range(0)) == []
    assert data.range(5).schema() == data.Schema(pyarrow.schema([("id", pyarrow.int64())]))
    assert repr(ds) == "Dataset(num_rows=1000, schema=Unknown schema)"
    [first, *_] = data.range_tensor(3, shape=(2, 2)).take_all()
    assert first["data"].shape == (2, 2)


def test_items_of_any_kind() -> None:
    assert data.from_items([1, 2, 3]).take_all() == [{"item": 1}, {"item": 2}, {"item": 3}]
    assert data.from_items([{"a": 1}, {"a": None, "b": "x"}]).take_all() == [{"a": 1, "b": None}, {"a": None, "b": "x"}]
    values = [{1, 2}, lambda: 3, None, 1 << 80]
    rows = data.from_items(values).take_all()
    assert rows[0]["item"] == {1, 2}
    assert rows[1]["item"]() == 3  # type: ignore[operator]
    assert rows[3]["item"] == 1 << 80
    assert data.from_items([]).take_all() == []


def test_arrays_frames_and_tables() -> None:
    ds = data.from_numpy([numpy.ones((2, 3)), numpy.zeros((1, 3))])
    assert ds.num_blocks() == 2
    assert [row["data"].tolist() for row in ds.take_all()] == [[1, 1, 1], [1, 1, 1], [0, 0, 0]]
    frame = pandas.DataFrame({"a": [1, 2], "s": ["x", None], "n": [numpy.ones(2), numpy.ones(3)]})
    back = data.from_pandas(frame).to_pandas()
    assert back["a"].tolist() == [1, 2]
    assert [len(one) for one in back["n"]] == [2, 3]
    table = pyarrow.table({"a": [1, 2, 3]})
    assert data.from_arrow([table, table]).count() == 6
    assert data.from_arrow(table, override_num_blocks=3).num_blocks() == 3
    assert data.from_blocks([table, frame[["a"]]]).sum("a") == 9


def test_rows_are_mapped_filtered_and_multiplied() -> None:
    ds = data.range(20, override_num_blocks=3)
    squares = ds.map(lambda row: {"id": row["id"] ** 2})
    assert ids(squares) == [n * n for n in range(20)]
    assert ids(ds.filter(lambda row: row["id"] % 2 == 0)) == list(range(0, 20, 2))
    assert ids(ds.flat_map(lambda row: [row] * 2)) == sorted([*range(20), *range(20)])
    assert ids(ds.flat_map(lambda row: (row for _ in range(row["id"] % 2)))) == list(range(1, 20, 2))
    assert ids(ds.map(lambda row, n, k: {"id": row["id"] + n + k}, fn_args=(1,), fn_kwargs={"k": 2})) == list(
        range(3, 23)
    )
    nothing = ds.filter(lambda row: False)
    assert nothing.take_all() == []
    assert nothing.to_pandas().columns.tolist() == ["id"]


@pytest.mark.parametrize("form", ["numpy", "pandas", "pyarrow"])
def test_batches_have_the_form_and_the_size_that_is_asked_for(form: str) -> None:
    kinds = {"numpy": dict, "pandas": pandas.DataFrame, "pyarrow": pyarrow.Table}

    def check(batch: Any) -> Any:
        assert isinstance(batch, kinds[form])
        assert len(batch["id"]) <= 10
        return batch

    ds = data.range(100, override_num_blocks=4).map_batches(check, batch_size=10, batch_format=form)
    assert ids(ds) == list(range(100))


def test_a_batch_may_need_several_blocks_and_a_function_may_yield() -> None:
    def size(batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {"id": [len(batch["id"])]}
        yield {"id": numpy.array([0])}

    ds = data.range(100, override_num_blocks=20).materialize().map_batches(size, batch_size=50)
    assert ids(ds) == [50, 0, 50, 0]


def test_batches_can_be_written_into_unless_they_are_views() -> None:
    def add(batch: dict[str, Any]) -> dict[str, Any]:
        batch["id"] += 1
        return batch

    ds = data.range(4).materialize()
    assert ids(ds.map_batches(add)) == [1, 2, 3, 4]
    with pytest.raises(data.BlockError, match="read-only"):
        ids(ds.map_batches(add, zero_copy_batch=True))
    assert ids(ds) == [0, 1, 2, 3]


def test_columns() -> None:
    ds = data.from_items([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}])
    assert ds.columns() == ["a", "b"]
    assert ds.select_columns("b").take_all() == [{"b": "x"}, {"b": "y"}]
    assert ds.drop_columns(["b"]).take_all() == [{"a": 1}, {"a": 2}]
    assert ds.rename_columns({"a": "c"}).columns() == ["c", "b"]
    assert ds.rename_columns(["c", "d"]).columns() == ["c", "d"]
    assert ds.add_column("c", lambda frame: frame["a"] * 2).take(1) == [{"a": 1, "b": "x", "c": 2}]
    assert ds.add_column("a", lambda batch: 0, batch_format="numpy").sum("a") == 0
    with pytest.raises(data.BlockError, match="no such column in the dataset: z"):
        ds.rename_columns({"z": "y"}).take_all()


def test_a_limit_stops_what_would_make_more() -> None:
    ds = data.range(10_000, override_num_blocks=100).limit(150)
    assert ids(ds) == list(range(150))
    assert ds.count() == 150
    assert "100 " not in ds.stats()
    assert ids(data.range(100).limit(0)) == []
    assert ids(data.range(10).limit(100)) == list(range(10))
    assert ids(data.range(100, override_num_blocks=9).limit(50).map(lambda row: row).limit(33)) == list(range(33))
    assert data.range(100).take(3) == [{"id": 0}, {"id": 1}, {"id": 2}]
    with pytest.raises(ValueError, match="more than 3"):
        data.range(4).take_all(3)


def test_unions_and_repartitions() -> None:
    a = data.range(10, override_num_blocks=3)
    b = data.range(5).map(lambda row: {"id": row["id"] + 100})
    assert ids(a.union(b, a)) == [*range(10), *range(100, 105), *range(10)]
    assert a.union(b).count() == 15
    assert ids(a.union(a).limit(12)) == [*range(10), 0, 1]
    parts = a.repartition(4).materialize()
    assert parts.num_blocks() == 4
    assert ids(parts) == list(range(10))
    assert [len(batch["id"]) for batch in parts.iter_batches(batch_size=None)] == [2, 3, 2, 3]  # type: ignore[index]
    assert a.repartition(20).materialize().num_blocks() == 20
    of_size = data.range(100, override_num_blocks=1).repartition(target_num_rows_per_block=30).materialize()
    assert [block.rows for block in of_size._kept] == [30, 30, 30, 10]
    assert ids(of_size) == list(range(100))


def test_aggregates() -> None:
    ds = data.from_items([{"a": n, "s": str(n), "m": n if n % 2 else None} for n in range(10)], override_num_blocks=3)
    assert (ds.sum("a"), ds.min("a"), ds.max("a"), ds.mean("a")) == (45, 0, 9, 4.5)
    assert ds.std("a") == pytest.approx(numpy.std(range(10), ddof=1))
    assert ds.sum(["a", "m"]) == {"sum(a)": 45, "sum(m)": 25}
    assert ds.sum() == {"sum(a)": 45, "sum(m)": 25}
    assert ds.sum("m", ignore_nulls=False) is None
    assert ds.min("s") == "0"
    assert data.range(0).sum("id") is None
    assert data.range(10).filter(lambda row: False).mean("id") is None


def test_tensors_of_any_shape_pass_through() -> None:
    def grow(row: dict[str, Any]) -> dict[str, Any]:
        return {"image": numpy.full((row["id"] + 1, 2), row["id"], "uint8"), "flags": numpy.array([True, False])}

    ds = data.range(3, override_num_blocks=2).map(grow)
    assert [row["image"].shape for row in ds.take_all()] == [(1, 2), (2, 2), (3, 2)]
    batch: Any = ds.take_batch(3)
    assert batch["image"][2].tolist() == [[2, 2]] * 3
    assert batch["flags"].dtype == bool
    assert batch["flags"].shape == (3, 2)


def test_batches_for_a_loop() -> None:
    ds = data.range(100, override_num_blocks=7)
    batches: list[Any] = list(ds.iter_batches(batch_size=30))
    assert [len(batch["id"]) for batch in batches] == [30, 30, 30, 10]
    assert sorted(numpy.concatenate([batch["id"] for batch in batches])) == list(range(100))
    assert [len(batch["id"]) for batch in ds.iter_batches(batch_size=30, drop_last=True)] == [30] * 3  # type: ignore[index]
    shuffled: list[Any] = [
        number
        for batch in ds.iter_batches(batch_size=10, local_shuffle_buffer_size=40, local_shuffle_seed=1)
        for number in batch["id"].tolist()  # type: ignore[index]
    ]
    assert shuffled != sorted(shuffled)
    assert sorted(shuffled) == list(range(100))
    assert list(itertools.islice(ds.iter_rows(), 2)) == [{"id": 0}, {"id": 1}]
    [frame] = ds.iter_batches(batch_size=200, batch_format="pandas")
    assert isinstance(frame, pandas.DataFrame)


def test_a_class_has_an_instance_in_each_actor() -> None:
    class Add:
        def __init__(self, amount: int, times: int = 1) -> None:
            import os

            self.amount = amount * times
            self.pid = os.getpid()

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            return {"id": batch["id"] + self.amount, "pid": [self.pid] * len(batch["id"])}

    ds = data.range(100, override_num_blocks=20).map_batches(
        Add, fn_constructor_args=(5,), fn_constructor_kwargs={"times": 2}, concurrency=2, batch_size=5
    )
    rows = ds.take_all()
    assert [row["id"] for row in rows] == list(range(10, 110))
    assert len({row["pid"] for row in rows}) == 2
    growing = data.range(100, override_num_blocks=20).map_batches(Add, fn_constructor_args=(5,), concurrency=(1, 2))
    assert growing.count() == 100


def test_each_run_is_new_unless_the_data_set_was_materialized() -> None:
    import random

    ds = data.range(3).map(lambda row: {"n": random.random()})
    assert ds.take_all() != ds.take_all()
    kept = ds.materialize()
    assert kept.take_all() == kept.take_all()
    assert repr(kept).startswith("MaterializedDataset(num_blocks=1, num_rows=3, schema={n: double}")


def test_stats_name_the_stages() -> None:
    ds = data.range(10).map(lambda row: row).map_batches(lambda batch: batch, num_cpus=0.5)
    assert ds.stats() == ""
    ds.take_all()
    assert "range → map(<lambda>)" in ds.stats()
    assert "map_batches(<lambda>)" in ds.stats()


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda ds: ds.map(3), TypeError, "takes a function or a class"),
        (lambda ds: ds.map(lambda row: row, cpus=3), TypeError, "no argument cpus"),
        (lambda ds: ds.map(lambda row: row, concurrency=(1, 2)), ValueError, "concurrency"),
        (lambda ds: ds.map_batches(lambda batch: batch, batch_size=0), ValueError, "batch_size"),
        (lambda ds: ds.map_batches(lambda batch: batch, batch_format="x"), ValueError, "batch_format"),
        (lambda ds: ds.map(lambda row: row, fn_constructor_args=(1,)), ValueError, "for a class"),
        (lambda ds: ds.limit(1.5), ValueError, "limit"),
        (lambda ds: ds.map(str, ray_remote_args_fn={}), TypeError, "ray_remote_args_fn"),
        (lambda ds: ds.repartition(), ValueError, "num_blocks"),
        (lambda ds: ds.write_mongo("x"), AttributeError, "load them with"),
        (lambda ds: ds.nothing, AttributeError, "has no attribute 'nothing'"),
        (lambda ds: iter(ds), TypeError, "iter_rows"),
        (lambda ds: data.read_mongo("x"), AttributeError, "read_mongo is not here"),
        (lambda ds: data.range(-1), ValueError, "0 or more"),
    ],
)
def test_what_is_wrong_is_said_at_once(call: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        call(data.range(3))


def test_what_can_never_run_is_refused() -> None:
    with pytest.raises(InfeasibleResourceError):
        data.range(3).map(lambda row: row, num_gpus=1).take_all()


def test_a_failure_names_the_function_and_the_row() -> None:
    def divide(row: dict[str, Any]) -> dict[str, Any]:
        return {"id": 1 // (row["id"] - 7)}

    with pytest.raises(
        data.BlockError, match=r"map\(divide\) has failed at row 2 of range, rows 5 to 9: ZeroDivision"
    ) as info:
        data.range(10, override_num_blocks=2).map(divide).take_all()
    assert isinstance(info.value, TaskError)
    with pytest.raises(data.BlockValueError, match="must return a dictionary"):
        data.range(1).map(lambda row: 3).take_all()  # type: ignore[arg-type, return-value]
    with pytest.raises(data.BlockError, match="different lengths"):
        data.range(2).map_batches(lambda batch: {"a": [1], "b": [1, 2]}).take_all()


def test_blocks_that_fail_are_left_out_if_they_may() -> None:
    def fail(batch: dict[str, Any]) -> dict[str, Any]:
        if batch["id"][0] == 5:
            raise OSError("unreadable")
        return batch

    context = data.DataContext.get_current()
    ds = data.range(20, override_num_blocks=4).map_batches(fail)
    context.max_errored_blocks = 1
    try:
        assert ids(ds) == [*range(5), *range(10, 20)]
        assert "1 block left out" in ds.stats()
        with pytest.raises(data.BlockError, match="max_errored_blocks allows 1"):
            data.range(20, override_num_blocks=4).map(lambda row: 1 // 0).take_all()  # type: ignore[arg-type, return-value]
    finally:
        context.max_errored_blocks = 0


def test_rows_without_columns_are_counted_or_refused() -> None:
    """Nothing would keep their number on the way to another process: no row is lost in silence."""
    bare = data.range(10).select_columns([])
    assert bare.count() == 10
    assert data.range(10).filter(expr="id > 2").drop_columns(["id"]).count() == 7
    refusals: list[Callable[[], object]] = [
        bare.take_all,
        bare.materialize,
        bare.zip(data.range(10)).take_all,
        data.range(10).zip(bare).take_all,
        bare.add_column("x", lambda batch: 1).take_all,
        bare.map(lambda row: {"x": 1}).take_all,
        bare.map_batches(lambda batch: {"x": [1]}).take_all,
        data.range(10).map(lambda row: {}).take_all,
        data.range(10).flat_map(lambda row: [{}, {}]).count,
        data.range(10).map_batches(lambda table: table.select([]), batch_format="pyarrow").take_all,
    ]
    for refused in refusals:
        with pytest.raises(data.BlockValueError, match="rows need a column"):
            refused()
    with pytest.raises(ValueError, match="rows need a column"):
        data.from_items([{}, {}])
    with pytest.raises(ValueError, match="rows need a column"):
        data.from_arrow(pyarrow.table({"a": [1]}).select([]))
    assert data.range(10).map_batches(lambda batch: {}).count() == 0  # a batch of no rows
    assert data.from_items([]).count() == 0


def test_files_of_rows_without_columns(tmp_path: Path) -> None:
    data.range(10).write_parquet(str(tmp_path / "all"))
    assert data.read_parquet(str(tmp_path / "all"), columns=[]).count() == 10
    with pytest.raises(data.BlockValueError, match="rows need a column"):
        data.range(10).select_columns([]).write_parquet(str(tmp_path / "none"))
    assert not list((tmp_path / "none").iterdir())
