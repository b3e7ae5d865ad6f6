"""Large values: arrays in shared memory, read in place and freed with their last use."""

import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import mpi_runtime
from mpi_runtime import get, put, remote
from mpi_runtime.errors import ObjectStoreFullError
from tests.helpers import wait_until

pytestmark = pytest.mark.usefixtures("job")

MIB = 1 << 20
INIT = {"num_cpus": 4, "object_store_memory": 64 * MIB}
SIZES = [0, 1, 100, 8_000, 100_000]
"""Numbers of elements: values of the last size do not fit into a message."""

Counts = Callable[[], dict[str, int]]


@remote
def same(value: Any) -> Any:
    return value


def address(array: Any) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


def extents(counts: Counts, expected: int) -> None:
    """Wait until so many objects lie in the arena."""
    end = time.monotonic() + 10
    while counts()["stored_extents"] != expected:
        gc.collect()
        if time.monotonic() > end:
            assert counts()["stored_extents"] == expected
        time.sleep(0.005)


@pytest.mark.parametrize("size", SIZES)
def test_arrays_come_back_read_only(size: int) -> None:
    array = np.arange(size, dtype=np.float64)
    for found in (get(put(array)), get(same.remote(array)), get(put({"a": [array]}))["a"][0]):
        assert np.array_equal(found, array)
        assert found.dtype == array.dtype
        assert not found.flags.writeable
        if size:
            with pytest.raises(ValueError, match="read-only"):
                found[0] = 1
            with pytest.raises(ValueError, match="WRITEABLE"):
                found.flags.writeable = True
    array[:] = 5  # our own is still ours


def test_a_process_that_computes_with_large_arrays_starts_no_thread() -> None:
    """A thread that woke up a thousand times a second to find nothing to send cost a tenth of the speed."""

    @remote
    class Halves:
        def of(self, array: Any) -> Any:
            return array * 0.5

        def threads(self) -> list[str]:
            return os.listdir("/proc/self/task")

    actor = Halves.remote()
    get(actor.of.remote(np.ones(3)))
    # On a loaded machine the import of NumPy may take so long that a thread sends what waited meanwhile. It ends again.
    [before] = wait_until(lambda: found if len(found := get(actor.threads.remote())) == 1 else [])
    array = put(np.ones(200_000))
    for _ in range(20):
        assert get(actor.of.remote(array))[0] == 0.5
        assert get(actor.threads.remote()) == [before]


def test_who_writes_into_an_argument_is_told_why_that_fails() -> None:
    @remote
    def write(array: Any) -> None:
        array[0] = 1

    with pytest.raises(ValueError, match="assignment destination is read-only") as caught:
        get(write.remote(put(np.zeros(100_000))))
    assert "Write into a copy: array.copy(), or get(ref, copy=True)." in str(caught.value)
    ref = put(np.zeros(100_000))
    assert "get(ref, copy=True) gives arrays that may be written into" in mpi_runtime.explain(ref)


@pytest.mark.parametrize("size", SIZES)
def test_arguments_are_read_only_in_tasks(size: int) -> None:
    @remote
    def write(array: Any) -> str:
        try:
            array[:] = 1
        except ValueError as error:
            return str(error)
        return "written"

    for argument in (np.zeros(size), put(np.zeros(size))):
        assert "read-only" in get(write.remote(argument))


@pytest.mark.parametrize("size", [100, 100_000])
def test_arrays_are_aligned(size: int) -> None:
    found = get(put([np.ones(size + n, np.int8) for n in range(5)] + [np.ones(size, np.complex128)]))
    if size == 100_000:  # of small ones the start is where Python puts bytes
        assert [address(array) % 64 for array in found] == [0] * 6
    else:
        assert len({address(array) % 64 for array in found}) == 1


def test_large_arrays_are_not_copied() -> None:
    ref = put(np.arange(1_000_000))
    first, second = get(ref), get(ref)
    assert address(first) == address(second)
    assert np.shares_memory(first, second)


def test_arrays_of_one_value_lie_in_one_object(counts: Counts) -> None:
    value = {n: np.full(100_000, n, np.float32) for n in range(5)}
    found = get(put(value))
    assert counts()["stored_extents"] == 1
    places = sorted(address(array) for array in found.values())
    assert all(400_000 <= b - a <= 400_064 for a, b in pairwise(places))


def test_arguments_are_not_copied_either() -> None:
    @remote
    class Keeper:
        def where(self, array: Any) -> int:
            self.array = array
            return address(array)

    keeper = Keeper.remote()
    ref = put(np.ones(500_000))
    assert get(keeper.where.remote(ref)) == get(keeper.where.remote(ref))


def test_results_share_memory_between_those_who_get_them() -> None:
    ref = same.remote(np.ones(500_000))
    assert np.shares_memory(get(ref), get([ref])[0])


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["f8", "i1", "c16", "U7", "S3", "M8[s]", "?", "f4,i4"])
def test_kinds_of_arrays(dtype: str, order: Any) -> None:
    for shape in ((3, 4), (300, 400)):
        array = np.zeros(shape, dtype, order=order)
        found = get(same.remote(put(array)))
        assert found.dtype == array.dtype
        assert found.shape == array.shape
        assert found.flags.f_contiguous == array.flags.f_contiguous
        assert found.tobytes() == array.tobytes()


def test_arrays_that_are_not_contiguous() -> None:
    whole = np.arange(1_000_000).reshape(1000, 1000)
    for part in (whole[::3, ::2], whole[:, 5], whole[::-1]):
        assert np.array_equal(get(put(part)), part)


def test_arrays_of_objects() -> None:
    array = np.array([{"a": 1}, None, [put(3)]], dtype=object)
    found = get(put(array))
    assert found[0] == {"a": 1}
    assert get(found[2][0]) == 3


def test_many_arrays_in_one_value() -> None:
    value = [np.full(n, n) for n in range(2000)]
    found = get(same.remote(value))
    assert all(np.array_equal(a, b) for a, b in zip(value, found, strict=True))


def test_buffers_beside_the_pickle() -> None:
    import pickle

    class Frame:
        def __init__(self, data: Any) -> None:
            self.data = data

        def __reduce_ex__(self, protocol: Any) -> Any:
            assert protocol == 5
            return Frame, (pickle.PickleBuffer(self.data),)

    ref = put(Frame(bytearray(b"abc" * 100_000)))
    first, second = get(ref).data, get(ref).data
    assert bytes(first) == b"abc" * 100_000
    assert memoryview(first).readonly
    assert address(np.frombuffer(first, np.uint8)) == address(np.frombuffer(second, np.uint8))


def test_bytes_are_equal_and_of_their_type() -> None:
    for value in (b"x" * MIB, bytearray(b"y" * MIB), "z" * MIB, memoryview(b"m" * MIB).tobytes()):
        found = get(same.remote(value))
        assert type(found) is type(value)
        assert found == value


# How long memory is held


def test_an_array_outlives_its_ref(counts: Counts) -> None:
    ref = put(np.arange(1_000_000))
    array = get(ref)
    del ref
    gc.collect()
    others = [put(np.full(1_000_000, 7)) for _ in range(3)]
    assert np.array_equal(array, np.arange(1_000_000))
    del others
    extents(counts, 1)
    part = array[10:20]
    other = get(put(np.arange(1_000_000)))
    extents(counts, 2)
    del array, other
    gc.collect()
    extents(counts, 1)
    assert part.tolist() == list(range(10, 20))
    del part
    extents(counts, 0)


def test_views_in_tasks_hold_the_memory_too(counts: Counts) -> None:
    @remote
    class Keeper:
        def keep(self, value: Any) -> None:
            self.value = value

        def total(self) -> float:
            return float(self.value.sum())

        def forget(self) -> None:
            del self.value

    keeper = Keeper.remote()
    get(keeper.keep.remote(put(np.ones(1_000_000))))
    extents(counts, 1)
    refs = [put(np.zeros(1_000_000)) for _ in range(3)]
    assert get(keeper.total.remote()) == 1_000_000
    del refs
    get(keeper.forget.remote())
    extents(counts, 0)


def test_what_a_killed_process_looked_at_is_freed(counts: Counts) -> None:
    """References, views, and a value that it had put and told nobody of."""

    @remote
    class Keeper:
        def keep(self, refs: list[Any], array: Any) -> int:
            self.refs, self.views, self.argument = refs, [get(ref) for ref in refs], array
            self.own = put(np.ones(300_000))
            return os.getpid()

    keeper = Keeper.remote()
    pid = get(keeper.keep.remote([put(np.full(200_000, n)) for n in range(3)], put(np.ones(100_000))))
    extents(counts, 5)
    os.kill(pid, signal.SIGKILL)
    extents(counts, 0)
    assert get(put(np.ones(7 * MIB))).sum() == 7 * MIB  # all but the whole store: there is room for it


def test_a_result_that_is_its_argument(counts: Counts) -> None:
    ref = put(np.arange(500_000))
    found = get(same.remote(ref))
    del ref
    extents(counts, 1)
    assert found[-1] == 499_999


def test_a_view_of_an_argument_that_is_returned_later() -> None:
    @remote
    class Keeper:
        def keep(self, value: Any) -> None:
            self.value = value

        def give(self) -> Any:
            return self.value[100:200_000]

    keeper = Keeper.remote()
    keeper.keep.remote(put(np.arange(500_000)))
    assert get(keeper.give.remote())[0] == 100


def test_memory_is_used_again() -> None:
    for n in range(100):  # 800 MB through 64
        assert get(put(np.full(1_000_000, n)))[0] == n
    for n in range(40):
        assert get(same.remote(np.full(1_000_000, n)))[0] == n


def test_arrays_dropped_in_other_threads(counts: Counts) -> None:
    def work() -> None:
        for n in range(30):
            assert get(put(np.full(100_000, n)))[5] == n

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    extents(counts, 0)


# No room


def test_a_value_larger_than_the_store() -> None:
    with pytest.raises(ObjectStoreFullError, match=r"no room for an object of 65.0 MiB: .* 64.0 MiB"):
        put(np.zeros(65 * MIB, np.int8))
    with pytest.raises(ObjectStoreFullError):
        same.remote(np.zeros(65 * MIB, np.int8))


def test_a_result_larger_than_the_store() -> None:
    @remote
    def make(size: int) -> Any:
        return np.zeros(size, np.int8)

    with pytest.raises(ObjectStoreFullError, match="no room for an object"):
        get(make.remote(65 * MIB))
    assert len(get(make.remote(MIB))) == MIB


def test_a_full_store_says_so_and_works_again_when_there_is_room() -> None:
    refs = [put(np.full(10 * MIB, n, np.int8)) for n in range(6)]
    arrays = get(refs)  # while somebody looks at them they stay where they are
    with pytest.raises(ObjectStoreFullError, match=r"are in use.* may be looked at by processes"):
        put(np.full(10 * MIB, 6, np.int8))
    assert [array[0] for array in arrays] == list(range(6))
    del refs[0], arrays
    gc.collect()
    refs.append(put(np.full(10 * MIB, 9, np.int8)))
    assert get(refs[-1])[-1] == 9


def test_put_waits_for_what_is_being_freed() -> None:
    for n in range(20):
        ref = put(np.full(40 * MIB, n, np.int8))
        assert get(ref)[-1] == n
        del ref  # the next one has room only when this is gone


def test_tasks_wait_for_room_while_others_free_it() -> None:
    @remote
    def make(n: int) -> Any:
        return np.full(10 * MIB, n, np.int8)

    for n, ref in enumerate([make.remote(n) for n in range(5)]):
        assert get(ref)[0] == n


def test_what_fails_leaves_no_memory() -> None:
    with pytest.raises(TypeError, match="cannot serialise"):
        put([np.ones(MIB), threading.Lock()])

    @remote(num_returns=2)
    def half_good() -> Any:
        return np.zeros(10 * MIB, np.int8), threading.Lock()

    @remote(num_returns=2)
    def half_too_large() -> Any:
        return np.zeros(20 * MIB, np.int8), np.zeros(65 * MIB, np.int8)

    for _ in range(4):
        with pytest.raises(TypeError, match="cannot serialise a result"):
            get(half_good.remote())
        with pytest.raises(ObjectStoreFullError):
            get(half_too_large.remote())
    assert len(get(put(np.zeros(60 * MIB, np.int8)))) == 60 * MIB


def test_cluster_resources_name_the_store() -> None:
    assert mpi_runtime.cluster_resources()["object_store_memory"] == 64 * MIB


# Copies


def test_a_copy_may_be_written_into() -> None:
    ref: Any = put({"large": np.zeros(100_000), "small": np.zeros(3), "text": "a"})
    with pytest.raises(ValueError, match="read-only"):
        get(ref)["large"][0] = 1
    value, (other,) = get(ref, copy=True), get([ref], copy=True)
    value["large"][0] = value["small"][0] = other["large"][1] = 1
    assert get(ref)["large"].sum() == 0
    assert (value["large"].sum(), value["small"].sum(), other["large"].sum(), value["text"]) == (1, 1, 1, "a")


def test_a_copy_of_what_was_stored_as_read_only_may_be_written_into() -> None:
    @mpi_runtime.remote
    def passed_on(array: Any) -> Any:
        return {"twice": [array, array], "text": "a" * 100_000, "mark": b"\x97\x98"}

    for length in (3, 100_000):
        first = get(put(np.zeros(length)))
        for found in (get(put(first), copy=True), get(put(np.broadcast_to(first, (2, length))), copy=True)):
            found[0] = 1
        value = get(passed_on.remote(first), copy=True)
        value["twice"][0][0] = 1
        assert value["twice"][1][0] == 1, "one array remains one"
        assert (value["text"], value["mark"], first.sum()) == ("a" * 100_000, b"\x97\x98", 0)


@pytest.mark.parametrize("wrong", [5, None, [5], "text"])
def test_broadcast_is_for_references(wrong: Any) -> None:
    with pytest.raises(TypeError, match="takes references to values, not"):
        mpi_runtime.util.broadcast(wrong)


def test_the_store_is_summed_up() -> None:
    ref = put(np.zeros(MIB, np.int8))
    (node,) = mpi_runtime.util.memory_summary()
    assert node.capacity == 64 * MIB
    assert (node.on_disk, node.objects_on_disk, node.in_flight, node.being_written, node.wanted) == (0, 0, 0, 0, 0)
    assert MIB <= node.used < 2 * MIB
    (mine,) = [one for one in node.largest if one["object_id"] == ref.hex()]
    assert mine["size"] > MIB
    assert (mine["in_memory"], mine["on_disk"], mine["held_by"]) == (True, False, ["driver"])


def test_the_line_that_made_a_value_is_said() -> None:
    @mpi_runtime.remote
    def load(count: int) -> Any:
        return tuple(np.zeros(MIB, np.int8) for _ in range(count)) if count > 1 else np.zeros(MIB, np.int8)

    @mpi_runtime.remote
    def stream() -> Any:
        yield np.zeros(MIB, np.int8)

    @mpi_runtime.remote
    class Keeper:
        def load(self) -> Any:
            return [put(np.zeros(MIB, np.int8)), np.zeros(MIB, np.int8)]

    keeper = Keeper.remote()
    refs = {"put": put(np.zeros(MIB, np.int8)), "task": load.remote(1), "method": keeper.load.remote()}
    refs["first"], refs["second"] = load.options(num_returns=2).remote(2)
    items: Any = stream.remote()
    refs["item"] = next(items)
    refs["in a method"] = get(refs["method"])[0]
    mpi_runtime.wait(list(refs.values()), num_returns=len(refs))
    (node,) = mpi_runtime.util.memory_summary()
    told = {one["object_id"]: one["made_by"] for one in node.largest}
    made = {name: told[ref.hex()].replace(__file__, "here") for name, ref in refs.items()}
    first = test_the_line_that_made_a_value_is_said.__code__.co_firstlineno
    assert made["put"] == f"here:{first + 15} in {test_the_line_that_made_a_value_is_said.__name__}"
    assert made["task"] == made["first"] == made["second"] == f"load (here:{first + 1})"
    assert made["item"] == f"stream (here:{first + 5})"
    assert made["method"] == f"Keeper.load (here:{first + 11})"
    assert made["in a method"] == f"here:{first + 12} in load"
    del refs


@pytest.mark.parametrize("kind", [bytes, bytearray])
@pytest.mark.parametrize("size", [0, 60_000, 70_000, 3 * MIB])
def test_bytes_inside_of_other_values(kind: Any, size: int, counts: Counts) -> None:
    long = kind(os.urandom(size))
    value = {"a": [long, (long, "x")], "b": np.arange(3), "c": bytearray(long)}
    refs = [put(value), same.remote(value), same.remote(put(value))]
    refs += [same.remote([long, long]), put((long, long))]
    for found in [*get(refs), get(refs[0], copy=True), get(refs[0], device="cpu")]:
        first, second = (found["a"][0], found["a"][1][0]) if isinstance(found, dict) else found
        assert (type(first), first) == (kind, long)
        assert first is second
        if isinstance(found, dict):
            assert (type(found["c"]), found["c"]) == (bytearray, bytearray(long))
            assert found["b"].tolist() == [0, 1, 2]
    assert same.map([long, {"a": long}, [long, 1]]).get() == [long, {"a": long}, [long, 1]]
    if kind is bytearray:
        long.append(1)  # nobody has a view any more
    del refs, found
    extents(counts, 0)


def test_what_was_read_of_bytes_keeps_no_shared_memory(counts: Counts) -> None:
    found = get(put([os.urandom(MIB), bytearray(MIB), "x" * MIB]))
    extents(counts, 0)
    assert list(map(len, found)) == [MIB] * 3
