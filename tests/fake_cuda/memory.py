"""Memory of pretended GPUs, and the order in which things happen there: under the stand-ins for cupy and torch.

Nobody can reach it by its address: no process has such addresses. What is told to a device happens when somebody waits
for it, and not before: until then what is to be filled holds `POISON`. Counts what is done. As unkind as a card:

- After `fault` everything that a process asks of CUDA gets the same error, for good. `gpu.cuda_context` hears it too.
- CUDA does not start where FAKE_CUDA_START holds the number of an error.
- Devices are those that CUDA_VISIBLE_DEVICES names by tokens that are known, up to the first that is not.
- FAKE_CUDA_DIRECTORY: processes share the memory of devices, FAKE_CUDA_MEMORY bytes each. The first use of a device
  takes FAKE_CUDA_CONTEXT bytes of it, and what was taken is free when the last process is gone that has inherited it.
- Pinned memory comes in powers of two from a pool, which hands out a block again as soon as nobody refers to it.
- Memory that is registered is held by its pages (`pages.py`): whoever takes them from under the mapping has a device
  that reads and writes others. Not registered is what is mapped to be read only, what is registered in part, and more
  than FAKE_CUDA_PIN_LIMIT bytes. A copy has to lie in one registered range, or in none.
- A forked child can use nothing of what its parent has begun.
"""

import ctypes
import fcntl
import json
import mmap
import os
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy

from mpi_runtime.gpu import cuda_context
from tests.fake_cuda.pages import Held

FIRST = 0x7_0000_0000_0000
"""Where addresses of devices begin, beyond all that processes have."""
PER_DEVICE = 1 << 40
POISON = 0xA5
TO_DEVICE, TO_HOST = 1, 2
READ_ONLY = 8
CAN_REGISTER = 99
"""The attribute of a device that says that it can register memory. The others that are asked for are not there."""
PAGE = mmap.PAGESIZE
TEXTS = {
    2: "cudaErrorMemoryAllocation: out of memory",
    3: "cudaErrorInitializationError: initialization error",
    1: "cudaErrorInvalidValue: invalid argument",
    46: "cudaErrorDevicesUnavailable: CUDA-capable device(s) is/are busy or unavailable",
    100: "cudaErrorNoDevice: no CUDA-capable device is detected",
    201: "cudaErrorDeviceUninitialized: invalid device context",
    712: "cudaErrorHostMemoryAlreadyRegistered: part or all of the requested memory range is already mapped",
    713: "cudaErrorHostMemoryNotRegistered: pointer does not correspond to a registered memory region",
    801: "cudaErrorNotSupported: operation not supported",
    700: "cudaErrorIllegalAddress: an illegal memory access was encountered",
    802: "cudaErrorSystemNotReady: system not yet initialized",
}

Bytes = Any  # numpy's arrays of bytes

counts: Counter[str] = Counter()
"""What has been done here: "down", "up" (copies), "settled", "pinned", "own pickles"."""


class CUDARuntimeError(RuntimeError):
    """As cupy raises it."""

    __module__ = "cupy_backends.cuda.api.runtime"

    def __init__(self, status: int) -> None:
        self.status = status
        RuntimeError.__init__(self, TEXTS[status])

    def __reduce__(self) -> Any:
        return type(self), (self.status,)


class OutOfMemoryError(MemoryError):
    """As cupy raises it: its arguments are not what it is made from."""

    __module__ = "cupy.cuda.memory"

    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        self._made_of = size, total, limit
        more = f", limit set to: {limit:,} bytes" if limit else ""
        MemoryError.__init__(
            self, f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes{more})."
        )

    def __reduce__(self) -> Any:
        return type(self), self._made_of


# What there is, and whether it works


class _State:  # of this process
    is_loaded = False
    error = 0
    """CUDA's number of what has killed the contexts of this process."""
    pid = 0
    """The process that has begun: not that of a forked child."""
    pushed = 0
    """How many contexts the driver was told to use."""
    contexts: ClassVar[dict[int, int]] = {}
    """By device the descriptor that says that this process uses it."""
    used: ClassVar[Counter[int]] = Counter()
    """Bytes of each device that this process has taken."""
    limits: ClassVar[dict[int, int]] = {}
    """Most bytes of each device that its pool may take."""


def _known() -> list[str]:
    """The devices of the machine by UUID, in the order of PCI addresses."""
    described = os.environ.get("FAKE_NVML_MACHINE", "")
    if not described.startswith("{"):
        return [f"GPU-{number}" for number in range(int(os.environ.get("FAKE_CUDA_DEVICES", "0")))]
    gpus = sorted(json.loads(described).get("gpus", ()), key=lambda gpu: str(gpu["bus"]))
    return [gpu["uuid"] for gpu in gpus if not gpu.get("errors", {}).get("*")]


def shown() -> list[str]:
    """The devices that this process can use, as CUDA reads the variable."""
    known, value = _known(), os.environ.get(os.environ.get("FAKE_CUDA_VARIABLE", "CUDA_VISIBLE_DEVICES"))
    if value is None:
        return known if "FAKE_CUDA_DEVICES" in os.environ else []
    found: list[str] = []
    for token in value.split(","):
        if token.startswith("MIG-"):
            found.append(token)
        elif token.isdecimal() and (int(token) < len(known) or not known):
            found.append(known[int(token)] if known else f"GPU-{token}")
        elif token.startswith("GPU-") and sum(one.startswith(token) for one in known) == 1:
            found.append(next(one for one in known if one.startswith(token)))
        else:
            break
    return found if len(set(found)) == len(found) else []


def start() -> int:
    """With what CUDA refuses to start, or 0."""
    return int(os.environ.get("FAKE_CUDA_START", "0")) or (0 if shown() else 100)


def count() -> int:
    """As `cudaGetDeviceCount`: raises what CUDA answers."""
    _State.is_loaded = True
    number = start() or _State.error or (3 if _State.contexts and os.getpid() != _State.pid else 0)
    if number:
        raise CUDARuntimeError(number)
    return len(shown())


def fault(number: int = 700) -> None:
    """A kernel does what kills the context."""
    check()
    _State.error = number


def current() -> int:
    return getattr(_current, "device", 0)


def set_current(device: int) -> None:
    _current.device = device


def check() -> None:
    """As any call of CUDA: the first makes a context on the current device."""
    if current() >= count():
        raise CUDARuntimeError(100)
    if current() not in _State.contexts:
        _State.contexts[current()] = _enter(shown()[current()])
        _State.pid = os.getpid()
        if "FAKE_CUDA_BUSY" in os.environ:
            raise CUDARuntimeError(46)


class _Driver:
    """What our `gpu.cuda_context` finds in the place of libcuda, if this process uses CUDA."""

    def cuInit(self, flags: int) -> int:
        return start()

    def cuDeviceGetCount(self, reference: Any) -> int:
        reference._obj.value = len(shown())
        return 0

    def cuDeviceGet(self, reference: Any, ordinal: int) -> int:
        reference._obj.value = ordinal
        return 0

    def cuDevicePrimaryCtxGetState(self, device: Any, flags: Any, is_active: Any) -> int:
        is_active._obj.value = device.value in _State.contexts
        return 0

    def cuDevicePrimaryCtxRetain(self, reference: Any, device: Any) -> int:
        return 0

    def cuCtxPushCurrent_v2(self, context: Any) -> int:
        _State.pushed += 1
        return 0

    def cuCtxSynchronize(self) -> int:
        return _State.error

    def cuCtxPopCurrent_v2(self, reference: Any) -> int:
        _State.pushed -= 1
        return 0

    def cuDeviceGetAttribute(self, reference: Any, attribute: int, device: int) -> int:
        reference._obj.value = int(attribute == CAN_REGISTER)
        return 0

    def cuMemHostRegister_v2(self, pointer: Any, size: Any, flags: int) -> int:
        return _code(lambda: register(pointer.value, size.value, flags))

    def cuMemHostUnregister(self, pointer: Any) -> int:
        return _code(lambda: unregister(pointer.value))

    def cuDevicePrimaryCtxRelease_v2(self, device: Any) -> int:
        return 0


def _code(call: Callable[[], None]) -> int:
    """As the driver answers, in the context that it was told to use."""
    try:
        if not _State.pushed:
            raise CUDARuntimeError(201)
        call()
    except CUDARuntimeError as error:
        return error.status
    return 0


_real_driver = cuda_context.driver


def install() -> None:
    """Stand in for libcuda too, from when this process has asked CUDA anything: then a library has loaded it."""
    cuda_context.driver = lambda: _Driver() if _State.is_loaded else None


def reset() -> None:
    """For tests in one process: as a new process finds it."""
    cuda_context.driver = _real_driver
    _State.error, _State.is_loaded = 0, False
    for held in registered.values():
        held.close()
    _State.pushed = 0
    for one in (counts, _State.contexts, _State.used, _State.limits, registered, _pool):
        one.clear()
    set_current(0)


# Memory of devices


def _enter(uuid: str) -> int:
    """Say that this process uses a device, until the last is gone that has inherited the descriptor."""
    directory = os.environ.get("FAKE_CUDA_DIRECTORY")
    if directory is None:
        return -1
    folder = Path(directory, uuid)
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / f"{os.getpid()}", os.O_CREAT | os.O_RDWR)
    os.set_inheritable(descriptor, True)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    try:
        _take(uuid, descriptor, int(os.environ.get("FAKE_CUDA_CONTEXT", "0")))
    except OutOfMemoryError:
        os.close(descriptor)
        raise CUDARuntimeError(2) from None
    return descriptor


def _take(uuid: str, own: int, nbytes: int) -> None:
    """Write down that this process has more of a device."""
    folder = Path(os.environ["FAKE_CUDA_DIRECTORY"], uuid)
    with open(folder.parent / f"{uuid}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        total = 0
        for file in folder.iterdir():
            if file.name != str(os.getpid()) and _is_left(file):
                file.unlink()
                continue
            total += int(file.read_text() or "0")
        capacity = int(os.environ.get("FAKE_CUDA_MEMORY", str(1 << 40)))
        if total + nbytes > capacity:
            raise OutOfMemoryError(nbytes, total)
        mine = int(os.pread(own, 32, 0) or b"0") + nbytes
        os.pwrite(own, f"{mine:32}".encode(), 0)


def _is_left(file: Path) -> bool:
    """Whether nobody has a descriptor of it any more."""
    with open(file) as other:
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


class Allocation:
    """Memory of one device. It ends with the last array in it; the pool keeps what it has taken for that."""

    def __init__(self, device: int, nbytes: int) -> None:
        self.device = device
        self.store = numpy.full(max(nbytes, 1), POISON, numpy.uint8)
        self.base = _next_base[device] = _next_base.get(device, FIRST + device * PER_DEVICE) + 512
        _next_base[device] += nbytes
        _allocations[self.base] = self
        weakref.finalize(self, _live.subtract, {device: nbytes})


_next_base: dict[int, int] = {}
_allocations: "weakref.WeakValueDictionary[int, Allocation]" = weakref.WeakValueDictionary()
_live: Counter[int] = Counter()
"""Bytes of each device that arrays have."""


def allocate(nbytes: int) -> Allocation:
    check()
    device = current()
    limit = _State.limits.get(device, 0)
    wanted = _live[device] + nbytes - _State.used[device]
    """What the pool has to take besides what it has."""
    if limit and _live[device] + nbytes > limit:
        raise OutOfMemoryError(nbytes, _live[device], limit)
    if wanted > 0:
        if _State.contexts[device] >= 0:
            _take(shown()[device], _State.contexts[device], wanted)
        elif _live[device] + nbytes > int(os.environ.get("FAKE_CUDA_MEMORY", str(1 << 40))):
            raise OutOfMemoryError(nbytes, _live[device])
        _State.used[device] += wanted
    _live[device] += nbytes
    return Allocation(device, nbytes)


def free_all_blocks() -> None:
    """The pool gives back what no array has."""
    for device, used in list(_State.used.items()):
        spare = used - _live[device]
        _State.used[device] -= spare
        if spare and _State.contexts[device] >= 0:
            _take(shown()[device], _State.contexts[device], -spare)


def set_limit(size: int) -> None:
    """Of the pool of this process, for the current device; 0: none."""
    _State.limits[current()] = size


def at(pointer: int, size: int = 0) -> tuple[Allocation, int]:
    """The allocation in which these bytes lie, and where in it."""
    for base, allocation in list(_allocations.items()):
        if base <= pointer and pointer + size <= base + len(allocation.store):
            return allocation, pointer - base
    raise CUDARuntimeError(1)


# What is told to devices


class Task(NamedTuple):
    device: int
    stream: int
    run: Callable[[], None]
    is_straight: bool = False
    """Whether it copies from or to registered memory."""


_tasks: deque[Task] = deque()
_lock = threading.RLock()
_current = threading.local()


def begin(device: int, stream: int, run: Callable[[], None], is_straight: bool = False) -> None:
    """Have a device do something, some time."""
    check()
    with _lock:
        _tasks.append(Task(device, stream, run, is_straight))


def settle(device: int) -> None:
    """Wait until a device has done all that it was told."""
    check()
    counts["settled"] += 1
    _wait(lambda task: task.device == device)


def wait(device: int, stream: int) -> None:
    """Wait for what was begun on one stream."""
    check()
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


# Memory of the host


def pinned(nbytes: int) -> Any:
    """What `alloc_pinned_memory` returns: it lends the bytes of a block, which is the pool's again when it is gone."""
    check()
    if "FAKE_CUDA_NO_PINNED" in os.environ:
        raise CUDARuntimeError(2)
    size = 1 << max(9, (nbytes - 1).bit_length())
    counts["pinned"] += 1
    if _pool.get(size):
        block = _pool[size].pop()
    else:
        block = bytearray(size)
        counts["pinned bytes"] += size
    lent = type("PinnedMemoryPointer", (ctypes.c_uint8 * size,), {}).from_buffer(block)
    _pinned[ctypes.addressof(lent)] = lent
    weakref.finalize(lent, lambda: _pool.setdefault(size, []).append(block))
    return lent


_pool: dict[int, list[bytearray]] = {}
"""Blocks that nobody has, by their size."""
_pinned: "weakref.WeakValueDictionary[int, Any]" = weakref.WeakValueDictionary()
registered: dict[int, Held] = {}
"""Memory that was made known to the driver, by its address."""


def register(pointer: int, size: int, flags: int = 0) -> None:
    check()
    if any(base < pointer + size and pointer < base + held.size for base, held in registered.items()):
        raise CUDARuntimeError(712)
    if flags & READ_ONLY:
        raise CUDARuntimeError(801)
    if not size or not _is_writable(pointer, size):
        raise CUDARuntimeError(1)
    if sum(held.size for held in registered.values()) + size > int(os.environ.get("FAKE_CUDA_PIN_LIMIT", str(1 << 40))):
        raise CUDARuntimeError(2)
    start, end = pointer // PAGE * PAGE, -(-(pointer + size) // PAGE) * PAGE
    registered[pointer] = Held(start, end - start)
    counts["registered"] += 1


def unregister(pointer: int) -> None:
    check()
    if pointer not in registered:
        raise CUDARuntimeError(713)
    registered.pop(pointer).close()


def _is_writable(pointer: int, size: int) -> bool:
    """Whether this process may write all of it."""
    at = pointer
    for line in Path("/proc/self/maps").read_text().splitlines():
        ends, rights, *_ = line.split()
        low, high = (int(end, 16) for end in ends.split("-"))
        if low <= at < high and "w" in rights:
            at = high
    return at >= pointer + size


def _held(pointer: int, size: int) -> Held | None:
    """The registered range in which these bytes lie; None: they lie in none."""
    found = [held for base, held in registered.items() if base < pointer + size and pointer < base + held.size]
    if not found:
        return None
    (held, *others) = found
    if others or pointer < held.address or pointer + size > held.address + held.size:
        raise CUDARuntimeError(1)
    return held


def copy_now(to: int, source: int, size: int, kind: int) -> None:
    """`memcpy`."""
    copy(to, source, size, kind, 0)
    wait(current(), 0)


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
    held = _held(pointer, size) if block is None else None
    alive = weakref.ref(block) if block is not None else lambda: True
    counts["down" if kind == TO_HOST else "up"] += 1
    counts["pinned copies"] += block is not None
    if held is not None:
        counts["straight"] += 1

    def write(content: Any) -> None:
        if held is None:
            here[:] = content
        else:
            held.write(pointer - held.address, numpy.broadcast_to(content, size).astype(numpy.uint8))

    def run() -> None:
        assert alive() is not None, "pinned memory was freed while a copy was under way"
        assert held is None or held in registered.values(), "memory was unpinned while a copy was under way"
        if kind == TO_HOST:
            write(there)
        else:
            there[:] = here if held is None else numpy.frombuffer(held.read(pointer - held.address, size), numpy.uint8)

    if kind == TO_HOST:
        write(POISON)
    begin(current(), stream, run, held is not None)
