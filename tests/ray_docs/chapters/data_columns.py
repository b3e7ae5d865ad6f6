"""Data sets: expressions, joins, blocks as references, and arguments that are refused."""

import datetime
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import ray
import ray.data
from ray.data.aggregate import Max
from ray.data.datatype import DataType
from ray.data.expressions import col, lit, udf

from tests.ray_docs.helpers import raised


def _made(values, *exprs):
    """What expressions of the column "v" are, for each row."""
    ds = ray.data.from_arrow(pa.table({"v": values}))
    for number, expr in enumerate(exprs):
        ds = ds.with_column(f"c{number}", expr)
    return [list(row.values())[1:] for row in ds.take_all()]


def _sorted(ds, key="id"):
    return sorted(ds.take_all(), key=lambda row: (row[key] is None, row[key]))


def functions_of_texts():
    """Lengths, cases, searches, parts."""
    text = col("v").str
    print(_made(["aBc1", " x "], text.len(), text.byte_len(), text.upper(), text.swapcase(), text.capitalize()))
    print(_made(["aBc1", "12"], text.is_alpha(), text.is_alnum(), text.is_digit(), text.is_ascii()))
    print(_made(["xaxbx"], text.strip("x"), text.lstrip("x"), text.rstrip("x"), text.find("b"), text.count("x")))
    print(_made(["Alice"], text.match("Al%"), text.contains("li"), text.starts_with("a", ignore_case=True)))
    print(_made(["hi"], text.pad(5, "*", "left"), text.lpad(4, "-"), text.center(6, "."), text.repeat(2)))
    print(_made(["a1b22"], text.replace_regex("[0-9]+", "#"), text.split("1"), text.slice(1, 3), text.reverse()))


def texts_are_added():
    """`+` joins texts, also with values, and texts that are encoded."""
    print(_made(["a", None], col("v") + "_x", "x_" + col("v"), col("v") + col("v"), col("v") + lit("!")))
    print(_made(pa.array(["a", "b"]).dictionary_encode(), col("v") + "_x"))


def functions_of_lists():
    """Items, parts, lengths, orders."""
    lists = col("v").list
    print(_made([[3, 1, 2], [5]], lists.len(), lists[0], lists.get(0), lists[0:2], lists.sort()))
    print(_made([[3, None, 2]], lists.sort(order="descending", null_placement="at_start")))
    print(_made([[[1, 2], [3]], [[], [4, 5]]], lists.flatten()))
    print(raised(lambda: lists.sort(order="up"), "ValueError"))


def fields_and_maps():
    """Fields of structures, keys and values of maps."""
    struct = col("v").struct
    print(_made([{"a": {"b": 1}, "c": "x"}], struct["a"].struct["b"], struct.field("c"), struct.field_by_index(1)))
    maps = pa.array([[("a", 1), ("b", 2)], []], pa.map_(pa.string(), pa.int64()))
    print(_made(maps, col("v").map.keys(), col("v").map.values()))


def functions_of_times():
    """Parts of times, texts of them, and rounding."""
    when = col("v").dt
    print(_made([datetime.datetime(2024, 1, 2, 10, 30)], when.year(), when.hour(), when.strftime("%d.%m.%y")))
    print(_made([datetime.datetime(2024, 1, 2, 10, 30)], when.floor("day"), when.ceil("day"), when.round("hour")))


def functions_of_numbers():
    """Rounding, logarithms, signs, powers."""
    value = col("v")
    print(_made([-1.75, 0.25], value.ceil(), value.floor(), value.trunc(), value.abs(), value.sign()))
    print(_made([1.0, math.e], value.ln(), value.exp(), value.power(2)))
    print(_made([2.7], value.cast(DataType.int64(), safe=False), value.cast(DataType.string())))


def functions_in_expressions():
    """Functions and classes get arrays, and values."""

    @udf(return_dtype=DataType.int64())
    def added(values, more=0):
        return pc.add(values, more)

    @udf(return_dtype=DataType.int64())
    class Adder:
        def __init__(self, step):
            self.step = step

        def __call__(self, values):
            return pc.add(values, self.step)

    ds = ray.data.range(3)
    print(ds.with_column("x", added(col("id"), more=2) * 2).take_all())
    print(ds.with_column("x", Adder(5)(col("id"))).take_all())
    print([row["id"] for row in ds.filter(expr=added(col("id")) > 1).take_all()])


def functions_that_return_no_column():
    """They fail when they run."""

    @udf(return_dtype=DataType.int64())
    def wrong(values):
        return 42

    print(raised(lambda: ray.data.range(3).with_column("x", wrong(col("id"))).take_all(), "RayTaskError"))


def structure_of_expressions():
    """`structurally_equals` compares, `==` makes an expression, `alias` gives a name."""
    one = (col("a") + 1).alias("b")
    print(one.name, one.structurally_equals((col("a") + 1).alias("b")), one.structurally_equals(col("a") + 1))
    print(lit(1).structurally_equals(lit(1.0)), (col("a") + col("b")).structurally_equals(col("b") + col("a")))
    print((col("a") > 1).to_pyarrow(), col("a").is_null().to_pyarrow())


def types_of_values():
    """Of Arrow, numpy and Python."""
    print(DataType.int64(), DataType(int), DataType.from_numpy("float32"), DataType.list(DataType.string()))
    print(
        DataType.infer_dtype(1.5), DataType.int64() == DataType.from_arrow(pa.int64()), DataType(int) == DataType(str)
    )
    print(DataType.int64().is_numerical_type(), DataType.string().is_list_type(), DataType.float32().to_numpy_dtype())
    print(raised(lambda: DataType("int"), "TypeError"), raised(lambda: col("a").cast(DataType(int)), "TypeError"))


def conditions_in_texts():
    """Columns with points in their names, functions, lists."""
    ds = ray.data.from_items([{"leaf.size": i, "kind": "ab"[i % 2], "n": None if i == 2 else i} for i in range(4)])
    for text in ("leaf.size > 1", "is_null(n)", "is_not_null(n) and kind == 'a'", "is_in(kind, ['b'])", "not n > 1"):
        print(text, [row["leaf.size"] for row in ds.filter(expr=text).take_all()])
    print(raised(lambda: ds.filter(expr="n n"), "ValueError"), raised(lambda: ds.filter(fn="n > 1"), "ValueError"))
    print(raised(lambda: ds.filter(expr="n > 1", fn_args=(1,)), "ValueError"))


def expressions_of_groups():
    """`GroupedData.with_column` sees the rows of one group."""

    @udf(return_dtype=DataType.int64())
    def least(values):
        return pa.array([pc.min(values).as_py()] * len(values))

    ds = ray.data.from_items([{"g": i % 2, "v": i} for i in range(5)])
    print(ds.groupby("g").with_column("least", least(col("v"))).sort("v").take_all())


def _sides():
    left = ray.data.from_items([{"id": i, "a": i * 10} for i in range(5)])
    return left, ray.data.from_items([{"id": i * 2, "b": str(i)} for i in range(4)])


def joins():
    """Inner, outer, semi, anti."""
    left, right = _sides()
    for kind in (
        "inner",
        "left_outer",
        "right_outer",
        "full_outer",
        "left_semi",
        "right_semi",
        "left_anti",
        "right_anti",
    ):
        print(kind, _sorted(left.join(right, join_type=kind, num_partitions=2, on=("id",))))


def joins_by_several_keys():
    """Keys may have other names on the right side."""
    left = ray.data.from_items([{"x": i % 2, "y": i, "a": i} for i in range(4)])
    right = ray.data.from_items([{"u": i % 2, "w": i, "b": -i} for i in range(0, 4, 2)])
    print(_sorted(left.join(right, "inner", 2, on=("x", "y"), right_on=("u", "w")), "y"))
    print(_sorted(left.join(right, "left_outer", 1, on=("x", "y"), right_on=("u", "w")), "y"))
    print(_sorted(left.select_columns(["a", "y"]).join(right, "inner", 2, on=("y",), right_on=("w",)), "y"))


def joins_of_columns_with_one_name():
    """They need suffixes."""
    left, _ = _sides()
    print(_sorted(left.join(left, "inner", 2, on=("id",), left_suffix="_l", right_suffix="_r"))[:2])
    print(_sorted(left.join(left, "inner", 2, on=("id",), right_suffix="_r"))[:2])
    print(raised(lambda: left.join(left, "inner", 2, on=("id",)).take_all(), "RayTaskError"))


def joins_that_are_refused():
    """Keys are lists or tuples, and have one type."""
    left, right = _sides()
    print(raised(lambda: left.join(right, "inner", 2, on="id"), "ValueError"))
    texts = right.map(lambda row: {"id": str(row["id"])})
    print(raised(lambda: left.join(texts, "inner", 2, on=("id",), validate_schemas=True), "ValueError"))
    print(raised(lambda: left.join(right, "sideways", 2, on=("id",)), "ValueError"))


def blocks_as_references():
    """References to tables, frames and arrays, both ways."""
    ds = ray.data.range(5, override_num_blocks=1)
    print([one.to_pydict() for one in ray.get(ds.to_arrow_refs())])
    print([one.to_dict("list") for one in ray.get(ds.to_pandas_refs())])
    print([one["id"].tolist() for one in ray.get(ds.to_numpy_refs())])
    print([one.tolist() for one in ray.get(ds.to_numpy_refs(column="id"))])
    print(ray.data.from_arrow_refs([ray.put(pa.table({"a": [1]})), ray.put(pa.table({"a": [2]}))]).take_all())
    print(ray.data.from_pandas_refs(ray.put(pd.DataFrame({"a": [1, 2]}))).count())
    print(ray.data.from_numpy_refs([ray.put(np.arange(2))]).take_all())


def aggregates_of_one_column():
    """Without names the result of a single column is a value; a missing column is refused."""
    print(ray.data.range(5).sum(), ray.data.range(5).max(), ray.data.from_items([{"a": 1, "b": 2}]).sum())
    print(raised(lambda: ray.data.range(5).aggregate(Max()), "ValueError"))
    print(repr(ray.data.range(3).groupby("id")).startswith("GroupedData(dataset="))


def bounds_of_sorted_blocks():
    """`boundaries` are the first keys of blocks."""
    ds = ray.data.range(20, override_num_blocks=4).random_shuffle(seed=1).sort("id", boundaries=[5, 12])
    print([len(batch["id"]) for batch in ds.iter_batches(batch_size=None)], [row["id"] for row in ds.take_all()][:6])


def blocks_as_batches():
    """`batch_format=None` gives tables."""
    [batch] = ray.data.range(3, override_num_blocks=1).iter_batches(batch_format=None)
    print(type(batch).__name__, batch.to_pydict())
    print(ray.data.range(2).map_batches(lambda batch: {"kind": [type(batch).__name__]}, batch_format=None).take(1))


def arguments_of_data_sets_that_are_refused():
    """By ValueError, most of them."""
    ds = ray.data.range(10)
    calls = [
        lambda: ds.repartition(4, target_num_rows_per_block=10), lambda: ds.repartition(),
        lambda: ds.repartition(target_num_rows_per_block=10, shuffle=True), lambda: ds.sort(lambda row: row),
        lambda: ds.sort("x").take_all(), lambda: ds.select_columns(["id", "id"]), lambda: ds.rename_columns({1: "a"}),
        lambda: ds.split_proportionately([0.9] + [0.001] * 90), lambda: ds.groupby(lambda row: row),
        lambda: ray.data.ActorPoolStrategy(size=1, min_size=1), lambda: ray.data.ActorPoolStrategy(min_size=2, max_size=1),
        lambda: ray.data.TaskPoolStrategy(size=0),
    ]  # fmt: skip
    print([raised(call, "ValueError") for call in calls])
    print(raised(ds.num_blocks, "NotImplementedError"), raised(lambda: len(ds), "AttributeError"))


def more_blocks_than_rows():
    """Tables and frames are divided into this number, and some blocks are empty."""
    table = pa.table({"a": [1, 2, 3]})
    for count in (2, 5):
        ds = ray.data.from_arrow(table, override_num_blocks=count)
        print(ds.materialize().num_blocks(), [row["a"] for row in ds.take_all()])
