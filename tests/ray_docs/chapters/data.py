"""Data sets: loading, looking at them, and transforming."""

import asyncio
import contextlib
import io
import json
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import ray
import ray.data
from PIL import Image

from tests.ray_docs.helpers import raised


@contextlib.contextmanager
def _folder():
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _flowers(path, start=0, count=4):
    """A file of Parquet: four columns of different kinds."""
    rows = range(start, start + count)
    table = pa.table(
        {
            "length": [i / 2 for i in rows],
            "id": list(rows),
            "variety": [("Setosa", "Virginica")[i % 2] for i in rows],
            "is_large": [i > 2 for i in rows],
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def _kinds(row):
    """The types of the values of a row."""
    return {name: type(value).__name__ for name, value in row.items()}


def _shapes(batch):
    return {name: (value.shape, str(value.dtype)) for name, value in batch.items()}


def _printed(call):
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        call()
    return text.getvalue()


# Page "Loading data"


def reading_parquet():
    """Files of Parquet, by a path, several paths, or a directory with others below it."""
    with _folder() as folder:
        _flowers(folder / "a.parquet")
        _flowers(folder / "below" / "b.parquet", 4)
        (folder / "note.txt").write_text("not one of them")
        ds = ray.data.read_parquet(str(folder / "a.parquet"))
        print(ds.count(), ds.take(2), _kinds(ds.take(1)[0]))
        print(ray.data.read_parquet([str(folder / "a.parquet"), str(folder / "below" / "b.parquet")]).count())
        print(sorted(row["id"] for row in ray.data.read_parquet(str(folder)).take_all()))
        print(ray.data.read_parquet(str(folder / "a.parquet"), columns=["id", "length"]).take(1))


def reading_parquet_by_a_condition():
    """`filter` takes an expression of pyarrow. Differs: Ray 2.60 takes it no more, and has filter(expr=) alone."""
    with _folder() as folder:
        _flowers(folder / "a.parquet", count=10)
        ds = ray.data.read_parquet(str(folder), filter=(pc.field("id") > 6) & (pc.field("variety") == "Setosa"))
        print(ds.take_all(), ds.count())


def reading_csv():
    """Types of columns come from the text."""
    with _folder() as folder:
        (folder / "a.csv").write_text("name,size,price,when\nx,1,0.5,2024-01-02\ny,2,,2024-03-04\n")
        ds = ray.data.read_csv(str(folder / "a.csv"))
        print(ds.take_all())
        print(ds.schema().names, [str(one) for one in ds.schema().types])


def reading_csv_with_options():
    """Arguments of pyarrow: another delimiter, names of columns, types."""
    with _folder() as folder:
        (folder / "a.csv").write_text("x;1\ny;2\n")
        ds = ray.data.read_csv(
            str(folder),
            parse_options=pa.csv.ParseOptions(delimiter=";"),
            read_options=pa.csv.ReadOptions(column_names=["name", "size"]),
            convert_options=pa.csv.ConvertOptions(column_types={"size": pa.float64()}),
        )
        print(ds.take_all())


def reading_json():
    """Objects in lines, and a list of objects."""
    with _folder() as folder:
        (folder / "a.jsonl").write_text('{"a": 1, "b": {"c": [1, 2]}}\n{"a": 2, "b": {"c": []}}\n')
        (folder / "b.json").write_text(json.dumps([{"a": 1, "t": "x"}, {"a": 2, "t": None}]))
        print(ray.data.read_json(str(folder / "a.jsonl"), lines=True).take_all())
        print(ray.data.read_json(str(folder / "a.jsonl")).take_all())
        print(ray.data.read_json(str(folder / "b.json")).take_all())


def reading_text():
    """A row for each line; empty ones are left out."""
    with _folder() as folder:
        (folder / "a.txt").write_bytes("one\n\ntwo  \n  three\r\nfür\n".encode())
        print(ray.data.read_text(str(folder / "a.txt")).take_all())
        print(ray.data.read_text(str(folder / "a.txt"), drop_empty_lines=False).count())
        (folder / "b.txt").write_bytes("für\n".encode("latin-1"))
        print(ray.data.read_text(str(folder / "b.txt"), encoding="latin-1").take_all())


def reading_binary_files():
    """A row for each file."""
    with _folder() as folder:
        (folder / "a.bin").write_bytes(b"\x00\x01")
        (folder / "b.bin").write_bytes(b"b")
        ds = ray.data.read_binary_files(str(folder), include_paths=True)
        print(sorted((row["bytes"], Path(row["path"]).name) for row in ds.take_all()), ds.count())


def reading_numpy():
    """The first axis of an array is the rows."""
    with _folder() as folder:
        np.save(folder / "a.npy", np.arange(6).reshape(3, 2))
        ds = ray.data.read_numpy(str(folder / "a.npy"))
        print([row["data"].tolist() for row in ds.take_all()], str(ds.take(1)[0]["data"].dtype), ds.schema().names)


def reading_images():
    """Images are arrays; they can have a size and a mode."""
    with _folder() as folder:
        for i, size in enumerate(((4, 3), (6, 5))):
            Image.new("RGB", size, (i, 10, 20)).save(folder / f"{i}.png")
        ds = ray.data.read_images(str(folder), include_paths=True)
        print(sorted((Path(row["path"]).name, row["image"].shape, str(row["image"].dtype)) for row in ds.take_all()))
        same = ray.data.read_images(str(folder), size=(2, 3), mode="L")
        print(_shapes(same.take_batch(2)))
        print(ray.data.read_images(str(folder / "1.png")).take(1)[0]["image"][0, 0].tolist())


def reading_paths_that_are_not_there():
    """An error comes at once."""
    with _folder() as folder:
        print(raised(lambda: ray.data.read_csv(str(folder / "none.csv")), "FileNotFoundError"))
        print(raised(lambda: ray.data.read_parquet(str(folder / "none.parquet")), "FileNotFoundError"))


def reading_with_paths():
    """Each row has the path of its file."""
    with _folder() as folder:
        (folder / "a.csv").write_text("x\n1\n2\n")
        (folder / "b.csv").write_text("x\n3\n")
        rows = ray.data.read_csv(str(folder), include_paths=True).take_all()
        print(sorted((row["x"], Path(row["path"]).name) for row in rows))
        _flowers(folder / "p" / "c.parquet")
        rows = ray.data.read_parquet(str(folder / "p"), include_paths=True).take_all()
        print([Path(row["path"]).name for row in rows])


def reading_partitions():
    """Names of directories are values of columns."""
    with _folder() as folder:
        for year in (2023, 2024):
            _flowers(folder / "p" / f"year={year}" / "country=de" / "a.parquet", year, 1)
            path = folder / "c" / f"year={year}" / "a.csv"
            path.parent.mkdir(parents=True)
            path.write_text(f"x\n{year}\n")
        rows = ray.data.read_parquet(str(folder / "p"), columns=["id", "year", "country"]).take_all()
        print(sorted((row["id"], row["year"], row["country"]) for row in rows))
        print(ray.data.read_parquet(str(folder / "p" / "year=2023"), columns=["id"]).take_all())
        print(sorted((row["x"], row["year"]) for row in ray.data.read_csv(str(folder / "c")).take_all()))


def reading_partitions_by_a_scheme():
    """`Partitioning` names the style, the base directory, and the types of fields."""
    from ray.data.datasource.partitioning import Partitioning

    with _folder() as folder:
        for year in ("2023", "2024"):
            path = folder / year / "a.csv"
            path.parent.mkdir(parents=True)
            path.write_text("x\n1\n")
        by_place = Partitioning("dir", field_names=["year"], base_dir=str(folder))
        rows = ray.data.read_csv(str(folder), partitioning=by_place).take_all()
        print(sorted((row["x"], row["year"]) for row in rows))
        hive = Partitioning("hive", field_types={"n": int})
        (folder / "more" / "n=7").mkdir(parents=True)
        (folder / "more" / "n=7" / "a.csv").write_text("x\n5\n")
        print(ray.data.read_csv(str(folder / "more"), partitioning=hive).take_all())
        print(ray.data.read_csv(str(folder / "more"), partitioning=None).take_all())


def reading_by_extension():
    """`file_extensions` says which files of a directory are read."""
    with _folder() as folder:
        (folder / "a.csv").write_text("x\n1\n")
        (folder / "b.data").write_text("x\n2\n")
        print(ray.data.read_csv(str(folder), file_extensions=["data"]).take_all())
        print(sorted(row["x"] for row in ray.data.read_csv(str(folder), file_extensions=None).take_all()))


def reading_compressed_files():
    """The ending of a name says how a file is compressed."""
    import gzip

    with _folder() as folder:
        with gzip.open(folder / "a.csv.gz", "wt") as file:
            file.write("x\n1\n2\n")
        with gzip.open(folder / "b.jsonl.gz", "wt") as file:
            file.write('{"y": 3}\n')
        print(ray.data.read_csv(str(folder / "a.csv.gz")).take_all())
        print(ray.data.read_json(str(folder / "b.jsonl.gz"), lines=True).take_all())


def items():
    """Dictionaries are rows; other values have the column "item"."""
    print(ray.data.from_items([{"food": "spam", "price": 9.34}, {"food": "ham", "price": 5.37}]).take_all())
    print(ray.data.from_items([1, 2, 3]).take_all(), ray.data.from_items(["a", "b"]).schema().names)
    print(ray.data.from_items([{"a": 1}, {"a": None}]).take_all())
    print(ray.data.from_items([(1, 2), (3, 4)]).take_all())


def numpy_arrays():
    """An array, or a list of them, has the column "data"."""
    ds = ray.data.from_numpy(np.ones((3, 2, 2), dtype=np.float32))
    print(ds.count(), ds.take(1)[0]["data"].tolist(), _shapes(ds.take_batch(2)))
    print(ray.data.from_numpy([np.zeros(2), np.ones(3)]).count())
    print([float(row["data"]) for row in ray.data.from_numpy(np.array([1.5, 2.5])).take_all()])


def frames_and_tables():
    """Data frames and tables, one or several."""
    frame = pd.DataFrame({"food": ["spam", "ham"], "price": [9.34, None]})
    print(ray.data.from_pandas(frame).take_all())
    print(ray.data.from_pandas([frame, frame]).count())
    table = pa.table({"food": ["spam", "ham"], "price": [1, 2]})
    print(ray.data.from_arrow(table).take_all(), ray.data.from_arrow([table, table]).count())
    frame = pd.DataFrame({"a": [1, 2]}, index=["x", "y"])
    print(ray.data.from_pandas(frame).schema().names)


def ranges():
    """Numbers, and arrays of them."""
    print(ray.data.range(3).take_all(), ray.data.range(10_000).count(), ray.data.range(0).take_all())
    ds = ray.data.range_tensor(3, shape=(2, 2))
    print([row["data"].tolist() for row in ds.take_all()], _shapes(ds.take_batch(3)))


def values_by_reference():
    """Data frames, arrays and tables that are objects already."""
    frame = ray.put(pd.DataFrame({"a": [1, 2]}))
    print(ray.data.from_pandas_refs([frame]).take_all())
    array = ray.put(np.arange(2))
    print([int(row["data"]) for row in ray.data.from_numpy_refs([array, array]).take_all()])
    print(ray.data.from_arrow_refs(ray.put(pa.table({"a": [1]}))).take_all())


def number_of_blocks():
    """`override_num_blocks` says how the rows are divided."""
    print(ray.data.range(100, override_num_blocks=5).materialize().num_blocks())
    print(ray.data.from_items(list(range(10)), override_num_blocks=3).materialize().num_blocks())
    frame = pd.DataFrame({"a": range(10)})
    print(ray.data.from_pandas(frame, override_num_blocks=5).materialize().num_blocks())


# Page "Inspecting data"


def schema_of_a_data_set():
    """Names and types; what it prints."""
    ds = ray.data.from_items([{"a": 1, "name": "x", "f": 0.5}])
    print(ds.schema())
    print(ds.schema().names, ds.schema().types, ds.columns())
    print(ds.map(lambda row: {"id": row["a"], "array": np.zeros((2, 3))}).schema().names)


def schema_equality():
    """Schemas are equal if their columns are."""
    a = ray.data.from_items([{"a": 1}])
    print(a.schema() == ray.data.from_items([{"a": 5}]).schema(), a.schema() == ray.data.range(1).schema())
    print(a.schema().base_schema.equals(pa.schema([("a", pa.int64())])))


def showing_rows():
    """`show` prints rows, `take` returns them, 20 unless told otherwise."""
    ds = ray.data.from_items([{"a": i, "b": "x" * i} for i in range(3)])
    print(_printed(lambda: ds.show(2)))
    print(_printed(ds.show))
    print(len(ray.data.range(100).take()), len(ray.data.range(5).take()))
    print(len(_printed(ray.data.range(100).show).splitlines()))


def batches_of_first_rows():
    """`take_batch` returns some rows in the form of a batch."""
    ds = ray.data.from_items([{"a": i, "t": str(i)} for i in range(30)])
    batch = ds.take_batch(3)
    print(type(batch).__name__, _shapes(batch), batch["t"].tolist())
    print(len(ds.take_batch()["a"]), len(ds.take_batch(50)["a"]))
    print(ds.take_batch(2, batch_format="pandas")["a"].tolist())
    print(ds.take_batch(2, batch_format="pyarrow").to_pylist())
    print(raised(lambda: ds.filter(lambda row: False).take_batch(), "ValueError"))


def taking_all():
    """With a limit there must not be more."""
    print(len(ray.data.range(30).take_all()), len(ray.data.range(5).take_all(limit=5)))
    print(raised(lambda: ray.data.range(6).take_all(limit=5), "ValueError"))


def statistics_of_a_run():
    """`stats` names the operators and their rows."""
    ds = ray.data.range(100, override_num_blocks=4).map_batches(lambda batch: batch).materialize()
    text = ds.stats()
    print(type(text).__name__, bool(text), "map_batches" in text.lower().replace("mapbatches", "map_batches"))


def sizes_of_a_materialized_data_set():
    """Blocks, rows and bytes are known."""
    ds = ray.data.range(1000, override_num_blocks=4).materialize()
    print(ds.num_blocks(), ds.count(), ds.size_bytes())
    print(type(ds).__name__, isinstance(ds, ray.data.Dataset), isinstance(ray.data.from_items([1]), ray.data.Dataset))


def files_of_a_data_set():
    """`input_files` names them. Differs: Ray 2.60 returns an empty list for files of Parquet."""
    with _folder() as folder:
        _flowers(folder / "a.parquet")
        print([Path(name).name for name in ray.data.read_parquet(str(folder)).input_files()])
        print(ray.data.range(1).input_files())


def aggregates():
    """Of one column, of several, and of values that are missing."""
    ds = ray.data.from_items([{"a": i, "b": i / 2} for i in range(5)])
    print(ds.sum("a"), ds.min("a"), ds.max("a"), ds.mean("a"), round(ds.std("a"), 6), round(ds.std("a", ddof=0), 6))
    print(ds.sum(["a", "b"]), ds.mean(["a", "b"]))
    holes = ray.data.from_items([{"a": 1}, {"a": None}, {"a": 3}])
    print(holes.sum("a"), holes.mean("a"), holes.sum("a", ignore_nulls=False), holes.min("a"))
    print(
        ray.data.from_items([{"t": "x"}, {"t": "b"}]).min("t"), ray.data.from_items([{"t": "x"}, {"t": "b"}]).max("t")
    )


def a_data_set_is_no_sequence():
    """It has no length, and a loop over it is an error."""
    ds = ray.data.range(5)
    print(raised(lambda: len(ds), "AttributeError", "TypeError"), raised(lambda: list(ds), "TypeError"), bool(ds))


# Page "Transforming data"


def mapping_rows():
    """A function of a row returns a row."""
    ds = ray.data.from_items([{"path": "a/x.png"}, {"path": "b/y.png"}])
    print(ds.map(lambda row: {**row, "name": row["path"].split("/")[1]}).take_all())
    print(
        _kinds(ray.data.range(1).map(lambda row: {"a": row["id"], "b": row["id"] / 2, "c": str(row["id"])}).take(1)[0])
    )


def one_row_to_several():
    """`flat_map` takes lists and generators; none is possible."""
    print(ray.data.range(3).flat_map(lambda row: [row] * row["id"]).take_all())

    def twice(row):
        yield {"id": row["id"]}
        yield {"id": row["id"] * 10}

    print(ray.data.range(2).flat_map(twice).take_all())
    print(ray.data.range(3).flat_map(lambda row: []).count())


def filtering_rows():
    """By a function, and by an expression in a string."""
    ds = ray.data.from_items([{"id": i, "t": "ab"[i % 2]} for i in range(8)])
    print(ds.filter(lambda row: row["id"] % 4 == 0).take_all())
    print(ds.filter(expr="id > 5").take_all())
    print(ds.filter(expr="id <= 2 and t == 'a'").take_all(), ds.filter(expr="id == 1 or id == 2").count())
    print(
        ds.filter(expr="id in [1, 3]").count(), ds.filter(expr="not id > 1").count(), ds.filter(expr="-id < -5").count()
    )
    print(ds.filter(expr="id not in [1]").count(), ds.filter(expr="t == 'a' and (id > 3 or id < 1)").count())
    print(ds.filter(expr="is_null(t)").count(), ds.filter(expr="t != 'a'").map(lambda row: {"n": row["id"]}).sum("n"))
    for wrong in ("id > ", "name(id)", "1 < id < 4"):
        print(raised(lambda: ds.filter(expr=wrong), "ValueError"))
    print(raised(lambda: ds.filter(expr="missing > 1").take_all(), "RayError"))


def filtering_by_expressions():
    """Expressions are made of columns and values."""
    from ray.data.expressions import col, lit

    ds = ray.data.from_items([{"id": i, "x": None if i == 3 else i * 2} for i in range(8)])
    print(ds.filter(expr=col("id") > 5).take_all())
    print(ds.filter(expr=(col("id") < 3) & (col("x") != lit(2))).take_all())
    print(ds.filter(expr=col("x").is_null()).take_all(), ds.filter(expr=col("id").is_in([1, 2])).count())
    print(ds.filter(expr=~(col("id") > 0)).count(), ds.filter(expr=(col("id") == 0) | (col("id") == 7)).count())


def columns_by_expressions():
    """`with_column` adds a column that an expression gives."""
    from ray.data.expressions import col, lit

    ds = ray.data.range(3)
    print(ds.with_column("twice", col("id") * 2).take_all())
    print(ds.with_column("one", lit(1)).with_column("id", col("id") + col("one")).take_all())


def filter_without_a_condition():
    """It needs a function or an expression, and not both."""
    ds = ray.data.range(3)
    print(raised(lambda: ds.filter(), "ValueError"))
    print(raised(lambda: ds.filter(lambda row: True, expr="id > 1"), "ValueError"))


def mapping_batches():
    """A batch is a dictionary of arrays."""
    ds = ray.data.range(10, override_num_blocks=1).map_batches(
        lambda batch: {"id": batch["id"], "kind": np.array([type(batch["id"]).__name__] * len(batch["id"]))}
    )
    print(ds.take(2), ds.count())
    sizes = ray.data.range(10, override_num_blocks=1).map_batches(lambda batch: {"n": [len(batch["id"])]}, batch_size=4)
    print(sizes.take_all())
    print(ray.data.range(4).map_batches(lambda batch: {"id": batch["id"] * 2}, batch_size=None).take_all())


def forms_of_batches():
    """numpy, pandas and pyarrow."""
    ds = ray.data.from_items([{"a": i, "t": str(i)} for i in range(6)])

    def by_pandas(frame):
        return frame.dropna()[frame["a"] > 3]

    print(ds.map_batches(by_pandas, batch_format="pandas").take_all())
    print(ds.map_batches(lambda table: table.filter(pc.less(table["a"], 2)), batch_format="pyarrow").take_all())
    print(ds.map_batches(lambda batch: {"t": batch["t"]}, batch_format="numpy").take(1))
    print(raised(lambda: ds.map_batches(lambda b: b, batch_format="lists").take_all(), "ValueError"))


def functions_that_yield_batches():
    """A generator makes several batches of one."""

    def parts(batch):
        for start in range(0, len(batch["id"]), 2):
            yield {"sum": [int(batch["id"][start : start + 2].sum())]}

    print(ray.data.range(6, override_num_blocks=1).map_batches(parts).take_all())


def classes_keep_their_state():
    """A class is created once for each actor."""

    class Add:
        def __init__(self, number, factor=1):
            self.number = number * factor

        def __call__(self, batch, more=0):
            return {"id": batch["id"] + self.number + more}

    ds = ray.data.range(4)
    print(ds.map_batches(Add, fn_constructor_args=[10], concurrency=1).take_all())
    print(ds.map_batches(
        Add, fn_constructor_args=[1], fn_constructor_kwargs={"factor": 100}, fn_kwargs={"more": 5}, concurrency=2
    ).sum("id"))  # fmt: skip
    print(ds.map_batches(Add, fn_constructor_args=[1], compute=ray.data.ActorPoolStrategy(size=1)).sum("id"))
    print(ds.map_batches(Add, fn_constructor_args=[1], concurrency=(1, 2)).sum("id"))


def classes_for_rows():
    """`map`, `flat_map` and `filter` take classes too."""

    class Odd:
        def __init__(self, rest=1):
            self.rest = rest

        def __call__(self, row):
            return row["id"] % 2 == self.rest

    class Add:
        def __call__(self, row):
            return {"id": row["id"] + 1}

    print(ray.data.range(6).filter(Odd, concurrency=1).map(Add, concurrency=1).take_all())
    print(ray.data.range(4).filter(Odd, fn_constructor_kwargs={"rest": 0}, concurrency=1).take_all())


def arguments_of_functions():
    """`fn_args` and `fn_kwargs`."""

    def scaled(batch, factor, offset=0):
        return {"id": batch["id"] * factor + offset}

    print(ray.data.range(3).map_batches(scaled, fn_args=[10], fn_kwargs={"offset": 1}).take_all())
    print(ray.data.range(3).map(lambda row, n: {"id": row["id"] + n}, fn_args=[5]).take_all())


def more_or_fewer_rows():
    """A batch may get another number of rows."""
    ds = ray.data.range(4, override_num_blocks=1)
    print(ds.map_batches(lambda batch: {"id": np.repeat(batch["id"], 2)}).take_all())
    print(ds.map_batches(lambda batch: {"id": batch["id"][:0]}).count())


def what_functions_may_return():
    """Other values are errors."""
    ds = ray.data.range(3)
    for call in (
        lambda: ds.map(lambda row: row["id"]).take_all(),
        lambda: ds.map_batches(lambda batch: [1, 2, 3]).take_all(),
        lambda: ds.map_batches(lambda batch: {"id": 1}).take_all(),
        lambda: ds.map_batches(lambda batch: {"a": np.ones(2), "b": np.ones(3)}).take_all(),
        lambda: ds.flat_map(lambda row: row["id"]).take_all(),
    ):
        print(raised(call, "Exception"))
    print(ds.map_batches(lambda batch: {"id": [[1], [2, 3], []]}, batch_size=None).count() > 0)


def asynchronous_classes_of_rows():
    """Calls run at the same time; rows keep their order. A generator may make several rows of one."""

    class Late:
        async def __call__(self, row):
            await asyncio.sleep(0.05 * (3 - row["id"]))
            return {"id": row["id"] * 2}

    class Twice:
        async def __call__(self, row):
            for part in range(2):
                await asyncio.sleep(0)
                yield {"id": row["id"], "part": part}

    class Listed:
        async def __call__(self, row):
            return [{"id": row["id"]}] * 2

    ds = ray.data.range(3, override_num_blocks=1)
    print(ds.map(Late, concurrency=1).take_all())
    print(ds.map(Twice, concurrency=1).take_all() == ds.flat_map(Twice, concurrency=1).take_all())
    print([row["id"] for row in ds.flat_map(Listed, concurrency=1).take_all()])


def asynchronous_classes_of_batches():
    """Four calls of a class run at a time, whatever max_concurrency says; batches keep their order."""

    class Counts:
        def __init__(self):
            self.now = self.most = 0

        async def __call__(self, batch):
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.3)
            self.now -= 1
            return {"id": batch["id"], "most": np.full(len(batch["id"]), self.most)}

    class Rows:
        async def __call__(self, batch):
            for one in batch["id"]:
                await asyncio.sleep(0.01 * (4 - one))
                yield {"id": np.array([one])}

    ds = ray.data.range(8, override_num_blocks=1)
    rows = ds.map_batches(Counts, concurrency=1, batch_size=1, max_concurrency=2).take_all()
    print([row["id"] for row in rows], max(row["most"] for row in rows))
    print([row["id"] for row in ds.limit(4).map_batches(Rows, concurrency=1, batch_size=2).take_all()])


def errors_of_asynchronous_classes():
    """They are errors of the run, as those of other functions."""

    class Fails:
        async def __call__(self, batch):
            raise ValueError("bad")

    class NoRow:
        async def __call__(self, row):
            return 3

    print(raised(ray.data.range(3).map_batches(Fails, concurrency=1).take_all, "RayTaskError"))
    print(raised(ray.data.range(3).map(NoRow, concurrency=1).take_all, "RayTaskError"))


def columns():
    """Select, drop, rename, add."""
    ds = ray.data.from_items([{"a": i, "b": i * 2, "c": str(i)} for i in range(3)])
    print(ds.select_columns(["a", "c"]).take(1), ds.select_columns("b").take(1))
    print(ds.drop_columns(["a", "b"]).take_all())
    print(ds.rename_columns({"a": "x"}).take(1), ds.rename_columns(["x", "y", "z"]).columns())
    print(ds.add_column("d", lambda frame: frame["a"] + frame["b"]).take_all())
    print(ds.add_column("e", lambda batch: batch["a"] * 2, batch_format="numpy").select_columns("e").take_all())


def columns_that_are_not_there():
    """An error, at once or when it runs."""
    ds = ray.data.from_items([{"a": 1}])
    print(raised(lambda: ds.select_columns(["z"]).take_all(), "Exception"))
    print(raised(lambda: ds.drop_columns(["z"]).take_all(), "Exception"))
    print(
        raised(lambda: ds.select_columns(["a", "a"]), "ValueError"),
        raised(lambda: ds.drop_columns(["a", "a"]), "ValueError"),
    )
    print(
        raised(lambda: ds.rename_columns({"a": "x", "b": "x"}), "ValueError"),
        raised(lambda: ds.rename_columns([]), "ValueError"),
    )
    print(
        raised(lambda: ds.add_column("a", 5), "ValueError"),
        raised(lambda: ds.select_columns([1]), "ValueError", "TypeError"),
    )


def limits_and_unions():
    """The first rows; the rows of several."""
    ds = ray.data.range(1000)
    print(ds.limit(3).take_all(), ds.limit(0).count(), ds.limit(5000).count())
    print(ds.limit(-1).take_all(), ds.take(-1))
    print(ds.limit(5).map(lambda row: {"id": -row["id"]}).limit(2).take_all())
    rows = ray.data.range(2).union(ray.data.range(3), ray.data.from_items([{"id": 7}])).take_all()
    print(sorted(row["id"] for row in rows))
    print(ray.data.range(2).union(ray.data.range(2)).count())


def dividing_into_blocks():
    """`repartition` changes the blocks, not the rows."""
    ds = ray.data.range(100, override_num_blocks=3)
    parts = ds.repartition(10).materialize()
    print(parts.num_blocks(), parts.count(), [row["id"] for row in parts.take(3)])
    print(ds.repartition(target_num_rows_per_block=25).materialize().count())
    print(raised(lambda: ds.repartition(), "ValueError"))


def materialized_data_sets_run_once():
    """Functions do not run again."""
    with _folder() as folder:
        name = str(folder / "runs")

        def noted(batch):
            with open(name, "a") as file:
                file.write("x")
            return batch

        ds = ray.data.range(10, override_num_blocks=1).map_batches(noted, batch_size=None).materialize()
        print(Path(name).read_text(), ds.count(), len(ds.take_all()), Path(name).read_text())


def nothing_runs_before_it_is_asked_for():
    """Transformations are lazy; a run of all rows happens at each consumption."""
    with _folder() as folder:
        name = str(folder / "runs")

        def noted(batch):
            with open(name, "a") as file:
                file.write("x")
            return batch

        ds = ray.data.range(10, override_num_blocks=1).map_batches(noted, batch_size=None)
        print((folder / "runs").exists())
        ds.take_all(), ds.take_all()
        print((folder / "runs").read_text())


def errors_of_functions():
    """The error of a function can be caught, and holds its kind and message."""

    def broken(row):
        if row["id"] == 2:
            raise ZeroDivisionError("on purpose")
        return row

    try:
        ray.data.range(4).map(broken).take_all()
    except Exception as error:
        print("ZeroDivisionError" in str(error), "on purpose" in str(error))
    print(
        raised(ray.data.range(4).map(broken).take_all, "RayError"),
        raised(ray.data.range(4).map(broken).take_all, "UserCodeException"),
    )


def blocks_that_may_fail():
    """`max_errored_blocks`."""
    context = ray.data.DataContext.get_current()

    def broken(row):
        if row["id"] == 0:
            raise ValueError("on purpose")
        return row

    context.max_errored_blocks = 1
    try:
        print(ray.data.range(8, override_num_blocks=4).map(broken).count())
    finally:
        context.max_errored_blocks = 0


def needs_of_functions():
    """Amounts are of tasks or actors; those that nobody has never run."""
    ds = ray.data.range(4)
    print(ds.map(lambda row: row, num_cpus=2).count(), ds.map_batches(lambda batch: batch, num_cpus=0.5).count())
    print(ds.map(lambda row: row, resources={"special": 1}).count(), ds.map(lambda row: row, memory=1000).count())
    print(ds.map(lambda row: row, concurrency=2).count())
    asked = []
    chosen = ds.map(lambda row: {"id": -row["id"]}, ray_remote_args_fn=lambda: asked.append(1) or {"num_cpus": 0.5})
    print(sorted(row["id"] for row in chosen.take_all()), bool(asked))
    print(raised(lambda: ds.map(lambda row: row, concurrency=-1).count(), "ValueError", "Exception"))
    print(raised(lambda: ds.map_batches(lambda batch: batch, fn_constructor_args=[1]).count(), "ValueError"))
