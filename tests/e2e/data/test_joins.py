"""Joins, blocks as references, and a few arguments of transformations."""

from __future__ import annotations

import random
from typing import Any

import numpy
import pytest

pytest.importorskip("pyarrow")
pandas = pytest.importorskip("pandas")

import pyarrow  # noqa: E402

import mpi_runtime  # noqa: E402
from mpi_runtime import data  # noqa: E402
from mpi_runtime.data.expressions import col  # noqa: E402

pytestmark = pytest.mark.usefixtures("job")
HOW = {"inner": "inner", "left_outer": "left", "right_outer": "right", "full_outer": "outer"}


def rows_of(ds: data.Dataset) -> list[str]:
    return sorted(str(sorted(row.items())) for row in ds.take_all())


@pytest.mark.parametrize("kind", HOW)
@pytest.mark.parametrize(("blocks", "parts"), [(1, 1), (7, 3), (3, 40)])
def test_a_join_has_the_rows_that_pandas_finds(kind: str, blocks: int, parts: int) -> None:
    chance = random.Random(blocks)
    left = [{"k": chance.randrange(20), "t": str(n % 3), "a": n} for n in range(60)]
    right = [{"k": chance.randrange(30), "t": str(n % 4), "b": n / 2} for n in range(50)]
    sides = [data.from_items(rows, override_num_blocks=blocks) for rows in (left, right)]
    found = sides[0].join(sides[1], kind, parts, on=("k", "t"))
    merged = pandas.DataFrame(left).merge(pandas.DataFrame(right), on=["k", "t"], how=HOW[kind])
    wanted = merged.astype(object).where(merged.notna(), None).to_dict("records")
    assert sorted(map(repr, map(_plain, found.take_all()))) == sorted(map(repr, map(_plain, wanted)))
    assert found.materialize().num_blocks() <= parts


def _plain(row: dict[str, Any]) -> list[object]:
    return [None if value is None else float(value) for value in map(row.get, ("k", "t", "a", "b"))]


def test_rows_with_others_and_without() -> None:
    left = data.from_items([{"k": n, "a": n} for n in (1, 2, 2, 3, None)], override_num_blocks=3)
    right = data.from_items([{"k": n, "b": n} for n in (2, 3, 3, 4)], override_num_blocks=2)

    def keys(kind: str) -> list[Any]:
        rows: list[Any] = left.join(right, kind, 4, on=["k"]).take_all()
        return sorted(row["k"] or 0 for row in rows)

    assert keys("left_semi") == [2, 2, 3]
    assert keys("right_semi") == [2, 3, 3]
    assert keys("left_anti") == [0, 1]
    assert keys("right_anti") == [4]


def test_a_side_without_rows() -> None:
    left, right = data.from_items([{"k": 1, "a": 2}]), data.from_items([{"k": 1, "b": 3}])
    none = right.filter(lambda row: False)
    assert left.join(none, "inner", 2, on=("k",)).take_all() == []
    assert left.join(none, "left_outer", 2, on=("k",)).take_all() == [{"k": 1, "a": 2, "b": None}]
    assert none.join(left, "full_outer", 2, on=("k",)).take_all() == [{"k": 1, "b": None, "a": 2}]


def test_columns_are_in_the_order_of_the_sides() -> None:
    left = data.from_items([{"a": 1, "k": 2, "c": 3, "l": 4}])
    right = data.from_items([{"d": 5, "m": 4, "n": 2, "e": 6}])

    def joined(kind: str) -> list[tuple[str, object]]:
        [row] = left.join(right, kind, 2, on=("k", "l"), right_on=("n", "m")).take_all()
        return list(row.items())

    wanted = [("a", 1), ("k", 2), ("c", 3), ("l", 4), ("d", 5), ("e", 6)]
    assert joined("inner") == joined("left_outer") == joined("full_outer") == wanted
    assert joined("right_outer") == [("a", 1), ("c", 3), ("d", 5), ("m", 4), ("n", 2), ("e", 6)]
    assert joined("right_semi") == [("d", 5), ("m", 4), ("n", 2), ("e", 6)]


def test_arrays_and_objects_are_joined() -> None:
    left = data.from_items([{"k": n, "image": numpy.full((2, 2), n), "o": complex(n)} for n in range(3)])
    right = data.from_items([{"key": n, "text": [str(n)] * n} for n in (1, 2, 5)])
    joined = left.join(right, "full_outer", 2, on=("k",), right_on=("key",))
    outer: dict[Any, Any] = {row["k"]: row for row in joined.take_all()}
    assert [None if outer[k]["image"] is None else outer[k]["image"].sum() for k in (0, 2, 5)] == [0, 8, None]
    assert (outer[0]["text"], outer[5]["o"]) == (None, None)
    rows: list[Any] = left.join(right, "inner", 3, on=("k",), right_on=("key",)).sort("k").take_all()
    assert [(row["k"], row["image"].tolist(), row["o"], row["text"]) for row in rows] == [
        (1, [[1, 1], [1, 1]], complex(1), ["1"]), (2, [[2, 2], [2, 2]], complex(2), ["2", "2"]),
    ]  # fmt: skip


def test_a_join_with_itself_needs_suffixes() -> None:
    ds = data.from_items([{"k": n, "a": n, "b": n} for n in range(4)]).materialize()
    joined = ds.join(ds, "inner", 2, on=("k",), left_suffix="_l", right_suffix="_r").sort("k")
    assert joined.take(1) == [{"k": 0, "a_l": 0, "b_l": 0, "a_r": 0, "b_r": 0}]
    assert joined.take(1) == [{"k": 0, "a_l": 0, "b_l": 0, "a_r": 0, "b_r": 0}]
    assert ds.count() == 4
    with pytest.raises(data.BlockError, match="cannot be both None"):
        ds.join(ds, "inner", 2, on=("k",)).take_all()


def test_joins_that_are_refused() -> None:
    ds = data.range(3)
    for given, match in (
        ({"on": "id"}, "Expected tuple or list as `on`"), ({"right_on": "id"}, "as `right_on`"),
        ({"join_type": "cross"}, "join_type must be"), ({"num_partitions": 0}, "num_partitions"),
        ({"on": ()}, "as many keys"), ({"right_on": ("id", "x")}, "as many keys"), ({"on": ("id", "id")}, "unique"),
        ({"on": ("x",), "validate_schemas": True}, "Key columns"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=match):
            ds.join(ds, **{"join_type": "inner", "num_partitions": 2, "on": ("id",), **given})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no such column in the dataset: x"):
        ds.join(ds, "inner", 2, on=("x",)).take_all()


def test_blocks_are_references() -> None:
    ds = data.range(10, override_num_blocks=3)
    assert [len(table) for table in mpi_runtime.get(ds.to_arrow_refs())] == [3, 3, 4]
    assert pandas.concat(mpi_runtime.get(ds.to_pandas_refs()))["id"].tolist() == list(range(10))
    batches: list[Any] = mpi_runtime.get(ds.to_numpy_refs())
    assert [list(batch) for batch in batches] == [["id"]] * 3
    assert numpy.concatenate(mpi_runtime.get(ds.to_numpy_refs(column="id"))).tolist() == list(range(10))
    table = pyarrow.table({"a": [1, 2]})
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    refs = [mpi_runtime.put(table), mpi_runtime.put(sink.getvalue().to_pybytes())]
    made: Any = data.from_arrow_refs(refs)
    del refs
    assert [row["a"] for row in made.take_all()] == [1, 2, 1, 2]
    assert (made.num_blocks(), made.count()) == (2, 4)
    assert data.from_pandas_refs(mpi_runtime.put(table.to_pandas())).take(1) == [{"a": 1}]
    arrays: list[Any] = data.from_numpy_refs([mpi_runtime.put(numpy.zeros((1, 3)))]).take_all()
    assert arrays[0]["data"].shape == (3,)
    with pytest.raises(ValueError, match="from_arrow_refs must return a batch"):
        data.from_arrow_refs(mpi_runtime.put(5))


def test_groups_have_columns_of_their_rows() -> None:
    ds = data.from_items([{"g": n % 2, "v": n} for n in range(4)])
    assert ds.groupby("g").with_column("twice", col("v") * 2).sort("v").take(2) == [
        {"g": 0, "v": 0, "twice": 0}, {"g": 1, "v": 1, "twice": 2},
    ]  # fmt: skip
    assert repr(ds.groupby("g")) == f"GroupedData(dataset={ds!r}, key='g')"


def test_blocks_of_a_sort_begin_with_keys() -> None:
    ds = data.from_items(random.Random(1).sample(range(20), 20), override_num_blocks=3)
    found = ds.sort("item", boundaries=[12, 5])
    assert [len(batch["item"]) for batch in found.iter_batches(batch_size=None)] == [5, 7, 8]  # type: ignore[index]
    assert [row["item"] for row in found.take_all()] == list(range(20))
    down = ds.sort("item", descending=True, boundaries=[5, 12])
    assert [row["item"] for row in down.take_all()] == list(range(20))[::-1]
    with pytest.raises(ValueError, match="needs one column"):
        ds.sort(["item", "x"], boundaries=[1])


def test_a_data_set_may_have_a_name() -> None:
    ds = data.range(3)
    assert ds.name is None
    ds.set_name("numbers")
    assert ds.name == "numbers"
