"""Texts of other writers: large ones, views, and dictionaries of them. The results are those of usual ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
import pyarrow as pa
from pyarrow import parquet

from mpi_runtime import data
from mpi_runtime.data.aggregate import CountDistinct, Max, Min, Unique
from mpi_runtime.data.expressions import col
from mpi_runtime.data.preprocessors import OrdinalEncoder

pytestmark = pytest.mark.usefixtures("job")
INIT = {"num_cpus": 2}
ROWS = 24
WORDS = ("b", "a", None, "c", "a", "d")
KINDS = {
    "large": pa.large_string(),
    "view": pa.string_view(),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
    "dictionary of large ones": pa.dictionary(pa.int8(), pa.large_string()),
}


def table(kind: pa.DataType, first: int = 0) -> pa.Table:
    words = pa.array([WORDS[i % len(WORDS)] for i in range(ROWS)])
    texts = words.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else words.cast(kind)
    return pa.table({"k": texts, "id": list(range(first, first + ROWS))})


def rows(ds: data.Dataset) -> list[str]:
    return sorted(map(repr, ds.take_all()))


def results(kind: pa.DataType, folder: Path) -> dict[str, Any]:
    """What each operation makes of texts of this type, of which it also gets usual ones."""
    usual = data.from_arrow(table(pa.string(), 100))
    few = data.from_arrow(table(pa.string()).slice(0, 6).rename_columns(["k", "other"]))
    folder.mkdir()
    own = table(kind)
    ds = data.from_arrow([own.slice(0, 13), own.slice(13)])
    both = ds.union(usual)
    known = ds.filter(expr=col("k").is_not_null())
    parquet.write_table(own, folder / "a.parquet")
    parquet.write_table(table(pa.string(), 100), folder / "b.parquet")
    files = data.read_parquet(str(folder))
    ds.write_csv(str(folder / "csv"))
    known.write_parquet(str(folder / "parts"), partition_cols=["k"])
    return {
        "numpy": [batch["k"].tolist() for batch in ds.iter_batches(batch_size=7)],  # type: ignore[index]
        "map_batches": rows(ds.map_batches(lambda batch: {"k": batch["k"]})),
        "join": rows(ds.join(few, "inner", 2, ("k",))) + rows(few.join(ds, "left_outer", 2, ("k",))),
        "join itself": rows(ds.join(data.from_arrow(own.rename_columns(["k", "other"])), "full_outer", 2, ("k",))),
        "union": [rows(both.random_shuffle(seed=1)), rows(both.repartition(3)), both.sort(["k", "id"]).take_all()],
        "files": [rows(files), files.sort("id").take_all(), files.groupby("k").count().take_all()],
        "groups": [both.groupby("k").count().take_all(), ds.groupby("id").max("k").take_all()],
        "map_groups": rows(ds.groupby("k").map_groups(lambda batch: {"k": batch["k"][:1], "n": [len(batch["id"])]})),
        "sort": ds.sort(["k", "id"], descending=True).take_all(),
        "unique": sorted(map(repr, ds.unique("k"))),
        "aggregate": ds.aggregate(Max("k"), Min("k"), CountDistinct("k"), Unique("k")),
        "bounds": [ds.max("k"), ds.min("k")],
        "stratify": [rows(part) for part in ds.train_test_split(0.25, stratify="k")],
        "expressions": rows(ds.with_column("z", col("k") + "x").filter(expr=col("k") == "a")),
        "zip": rows(ds.zip(data.from_arrow(own.rename_columns(["k2", "id2"])))),
        "csv": sorted(path.read_text() for path in (folder / "csv").iterdir()),
        "parts": rows(data.read_parquet(str(folder / "parts"))),
        "encoder": rows(OrdinalEncoder(["k"]).fit_transform(known)),
    }


@pytest.fixture(scope="module")
def wanted(_job: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return results(pa.string(), tmp_path_factory.mktemp("usual") / "in")


@pytest.mark.parametrize("kind", KINDS)
def test_results_are_those_of_usual_texts(kind: str, wanted: dict[str, Any], tmp_path: Path) -> None:
    """A missing value, of which numpy knows nothing in a dictionary, stays one."""
    found = results(KINDS[kind], tmp_path / "in")
    assert {name: value for name, value in found.items() if value != wanted[name]} == {}


def test_lists_of_views() -> None:
    values = pa.array([["b", None], ["a"], None], pa.list_(pa.string_view()))
    ds = data.from_arrow(pa.table({"x": values}))
    assert ds.map_batches(lambda batch: batch.take([1, 0, 2]), batch_format="pyarrow").take_all() == [
        {"x": ["a"]}, {"x": ["b", None]}, {"x": None},
    ]  # fmt: skip


def test_a_text_and_a_number_are_not_joined() -> None:
    """Not even as keys of two data sets, or in a sum."""
    ds = data.from_arrow(table(pa.large_string()))
    with pytest.raises(ValueError, match="Incompatible data types"):
        ds.join(data.from_arrow(pa.table({"k": [1, 2]})), "inner", 2, ("k",)).take_all()
    with pytest.raises(data.BlockError):
        ds.with_column("z", col("k") + col("id")).take_all()
