"""Expressions: the functions of each kind of value, functions of users, types, and what they are made of."""

from __future__ import annotations

import datetime
from typing import Any

import numpy
import pytest

from mpi_runtime import data
from mpi_runtime.data.datatype import DataType
from mpi_runtime.data.expressions import BinaryExpr, Expr, Operation, UDFExpr, col, lit, udf

pyarrow = pytest.importorskip("pyarrow")
pc = pytest.importorskip("pyarrow.compute")


pytestmark = pytest.mark.usefixtures("job")


def made(values: object, *exprs: Expr) -> list[list[object]]:
    """What expressions of the column "v" are, for each row."""
    ds = data.from_arrow(pyarrow.table({"v": values})).with_columns({f"c{i}": one for i, one in enumerate(exprs)})
    return [list(row.values())[1:] for row in ds.take_all()]


def test_functions_of_texts() -> None:
    text = col("v").str
    functions = [
        text.byte_len(), text.is_ascii(), text.strip(), text.lstrip("x"), text.rstrip("x "), text.find("b"),
        text.count("a"), text.match("%b%"), text.match_regex("[0-9]"), text.slice(1, 3), text.replace("a", "u"),
        text.replace_regex("[ab]", "-", max_replacements=1), text.split("b"), text.pad(6, "*", "left"),
        text.starts_with("X", ignore_case=True),
    ]  # fmt: skip
    assert made(["xaba "], *functions) == [
        [5, True, "xaba", "aba ", "xaba", 2, 2, True, False, "ab", "xubu ", "x-ba ", ["xa", "a "], "*xaba ", True]
    ]
    with pytest.raises(ValueError, match="side must be"):
        text.pad(6, "*", "middle")


def test_texts_are_joined() -> None:
    values = pyarrow.array(["a", None]).dictionary_encode()
    assert made(values, col("v") + "_x", "x_" + col("v"), col("v") + col("v")) == [["a_x", "x_a", "aa"], [None] * 3]
    with pytest.raises(data.BlockError):
        data.range(1).with_column("x", col("id") + "_x").materialize()


def test_functions_of_lists() -> None:
    lists = col("v").list
    rows = made([[3, 1, None], [], None], lists[0:2], lists.sort(), lists.sort("descending", "at_start"), lists.len())
    assert rows == [[[3, 1], [1, 3, None], [None, 3, 1], 3], [[], [], [], 0], [None] * 4]
    assert made([[5, 6]], lists[1], lists.get(0), lists.len() + 1) == [[6, 5, 3]]
    nested: list[object] = [[[1, 2], [3]], [], [[], None, [4]], None]
    assert made(nested, lists.flatten()) == [[[1, 2, 3]], [[]], [[4]], [None]]
    large = pyarrow.array(nested, pyarrow.large_list(pyarrow.list_(pyarrow.int64())))
    assert made(large[2:], lists.flatten()) == [[[4]], [None]]
    for wrong in (lists.flatten(), col("v").map.keys()):
        with pytest.raises(data.BlockError, match="require"):
            made([[1]], wrong)
    with pytest.raises(ValueError, match="order must be"):
        lists.sort("up")
    with pytest.raises(TypeError, match="whole number"):
        lists["x"]  # type: ignore[index]


def test_functions_of_structures_maps_arrays_and_times() -> None:
    struct = col("v").struct
    assert made([{"a": {"b": 1}, "c": "x"}], struct["a"].struct["b"], struct.field("c"), struct[1]) == [[1, "x", "x"]]
    kinds = pyarrow.map_(pyarrow.string(), pyarrow.int64())
    maps = pyarrow.array([[("a", 1), ("b", 2)], [], None, [("c", None)]], kinds)
    both = (col("v").map.keys(), col("v").map.values())
    assert made(maps, *both) == [[["a", "b"], [1, 2]], [[], []], [None, None], [["c"], [None]]]
    assert made(maps[1:], *both) == [[[], []], [None, None], [["c"], [None]]]
    arrays = pyarrow.FixedShapeTensorArray.from_numpy_ndarray(numpy.arange(4).reshape(2, 2))
    assert made(arrays, col("v").arr.to_list()) == [[[0, 1]], [[2, 3]]]
    time = col("v").dt
    when = datetime.datetime(2024, 1, 2, 10, 30)
    day = datetime.datetime(2024, 1, 2)
    found = made([when], time.strftime("%d.%m."), time.floor("day"), time.ceil("month"), time.round("day"))
    assert found == [["02.01.", day, datetime.datetime(2024, 2, 1), day]]


def test_functions_of_users() -> None:
    @udf(return_dtype=DataType.int64())
    def added(values: Any, more: int = 0) -> Any:
        return pc.add(values, more)

    @udf(return_dtype=DataType.int64())
    class Numbered:
        def __init__(self, start: int) -> None:
            self.calls = start

        def __call__(self, values: Any) -> Any:
            self.calls += 1
            return numpy.full(len(values), self.calls)

    ds = data.range(4, override_num_blocks=4)
    assert [row["x"] for row in ds.with_column("x", added(col("id"), more=2) * 2).take_all()] == [4, 6, 8, 10]
    # One actor keeps the object, so each block has a number of its own.
    numbered = ds.with_column("x", Numbered(10)(col("id")), concurrency=1).take_all()
    assert sorted(row["x"] for row in numbered) == [11, 12, 13, 14]  # type: ignore[type-var]
    assert ds.filter(expr=Numbered(0)(col("id")) > 2, concurrency=1).count() == 2

    @udf()
    def wrong(values: Any) -> Any:
        return 42

    with pytest.raises(data.BlockError, match="'wrong' has returned invalid type int"):
        ds.with_column("x", wrong(col("id"))).take_all()


def test_what_an_expression_is_made_of() -> None:
    one = (col("a") + 1).alias("b")
    assert one.name == "b"
    assert one.structurally_equals((col("a") + 1).alias("b"))
    for other in ((col("a") + 1), (col("a") + 2).alias("b"), (col("a") + 1).alias("c"), (col("a") - 1).alias("b")):
        assert not one.structurally_equals(other)
    assert not lit(1).structurally_equals(lit(1.0))
    condition = (col("a") > 1) & ~col("b").is_in(["x"])
    assert isinstance(condition, BinaryExpr)
    assert condition.op is Operation.AND
    assert str(condition) == "((col('a') > 1) & not((col('b') in ['x'])))"
    table = pyarrow.table({"a": [1, 2, 3], "b": ["x", "y", "x"]})
    assert table.filter(condition.to_pyarrow()).to_pylist() == [{"a": 2, "b": "y"}]
    assert str(col("b").str.upper().to_pyarrow()) == "utf8_upper(b)"
    with pytest.raises(TypeError, match="UDF expressions cannot"):
        UDFExpr(len, [col("a")]).to_pyarrow()
    assert col("a").is_null().data_type == DataType.bool()
    assert lit("x").data_type == DataType.string()


def test_types() -> None:
    number, text = DataType.int32(), DataType.string()
    assert (number.to_arrow_dtype(), number.to_numpy_dtype()) == (pyarrow.int32(), numpy.dtype("int32"))
    assert number.is_integer_type()
    assert text.is_string_type()
    assert not text.is_numerical_type()
    assert DataType.list(number).is_list_type()
    assert DataType.map(text, number).is_nested_type()
    assert DataType.struct([("a", number)]).is_struct_type()
    assert DataType.tensor((2, 2), number).is_tensor_type()
    assert DataType.temporal("timestamp", unit="s", tz="UTC").to_arrow_dtype() == pyarrow.timestamp("s", "UTC")
    assert DataType.infer_dtype(1) == DataType.int64() != DataType.from_numpy("int64")
    assert DataType.infer_dtype(object()) == DataType(object)
    assert DataType(int).to_arrow_dtype([1]) == pyarrow.int64()
    assert {DataType(int), DataType(int), number} == {number, DataType(int)}
    assert [str(one) for one in (number, DataType(int))] == ["DataType(arrow:int32)", "DataType(python:int)"]
    for wrong in (lambda: DataType("int"), lambda: DataType.from_arrow("int"), lambda: DataType.from_numpy(3)):  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="type"):
            wrong()  # type: ignore[no-untyped-call]
    with pytest.raises(AttributeError, match="no_type"):
        DataType.no_type()
    with pytest.raises(TypeError, match="Python-type-backed"):
        col("a").cast(DataType(int))
    with pytest.raises(TypeError, match="target_type must be"):
        col("a").cast("int")
    assert made([1.5], col("v").cast(DataType.int64(), safe=False)) == [[1]]
