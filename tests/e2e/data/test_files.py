"""Files that are read and written."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy
import pytest

pytest.importorskip("pyarrow")
pandas = pytest.importorskip("pandas")
image = pytest.importorskip("PIL.Image")
import pyarrow  # noqa: E402
import pyarrow.csv  # noqa: E402
import pyarrow.fs  # noqa: E402
from pyarrow import parquet  # noqa: E402

from mpi_runtime import data  # noqa: E402
from mpi_runtime.data.datasource import names  # noqa: E402
from mpi_runtime.data.files import formats, writing  # noqa: E402

pytestmark = pytest.mark.usefixtures("job")


def numbers(folder: Path, count: int = 4, rows: int = 25) -> None:
    for i in range(count):
        table = pyarrow.table({"id": range(i * rows, (i + 1) * rows), "text": [f"row {n}" for n in range(rows)]})
        parquet.write_table(table, folder / f"{i}.parquet", row_group_size=10)


def ids(ds: data.Dataset, name: str = "id") -> list[Any]:
    return sorted(row[name] for row in ds.take_all())


def test_parquet(tmp_path: Path) -> None:
    numbers(tmp_path)
    ds = data.read_parquet(str(tmp_path))
    assert ds.count() == 100
    assert ds.input_files() == [str(tmp_path / f"{i}.parquet") for i in range(4)]
    assert [row["id"] for row in ds.take_all()] == list(range(100))
    assert ids(data.read_parquet(str(tmp_path / "[01].parquet"))) == list(range(50))
    assert ids(data.read_parquet([str(tmp_path / "2.parquet"), tmp_path / "0.parquet"])) == [*range(25), *range(50, 75)]
    assert data.read_parquet(str(tmp_path), columns=["text"]).columns() == ["text"]
    even = data.read_parquet(str(tmp_path), filter=pyarrow.compute.field("id") < 7)
    assert even.count() == 7
    named = data.read_parquet(str(tmp_path), include_paths=True).take(1)[0]
    assert named["path"] == str(tmp_path / "0.parquet")


def test_files_of_parquet_with_different_columns(tmp_path: Path) -> None:
    """As recorded on Ray 2.60."""
    tables: list[dict[str, Any]] = [
        {"a": [1, 2], "b": [1, 2]},
        {"b": [1.5], "a": [3], "c": ["x"]},
        {"a": [None], "b": [None]},
    ]
    for number, columns in enumerate(tables):
        parquet.write_table(pyarrow.table(columns), tmp_path / f"{number}.parquet")
    ds = data.read_parquet(str(tmp_path))
    assert ds.take_all() == [
        {"a": 1, "b": 1.0, "c": None},
        {"a": 2, "b": 2.0, "c": None},
        {"a": 3, "b": 1.5, "c": "x"},
        {"a": None, "b": None, "c": None},
    ]
    schema = ds.schema()
    assert schema is not None
    assert list(map(str, schema.types)) == ["int64", "double", "string"]
    assert (ds.sum("b"), ds.count()) == (4.5, 4)
    assert ds.unique("b") == [1.0, 2.0, 1.5, None]
    assert [row["a"] for row in ds.sort("b").take_all()] == [1, 3, 2, None]
    assert [row["c"] for row in data.read_parquet(str(tmp_path), columns=["c"]).take_all()] == [None, None, "x", None]
    kept = data.read_parquet(str(tmp_path), filter=pyarrow.compute.field("c") == "x")
    assert kept.take_all() == [{"a": 3, "b": 1.5, "c": "x"}]


@pytest.mark.parametrize("has_run", [False, True])
def test_a_data_set_of_files_can_be_serialised(has_run: bool, tmp_path: Path) -> None:
    """Programs have it in spaces and configurations, which plain cloudpickle writes."""
    numbers(tmp_path, 2)
    ds = data.read_parquet(str(tmp_path))
    if has_run:
        assert len(ds.take_all()) == 50
    assert ids(cloudpickle.loads(cloudpickle.dumps(ds))) == list(range(50))


def test_columns_of_parquet_without_a_common_type_stay_as_they_are(tmp_path: Path) -> None:
    parquet.write_table(pyarrow.table({"a": [1], "b": [1]}), tmp_path / "0.parquet")
    parquet.write_table(pyarrow.table({"a": ["x"], "c": [2.5]}), tmp_path / "1.parquet")
    assert data.read_parquet(str(tmp_path)).take_all() == [{"a": 1, "b": 1}, {"a": "x", "c": 2.5}]
    chosen = data.read_parquet(str(tmp_path), columns=["b", "c"]).take_all()
    assert chosen == [{"b": 1, "c": None}, {"b": None, "c": 2.5}]


@pytest.mark.parametrize("count", [1, 2])
def test_a_column_that_no_file_of_parquet_has_is_refused(count: int, tmp_path: Path) -> None:
    numbers(tmp_path, count)
    with pytest.raises(ValueError, match=r"no file has the column 'idd'. They have 'id', 'text'"):
        data.read_parquet(str(tmp_path), columns=["id", "idd"]).take_all()
    assert data.read_parquet(str(tmp_path), columns=["id", "path"], include_paths=True).count() == 25 * count


def test_what_a_killed_process_was_writing_is_removed_by_the_next_run(tmp_path: Path) -> None:
    out = tmp_path / "out"
    data.range(10, override_num_blocks=2).write_parquet(str(out))
    files = sorted(os.listdir(out))
    (out / f".{files[0]}.0123456789abcdef.new").write_bytes(b"half")
    (out / ".of_others.0123456789abcdef.new").touch()
    names._written.clear()
    data.range(10, override_num_blocks=2).write_parquet(str(out))
    assert sorted(os.listdir(out)) == [".of_others.0123456789abcdef.new", *files]


def test_large_rows_of_parquet_are_not_decoded_all_at_once(tmp_path: Path) -> None:
    """Two row groups of 20 MB: a reader that has all of them at once ignores the budget."""
    values = pyarrow.array(numpy.random.default_rng(0).standard_normal(40 * 125_000))
    column = pyarrow.FixedSizeListArray.from_arrays(values, 125_000)
    path = tmp_path / "wide.parquet"
    parquet.write_table(pyarrow.table({"x": column}), path, row_group_size=20, compression="none")
    tables = list(formats.parquet_rows(str(path), {"columns": None, "filter": None}))
    assert sum(table.num_rows for table in tables) == 40
    assert max(table.nbytes for table in tables) <= 5 << 20


def test_a_column_beside_large_ones_is_decoded_in_large_parts(tmp_path: Path) -> None:
    columns = {f"c{i}": numpy.zeros(2000) for i in range(400)}
    path = tmp_path / "wide.parquet"
    parquet.write_table(pyarrow.table(columns), path, compression="none", use_dictionary=False)
    tables = list(formats.parquet_rows(str(path), {"columns": ["c7"], "filter": None}))
    assert [(table.num_rows, table.column_names) for table in tables] == [(2000, ["c7"])]


def test_a_large_file_is_read_by_several_tasks(tmp_path: Path) -> None:
    table = pyarrow.table({"id": range(400_000), "text": ["x" * 20] * 400_000})
    parquet.write_table(
        table, tmp_path / "large.parquet", row_group_size=20_000, compression="none", use_dictionary=False
    )
    context = data.DataContext.get_current()
    before, context.target_max_block_size = context.target_max_block_size, 1 << 20
    try:
        kept = data.read_parquet(str(tmp_path)).materialize()
        assert "read_parquet  1 " not in kept.stats()
        assert kept.num_blocks() > 4
        assert max(block.bytes for block in kept._kept) < 3 << 20
        assert kept.sum("id") == 399_999 * 200_000
    finally:
        context.target_max_block_size = before


def test_directories_name_columns(tmp_path: Path) -> None:
    for year in (2023, 2024):
        (tmp_path / f"year={year}" / "kind=a").mkdir(parents=True)
        numbers(tmp_path / f"year={year}" / "kind=a", count=1, rows=2)
    (tmp_path / ".hidden.parquet").write_text("no")
    rows = data.read_parquet(str(tmp_path)).take_all()
    assert [(row["year"], row["kind"]) for row in rows] == [("2023", "a")] * 2 + [("2024", "a")] * 2
    [*rows] = data.read_parquet(str(tmp_path / "year=2024"), partitioning=None).take_all()
    assert "year" not in rows[0]


def test_texts_tables_and_objects(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name\n1,x\n2,y\n")
    assert data.read_csv(str(tmp_path / "a.csv")).take_all() == [{"id": 1, "name": "x"}, {"id": 2, "name": "y"}]
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
    (tmp_path / "b.json").write_text(json.dumps([{"id": 3}, {"id": 4}]))
    assert ids(data.read_json(str(tmp_path))) == [1, 2, 3, 4]
    with gzip.open(tmp_path / "c.txt.gz", "wt") as file:
        file.write("one\n\ntwo\r\nthree")
    lines = data.read_text(str(tmp_path / "c.txt.gz"))
    assert [row["text"] for row in lines.take_all()] == ["one", "two", "three"]
    assert data.read_text(str(tmp_path / "c.txt.gz"), drop_empty_lines=False).count() == 4
    [row] = data.read_binary_files(str(tmp_path / "a.csv"), include_paths=True).take_all()
    assert row == {"bytes": b"id,name\n1,x\n2,y\n", "path": str(tmp_path / "a.csv")}


def test_arrays_and_images(tmp_path: Path) -> None:
    numpy.save(tmp_path / "a.npy", numpy.arange(12).reshape(4, 3))
    rows = data.read_numpy(str(tmp_path)).take_all()
    assert [row["data"].tolist() for row in rows] == numpy.arange(12).reshape(4, 3).tolist()
    for i in range(3):
        image.fromarray(numpy.full((4 + i, 5, 3), i, "uint8")).save(tmp_path / f"{i}.png")
    images = data.read_images(str(tmp_path))
    assert [row["image"].shape for row in images.take_all()] == [(4, 5, 3), (5, 5, 3), (6, 5, 3)]
    batch: Any = data.read_images(str(tmp_path), size=(8, 6), mode="L").take_batch()
    assert batch["image"].shape == (3, 8, 6)


def test_what_is_not_there_or_wrong_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no file"):
        data.read_csv(str(tmp_path / "none.csv"))
    with pytest.raises(FileNotFoundError, match=r"no files that end in \.csv"):
        data.read_csv(str(tmp_path))
    with pytest.raises(ValueError, match="mount that storage"):
        data.read_parquet("s3://bucket/x")
    numbers(tmp_path, count=2)
    (tmp_path / "1.parquet").write_bytes(b"this is no parquet")
    with pytest.raises(data.BlockValueError, match=r"reading of .*1\.parquet has failed: ArrowInvalid"):
        data.read_parquet(str(tmp_path)).take_all()


@pytest.mark.parametrize("form", ["parquet", "csv", "json"])
def test_what_is_written_is_read_again(tmp_path: Path, form: str) -> None:
    ds = data.range(100, override_num_blocks=4).map(lambda row: {"id": row["id"], "text": str(row["id"])})
    getattr(ds, f"write_{form}")(str(tmp_path / "out"))
    assert len(list((tmp_path / "out").iterdir())) == 4
    back = getattr(data, f"read_{form}")(str(tmp_path / "out"))
    assert ids(back) == list(range(100))
    assert set(back.columns()) == {"id", "text"}


def test_a_second_run_replaces_its_files_and_leaves_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(writing.log, "say", lambda line, quiet: said.append(str(line)))

    def write(count: int, blocks: int, add: int = 0) -> None:
        names._written.clear()  # as in another process
        ds = data.range(count, override_num_blocks=blocks).map(lambda row: {"id": row["id"] + add})
        ds.write_parquet(str(tmp_path))

    write(50, 5)
    before = sorted(path.name for path in tmp_path.iterdir())
    write(50, 5)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    write(50, 3)  # with fewer blocks, as on a smaller machine
    assert ids(data.read_parquet(str(tmp_path))) == list(range(50))
    data.from_items([{"id": 100}]).write_parquet(str(tmp_path))
    data.from_items([{"id": 101}]).write_parquet(str(tmp_path))
    assert ids(data.read_parquet(str(tmp_path))) == [*range(50), 100, 101]
    assert sum("its 5 files will be replaced" in line for line in said) == len(said) == 2


BASE = 0


def plus_base(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["id"] + BASE}


class Plus:
    def __init__(self, base: int) -> None:
        self.base = numpy.array([base])

    def add(self, row: dict[str, Any]) -> dict[str, Any]:
        return {"id": row["id"] + int(self.base[0])}


def test_only_the_same_rows_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a program writes twice is there twice, and another run that differs in a variable or a file adds rows."""
    source = tmp_path / "in.csv"
    kinds: dict[str, Callable[[], data.Dataset]] = {
        "variable": lambda: data.range(1).map(plus_base),
        "instance": lambda: data.range(1).map(Plus(BASE).add),
        "argument": lambda: data.range(1).map(
            lambda row, by: {"id": row["id"] + int(by[0])}, fn_args=(Plus(BASE).base,)
        ),
        "file": lambda: data.read_csv(str(source)),
    }
    for base in (5, 7):
        names._written.clear()
        monkeypatch.setitem(globals(), "BASE", base)
        source.write_text(f"id\n{base}\n")
        for kind, made in kinds.items():
            for _ in range(2):
                made().write_json(str(tmp_path / kind))
    for kind in kinds:
        assert ids(data.read_json(str(tmp_path / kind))) == [5, 5, 7, 7], kind


def test_a_data_set_does_not_replace_the_files_that_it_reads(tmp_path: Path) -> None:
    data.range(3).write_parquet(str(tmp_path / "out"))
    ds = data.read_parquet(str(tmp_path / "out")).map(lambda row: {"id": row["id"] + 10})
    with pytest.raises(ValueError, match="which this would replace"):
        ds.write_parquet(str(tmp_path / "out"), mode="overwrite")
    with pytest.raises(ValueError, match="which this would replace"):
        ds.write_json(str(tmp_path), mode="overwrite")
    ds.materialize().write_parquet(str(tmp_path / "out"), mode="overwrite")
    assert ids(data.read_parquet(str(tmp_path / "out"))) == [10, 11, 12]


def test_the_parts_of_a_union_have_files_of_their_own(tmp_path: Path) -> None:
    a = data.range(10, override_num_blocks=2)
    a.union(a, data.from_items([{"id": 10}])).write_parquet(str(tmp_path))
    assert ids(data.read_parquet(str(tmp_path))) == sorted([*range(10), *range(11)])


def test_modes(tmp_path: Path) -> None:
    data.range(3).write_csv(str(tmp_path / "out"))
    data.range(5).write_csv(str(tmp_path / "out"), mode="ignore")
    assert data.read_csv(str(tmp_path / "out")).count() == 3
    with pytest.raises(ValueError, match="exists"):
        data.range(5).write_csv(str(tmp_path / "out"), mode="error")
    data.range(5).write_csv(str(tmp_path / "out"), mode=data.SaveMode.OVERWRITE)
    assert data.read_csv(str(tmp_path / "out")).count() == 5


def test_arrays_are_written(tmp_path: Path) -> None:
    ds = data.range_tensor(4, shape=(2,), override_num_blocks=1)
    ds.write_numpy(str(tmp_path / "arrays"), column="data")
    [path] = (tmp_path / "arrays").iterdir()
    assert numpy.load(path).tolist() == [[n, n] for n in range(4)]
    ds.write_parquet(str(tmp_path / "tables"))
    assert data.read_parquet(str(tmp_path / "tables")).take(4)[3]["data"].tolist() == [3, 3]


def of_number(number: int) -> Any:
    return lambda row: {"a": row["id"] + number}


def test_data_sets_that_differ_have_files_of_their_own(tmp_path: Path) -> None:
    """They differ only in an argument, in what a function has captured, or in what groups are reduced to."""
    ds = data.range(6)
    pairs = {
        "arguments": [ds.map(lambda row, n: {"a": row["id"] + n}, fn_args=[n]) for n in (1, 2)],
        "captured": [ds.map(of_number(n)) for n in (1, 2)],
        "reductions": [ds.groupby("id").sum("id"), ds.groupby("id").max("id")],
        "functions of groups": [
            ds.groupby("id").map_groups(lambda batch: {"n": [len(batch["id"])]}),
            ds.groupby("id").map_groups(lambda batch: {"n": [sum(batch["id"])]}),
        ],
    }
    for name, (first, second) in pairs.items():
        for one in (first, second, second):  # the third run replaces what the second has written
            names._written.clear()
            one.write_parquet(str(tmp_path / name))
        assert data.read_parquet(str(tmp_path / name)).count() == 12, name


def test_a_function_that_refers_to_itself_can_be_written(tmp_path: Path) -> None:
    def even(n: int) -> bool:
        return n == 0 or odd(n - 1)

    def odd(n: int) -> bool:
        return n > 0 and even(n - 1)

    data.range(4).map(lambda row: {"even": even(row["id"])}).write_parquet(str(tmp_path))
    assert ids(data.read_parquet(str(tmp_path)), "even") == [False, False, True, True]


def test_names_of_directories_are_not_values_without_partitioning(tmp_path: Path) -> None:
    folder = tmp_path / "year=2024"
    folder.mkdir()
    (folder / "a.csv").write_text("x\n1\n")
    assert data.read_csv(str(tmp_path)).columns() == ["x", "year"]
    assert data.read_csv(str(tmp_path), partitioning=None, filesystem=None).columns() == ["x"]
    with pytest.raises(TypeError, match="no argument filesystem"):
        data.read_csv(str(tmp_path), filesystem="s3")


def test_arguments_that_programs_for_ray_pass(tmp_path: Path) -> None:
    local = pyarrow.fs.LocalFileSystem()
    rays: dict[str, Any] = {"try_create_dir": True, "ray_remote_args": {"num_cpus": 1}, "filesystem": local}
    ds = data.range(100, override_num_blocks=2)
    schema = pyarrow.schema({"id": pyarrow.float32()})
    ds.write_parquet(str(tmp_path / "p"), max_rows_per_file=20, schema=schema, **rays)
    tables = [parquet.read_table(path) for path in (tmp_path / "p").iterdir()]
    assert max(table.num_rows for table in tables) <= 20
    assert sorted(value for table in tables for value in table["id"].to_pylist()) == list(map(float, range(100)))
    assert {str(table.schema.field("id").type) for table in tables} == {"float"}
    assert data.read_parquet(str(tmp_path / "p"), ray_remote_args={"num_cpus": 1}, filesystem=local).count() == 100
    one = ds.repartition(1)
    one.write_parquet(str(tmp_path / "g"), row_group_size=50, arrow_parquet_args_fn=lambda: {"row_group_size": 10})
    assert [parquet.ParquetFile(path).num_row_groups for path in (tmp_path / "g").iterdir()] == [10]

    def options() -> dict[str, Any]:
        return {"write_options": pyarrow.csv.WriteOptions(include_header=False)}

    data.range(2).repartition(1).write_csv(str(tmp_path / "c"), arrow_csv_args_fn=options)
    assert [path.read_text() for path in (tmp_path / "c").iterdir()] == ["0\n1\n"]
    arrays = data.range_tensor(40, override_num_blocks=8)
    arrays.write_numpy(str(tmp_path / "n"), column="data", min_rows_per_file=10, **rays)
    assert {len(numpy.load(path)) for path in (tmp_path / "n").iterdir()} == {10}
    with pytest.raises(ValueError, match="max_rows_per_file must be a positive integer"):
        ds.write_parquet(str(tmp_path / "w"), max_rows_per_file=0)
    with pytest.raises(ValueError, match="cannot be greater than"):
        ds.write_parquet(str(tmp_path / "w"), min_rows_per_file=9, max_rows_per_file=3)
    with pytest.raises(TypeError, match="no argument filesystem"):
        ds.write_csv(str(tmp_path / "w"), filesystem="s3")
    with pytest.raises(TypeError, match="no argument compression"):
        ds.write_numpy(str(tmp_path / "w"), column="id", compression="gzip")


def test_files_of_another_format_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"a,b\n1,2\n3\n")
    with pytest.raises(ValueError, match=r"Failed to read CSV file .*a\.csv"):
        data.read_csv(str(tmp_path / "a.csv")).materialize()
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"a\.png is not an image"):
        data.read_images(str(tmp_path / "a.png")).materialize()
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"hello"))
    assert data.read_binary_files(str(tmp_path / "b.gz")).take_all() == [{"bytes": b"hello"}]
