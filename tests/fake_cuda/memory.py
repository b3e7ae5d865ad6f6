"""Memory of pretended GPUs, and the order in which things happen there: under the stand-ins for cupy and torch.

Nobody can reach it by its address: no process has such addresses. What is told to a device happens when somebody waits
for it, and not before: until then what is to be filled holds `POISON`. Counts what is done.
"""

import ctypes
import os
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy

FIRST = 0x7_0000_0000_0000
"""Where addresses of devices begin, beyond all that processes have."""
PER_DEVICE = 1 << 40
POISON = 0xA5
TO_DEVICE, TO_HOST = 1, 2

Bytes = Any  # numpy's arrays of bytes

counts: Counter[str] = Counter()
"""What has been done here: "down", "up" (copies), "settled", "pinned", "own pickles"."""


class CUDARuntimeError(RuntimeError):
    """As cupy raises it."""

    __module__ = "cupy_backends.cuda.api.runtime"


class OutOfMemoryError(MemoryError):
    """As cupy raises it."""

    __module__ = "cupy.cuda.memory"


class Allocation:
    """Memory of one device. It ends with the last array in it."""

    def __init__(self, device: int, nbytes: int) -> None:
        self.device = device
        self.store = numpy.full(max(nbytes, 1), POISON, numpy.uint8)
        self.base = _next_base[device] = _next_base.get(device, FIRST + device * PER_DEVICE) + 512
        _next_base[device] += nbytes
        _allocations[self.base] = self


_next_base: dict[int, int] = {}
_allocations: "weakref.WeakValueDictionary[int, Allocation]" = weakref.WeakValueDictionary()
_pinned: "weakref.WeakValueDictionary[int, Pinned]" = weakref.WeakValueDictionary()


class Task(NamedTuple):
    device: int
    stream: int
    run: Callable[[], None]


_tasks: deque[Task] = deque()
_lock = threading.RLock()
_current = threading.local()


def count() -> int:
    """How many devices this process can use: as CUDA reads it."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    if shown is None:
        return int(os.environ.get("FAKE_CUDA_DEVICES", "0"))
    return len([token for token in shown.split(",") if token])


def current() -> int:
    return getattr(_current, "device", 0)


def set_current(device: int) -> None:
    _current.device = device


def check() -> None:
    if current() >= count():
        raise CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")


def allocate(nbytes: int) -> Allocation:
    check()
    if nbytes > int(os.environ.get("FAKE_CUDA_MEMORY", str(1 << 40))):
        raise OutOfMemoryError(f"Out of memory allocating {nbytes} bytes")
    return Allocation(current(), nbytes)


def at(pointer: int, size: int = 0) -> tuple[Allocation, int]:
    """The allocation in which these bytes lie, and where in it."""
    for base, allocation in list(_allocations.items()):
        if base <= pointer and pointer + size <= base + len(allocation.store):
            return allocation, pointer - base
    raise CUDARuntimeError("cudaErrorInvalidValue: invalid argument")


def begin(device: int, stream: int, run: Callable[[], None]) -> None:
    """Have a device do something, some time."""
    with _lock:
        _tasks.append(Task(device, stream, run))


def settle(device: int) -> None:
    """Wait until a device has done all that it was told."""
    counts["settled"] += 1
    _wait(lambda task: task.device == device)


def wait(device: int, stream: int) -> None:
    """Wait for what was begun on one stream."""
    _wait(lambda task: task.device == device and task.stream == stream)


def _wait(wanted: Callable[[Task], bool]) -> None:
    with _lock:
        tasks = list(_tasks)
        _tasks.clear()
        for task in tasks:
            if wanted(task):
                task.run()
            else:
                _tasks.append(task)


class Pinned(bytearray):
    """Memory of the host that devices can reach."""

    def __init__(self, nbytes: int) -> None:
        check()
        if "FAKE_CUDA_NO_PINNED" in os.environ:
            raise CUDARuntimeError("cudaErrorMemoryAllocation: out of memory")
        super().__init__(nbytes)
        counts["pinned"] += 1
        self.ptr = ctypes.addressof(ctypes.c_uint8.from_buffer(self))
        _pinned[self.ptr] = self


def host(pointer: int, size: int) -> Bytes:
    """Bytes of this process."""
    assert pointer + size < FIRST, "an address of a device was taken for one of the host"
    return numpy.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(pointer))


def copy(to: int, source: int, size: int, kind: int, stream: int) -> None:
    """Begin to copy between the host and the current device: `memcpyAsync`."""
    check()
    pointer, address = (to, source) if kind == TO_HOST else (source, to)
    allocation, offset = at(address, size)
    assert allocation.device == current(), "the copy is told to another device than the one that has the memory"
    there, here = allocation.store[offset : offset + size], host(pointer, size)
    block = next((one for base, one in list(_pinned.items()) if base <= pointer < base + len(one)), None)
    alive = weakref.ref(block) if block is not None else lambda: True
    counts["down" if kind == TO_HOST else "up"] += 1
    counts["pinned copies"] += block is not None
    if kind == TO_HOST:
        here[:] = POISON

    def run() -> None:
        assert alive() is not None, "pinned memory was freed while a copy was under way"
        target, origin = (here, there) if kind == TO_HOST else (there, here)
        target[:] = origin

    begin(current(), stream, run)
