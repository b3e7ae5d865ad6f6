"""Arrays of cupy and torch inside values, on pretended GPUs (`tests/fake_cuda`): how they are sent, and made again."""

import gc
import importlib
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpi_runtime.core.objects import serialize
from mpi_runtime.core.objects.device_arrays import OnDevice
from mpi_runtime.errors import DeviceUnavailableError
from mpi_runtime.gpu import arrays, staging
from tests.fake_cuda import memory

LIBRARIES = Path(memory.__file__).parent / "libraries"
MIB = 1 << 20


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(LIBRARIES)
    monkeypatch.setenv("FAKE_CUDA_DEVICES", "2")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    memory.reset()
    staging._pairs.clear()
    yield
    for name in ("cupy", "torch"):
        sys.modules.pop(name, None)
    staging._pairs.clear()
    staging._lent_out.clear()
    own_pickles = memory.counts["own pickles"]
    memory.reset()
    assert not own_pickles


@pytest.fixture
def cupy(gpus: None) -> Any:
    import cupy

    return cupy


@pytest.fixture
def torch(gpus: None) -> Any:
    import torch

    return torch


def sent(value: Any, on_host: bool = False) -> Any:
    return serialize.loads(serialize.dumps(value).inline(), *[serialize.loads_on_host] * on_host)


def content(shape: Any = (30, 40), dtype: Any = np.float32) -> Any:
    return np.random.default_rng(1).integers(0, 200, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16", "?", "i1", "u8"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (5,), (3, 4), (2, 3, 4)])
def test_types_and_shapes(cupy: Any, shape: tuple[int, ...], dtype: str) -> None:
    array = content(shape, dtype)
    found = sent(cupy.asarray(array))
    assert type(found) is cupy.ndarray
    assert (found.shape, found.dtype) == (shape, np.dtype(dtype))
    assert np.array_equal(found.get(), array)
    on_host = sent(cupy.asarray(array), on_host=True)
    assert type(on_host) is np.ndarray
    assert (on_host.shape, on_host.dtype) == (shape, np.dtype(dtype))
    assert np.array_equal(on_host, array)
    assert not on_host.flags.writeable


def test_types_that_cupy_s_constructor_takes_and_its_functions_do_not(cupy: Any) -> None:
    """Records, as real cupy has them: made by `ndarray` over memory of a device, and by nothing else."""
    with pytest.raises(ValueError, match="Unsupported dtype"):
        cupy.asarray(np.zeros(3, "f4,i4"))
    made = cupy.ndarray((3,), "f4,i4")
    made.fill((1.5, 2))
    assert sent(made).get().tolist() == [(1.5, 2)] * 3


def test_views_and_orders(cupy: Any) -> None:
    array = content()
    there = cupy.asarray(array)
    for made_contiguous, found, expected in (
        (0, there.T, array.T),
        (0, there[3:7], array[3:7]),
        (1, there[:, 2:5], array[:, 2:5]),
        (1, there[::-1, ::2], array[::-1, ::2]),
        (0, cupy.asarray(array, order="F"), array),
    ):
        memory.counts.clear()
        value = serialize.dumps(found)
        assert value.buffers[0].nbytes == expected.nbytes, "no more than the view"
        again = serialize.loads(value.inline())
        assert np.array_equal(again.get(), expected)
        assert again.flags.f_contiguous == (found.flags.f_contiguous and not found.flags.c_contiguous)
        assert np.array_equal(serialize.loads(value.inline(), serialize.loads_on_host), expected)
        assert memory.counts["made contiguous"] == made_contiguous


def test_in_containers_and_several_times(cupy: Any) -> None:
    one, other = cupy.arange(10), cupy.arange(5.0)
    value = {"a": [one, other], "b": (one, np.arange(3)), "c": "text", "f": lambda: 1}
    serialized = serialize.dumps(value)
    assert len(serialized.buffers) == 3
    found = serialize.loads(serialized.inline())
    assert found["a"][0] is found["b"][0]
    assert found["a"][1].get().tolist() == [0, 1, 2, 3, 4]
    assert found["b"][1].tolist() == [0, 1, 2]
    assert found["f"]() == 1
    on_host = serialize.loads(serialized.inline(), serialize.loads_on_host)
    assert on_host["a"][0] is on_host["b"][0]
    assert on_host["a"][0].tolist() == list(range(10))


def test_classes_made_of_cupy_s(cupy: Any) -> None:
    class Plain(cupy.ndarray):  # type: ignore[misc]
        pass

    class Own(cupy.ndarray):  # type: ignore[misc]
        def __reduce__(self) -> Any:
            return tuple, ([1, 2],)

    found = sent(cupy.arange(3).view(Plain))
    assert type(found).__name__ == "Plain"
    assert found.get().tolist() == [0, 1, 2]
    assert sent(cupy.arange(3).view(Own)) == (1, 2)


def test_what_is_computed_still_is_waited_for(cupy: Any) -> None:
    """On whichever stream of the array's device."""
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        total = cupy.full((1000,), 2.0) * 3
    assert sent(total).get().tolist() == [6.0] * 1000
    with cupy.cuda.Device(1):
        there = cupy.full((3,), 7) + 1
    serialized = serialize.dumps(there)
    assert memory.current() == 0
    found = serialize.loads(serialized.inline())
    assert (found.device.id, found.get().tolist()) == (0, [8, 8, 8])


def test_bytes_are_copied_once_and_only_when_wanted(cupy: Any) -> None:
    serialized = serialize.dumps([cupy.arange(1000), "x"])
    assert type(serialized.buffers[0]) is OnDevice
    assert serialized.size() > 8000
    assert memory.counts["down"] == 0
    data = serialized.inline()
    assert (memory.counts["down"], memory.counts["settled"]) == (1, 1)
    serialize.loads(data)
    assert memory.counts["up"] == 1


def test_a_value_keeps_what_is_on_the_device(cupy: Any) -> None:
    serialized = serialize.dumps(cupy.arange(1000) + 1)
    gc.collect()
    assert serialize.loads(serialized.inline()).get()[-1] == 1000


@pytest.mark.parametrize("extra", [-1, 0, 1, 12345, staging.CHUNK])
@pytest.mark.parametrize("refused", [False, True])
def test_large_ones_go_by_pinned_memory(cupy: Any, extra: int, refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if refused:
        monkeypatch.setenv("FAKE_CUDA_NO_PINNED", "1")
    size = staging.PINNED_BYTES_MIN + extra
    array = np.random.default_rng(2).integers(0, 256, size, np.uint8)
    there = cupy.asarray(array)
    copies_of_numpy: list[int] = []
    empty = np.empty

    def counted(*args: Any, **more: Any) -> Any:
        copies_of_numpy.append(1)
        return empty(*args, **more)

    monkeypatch.setattr(np, "empty", counted)
    data = serialize.dumps(there).inline()
    monkeypatch.setattr(np, "empty", empty)
    pieces = -(-size // staging.CHUNK)
    pinned = 0 if refused or extra < 0 else pieces
    assert (memory.counts["down"], memory.counts["pinned copies"]) == (pieces, pinned)
    assert extra >= 0 or copies_of_numpy == [], "a small one goes straight to where it is to be"
    assert np.array_equal(serialize.loads(data, serialize.loads_on_host), array)
    found = serialize.loads(data)
    assert (memory.counts["up"], memory.counts["pinned copies"]) == (pieces, 2 * pinned)
    assert np.array_equal(found.get(), array)
    for _ in range(3):
        serialize.loads(serialize.dumps(there).inline())
    assert memory.counts["pinned"] == (2 if pinned else 0), "two buffers a process"
    assert memory.counts["pinned bytes"] == (2 * staging.CHUNK if pinned else 0)


def test_buffers_that_may_be_written_into_still_are_used_no_more(cupy: Any) -> None:
    """A cancelled call is interrupted anywhere, also while a copy is under way."""
    there = cupy.arange(staging.CHUNK)
    data = memoryview(serialize.dumps(there).inline())[-there.nbytes :]
    (pair,) = staging._pairs
    found = arrays.find(cupy.empty(staging.CHUNK, np.int64))
    assert found is not None
    way, waits = found.way, iter([True] * 2)

    def interrupted() -> None:
        if not next(waits, False):
            raise KeyboardInterrupt

    way.wait = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        staging.to_device(way, data)
    assert (staging._pairs, list(staging._lent_out.values())) == ([], [pair])
    staging._lent_out.clear()
    assert serialize.loads(serialize.dumps(there).inline()).get()[-1] == staging.CHUNK - 1
    assert staging._pairs[0].buffers[0] is not pair.buffers[0]


def test_two_threads_at_a_time_have_buffers_of_their_own(cupy: Any) -> None:
    array = np.random.default_rng(3).integers(0, 256, 3 * staging.CHUNK, np.uint8)
    first, second = (staging.to_host(arrays.find(cupy.asarray(one)).way) for one in (array, ~array))  # type: ignore[union-attr]
    pieces = [(bytes(one), bytes(other)) for one, other in zip(first, second, strict=True)]
    assert b"".join(one for one, _ in pieces) == array.tobytes()
    assert b"".join(other for _, other in pieces) == (~array).tobytes()
    assert len(staging._pairs) == 1


def test_nothing_comes_into_buffers_that_nobody_has_any_more(cupy: Any) -> None:
    serialized = serialize.dumps(cupy.full((6 * staging.CHUNK,), 1, np.uint8))
    parts = serialized.parts()
    for _ in range(4):
        next(parts)
    parts.close()
    del parts
    gc.collect()
    memory.settle(0)  # where a copy into what was freed would fail


def test_no_memory_is_left_on_the_device(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data = serialize.dumps(cupy.arange(1000)).inline()
    monkeypatch.setenv("FAKE_CUDA_MEMORY", "1000")
    cupy.get_default_memory_pool().free_all_blocks()
    with pytest.raises(memory.OutOfMemoryError, match="8,000 bytes"):
        serialize.loads(data)


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_beside_long_bytes(cupy: Any, kind: Any) -> None:
    long = kind(b"x" * serialize.LONG_MIN)
    value = {"a": cupy.arange(30_000), "b": [long, long], "c": np.arange(3)}
    serialized = serialize.dumps(value)
    whole = bytearray(serialized.size())
    for position, part in serialized.parts():
        whole[position : position + len(part)] = part
    assert whole == serialized.inline()
    for back in (serialize.loads(memoryview(whole)), sent(value, on_host=True)):
        assert np.array_equal(back["a"] if isinstance(back["a"], np.ndarray) else back["a"].get(), np.arange(30_000))
        assert back["b"][0] is back["b"][1]
        assert (type(back["b"][0]), back["b"][0], back["c"].tolist()) == (kind, long, [0, 1, 2])


def test_where_there_is_no_gpu(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data = serialize.dumps({"a": cupy.arange(3)}).inline()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    text = r'a cupy array on \S+:GPU 0; use get\(ref, device="cpu"\) .*finds no GPU'
    with pytest.raises(DeviceUnavailableError, match=text):
        serialize.loads(data, serialize.loads_on_device)
    assert serialize.loads(data, serialize.loads_on_host)["a"].tolist() == [0, 1, 2]
    sys.modules["cupy"] = None  # type: ignore[assignment]  # cannot be imported
    with pytest.raises(DeviceUnavailableError, match="cupy cannot be imported"):
        serialize.loads(data, serialize.loads_on_device)
    assert serialize.loads(data, serialize.loads_on_host)["a"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_a_card_that_does_not_start_is_not_an_absent_one(
    gpus: None, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The libraries' `is_available` says False in both cases."""
    module = importlib.import_module(library)
    array = module.arange(3) if library == "cupy" else module.tensor([0, 1, 2], device="cuda")
    data = serialize.dumps(array).inline()
    monkeypatch.setenv("FAKE_CUDA_START", "3")
    with pytest.raises(RuntimeError, match="initialization error"):
        serialize.loads(data, serialize.loads_on_device)


def test_a_pickle_inside_of_a_pickle(cupy: Any) -> None:
    """As results of `map` are sent: the buffers of the inner are buffers of the outer."""
    inner = serialize.dumps([cupy.arange(4)])
    outer = sent((inner.data, [pickle.PickleBuffer(buffer) for buffer in inner.buffers]))
    assert memory.counts["down"] == 1
    assert pickle.loads(outer[0], buffers=outer[1])[0].get().tolist() == [0, 1, 2, 3]


class Interface:
    """An array of a library of which nothing is known."""

    def __init__(self, array: Any) -> None:
        self._keep = [array, open]
        self.__cuda_array_interface__ = array.__cuda_array_interface__

    __cuda_array_interface__: Any = None


class DLPack:
    def __init__(self, array: Any, device: int) -> None:
        self._lambda = (number for number in [1])
        self._array, self._device, self.is_read_only = array, device, False

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device, 0

    def __dlpack__(self, *, stream: int | None = None, max_version: Any = None, copy: bool | None = None) -> Any:
        assert stream is not None
        if self.is_read_only and not copy:
            raise BufferError("cannot lend a read-only array")
        return self._array.__cuda_array_interface__


class Wrapper:
    """It has the interface, and can be pickled as it is."""

    def __init__(self, array: Any) -> None:
        self.array = array

    __cuda_array_interface__ = property(lambda self: self.array.__cuda_array_interface__)


def test_arrays_of_other_libraries(cupy: Any) -> None:
    there = cupy.arange(12).reshape(3, 4)[:, 1:]
    expected = there.get().tolist()
    odd = Interface(there)
    odd._keep.append(number for number in [1])
    found = sent([odd, DLPack(there, 2)])
    assert [type(one) for one in found] == [cupy.ndarray] * 2
    assert [one.get().tolist() for one in found] == [expected] * 2
    read_only = DLPack(there, 2)
    read_only.is_read_only = True
    assert sent([read_only])[0].get().tolist() == expected, "it is copied, which is all that is wanted"
    assert sent(Wrapper(there)).array.get().tolist() == expected, "who can be pickled stays what it is"
    with pytest.raises(TypeError, match=r"cannot serialise the value of type DLPack: .*generator"):
        serialize.dumps(DLPack(there, 1))


@pytest.mark.parametrize("name", ["float32", "float64", "complex64", "int64", "bool", "uint8"])
@pytest.mark.parametrize("shape", [(), (0, 3), (3, 4)])
def test_tensors(torch: Any, shape: tuple[int, ...], name: str) -> None:
    kind = getattr(torch, name)
    array = content(shape).astype(kind.stored)
    tensor = torch.tensor(array, kind, device="cuda")
    found = sent(tensor)
    assert type(found) is torch.Tensor
    assert (found.is_cuda, found.dtype, tuple(found.shape)) == (True, kind, shape)
    assert not found.requires_grad
    assert np.array_equal(found.cpu().numpy(), array)
    on_host = sent(tensor, on_host=True)
    assert (type(on_host), on_host.dtype) == (np.ndarray, kind.stored)
    assert np.array_equal(on_host, array)


def test_more_of_tensors(torch: Any) -> None:
    tensor = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], torch.float32, device="cuda")
    assert sent(tensor.t()).tolist() == [[1, 4], [2, 5], [3, 6]]
    assert sent(tensor[:, 1:], True).tolist() == [[2, 3], [5, 6]]
    assert sent(tensor.requires_grad_()).requires_grad
    parameter = sent(torch.Parameter(tensor))
    assert (type(parameter), parameter.data.tolist()) == (torch.Parameter, tensor.tolist())
    large = torch.tensor(np.arange(3 * MIB), device="cuda")
    assert np.array_equal(sent(large).cpu().numpy(), np.arange(3 * MIB))
    assert memory.counts["pinned copies"] == 12


def test_types_that_numpy_lacks(torch: Any) -> None:
    singles = np.array([1.5, -2.0, 3e38, 0.0, np.inf], np.float32).view(np.uint32) >> 16 << 16
    halves = torch.tensor((singles >> 16).astype(np.uint16), torch.bfloat16, device="cuda")
    found = sent(halves)
    assert (found.dtype, found.tolist()) == (torch.bfloat16, halves.tolist())
    on_host = sent(halves, on_host=True)
    assert (on_host.dtype, on_host.flags.writeable) == (np.float32, False)
    assert np.array_equal(on_host, singles.view(np.float32))
    one = sent(torch.tensor(0x4040, torch.bfloat16, device="cuda"), on_host=True)
    assert (type(one), one.shape, float(one)) == (np.ndarray, (), 3.0)
    quarter = torch.tensor([1, 2], torch.float8_e4m3fn, device="cuda")
    assert sent(quarter).tolist() == [1, 2]
    with pytest.raises(TypeError, match=r"torch\.float8_e4m3fn, and numpy has no such type.* x\.float\(\)"):
        sent(quarter, on_host=True)


def test_tensors_in_memory_and_with_attributes_pickle_themselves(torch: Any) -> None:
    assert sent(torch.tensor([1, 2])).tolist() == [1, 2]
    noted = torch.tensor([1, 2], device="cuda")
    noted.note = "mine"
    assert sent(noted).tolist() == [1, 2]
    assert memory.counts.pop("own pickles") == 2
