"""Long `bytes`, `bytearray` and strings: never copied before they are written, and the same value afterwards."""

from __future__ import annotations

import pickle
import sys
import tracemalloc
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpi_runtime.core.objects import serialize
from mpi_runtime.core.objects.serialize import LONG_MIN, Serialized, Slot, dumps, dumps_arguments, loads

MEGABYTE = 1 << 20


def whole(value: Serialized) -> memoryview:
    """What lies in the arena: the parts, each at its place, without a gap in the pickle."""
    data = bytearray(value.size())
    for position, part in value.parts():
        data[position : position + len(part)] = part
    assert data == value.inline()
    return memoryview(data).toreadonly()


def owners(value: Serialized) -> list[object]:
    """The objects that are written as they are."""
    return [part.obj if isinstance(part, memoryview) else part for _, part in value.parts()]


def is_written_as_it_is(value: Serialized, long: object) -> bool:
    return sum(one is long for one in owners(value)) == 1


class Named(bytes):
    """A class of the program."""

    name = ""


class Growing(bytearray):
    """Another one."""


class Record(NamedTuple):
    """A tuple of the program."""

    data: bytes
    number: int


class Holder:
    """Has bytes as an attribute."""

    def __init__(self, data: object) -> None:
        self.data = data


LENGTHS = st.sampled_from([0, 1, LONG_MIN - 1, LONG_MIN, LONG_MIN + 1, 3 * LONG_MIN])
FILLS = st.sampled_from(["a", "é", "\ud800", "\U0001f600"])
KINDS = st.sampled_from([bytes, bytearray, Named, Growing])
LONG = st.builds(lambda kind, length, fill: kind(bytes([fill]) * length), KINDS, LENGTHS, st.integers(0, 255))
LONG |= st.builds(lambda length, fill: fill * length, LENGTHS, FILLS)
ITEMS = LONG | st.none() | st.integers() | st.text(max_size=5) | st.binary(max_size=5)
VALUES = st.recursive(
    ITEMS,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3), inner, max_size=4)
        | st.builds(lambda one: [one, one], inner)
    ),
    max_leaves=8,
)


def shape(value: Any, seen: dict[int, int]) -> Any:
    """Values, classes, and which objects are the same."""
    if isinstance(value, (list, tuple, dict, bytearray)) or (isinstance(value, (bytes, str)) and len(value) > 1):
        number = seen.setdefault(id(value), len(seen))
    else:
        number = None
    if isinstance(value, dict):
        return type(value), number, [(shape(key, seen), shape(one, seen)) for key, one in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), number, [shape(one, seen) for one in value]
    return type(value), number, value


@settings(max_examples=150, deadline=None)
@given(VALUES)
def test_values_come_back_as_from_plain_pickle(value: Any) -> None:
    found = dumps(value)
    back, expected = loads(whole(found)), pickle.loads(pickle.dumps(value, 5))
    assert shape(back, {}) == shape(expected, {})
    assert not found.buffers
    assert bytes(whole(found)) == pickle.dumps(value, 5)


@settings(max_examples=50, deadline=None)
@given(st.lists(VALUES, max_size=3), st.dictionaries(st.text(min_size=1, max_size=3), VALUES, max_size=3))
def test_arguments_come_back(args: list[Any], kwargs: dict[str, Any]) -> None:
    found = dumps_arguments((*args, Slot(0)), kwargs, "f")
    assert shape(loads(whole(found)), {}) == shape(pickle.loads(pickle.dumps(((*args, Slot(0)), kwargs), 5)), {})


@settings(max_examples=50, deadline=None)
@given(VALUES, st.integers(0, 1000))
def test_beside_arrays(value: Any, length: int) -> None:
    array = np.arange(length)
    back = loads(whole(dumps([value, array, value])))
    assert shape(back[::2], {}) == shape(pickle.loads(pickle.dumps([value, value], 5)), {})
    assert np.array_equal(back[1], array)
    assert not back[1].flags.writeable


WAYS: dict[str, Any] = {
    "alone": lambda long: long,
    "list": lambda long: [1, long],
    "tuple": lambda long: (long, "a"),
    "dict": lambda long: {"a": long},
    "many": lambda long: [*range(100), long],
    "deep": lambda long: {"a": [([long],)]},
    "twice": lambda long: [long, {"again": long}],
    "attribute": Holder,
    "beside an array": lambda long: [np.zeros(5), long],
    "beside an array in a dict": lambda long: {"a": [np.zeros(5)], "b": [long]},
    "function": lambda long: lambda: len(long),
}


@pytest.mark.parametrize("kind", [bytes, bytearray])
@pytest.mark.parametrize("way", WAYS)
def test_long_ones_are_written_as_they_are(kind: Any, way: str) -> None:
    for length, expected in ((LONG_MIN - 1, False), (LONG_MIN, True)):
        long = kind(b"x" * length)
        assert is_written_as_it_is(dumps(WAYS[way](long)), long) is expected


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_long_arguments_are_written_as_they_are(kind: Any) -> None:
    long = kind(b"x" * LONG_MIN)
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((long,), {}), ((), {"a": long}), ((1, [long]), {}), ((Slot(0), long), {"b": [long]}), ((Record(long, 1),), {}),
    ]  # fmt: skip
    for args, kwargs in calls:
        assert is_written_as_it_is(dumps_arguments(args, kwargs, "f"), long)


@pytest.mark.parametrize("way", WAYS)
def test_memory_that_is_taken(way: str) -> None:
    value, place = WAYS[way](b"x" * (20 * MEGABYTE)), bytearray(21 * MEGABYTE)
    dumps(value)  # what is imported does not count
    tracemalloc.start()
    try:
        for position, part in dumps(value).parts():
            view = memoryview(part)
            memoryview(place)[position : position + view.nbytes] = view
        assert tracemalloc.get_traced_memory()[1] < MEGABYTE
    finally:
        tracemalloc.stop()


def test_memory_that_is_taken_by_a_string_and_by_reading() -> None:
    text = "x" * (20 * MEGABYTE)
    tracemalloc.start()
    try:
        parts = list(dumps([text]).parts())
        assert tracemalloc.get_traced_memory()[1] < 21 * MEGABYTE  # pickle makes bytes of it
        del parts
        data = whole(dumps([b"x" * (20 * MEGABYTE)]))
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        back = loads(data)
        assert tracemalloc.get_traced_memory()[1] - before < 21 * MEGABYTE
    finally:
        tracemalloc.stop()
    assert len(back[0]) == 20 * MEGABYTE


def test_the_same_object_is_written_once_and_read_as_one() -> None:
    long = bytes(LONG_MIN)
    found = dumps([long, (long,), {"a": long}, bytearray(long)])
    assert found.size() < 2 * LONG_MIN + 200
    one, (two,), inner, other = loads(whole(found))
    assert one is two is inner["a"]
    assert (type(one), type(other)) == (bytes, bytearray)
    other[0] = 1


def test_what_was_read_does_not_need_the_bytes_it_was_read_from() -> None:
    data = memoryview(bytearray(whole(dumps([bytes(LONG_MIN), bytearray(LONG_MIN), "x" * LONG_MIN]))))
    back = loads(data)
    data.release()  # or it would raise BufferError
    assert list(map(len, back)) == [LONG_MIN] * 3


def test_a_bytearray_cannot_change_its_length_until_it_is_written() -> None:
    long = bytearray(LONG_MIN)
    found = dumps([long])
    with pytest.raises(BufferError):
        long.append(1)
    del found
    long.append(1)


def test_a_bytearray_that_has_become_longer_meanwhile() -> None:
    long = bytearray(LONG_MIN)

    class Meddling:
        def __reduce__(self) -> Any:
            long.append(1)
            return int, ()

    with pytest.raises(BufferError, match=f"has become {LONG_MIN + 1} bytes long while it was serialised"):
        dumps([long, Meddling()])
    assert len(loads(whole(dumps([Meddling(), long]))[:])[1]) == LONG_MIN + 2


def test_views_of_memory_become_bytes() -> None:
    view = memoryview(b"x" * LONG_MIN)
    for value in (view, [view], {"a": view}, [bytes(LONG_MIN), view]):
        found = loads(whole(dumps(value)))
        last = found if value is view else found["a"] if isinstance(found, dict) else found[-1]
        assert (type(last), last == view) == (bytes, True)


@pytest.mark.parametrize("most", [0, 10, LONG_MIN, 10 * LONG_MIN])
@pytest.mark.parametrize("value", [1, "abc", np.zeros(3), [b"x" * LONG_MIN], [b"x" * LONG_MIN, np.zeros(3)]], ids=str)
def test_in_one_piece_if_it_is_not_too_long(value: Any, most: int) -> None:
    found = dumps(value)
    assert found.inline_up_to(most) == (found.inline() if found.size() <= most else None)
    assert found.inline_up_to(found.size()) == found.inline()
    assert found.inline_up_to(found.size() - 1) is None


def test_many_small_parts_make_a_long_pickle() -> None:
    value = list(range(100_000))
    found = dumps(value)
    assert len(found.rest) > 1
    assert loads(whole(found)) == value


def test_plain_values_need_no_other_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi_runtime.core.objects.code_pickler", None)  # an import raises
    for value in (bytearray(LONG_MIN), {"a": 1, "b": b"x" * LONG_MIN}, [1, b"x"], {}, {"a": [1, (2.0, {})]}):
        assert loads(whole(dumps(value))) == value
    assert loads(whole(dumps_arguments((1,), {"x": 2}, "f"))) == ((1,), {"x": 2})
    with pytest.raises(ImportError):
        dumps({"a": [{1}]})


def test_copies_of_arrays_leave_long_bytes_as_they_are() -> None:
    data = whole(dumps([b"x" * LONG_MIN, np.zeros(3)]))
    back = loads(data, serialize.copying(pickle.loads))
    back[1][0] = 1
    assert (type(back[0]), len(back[0])) == (bytes, LONG_MIN)


@settings(max_examples=30, deadline=None)
@given(VALUES)
def test_reading_for_a_device_gives_the_same(value: Any) -> None:
    data = whole(dumps(value))
    expected = shape(loads(data), {})
    for read in (serialize.loads_on_host, serialize.loads_on_device):
        assert shape(loads(data, read), {}) == expected


def test_reading_for_a_device_takes_no_more_memory() -> None:
    for kind in (bytes, bytearray):
        data = whole(dumps([kind(20 * MEGABYTE), np.zeros(3)]))
        loads(data, serialize.loads_on_host)
        tracemalloc.start()
        try:
            back = loads(data, serialize.loads_on_host)
            assert tracemalloc.get_traced_memory()[1] < 21 * MEGABYTE
        finally:
            tracemalloc.stop()
        assert (type(back[0]), len(back[0]), len(back[1])) == (kind, 20 * MEGABYTE, 3)


def test_a_pickle_that_is_cut_off_is_an_error_in_every_way_of_reading() -> None:
    data = bytes(whole(dumps([b"x" * LONG_MIN, 1])))
    for end in (1, 5, 100, len(data) - 1):
        for read in (pickle.loads, serialize.loads_on_host):
            with pytest.raises((EOFError, pickle.UnpicklingError)):
                loads(data[:end], read)
