"""Conditions in texts, and files that are divided by values of columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mpi_runtime import data
from mpi_runtime.data.datasource import names

pytestmark = pytest.mark.usefixtures("job")

ROWS = [{"id": i, "kind": "ab"[i % 2], "x": None if i == 3 else i / 2} for i in range(6)]


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("id > 3", [4, 5]),
        ("3 < id", [4, 5]),
        ("id == 1 or id == 2 and kind == 'a'", [1, 2]),
        ("not (id > 0)", [0]),
        ("kind in ['a'] and id not in (0, 2)", [4]),
        ("id in [-1, 5]", [5]),
        ("id * 2 - 1 >= x * 4 and -id < -4", []),
        ("id + 1 > 5", [5]),
        ("is_null(x)", [3]),
        ("is_not_null(x) & (id // 2 == 1) | (id % 5 == 4)", [2, 4]),
        ("is_in(id, [1, 7])", [1]),
        ("is_valid(x) and x / 2 > 1", [5]),
    ],
)
def test_a_condition(condition: str, ids: list[int]) -> None:
    assert [row["id"] for row in data.from_items(ROWS).filter(expr=condition).take_all()] == ids


def test_a_column_with_points_in_its_name() -> None:
    ds = data.from_items([{"size.of.leaf": 1}, {"size.of.leaf": 2}])
    assert ds.filter(expr="size.of.leaf > 1").take_all() == [{"size.of.leaf": 2}]


def test_an_expression_of_pyarrow() -> None:
    ds = data.from_items(ROWS).filter(expr=(pc.field("id") > 1) & ~pc.field("kind").isin(["a"]))
    assert [row["id"] for row in ds.take_all()] == [3, 5]


@pytest.mark.parametrize(
    "wrong", ["id >", "open(id)", "1 < id < 4", "[id]", "open(id).real > 1", "id ** 2 > 1", "is_in(id)"]
)
def test_what_is_no_condition(wrong: str) -> None:
    with pytest.raises(ValueError, match="filter"):
        data.from_items(ROWS).filter(expr=wrong)


def test_arguments_that_filter_refuses() -> None:
    ds = data.range(3)
    with pytest.raises(ValueError, match="must be a UserDefinedFunction"):
        ds.filter(fn="id > 1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="takes no fn_args"):
        ds.filter(expr="id > 1", fn_args=(1,))
    with pytest.raises(TypeError, match="a text or an expression"):
        ds.filter(expr=5)


def test_a_function_or_an_expression() -> None:
    ds = data.from_items(ROWS)
    for given in ((), (bool, "id > 1")):
        with pytest.raises(ValueError, match="Exactly one of"):
            ds.filter(*given)
    with pytest.raises(data.BlockError, match=r"filter\(\(col\('missing'\) > 1\)\)"):
        ds.filter(expr="missing > 1").take_all()


@pytest.mark.parametrize(
    "names", [["id", "id"], [1]], ids=str
)  # fmt: skip
def test_names_of_columns(names: list[str]) -> None:
    ds = data.from_items(ROWS)
    for call in (ds.select_columns, ds.drop_columns, ds.rename_columns):
        with pytest.raises(ValueError, match="expects unique column names, strings"):
            call(names)
    with pytest.raises(ValueError, match="expects unique column names, strings"):
        ds.rename_columns({"id": "a", "x": "a"})


def test_directories_by_columns(tmp_path: Path) -> None:
    rows = [{"id": i, "year": 2023 + i % 2, "kind": ("a b/c", None)[i // 2 % 2]} for i in range(8)]
    ds = data.from_items(rows, override_num_blocks=2)
    for _ in range(2):  # a second run replaces the files of the first
        names._written.clear()
        ds.write_parquet(str(tmp_path / "out"), partition_cols=["year", "kind"])
        files = sorted(str(name.relative_to(tmp_path / "out").parent) for name in tmp_path.rglob("*.parquet"))
        assert sorted(set(files)) == [
            f"year={year}/kind={kind}" for year in (2023, 2024) for kind in ("__HIVE_DEFAULT_PARTITION__", "a%20b%2Fc")
        ]
        found = sorted(data.read_parquet(str(tmp_path / "out")).take_all(), key=by_id)
        assert found == [{**row, "year": str(row["year"])} for row in rows]
    assert pq.ParquetFile(next(tmp_path.rglob("*.parquet"))).schema_arrow.names == ["id"]
    data.from_items(rows[:2]).write_parquet(str(tmp_path / "out"), partition_cols=["year", "kind"], mode="overwrite")
    assert data.read_parquet(str(tmp_path / "out")).count() == 2
    assert data.read_parquet(str(tmp_path / "out"), columns=["id"]).columns() == ["id"]
    with pytest.raises(data.BlockError, match="needs a column beside"):
        data.range(3).write_parquet(str(tmp_path / "no"), partition_cols=["id"])


def by_id(row: dict[str, Any]) -> int:
    return int(row["id"])


def scaled(batch: dict[str, Any], factor: int) -> dict[str, Any]:
    return {"id": batch["id"] * factor}


def test_other_arguments_are_another_data_set(tmp_path: Path) -> None:
    def added(number: int) -> data.Dataset:
        return data.range(2, override_num_blocks=1).map(lambda row: {"id": row["id"] + number})

    ds = data.range(2, override_num_blocks=1)
    made = [
        added(10), added(20), ds.map_batches(scaled, fn_args=[3]), ds.map_batches(scaled, fn_kwargs={"factor": 4}),
        ds.filter(expr="id == 0"), ds.filter(expr="id == 1"),
    ]  # fmt: skip
    for _ in range(2):
        names._written.clear()  # as in another run
        for one in made:
            one.write_csv(str(tmp_path))
        assert sorted(map(by_id, data.read_csv(str(tmp_path)).take_all())) == [
            0,
            0,
            0,
            1,
            3,
            4,
            10,
            11,
            20,
            21,
        ]


def test_a_whole_data_set_in_a_task() -> None:
    import mpi_runtime

    ds = data.range(10).filter(expr="id >= 5")
    assert mpi_runtime.get(mpi_runtime.remote(lambda ds: ds.count()).remote(ds)) == 5
