"""Data sets: what needs all rows, what joins and parts them, groups and their reductions, and a few more sources."""

import contextlib
import json
import os
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import ray
import ray.data
import ray.train
from PIL import Image
from ray.data.aggregate import (
    AbsMax,
    AggregateFn,
    AggregateFnV2,
    AsList,
    Count,
    CountDistinct,
    Max,
    Mean,
    Min,
    MissingValuePercentage,
    Quantile,
    Std,
    Sum,
    Unique,
    ValueCounter,
    ZeroPercentage,
)
from ray.train import RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from tests.ray_docs.helpers import raised


@contextlib.contextmanager
def _folder():
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _column(ds, name="id"):
    return [row[name] for row in ds.take_all()]


def _sorted(ds, *names):
    """All rows, in the order of these columns, or of all."""
    rows = ds.take_all()
    return sorted(rows, key=lambda row: [str(row[name]) for name in names or row])


def _flowers(count=12):
    return ray.data.from_items(
        [{"kind": "abc"[i % 3], "size": i, "width": None if i % 4 == 3 else i / 2} for i in range(count)],
        override_num_blocks=3,
    )


# Page "Shuffling data"


def shuffling_rows():
    """All rows, in another order; a seed gives the same one again."""
    ds = ray.data.range(200, override_num_blocks=4)
    rows = _column(ds.random_shuffle(seed=5))
    print(sorted(rows) == list(range(200)), rows != list(range(200)), rows == _column(ds.random_shuffle(seed=5)))
    print(rows != _column(ds.random_shuffle(seed=6)), ds.random_shuffle().count(), ds.random_shuffle().schema().names)
    print(_column(ds.random_shuffle()) != _column(ds.random_shuffle()))


def shuffles_of_one_data_set():
    """Without a seed each run has an order of its own."""
    ds = ray.data.range(300, override_num_blocks=3)
    free, seeded = ds.random_shuffle(), ds.random_shuffle(seed=1)
    print(_column(free) != _column(free), _column(seeded) == _column(seeded))


def shuffling_files():
    """`shuffle="files"` reads files in another order each time; a seed gives the same in each new data set."""
    from ray.data import FileShuffleConfig

    ray.data.DataContext.get_current().execution_options.preserve_order = True
    try:
        with _folder() as folder:
            for i in range(12):
                (folder / f"{i:02d}.csv").write_text(f"id\n{i}\n")
            mixed = [_column(ray.data.read_csv(str(folder), shuffle="files")) for _ in range(3)]
            print([sorted(one) == list(range(12)) for one in mixed], mixed[0] != mixed[1] or mixed[1] != mixed[2])
            first, again = (
                _column(ray.data.read_csv(str(folder), shuffle=FileShuffleConfig(seed=4))) for _ in range(2)
            )
            print(first == again, first != list(range(12)))
            print(raised(lambda: ray.data.read_csv(str(folder), shuffle="rows"), "ValueError"))
    finally:
        ray.data.DataContext.get_current().execution_options.preserve_order = False


def shuffling_files_of_parquet():
    """Files of Parquet, too."""
    with _folder() as folder:
        for i in range(3):
            pq.write_table(pa.table({"id": [i, i + 100]}), folder / f"{i:02d}.parquet")
        print(sorted(_column(ray.data.read_parquet(str(folder), shuffle="files"))))


def order_of_files_in_each_run():
    """A data set with `FileShuffleConfig(seed=...)` has another order in each of its runs, unless it is not reseeded."""
    from ray.data import FileShuffleConfig

    ray.data.DataContext.get_current().execution_options.preserve_order = True
    try:
        with _folder() as folder:
            for i in range(20):
                (folder / f"{i:02d}.csv").write_text(f"id\n{i}\n")
            ds = ray.data.read_csv(str(folder), shuffle=FileShuffleConfig(seed=4))
            print(_column(ds) != _column(ds))
            ds = ray.data.read_csv(str(folder), shuffle=FileShuffleConfig(seed=4, reseed_after_execution=False))
            print(_column(ds) == _column(ds))
    finally:
        ray.data.DataContext.get_current().execution_options.preserve_order = False


def shuffling_images():
    """Images, too."""
    with _folder() as folder:
        for i in range(4):
            Image.new("L", (2, 2), i).save(folder / f"{i}.png")
        ds = ray.data.read_images(str(folder), shuffle="files")
        print(sorted(int(row["image"][0, 0]) for row in ds.take_all()))


def shuffling_blocks():
    """`randomize_block_order` keeps the rows of a block together."""
    ds = ray.data.range(40, override_num_blocks=8).randomize_block_order(seed=3)
    rows = _column(ds)
    parts = [rows[i : i + 5] for i in range(0, 40, 5)]
    print(sorted(rows) == list(range(40)), all(part == list(range(part[0], part[0] + 5)) for part in parts))
    print(ds.count(), ray.data.range(10).randomize_block_order().schema().names)


def shuffling_into_blocks():
    """`repartition(shuffle=True)` makes blocks of random rows."""
    ds = ray.data.range(100, override_num_blocks=2).repartition(4, shuffle=True).materialize()
    print(ds.num_blocks(), sorted(_column(ds)) == list(range(100)), _column(ds) != list(range(100)))


def dividing_by_keys():
    """`repartition(keys=...)` brings equal keys into one block."""
    ds = ray.data.from_items([{"k": i % 7, "n": i} for i in range(70)], override_num_blocks=5)
    parts = ds.repartition(3, keys=["k"])
    seen = parts.map_batches(lambda batch: {"keys": [sorted({int(k) for k in batch["k"]})]}, batch_size=None)
    keys = [k for row in seen.take_all() for k in row["keys"]]
    print(parts.count(), sorted(keys), sorted(_column(parts, "n")) == list(range(70)))


def shuffling_without_rows():
    """Nothing stays nothing."""
    print(ray.data.range(0).random_shuffle().take_all(), ray.data.range(5).filter(lambda row: False).sort("id").count())
    print(ray.data.from_items([{"a": 1}]).filter(lambda row: False).random_shuffle().count())


# Sorting


def sorting_rows():
    """By a column, up or down."""
    ds = ray.data.from_items([{"x": (i * 37) % 50, "t": str(i)} for i in range(50)], override_num_blocks=4)
    print(_column(ds.sort("x"), "x") == list(range(50)), ds.sort("x", descending=True).take(2))
    print(_column(ds.sort("t"), "t")[:4], ds.sort("x").schema().names)


def sorting_by_several_columns():
    """Each column has a direction."""
    ds = ray.data.from_items([{"a": i % 3, "b": (i * 7) % 10} for i in range(12)], override_num_blocks=3)
    print([(row["a"], row["b"]) for row in ds.sort(["a", "b"]).take_all()])
    print([(row["a"], row["b"]) for row in ds.sort(["a", "b"], descending=[True, False]).take_all()])
    print([(row["a"], row["b"]) for row in ds.sort(["a", "b"], descending=True).take(3)])


def sorting_missing_values():
    """They are last."""
    ds = ray.data.from_items([{"x": value} for value in (3, None, 1, 2)], override_num_blocks=1)
    print(_column(ds.sort("x"), "x"), _column(ds.sort("x", descending=True), "x"))


def sorting_by_unknown_columns():
    """An error, when it runs."""
    ds = ray.data.range(10)
    print(raised(lambda: ds.sort("y").take_all(), "ValueError"))
    print(raised(lambda: ds.sort(["id", "y"]).take_all(), "ValueError"))
    print(raised(lambda: ds.sort(["id"], descending=[True, False]), "ValueError"))


# Page "Aggregating data"


def aggregates_of_groups():
    """One row for each key."""
    ds = ray.data.range(100).add_column("group_key", lambda x: x["id"].to_numpy() % 3)
    print(ds.max("id"))
    for kind in ("min", "max", "sum", "mean", "std"):
        rows = _sorted(getattr(ds.groupby("group_key"), kind)("id"), "group_key")
        print([{name: round(value, 6) for name, value in row.items()} for row in rows])
    print(_sorted(ds.groupby("group_key").count(), "group_key"))


def aggregates_of_all_rows():
    """A dictionary."""
    ds = ray.data.range(100).add_column("group_key", lambda x: x["id"].to_numpy() % 3)
    print(ds.aggregate(Count()), ds.aggregate(Quantile(on="id", q=0.75)), ds.aggregate(Sum("id"), Max("id"), Min("id")))
    print(round(ds.aggregate(Std("id"))["std(id)"], 6), ds.aggregate(Mean("id"), Mean("group_key")))
    print(ds.groupby(None).aggregate(Count()).take_all(), ds.groupby(None).sum("id").take_all())


def several_aggregates_at_once():
    """Columns in the order of the arguments."""
    ds = ray.data.range(100).add_column("group_key", lambda x: x["id"].to_numpy() % 3)
    rows = _sorted(
        ds.groupby("group_key").aggregate(Count(on="id"), Mean(on="id"), Min(on="id"), Max(on="id"), Std(on="id")),
        "group_key",
    )
    print([{name: round(value, 6) for name, value in row.items()} for row in rows])


def more_aggregates():
    """Distinct values, their number, the greatest absolute one."""
    ds = ray.data.from_items([{"k": i % 2, "x": (i % 5) - 4} for i in range(20)], override_num_blocks=3)
    rows = _sorted(ds.groupby("k").aggregate(AbsMax("x"), CountDistinct("x"), Quantile("x")), "k")
    print(rows)
    [row] = ds.groupby(None).aggregate(Unique("x")).take_all()
    print(sorted(row["unique(x)"]), list(row))
    found = ds.aggregate(Sum("x", alias_name="total"), Sum("x"))
    print(found)


def lists_and_counters():
    """All values of a group, and how often each is there."""
    ds = ray.data.from_items([{"k": i % 2, "t": "ab"[i // 4]} for i in range(8)], override_num_blocks=2)
    rows = _sorted(ds.groupby("k").aggregate(AsList("t")), "k")
    print([(row["k"], sorted(row["list(t)"])) for row in rows])
    rows = _sorted(ds.groupby("k").aggregate(ValueCounter("t")), "k")
    for row in rows:
        [(name, value)] = [(name, value) for name, value in row.items() if name != "k"]
        print(name, sorted(zip(value["values"], value["counts"], strict=True)))


def shares_of_values():
    """Percentages of missing values and of zeros."""
    ds = ray.data.from_items([{"x": value} for value in (0, 1, None, 0, 5)], override_num_blocks=2)
    print(ds.aggregate(MissingValuePercentage("x"), ZeroPercentage("x")))
    print(
        ds.aggregate(ZeroPercentage("x", ignore_nulls=False)), ds.aggregate(Count("x"), Count("x", ignore_nulls=True))
    )


def missing_values_in_aggregates():
    """They are left out unless they count."""
    ds = _flowers()
    print(_sorted(ds.groupby("kind").mean("width"), "kind"))
    print(_sorted(ds.groupby("kind").sum("width", ignore_nulls=False), "kind"))
    print(_sorted(ds.groupby("kind").aggregate(Count("width"), Count("width", ignore_nulls=True)), "kind"))
    nothing = ray.data.from_items([{"k": 1, "x": None}, {"k": 1, "x": None}, {"k": 2, "x": 3}], override_num_blocks=1)
    print(_sorted(nothing.groupby("k").max("x"), "k"), _sorted(nothing.groupby("k").sum("x"), "k"))
    print(_sorted(nothing.groupby("k").mean("x"), "k"))


def a_missing_key():
    """Rows without a key are a group."""
    ds = ray.data.from_items([{"k": None, "x": 1}, {"k": "a", "x": 2}, {"k": None, "x": 3}], override_num_blocks=1)
    print(_sorted(ds.groupby("k").sum("x"), "k"))


def several_keys():
    """A row for each pair of values that is there."""
    ds = ray.data.from_items([{"a": i % 2, "b": i % 3, "x": i} for i in range(12)], override_num_blocks=3)
    print(_sorted(ds.groupby(["a", "b"]).sum("x"), "a", "b"))
    print(_sorted(ds.groupby(["a"]).count(), "a"))


def several_columns():
    """A list of columns, or all of them."""
    ds = ray.data.from_items([{"k": i % 2, "x": i, "y": i / 2} for i in range(6)], override_num_blocks=2)
    print(_sorted(ds.groupby("k").sum(["x", "y"]), "k"), _sorted(ds.groupby("k").max(), "k"))
    print(ds.aggregate(Sum("x"), Mean("y")), ds.sum(["x", "y"]))


def an_own_aggregate_of_functions():
    """`AggregateFn` has functions that begin, extend and join."""
    total = AggregateFn(
        init=lambda key: 0,
        accumulate_row=lambda total, row: total + row["x"],
        merge=lambda one, other: one + other,
        finalize=lambda total: total * 10,
        name="tenfold",
    )
    ds = ray.data.from_items([{"k": i % 2, "x": i} for i in range(6)], override_num_blocks=2)
    print(_sorted(ds.groupby("k").aggregate(total), "k"), ds.aggregate(total))


def an_own_aggregate_as_a_class():
    """`AggregateFnV2` reduces a block, joins two results, and ends."""

    class Product(AggregateFnV2):
        def __init__(self, on):
            super().__init__(f"product({on})", lambda: 1, on=on, ignore_nulls=True)

        def aggregate_block(self, block):
            column = (
                pa.table(block).column(self._target_col_name)
                if not isinstance(block, pa.Table)
                else block.column(self._target_col_name)
            )
            return pc.product(column).as_py()

        def combine(self, current_accumulator, new):
            return current_accumulator * new

        def finalize(self, accumulator):
            return -accumulator

    ds = ray.data.from_items([{"k": i % 2, "x": i + 1} for i in range(6)], override_num_blocks=2)
    print(_sorted(ds.groupby("k").aggregate(Product("x")), "k"), ds.aggregate(Product("x")))


def an_own_mean():
    """The guide's mean, by the accessor of a block."""
    from ray.data.block import BlockAccessor

    class MyMean(AggregateFnV2):
        def __init__(self, on, ignore_nulls=True, alias_name=None):
            name = alias_name or f"mean({on})"
            super().__init__(name, on=on, ignore_nulls=ignore_nulls, zero_factory=lambda: list([0, 0]))  # noqa: C410

        def aggregate_block(self, block):
            accessor = BlockAccessor.for_block(block)
            count = accessor.count(self._target_col_name, self._ignore_nulls)
            if not count:
                return None
            return [accessor.sum(self._target_col_name, self._ignore_nulls), count]

        def combine(self, current_accumulator, new):
            return [current_accumulator[0] + new[0], current_accumulator[1] + new[1]]

        def finalize(self, accumulator):
            return accumulator[0] / accumulator[1] if accumulator[1] else np.nan

    ds = ray.data.range(30).add_column("k", lambda x: x["id"].to_numpy() % 3)
    print(_sorted(ds.groupby("k").aggregate(MyMean("id")), "k"), ds.aggregate(MyMean("id", alias_name="m")))


def grouping_by_unknown_columns():
    """An error."""
    ds = ray.data.range(10)
    print(raised(lambda: ds.groupby("y").count().take_all(), "ValueError"))
    print(raised(lambda: ds.groupby("id").sum("y").take_all(), "ValueError"))
    print(raised(lambda: ds.aggregate(Sum("y")), "ValueError"), raised(lambda: ds.sum("y"), "ValueError"))
    print(raised(lambda: ds.groupby([]).count().take_all(), "ValueError"))


def distinct_values():
    """`unique` returns a list."""
    ds = ray.data.from_items([{"x": value} for value in (3, 1, 3, 2, 1)], override_num_blocks=2)
    print(sorted(ds.unique("x")), ray.data.from_items([{"t": "a"}, {"t": "a"}]).unique("t"))
    holes = ray.data.from_items([{"x": 1}, {"x": None}, {"x": 1}], override_num_blocks=1)
    print(sorted(map(str, holes.unique("x"))), holes.unique("x", ignore_nulls=True))
    print(raised(lambda: ds.unique("y"), "ValueError"))


# Page "Transforming data", groups


def functions_of_groups():
    """A function gets all rows of a group, as arrays."""
    items = [{"image": np.full((2, 2), i, dtype=np.float64), "label": i % 3} for i in range(9)]

    def normalized(group):
        images = np.stack(list(group["image"]))
        return {"label": group["label"], "image": images - images.mean()}

    ds = ray.data.from_items(items).groupby("label").map_groups(normalized)
    print(sorted((row["label"], row["image"].tolist()) for row in ds.take_all()))


def functions_of_groups_as_frames():
    """As data frames, which may have fewer rows."""

    def scaled(group):
        target = group.drop(columns="target")
        made = (target - target.min()) / target.std()
        made["target"] = group["target"]
        return made

    ds = ray.data.from_items([{"a": float(i), "target": i % 2} for i in range(6)])
    rows = _sorted(ds.groupby("target").map_groups(scaled, batch_format="pandas"), "target", "a")
    print([{name: round(value, 6) for name, value in row.items()} for row in rows])
    first = ds.groupby("target").map_groups(lambda group: group.head(1), batch_format="pandas")
    print(_sorted(first, "target"))


def functions_of_groups_as_tables():
    """As tables."""
    ds = ray.data.from_items([{"a": i, "k": i % 2} for i in range(6)])
    made = ds.groupby("k").map_groups(
        lambda table: pa.table({"k": [table["k"][0].as_py()], "n": [table.num_rows]}), batch_format="pyarrow"
    )
    print(_sorted(made, "k"))


def classes_of_groups():
    """A class, with arguments."""

    class Add:
        def __init__(self, number):
            self.number = number

        def __call__(self, group, factor=1):
            return {"k": group["k"][:1], "x": np.array([group["x"].sum() * factor + self.number])}

    ds = ray.data.from_items([{"k": i % 2, "x": i} for i in range(6)])
    made = ds.groupby("k").map_groups(Add, fn_constructor_args=[100], fn_kwargs={"factor": 2}, concurrency=1)
    print(_sorted(made, "k"))


def groups_that_yield():
    """A generator makes several batches of a group."""

    def halves(group):
        for start in (0, 2):
            yield {"k": group["k"][:1], "sum": [int(group["x"][start : start + 2].sum())]}

    ds = ray.data.from_items([{"k": i % 2, "x": 1} for i in range(8)])
    print(_sorted(ds.groupby("k").map_groups(halves), "k"))


def all_rows_as_a_group():
    """`groupby(None)`."""
    ds = ray.data.range(10, override_num_blocks=3)
    print(ds.groupby(None).map_groups(lambda group: {"n": np.array([len(group["id"])])}).take_all())


# Parts of a data set


def training_and_test_rows():
    """`train_test_split`: a part, or a number of rows, from the end."""
    ds = ray.data.range(8)
    train, test = ds.train_test_split(test_size=0.25)
    print(_column(train), _column(test))
    train, test = ds.train_test_split(test_size=3)
    print(_column(train), _column(test))
    train, test = ds.train_test_split(test_size=0.5, shuffle=True, seed=1)
    print(sorted(_column(train) + _column(test)), train.count(), test.count())
    for wrong in (0, 8, 1.5, -1):
        print(raised(lambda: ds.train_test_split(test_size=wrong), "ValueError"))


def training_and_test_rows_by_class():
    """`stratify` keeps the shares of a column's values."""
    ds = ray.data.from_items([{"id": i, "label": "ab"[i >= 8]} for i in range(12)])
    train, test = ds.train_test_split(test_size=0.25, stratify="label")
    print(sorted(_column(train, "label")), sorted(_column(test, "label")))
    print(sorted(_column(train) + _column(test)) == list(range(12)))


def parts_of_a_number():
    """`split(n)`."""
    ds = ray.data.range(20, override_num_blocks=4)
    parts = ds.split(2)
    print(len(parts), sorted(row for part in parts for row in _column(part)) == list(range(20)))
    parts = ray.data.range(11, override_num_blocks=4).split(3, equal=True)
    print([part.count() for part in parts], type(parts[0]).__name__)
    print(raised(lambda: ds.split(0), "ValueError"))


def parts_at_places():
    """`split_at_indices`."""
    print([_column(part) for part in ray.data.range(10).split_at_indices([2, 5])])
    print([_column(part) for part in ray.data.range(4).split_at_indices([0, 4, 9])])
    for wrong in ([], [-1], [3, 2]):
        print(raised(lambda: ray.data.range(4).split_at_indices(wrong), "ValueError"))


def parts_by_shares():
    """`split_proportionately`: the rest is a part too."""
    print([_column(part) for part in ray.data.range(10).split_proportionately([0.2, 0.5])])
    for wrong in ([], [1.0], [0.5, 0.6], [-0.1]):
        print(raised(lambda: ray.data.range(4).split_proportionately(wrong), "ValueError"))


def random_rows():
    """`random_sample` keeps each row with this probability."""
    ds = ray.data.range(2000)
    rows = _column(ds.random_sample(0.25))
    print(
        300 < len(rows) < 700, len(set(rows)) == len(rows), ds.random_sample(1.0).count(), ds.random_sample(0.0).count()
    )
    print(_column(ds.random_sample(0.1, seed=4)) == _column(ds.random_sample(0.1, seed=4)))
    print(raised(lambda: ds.random_sample(1.5), "ValueError"), raised(lambda: ds.random_sample(-0.5), "ValueError"))
    print(raised(lambda: ray.data.range(1).random_sample("a"), "TypeError", "ValueError"))


def columns_side_by_side():
    """`zip` joins rows by their place."""
    ds = ray.data.range(5, override_num_blocks=2)
    other = ray.data.from_items([{"t": str(i), "id": -i} for i in range(5)], override_num_blocks=3)
    print(ds.zip(other).take_all(), ds.zip(other).schema().names)
    third = ray.data.range(5).map(lambda row: {"third": row["id"] * 3})
    print(ds.zip(other, third).take(2))
    print(raised(lambda: ds.zip(ray.data.range(6)).take_all(), "ValueError"))


# Expressions


def expressions():
    """Columns from columns: arithmetic, comparisons, texts."""
    from ray.data.expressions import col, lit

    ds = ray.data.from_items([{"a": i, "b": i / 2, "t": f"x{i}"} for i in range(3)])
    print(ds.with_column("c", (col("a") + 1) * col("b")).take_all())
    print(ds.with_column("big", col("a") >= 1).with_column("one", lit(1)).select_columns(["big", "one"]).take_all())
    print(ds.with_column("u", col("t").str.upper()).with_column("n", col("t").str.len()).take(1))
    print(ds.with_columns({"d": col("a") - 5, "e": 2 * col("a"), "f": col("b") / 2}).take(2))
    print(ds.filter(expr=(col("a") > 0) & ~(col("t") == "x2")).take_all())
    print(
        ds.filter(expr=col("a").is_in([0, 2]) | col("b").is_null()).count(),
        ds.filter(expr=col("a").not_in([1])).count(),
    )


def divisions_of_whole_numbers():
    """Their types. Differs: 1 / 2 is 0.5 and 1 // 2 is 0, as in Python; in Ray 2.60 they are 0 and 0.0."""
    from ray.data.expressions import col

    ds = ray.data.from_items([{"a": 1}, {"a": -7}], override_num_blocks=1)
    print(ds.with_columns({"e": col("a") // 2, "f": col("a") / 2}).take_all())


def expressions_of_functions():
    """`udf` makes an expression of a function of columns."""
    from ray.data.datatype import DataType
    from ray.data.expressions import col, udf

    @udf(DataType.int64())
    def added(x, y):
        return pc.add(x, y)

    ds = ray.data.from_items([{"a": i, "b": 10 * i} for i in range(3)])
    print(ds.with_column("c", added(col("a"), col("b"))).take_all())


# More sources and files


def tar_files():
    """`write_webdataset` writes a sample of several files for each row, and `read_webdataset` reads them."""
    with _folder() as folder:
        items = [{"__key__": f"{i:03d}", "txt": f"text {i}", "cls": i, "json": {"n": i}} for i in range(5)]
        ds = ray.data.from_items(items, override_num_blocks=1)
        ds.write_webdataset(str(folder / "out"))
        [path] = [path for path in (folder / "out").iterdir() if path.suffix == ".tar"]
        with tarfile.open(path) as tar:
            print(tar.getnames()[:3], tar.extractfile("002.txt").read(), json.loads(tar.extractfile("002.json").read()))
        rows = sorted(ray.data.read_webdataset(str(folder / "out")).take_all(), key=lambda row: row["__key__"])
        print([{name: row[name] for name in ("__key__", "txt", "cls", "json")} for row in rows[:2]], list(rows[0])[-1:])


def tar_files_with_images():
    """Images are arrays; other endings stay bytes."""
    import io

    with _folder() as folder:
        with tarfile.open(folder / "a.tar", "w") as tar:
            for i in range(2):
                data = io.BytesIO()
                Image.new("RGB", (3, 2), (i, 5, 6)).save(data, "png")
                for name, content in (
                    (f"s{i}.png", data.getvalue()),
                    (f"s{i}.cls", str(i).encode()),
                    (f"s{i}.bin", b"x"),
                ):
                    info = tarfile.TarInfo(name)
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
        rows = sorted(ray.data.read_webdataset(str(folder)).take_all(), key=lambda row: row["__key__"])
        print([(row["__key__"], row["png"].shape, row["cls"], row["bin"]) for row in rows])
        raw = ray.data.read_webdataset(str(folder / "a.tar"), decoder=None).take(1)[0]
        print(type(raw["png"]).__name__, raw["cls"])
        print(sorted(ray.data.read_webdataset(str(folder), suffixes=["cls"], decoder=None).take(1)[0]))


def saved_images():
    """`write_images` writes a file for each row."""
    with _folder() as folder:
        for i in range(3):
            Image.new("RGB", (2, 2), (i, 0, 0)).save(folder / f"{i}.png")
        ds = ray.data.read_images(str(folder))
        ds.write_images(str(folder / "out"), column="image")
        files = sorted((folder / "out").rglob("*.png"))
        print(len(files), sorted(np.asarray(Image.open(name))[0, 0].tolist() for name in files))


def rows_in_each_file():
    """`min_rows_per_file` joins small blocks."""
    with _folder() as folder:
        ray.data.range(100, override_num_blocks=10).write_csv(str(folder / "csv"), min_rows_per_file=50)
        print(len(list((folder / "csv").iterdir())))
        ray.data.range(100, override_num_blocks=10).write_parquet(str(folder / "parquet"), min_rows_per_file=100)
        print([pq.read_table(name).num_rows for name in (folder / "parquet").iterdir()])


def files_that_are_not_there():
    """`ignore_missing_paths` leaves them out."""
    with _folder() as folder:
        (folder / "a.csv").write_text("x\n1\n")
        paths = [str(folder / "a.csv"), str(folder / "none.csv")]
        print(ray.data.read_csv(paths, ignore_missing_paths=True).take_all())


# Pages "Inspecting data" and "Key concepts"


def schema_of_arrays():
    """What it prints of arrays and lists. Differs: arrays have the type of Arrow."""
    ds = ray.data.from_items([{"x": np.zeros((2, 2)), "l": [1, 2], "t": "a", "b": True}])
    print(ds.schema())


def names_in_ray_data():
    """Names that programs import."""
    from ray.data import DataContext, DataIterator, Dataset, ExecutionOptions, ExecutionResources, Schema  # noqa: F401
    from ray.data.block import Block, BlockAccessor  # noqa: F401
    from ray.data.context import ShuffleStrategy

    context = DataContext.get_current()
    context.shuffle_strategy = ShuffleStrategy.HASH_SHUFFLE
    print(sorted(_column(ray.data.range(20).random_shuffle())) == list(range(20)))


# Pages "Working with text", "tensors", "images" and "Batch inference"


def words_by_number():
    """Words, counted in groups, and sorted."""
    with _folder() as folder:
        (folder / "a.txt").write_text("a b a\nc a b\n")
        words = ray.data.read_text(str(folder)).flat_map(lambda row: [{"word": one} for one in row["text"].split()])
        print(words.groupby("word").count().sort("count()", descending=True).take_all())


def arrays_in_sorts_and_groups():
    """Arrays keep their shapes through shuffles, sorts and groups."""
    items = [{"id": (i * 3) % 8, "x": np.full((2, 2), (i * 3) % 8), "r": np.zeros(i % 3 + 1)} for i in range(8)]
    ds = ray.data.from_items(items, override_num_blocks=3)
    rows = ds.sort("id").take_all()
    print([row["id"] for row in rows], rows[3]["x"].tolist(), [row["r"].shape for row in rows])
    print(sorted(int(row["x"][0, 0]) for row in ds.random_shuffle().take_all()))
    parts = ds.map(lambda row: {"k": row["id"] % 2, "x": row["x"]}).groupby("k")
    print(_sorted(parts.map_groups(lambda group: {"k": group["k"][:1], "n": [group["x"].shape[0]]}), "k"))


def images_by_label():
    """Labels from the names of directories, and a group for each."""
    with _folder() as folder:
        for i in range(4):
            path = folder / ("cat", "dog")[i % 2] / f"{i}.png"
            path.parent.mkdir(exist_ok=True)
            Image.new("L", (2, 2), 10 * i).save(path)

        def labelled(row):
            return {"label": row["path"].split("/")[-2], "mean": float(row["image"].mean())}

        ds = ray.data.read_images(str(folder), include_paths=True).map(labelled)
        print(_sorted(ds.groupby("label").mean("mean"), "label"))


def normalized_columns():
    """Statistics of all rows, and then a function that uses them."""
    ds = ray.data.from_items([{"x": float(i)} for i in range(5)])
    mean, std = ds.mean("x"), ds.std("x")
    scaled = ds.map_batches(lambda batch: {"x": (batch["x"] - mean) / std})
    print([round(value, 4) for value in _column(scaled.sort("x"), "x")])


# Page "Data loading and preprocessing" of training


def _trained(loop, workers, datasets, folder, **more):
    return DataParallelTrainer(
        loop,
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(storage_path=str(folder), name="mine"),
        datasets=datasets,
        **more,
    ).fit()


def another_order_in_each_epoch():
    """A shuffle after `materialize` gives each epoch an order of its own."""
    with _folder() as folder, _folder() as notes:
        place = str(notes / "epochs")

        def loop():
            shard = ray.train.get_dataset_shard("train")
            epochs = [[int(one) for batch in shard.iter_batches() for one in batch["id"]] for _ in range(2)]
            with open(place, "w") as file:
                json.dump(epochs, file)

        ds = ray.data.range(60, override_num_blocks=4).materialize().random_shuffle()
        _trained(loop, 1, {"train": ds}, folder)
        first, second = json.loads(Path(place).read_text())
        print(sorted(first) == sorted(second) == list(range(60)), first != second)


def parts_for_training_and_validation():
    """`train_test_split`, and both parts shared by the workers."""
    with _folder() as folder, _folder() as notes:
        place = str(notes)

        def loop():
            sizes = [len(list(ray.train.get_dataset_shard(name).iter_rows())) for name in ("train", "val")]
            with open(os.path.join(place, str(ray.train.get_context().get_world_rank())), "w") as file:
                json.dump(sizes, file)

        train, val = ray.data.range(40, override_num_blocks=4).train_test_split(0.3)
        config = ray.train.DataConfig(datasets_to_split=["train", "val"])
        _trained(loop, 2, {"train": train, "val": val}, folder, dataset_config=config)
        print([json.loads((notes / str(rank)).read_text()) for rank in range(2)])


def an_own_division():
    """A class derived from `DataConfig` has its `configure`."""
    from ray.train import DataConfig

    class Mine(DataConfig):
        def configure(self, datasets, world_size, worker_handles, worker_node_ids, **kwargs):
            context = ray.data.DataContext.get_current()
            context.execution_options = DataConfig.default_ingest_options()
            shards = datasets["train"].streaming_split(world_size, equal=True, locality_hints=worker_node_ids)
            return [{"train": shard} for shard in shards]

    with _folder() as folder, _folder() as notes:
        place = str(notes)

        def loop():
            rows = [int(row["id"]) for row in ray.train.get_dataset_shard("train").iter_rows()]
            with open(os.path.join(place, str(ray.train.get_context().get_world_rank())), "w") as file:
                json.dump(rows, file)

        _trained(loop, 2, {"train": ray.data.range(20, override_num_blocks=4)}, folder, dataset_config=Mine())
        found = [json.loads((notes / str(rank)).read_text()) for rank in range(2)]
        print([len(one) for one in found], sorted(found[0] + found[1]) == list(range(20)))


def frames_to_tables():
    """A data frame, sorted and grouped, is a data frame again."""
    frame = pd.DataFrame({"k": ["b", "a", "b"], "x": [1, 2, 3]})
    print(ray.data.from_pandas(frame).groupby("k").sum("x").sort("k").to_pandas().to_dict("list"))
