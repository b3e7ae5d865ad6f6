"""Values to bytes and back: layout, what stays beside the pickle, which references are found.

Long `bytes` have a file of their own: `test_serialize_long.py`.
"""

import pickle
import sys
import threading
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_runtime.core.objects import serialize
from mpi_runtime.core.objects.serialize import ALIGNMENT, Serialized, Slot, dumps, dumps_arguments, loads
from mpi_runtime.errors import DeviceUnavailableError, is_about_device
from mpi_runtime.util.serialization import deregister_serializer, register_serializer

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


TWICE = ["a", 1]


def whole(value: Serialized) -> bytes:
    """What lies in the arena: the parts, each at its place."""
    data = bytearray(value.size())
    for position, part in value.parts():
        data[position : position + len(part)] = part
    return bytes(data)


@given(VALUES)
def test_values_come_back(value: Any) -> None:
    serialized = dumps(value)
    assert loads(serialized.inline()) == value
    assert whole(serialized) == serialized.inline()
    assert serialized.size() == len(serialized.inline())
    assert serialized.refs == []


@given(st.lists(st.integers(0, 300), max_size=6))
def test_arrays_come_back_aligned_and_read_only(lengths: list[int]) -> None:
    arrays = [np.arange(length, dtype=np.int16) for length in lengths]
    serialized = dumps(arrays)
    data = np.zeros(serialized.size() + ALIGNMENT, np.uint8)
    start = -data.ctypes.data % ALIGNMENT
    place = data[start : start + serialized.size()]
    place[:] = np.frombuffer(whole(serialized), np.uint8)
    found = loads(memoryview(place))  # type: ignore[arg-type]
    for array, copy in zip(arrays, found, strict=True):
        assert np.array_equal(array, copy)
        assert not copy.flags.writeable
        assert copy.ctypes.data % ALIGNMENT == 0 or not copy.size
        assert np.shares_memory(copy, place) or not copy.size


def test_buffers_are_not_copied_when_serialised() -> None:
    array = np.zeros(1_000_000)
    serialized = dumps({"a": array})
    assert len(serialized.data) < 1000
    (buffer,) = serialized.buffers
    assert np.shares_memory(np.frombuffer(buffer, np.uint8), array)


def test_the_first_byte_tells_the_layouts_apart() -> None:
    assert dumps([1]).inline()[0] == 0x80
    assert dumps(object).inline()[0] == 0x80
    assert dumps(np.zeros(3)).inline()[0] == 0x01


def test_a_value_without_buffers_is_a_plain_pickle() -> None:
    assert pickle.loads(dumps({"a": [1]}).inline()) == {"a": [1]}


def test_an_empty_array_and_many_arrays() -> None:
    assert loads(dumps(np.zeros((0, 3))).inline()).shape == (0, 3)
    found = loads(dumps([np.full(1, n) for n in range(1000)]).inline())
    assert [int(array[0]) for array in found] == list(range(1000))


def test_arguments() -> None:
    for args, kwargs in (((), {}), ((1, "a"), {}), ((Slot(0), [1]), {"x": Slot(1)}), ((np.zeros(3),), {})):
        found_args, found_kwargs = loads(dumps_arguments(args, kwargs, "f").inline())
        assert repr((found_args, found_kwargs)) == repr((args, kwargs))
    assert type(loads(dumps_arguments((Slot(7),), {}, "f").inline())[0][0]) is Slot


def test_functions_and_local_classes() -> None:
    class Local:
        value = 5

    assert loads(dumps(lambda x: x + 1).inline())(1) == 2
    assert loads(dumps(Local).inline()).value == 5


@pytest.mark.parametrize(
    "value", [threading.Lock(), [threading.Lock()], (x for x in [1])], ids=["lock", "inside", "generator"]
)
def test_what_cannot_be_carried_is_named(value: Any) -> None:
    with pytest.raises(TypeError, match=r"cannot serialise the argument of type .*(lock|generator)"):
        dumps(value, "the argument")


def test_arguments_are_not_called_a_tuple_and_advice_is_for_what_belongs_to_a_process() -> None:
    with pytest.raises(TypeError) as caught:
        dumps_arguments((threading.Lock(),), {}, "an argument of f()")
    assert str(caught.value).startswith("cannot serialise an argument of f(): cannot pickle '_thread.lock' object. Loc")
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(TypeError) as caught:
        dumps(deep)
    assert str(caught.value).endswith("recursion required.")


def test_an_error_of_a_class_s_own_reduce_is_not_hidden() -> None:
    class Odd:
        def __reduce__(self) -> Any:
            raise LookupError("odd")

    with pytest.raises(LookupError, match="odd"):
        dumps(Odd())


def test_subclasses_of_plain_types_keep_their_class() -> None:
    class Text(str):
        __slots__ = ()

    for value in (Text("a"), [Text("a")], (Text("b"), 1)):
        found = loads(dumps(value).inline())
        assert type(found if isinstance(found, str) else found[0]) is Text


def test_positions_are_in_order_and_do_not_overlap() -> None:
    serialized = dumps([np.zeros(n, np.int8) for n in (1, 63, 64, 65, 1000)])
    end = 0
    for position, part in serialized.parts():
        assert position >= end
        end = position + len(part)
    assert end == serialized.size()


def test_the_layout_is_as_documented() -> None:
    array = np.arange(5, dtype=np.uint8)
    data = dumps(array).inline()
    count = int.from_bytes(data[4:8], "little")
    pickle_length = int.from_bytes(data[8:16], "little")
    length = int.from_bytes(data[16:24], "little")
    assert (data[0], count, length) == (1, 1, 5)
    start = 24 + pickle_length
    start += -start % ALIGNMENT
    assert data[start:] == bytes(range(5))
    assert serialize.loads(data).tolist() == [0, 1, 2, 3, 4]


class OnDevice:
    """Reads back as an array of a GPU does where there is none."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return fail, (self.error,)


def fail(error: Exception) -> None:
    raise error


class CudaError(RuntimeError):
    """As cupy's."""

    __module__ = "cupy_backends.cuda.api.runtime"


@pytest.mark.parametrize("error", [
    ModuleNotFoundError("No module named 'cupy'", name="cupy"), ModuleNotFoundError("none", name="cupy._core.core"),
    RuntimeError("Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False"),
], ids=str)  # fmt: skip
def test_an_array_of_a_gpu_where_there_is_none(error: Exception) -> None:
    data = dumps(OnDevice(error)).inline()
    with pytest.raises(DeviceUnavailableError, match=r"x\.get\(\) with cupy") as caught:
        serialize.loads(data)
    assert isinstance(caught.value.__cause__, type(error))


@pytest.mark.parametrize(
    "error", [ModuleNotFoundError("no", name="mine"), RuntimeError("no"), KeyError("CUDA")], ids=repr
)
def test_other_errors_of_reading_are_left_alone(error: Exception) -> None:
    with pytest.raises(type(error)):
        serialize.loads(dumps(OnDevice(error)).inline())


def test_errors_of_cupy_are_about_devices() -> None:
    assert is_about_device(CudaError("cudaErrorInsufficientDriver"))


PLAIN_ARRAYS = {
    "small": np.arange(3.0),
    "empty": np.zeros((0, 3)),
    "one number": np.array(7),
    "columns first": np.asfortranarray(np.ones((3, 4))),
    "a view with gaps": np.arange(20)[::3],
    "turned": np.arange(12).reshape(3, 4).T,
    "read-only": np.frombuffer(bytes(range(8)), np.uint8),
    "text": np.array(["a", "bc"]),
    "dates": np.array(["2026-01-01"], "datetime64[D]"),
    "other byte order": np.arange(3, dtype=">i4" if sys.byteorder == "little" else "<i4"),
    "structured": np.zeros(2, [("a", "i4"), ("b", "f8")]),
    "half": np.ones(2, np.float16),
    "complex": np.ones(2, complex),
    "objects": np.array([1, "a", None], object),
    "from an argument": pickle.loads(pickle.dumps(np.arange(3.0))) * 2,
}


def again(value: Serialized) -> Any:
    """The value of these bytes."""
    return loads(value.inline())


@pytest.mark.parametrize("name", PLAIN_ARRAYS)
def test_arrays_are_the_same_bytes_as_with_cloudpickle(name: str) -> None:
    array = PLAIN_ARRAYS[name]
    for value in (array, (array, 1, array), [array, "x"]):
        found, expected = dumps(value), serialize._dumps_any(value, "it")
        assert found.data == expected.data
        assert [bytes(one) for one in found.buffers] == [bytes(one) for one in expected.buffers]
        assert len(found.buffers) == len(expected.buffers)
    arguments, expected = dumps_arguments((array,), {}, "f"), serialize._dumps_any(((array,), {}), "it")
    assert arguments.inline() == expected.inline()


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((1, Slot(0), "x", Slot(1)), {}),
        ((Slot(0),), {"by": Slot(1), "of": Slot(0)}),
        (([1, [2.5, None]], {"lr": (0.1, "a")}), {"x": {(1, 2): b"y"}}),
        (([TWICE, TWICE], TWICE), {}),
    ],
)
def test_references_and_small_containers_are_the_same_bytes_as_with_cloudpickle(
    args: tuple[object, ...], kwargs: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Journals know calls by them."""
    expected = serialize._dumps_any((args, kwargs), "it").data
    monkeypatch.delattr(serialize, "_dumps_any")
    assert dumps_arguments(args, kwargs, "f").data == expected


def test_a_list_in_itself_comes_back() -> None:
    value: list[object] = [1]
    value.append(value)
    back = again(dumps(value))
    assert back[1] is back


@pytest.mark.parametrize("name", ["small", "text", "dates", "other byte order", "from an argument"])
def test_arrays_of_plain_types_do_without_cloudpickle(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(serialize, "_dumps_any")
    assert np.array_equal(again(dumps(PLAIN_ARRAYS[name])), PLAIN_ARRAYS[name])


@pytest.mark.parametrize("name", ["cloudpickle", "numpy"])
def test_another_thread_may_just_be_importing_a_module(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in `sys.modules` then, and has nothing in it."""
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    assert loads(dumps([1, "a"]).inline()) == [1, "a"]
    if name == "cloudpickle":
        assert np.array_equal(loads(dumps(np.arange(3)).inline()), np.arange(3))


def test_arrays_that_plain_pickle_cannot_carry_come_by_cloudpickle() -> None:
    def inner() -> int:
        return 7

    class Own(np.ndarray):
        pass

    told = np.zeros(2, np.dtype("f8", metadata={"by": inner}))
    with_code = np.array([inner], object)
    assert type(again(dumps(np.zeros(2).view(Own)))).__name__ == "Own"
    assert again(dumps(told)).dtype == told.dtype
    assert again(dumps(with_code))[0]() == 7
    assert again(dumps([np.ones(2), inner]))[1]() == 7


def test_an_array_that_is_there_twice_is_one_array() -> None:
    array = np.arange(4)
    one, two = again(dumps([array, array]))
    assert one is two
    assert not one.flags.writeable
    assert one.ctypes.data % ALIGNMENT == 0


def test_a_way_of_the_program_s_own_to_carry_arrays_is_used() -> None:
    register_serializer(np.ndarray, serializer=lambda array: array.tolist(), deserializer=np.float32)
    try:
        assert again(dumps(np.ones(2))).dtype == np.float32
    finally:
        deregister_serializer(np.ndarray)
    assert again(dumps(np.ones(2))).dtype == np.float64
