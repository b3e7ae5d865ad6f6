"""Stands in for cupy in programs of tests: as much of it as they and mpi_runtime use, on `tests.fake_cuda.memory`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy

from tests.fake_cuda import memory

memory.install()
uint8 = numpy.uint8


class ndarray:
    """An array on a device: a view of numpy's into the device's memory, which nobody else can see."""

    def __init__(self, shape: Any, dtype: Any = float, order: Any = "C") -> None:
        size = int(numpy.prod(shape)) * numpy.dtype(dtype).itemsize
        self._allocation = memory.allocate(size)
        self._there: Any = numpy.ndarray(shape, dtype, self._allocation.store, order=order)

    def _view(self, there: Any, kind: Any = None) -> Any:
        found = object.__new__(kind or type(self))
        found._allocation, found._there = self._allocation, there
        return found

    shape = property(lambda self: self._there.shape)
    strides = property(lambda self: self._there.strides)
    dtype = property(lambda self: self._there.dtype)
    size = property(lambda self: self._there.size)
    nbytes = property(lambda self: self._there.nbytes)
    flags = property(lambda self: self._there.flags)
    device = property(lambda self: _Device(self._allocation.device))
    T = property(lambda self: self._view(self._there.T))

    @property
    def data(self) -> Any:
        inside = self._there.ctypes.data - self._allocation.store.ctypes.data
        return SimpleNamespace(ptr=self._allocation.base + inside)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        memory.check()
        shape, strides, kind = self.shape, self.strides, self.dtype.str
        return {"data": (self.data.ptr, False), "shape": shape, "strides": strides, "typestr": kind, "version": 3}

    def __getitem__(self, key: Any) -> Any:
        return self._view(self._there[key])

    def view(self, kind: Any) -> Any:
        """As the class of arrays, or as the type of elements, which real cupy tells apart like this too."""
        is_class = isinstance(kind, type) and issubclass(kind, ndarray)
        return self._view(self._there, kind) if is_class else self._view(self._there.view(kind))

    def reshape(self, *shape: int) -> Any:
        return self._view(self._there.reshape(*shape))

    def get(self) -> Any:
        stream = cuda.get_current_stream()
        memory.wait(memory.current(), stream.ptr)
        return self._there.copy()

    def __reduce__(self) -> Any:
        memory.counts["own pickles"] += 1
        return asarray, (self.get(),)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def __add__(self, other: Any) -> Any:
        return _kernel(numpy.add, self, other)

    def __mul__(self, other: Any) -> Any:
        return _kernel(numpy.multiply, self, other)

    def sum(self) -> Any:
        return _kernel(lambda a, out: numpy.copyto(out, a.sum()), self, shape=())

    def fill(self, value: Any) -> None:
        there = self._there
        memory.begin(self._allocation.device, cuda.get_current_stream().ptr, lambda: there.fill(value))


def _kernel(operation: Callable[..., Any], *operands: Any, shape: Any = None) -> ndarray:
    """What a device computes, some time."""
    theirs = [one._there if isinstance(one, ndarray) else one for one in operands]
    sample = numpy.broadcast(*theirs)
    made = ndarray(sample.shape if shape is None else shape, numpy.result_type(*theirs))

    def run() -> None:
        assert all(one._allocation is not None for one in operands if isinstance(one, ndarray))
        operation(*theirs, out=made._there)

    memory.begin(memory.current(), cuda.get_current_stream().ptr, run)
    return made


def asarray(value: Any, dtype: Any = None, order: Any = "C") -> ndarray:
    if isinstance(value, ndarray):
        return value
    if hasattr(value, "__cuda_array_interface__"):
        return _of_interface(value.__cuda_array_interface__)
    value = numpy.asarray(value, dtype, order=order)
    if value.dtype.char not in "?bhilqBHILQefdFD":
        raise ValueError(f"Unsupported dtype {value.dtype}")
    made = ndarray(value.shape, value.dtype, order=order)
    made._there[...] = value
    return made


array = asarray


def _of_interface(interface: dict[str, Any]) -> ndarray:
    allocation, start = memory.at(interface["data"][0])
    made = object.__new__(ndarray)
    made._allocation = allocation
    made._there = numpy.ndarray(
        interface["shape"], interface["typestr"], allocation.store, start, interface.get("strides")
    )
    return made


def from_dlpack(value: Any, *, device: Any = None, copy: Any = None) -> ndarray:
    """The producer is told the stream on which its bytes will be read; it may refuse to lend what is read-only."""
    return _of_interface(value.__dlpack__(stream=cuda.get_current_stream().ptr, max_version=(1, 0), copy=copy))


def empty(shape: Any, dtype: Any = float, order: Any = "C") -> ndarray:
    return ndarray(shape, dtype, order)


def full(shape: Any, value: Any, dtype: Any = float) -> ndarray:
    made = ndarray(shape, dtype)
    made.fill(value)
    return made


def arange(*args: Any, dtype: Any = None) -> ndarray:
    return asarray(numpy.arange(*args, dtype=dtype))


def ascontiguousarray(value: ndarray) -> ndarray:
    memory.counts["made contiguous"] += 1
    return _kernel(lambda a, out: numpy.copyto(out, a), value)


def asnumpy(value: ndarray) -> Any:
    return value.get()


class _Device:
    def __init__(self, device: int | None = None) -> None:
        self.id = memory.current() if device is None else device

    def __enter__(self) -> _Device:
        self._before = memory.current()
        memory.set_current(self.id)
        return self

    def __exit__(self, *_: object) -> None:
        memory.set_current(self._before)

    def use(self) -> None:
        memory.set_current(self.id)

    def synchronize(self) -> None:
        memory.settle(self.id)


_streams = threading.local()
"""The current stream of each device, in each thread."""


class _Stream:
    made = 0

    def __init__(self, null: bool = False, non_blocking: bool = False) -> None:
        memory.check()
        self.ptr = 0 if null else _Stream.made + 1
        _Stream.made += not null
        self.device_id = -1 if null else memory.current()

    def __enter__(self) -> _Stream:
        assert self.device_id in (-1, memory.current()), "a stream of another device than the current one"
        self._before = cuda.get_current_stream()
        vars(_streams)[str(memory.current())] = self
        return self

    def __exit__(self, *_: object) -> None:
        vars(_streams)[str(memory.current())] = self._before

    def synchronize(self) -> None:
        assert self.device_id in (-1, memory.current()), "a stream of another device than the current one"
        memory.wait(memory.current(), self.ptr)


class _MemoryPool:
    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        """Of the current device; 0: none."""
        assert fraction is None
        memory.set_limit(size or 0)

    def free_all_blocks(self) -> None:
        memory.free_all_blocks()

    def get_limit(self) -> int:
        return memory._State.limits.get(memory.current(), 0)


def get_default_memory_pool() -> _MemoryPool:
    return _MemoryPool()


_available: bool | None = None


class _Runtime:
    CUDARuntimeError = memory.CUDARuntimeError
    memcpyAsync = staticmethod(memory.copy)
    memcpy = staticmethod(memory.copy_now)
    memcpyHostToDevice = memory.TO_DEVICE
    memcpyDeviceToHost = memory.TO_HOST
    getDeviceCount = staticmethod(memory.count)
    hostRegister = staticmethod(memory.register)
    hostUnregister = staticmethod(memory.unregister)


class _Cuda:
    Device = _Device
    Stream = _Stream
    runtime = _Runtime
    memory = SimpleNamespace(OutOfMemoryError=memory.OutOfMemoryError)

    @staticmethod
    def alloc_pinned_memory(size: int) -> Any:
        return memory.pinned(size)

    @staticmethod
    def get_current_stream() -> Any:
        memory.check()
        return vars(_streams).get(str(memory.current())) or _Stream(null=True)

    @staticmethod
    def is_available() -> bool:
        """Any error is an answer, and the first answer the last, as with the real one."""
        global _available
        if _available is None:
            try:
                _available = memory.count() > 0
            except Exception:
                _available = False
        return _available


cuda = _Cuda
