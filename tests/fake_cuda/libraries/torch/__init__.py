"""Stands in for torch in programs of tests: as much of it as they and mpi_runtime use, on `tests.fake_cuda.memory`."""

from __future__ import annotations

import os
import warnings
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy

from tests.fake_cuda import memory

memory.install()

strided = object()
KIND = os.environ.get("FAKE_TORCH_KIND", "cuda")
"""The name of devices: "xpu" in a build for Intel."""


class DType:
    def __init__(self, name: str, stored: str) -> None:
        self.name = name
        self.stored = numpy.dtype(stored)

    def __repr__(self) -> str:
        return f"torch.{self.name}"


uint8, int64, bool = DType("uint8", "u1"), DType("int64", "i8"), DType("bool", "?")
float32, float64, complex64 = DType("float32", "f4"), DType("float64", "f8"), DType("complex64", "c8")
bfloat16, float8_e4m3fn = DType("bfloat16", "u2"), DType("float8_e4m3fn", "u1")
_OF_NUMPY = {str(one.stored): one for one in (bfloat16, uint8, int64, bool, float32, float64, complex64)}


class Tensor:
    """With `_allocation` it is on a device, and `_there` is a view into its memory."""

    layout = strided
    is_quantized = is_nested = False
    __slots__ = ("__dict__", "_allocation", "_there", "dtype", "requires_grad")
    _there: Any
    _allocation: Any
    dtype: Any
    requires_grad: Any

    def _like(self, there: Any, kind: DType | None = None) -> Tensor:
        found = Tensor()
        found._there, found._allocation, found.dtype = there, self._allocation, kind or self.dtype
        found.requires_grad = False
        return found

    shape = property(lambda self: self._there.shape)
    is_there = property(lambda self: self._allocation is not None)
    is_cuda = property(lambda self: self.is_there and KIND == "cuda")
    is_xpu = property(lambda self: self.is_there and KIND == "xpu")

    @property
    def device(self) -> Any:
        return SimpleNamespace(type=KIND, index=self._allocation.device) if self.is_there else None

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if not self.is_there:
            raise AttributeError("__cuda_array_interface__")
        raise AssertionError("nobody needs to ask a tensor")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self._allocation.device) if self.is_there else (1, 0)

    def detach(self) -> Tensor:
        return self._like(self._there)

    def resolve_conj(self) -> Tensor:
        return self

    def resolve_neg(self) -> Tensor:
        return self

    def contiguous(self) -> Tensor:
        if self._there.flags.c_contiguous:
            return self
        made = empty(self.shape, dtype=self.dtype, device=KIND)
        memory.begin(made._allocation.device, 0, lambda: numpy.copyto(made._there, self._there))
        memory.counts["made contiguous"] += 1
        return made

    def reshape(self, *shape: int) -> Tensor:
        assert self._there.flags.c_contiguous
        return self._like(self._there.reshape(*shape))

    def view(self, kind: DType) -> Tensor:
        return self._like(self._there.view(kind.stored), kind)

    def t(self) -> Tensor:
        return self._like(self._there.T)

    def numel(self) -> int:
        return int(self._there.size)

    def requires_grad_(self, wanted: Any = True) -> Tensor:
        self.requires_grad = wanted
        return self

    def __getitem__(self, key: Any) -> Tensor:
        return self._like(self._there[key])

    def numpy(self) -> Any:
        assert not self.is_there
        return self._there

    def cpu(self) -> Tensor:
        memory.wait(self._allocation.device, 0)
        made = self._like(self._there.copy())
        made._allocation = None
        return made

    def tolist(self) -> Any:
        return (self.cpu() if self.is_there else self)._there.tolist()

    def copy_(self, source: Tensor, non_blocking: Any = False) -> None:
        """Between a device and the host, one of each, bytes by bytes."""
        assert non_blocking
        assert self.is_there != source.is_there
        kind, host, there = (memory.TO_DEVICE, source, self) if self.is_there else (memory.TO_HOST, self, source)
        address = there._allocation.base + there._there.ctypes.data - there._allocation.store.ctypes.data
        ends = (address, host._there.ctypes.data) if self.is_there else (host._there.ctypes.data, address)
        memory.copy(*ends, there._there.nbytes, kind, 0)

    def __reduce_ex__(self, protocol: Any) -> Any:
        memory.counts["own pickles"] += 1
        return _load, (self._there.copy(), str(self.dtype), self.is_there)


def _load(content: Any, kind: str, on_device: Any) -> Tensor:
    if on_device and not _Devices.is_available():
        raise RuntimeError("Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False")
    return tensor(content, dtype=globals()[kind.removeprefix("torch.")], device=KIND if on_device else "cpu")


class Parameter(Tensor):
    """As `torch.nn.Parameter`: pickles itself with the plain tensor inside."""

    def __init__(self, data: Tensor) -> None:
        self.data = data
        self._there, self._allocation, self.dtype = data._there, data._allocation, data.dtype
        self.requires_grad = True

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Parameter, (self.data,)


def empty(shape: Any, dtype: DType = float32, device: str = "cpu", pin_memory: Any = False) -> Tensor:
    made = Tensor()
    made.dtype, made._allocation, made.requires_grad = dtype, None, False
    if device == KIND:
        size = int(numpy.prod(shape)) * dtype.stored.itemsize
        _Devices.init()
        made._allocation = _answered(lambda: memory.allocate(size))
        made._there = numpy.ndarray(shape, dtype.stored, made._allocation.store)
    elif pin_memory:
        made._there = numpy.frombuffer(memory.pinned(shape), numpy.uint8, shape)
    else:
        made._there = numpy.empty(shape, dtype.stored)
    return made


def tensor(content: Any, dtype: DType | None = None, device: str = "cpu") -> Tensor:
    content = numpy.asarray(content, dtype.stored if dtype else None)
    made = empty(content.shape, dtype or _OF_NUMPY[str(content.dtype)], device)
    made._there[...] = content
    return made


def from_numpy(content: Any) -> Tensor:
    if not content.flags.writeable:  # torch says it at the first time, with more words
        warnings.warn("The given NumPy array is not writable, and PyTorch does not support it", stacklevel=2)
    made = Tensor()
    made._there, made._allocation, made.dtype, made.requires_grad = content, None, _OF_NUMPY[str(content.dtype)], False
    return made


no_grad = nullcontext


class OutOfMemoryError(RuntimeError):
    """As torch raises it."""


def _answered(call: Any) -> Any:
    """As torch says errors of CUDA: in words, but for memory."""
    try:
        return call()
    except memory.CUDARuntimeError as error:
        raise RuntimeError(f"CUDA error: {str(error).partition(': ')[2]}") from None
    except memory.OutOfMemoryError as error:
        raise OutOfMemoryError(f"CUDA out of memory. {error}") from None


class _Devices:
    OutOfMemoryError = OutOfMemoryError
    _queued: ClassVar[list[Any]] = []

    @staticmethod
    def is_available() -> Any:
        """False whatever is wrong, and warns."""
        try:
            return memory.count() > 0
        except memory.CUDARuntimeError as error:
            if error.status != 100:
                warnings.warn(f"CUDA initialization: {error}", stacklevel=2)
            return False

    @staticmethod
    def is_initialized() -> Any:
        return len(memory._State.contexts) > 0

    @staticmethod
    def init() -> None:
        if not memory.shown():
            raise RuntimeError("No CUDA GPUs are available")
        _answered(memory.check)
        while _Devices._queued:
            _Devices._queued.pop(0)()

    @staticmethod
    def _lazy_call(call: Any) -> None:
        if _Devices.is_initialized():
            call()
        else:
            _Devices._queued.append(call)

    @staticmethod
    def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
        _Devices.init()
        assert 0 <= fraction <= 1
        before = memory.current()
        memory.set_current(before if device is None else device)
        memory.set_limit(0 if fraction == 1 else int(fraction * int(os.environ.get("FAKE_CUDA_MEMORY", str(1 << 40)))))
        memory.set_current(before)

    @staticmethod
    def current_stream(device: Any = None) -> Any:
        number = memory.current() if device is None else device.index
        return SimpleNamespace(device=number, synchronize=lambda: _answered(lambda: memory.wait(number, 0)))

    @staticmethod
    @contextmanager
    def stream(stream: Any) -> Any:
        before = memory.current()
        memory.set_current(stream.device)
        yield
        memory.set_current(before)

    @staticmethod
    def synchronize(device: Any) -> None:
        _answered(lambda: memory.settle(device.index))

    @staticmethod
    def _is_compiled() -> Any:
        return True


cuda: Any = _Devices if KIND == "cuda" else SimpleNamespace(is_available=lambda: False)
xpu: Any = _Devices if KIND == "xpu" else SimpleNamespace(_is_compiled=lambda: False)
