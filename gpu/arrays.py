"""Arrays of cupy and torch: describes one, rebuilds it from the description, copies its bytes.

To send an array, only libraries that the program has loaded are used. To rebuild one, its library is imported.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from mpi_runtime.gpu import faults
from mpi_runtime.gpu.caps import is_for_xpu

if TYPE_CHECKING:
    from mpi_runtime.gpu.staging import Bytes, Way

CUDA_DEVICES = (2, 13)
"""DLPack's device types for CUDA device memory and for CUDA managed memory."""


class Facts(NamedTuple):
    """Everything about an array but its bytes."""

    library: str
    """"cupy" or "torch"."""
    dtype: Any
    """cupy: the numpy dtype. torch: the name of the dtype."""
    shape: tuple[int, ...]
    order: str
    """Memory layout: "C" or "F"."""
    more: Any
    """cupy: the class of the array, None for `cupy.ndarray`. torch: whether it requires a gradient."""


class Found(NamedTuple):
    """An array on a device, ready to be sent."""

    facts: Facts
    way: Way
    ordinal: int
    """CUDA's number for the device in this process."""


# Arrays of cupy.


class _CupyWay:
    """Copies on the current stream of the array's device, so that they come after earlier uses of the same memory."""

    def __init__(self, array: Any) -> None:
        self._cupy = sys.modules["cupy"].cuda
        self._array = array  # keeps the memory
        self._device = array.device
        self.nbytes: int = array.nbytes
        with self._device:
            self._stream = self._cupy.get_current_stream()

    def settle(self) -> None:
        self._device.synchronize()

    def down(self, buffer: Bytes, at: int) -> None:
        self._copy(buffer.ctypes.data, self._array.data.ptr + at, buffer.nbytes, "memcpyDeviceToHost")

    def up(self, buffer: Bytes, at: int) -> None:
        self._copy(self._array.data.ptr + at, buffer.ctypes.data, buffer.nbytes, "memcpyHostToDevice")

    def _copy(self, to: int, source: int, size: int, kind: str) -> None:
        runtime = self._cupy.runtime
        with self._device:
            runtime.memcpyAsync(to, source, size, getattr(runtime, kind), self._stream.ptr)

    def wait(self) -> None:
        with self._device:  # the default stream has the same handle on all devices
            self._stream.synchronize()

    def pinned(self, size: int) -> Bytes:
        import numpy

        return numpy.frombuffer(self._cupy.alloc_pinned_memory(size), numpy.uint8, size)


def _find_cupy(array: Any) -> Found:
    cupy: ModuleType = sys.modules["cupy"]
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        with array.device:
            array = cupy.ascontiguousarray(array)
    order = "C" if array.flags.c_contiguous else "F"
    more = None if type(array) is cupy.ndarray else type(array)
    facts = Facts("cupy", array.dtype, tuple(array.shape), order, more)
    return Found(facts, _CupyWay(array), array.device.id)


def _make_cupy(cupy: ModuleType, facts: Facts) -> tuple[object, Way]:
    array = cupy.empty(facts.shape, facts.dtype, order=facts.order)
    return (array if facts.more is None else array.view(facts.more)), _CupyWay(array)


# Tensors of torch.


class _TorchWay:
    """Copies on the current stream of the tensor's device."""

    def __init__(self, tensor: Any) -> None:
        self._torch: ModuleType = sys.modules["torch"]
        self._bytes = tensor.detach().reshape(-1).view(self._torch.uint8)
        self.nbytes: int = self._bytes.numel()
        self._library = getattr(self._torch, tensor.device.type)  # torch.cuda, or torch.xpu of Intel
        self._stream = self._library.current_stream(tensor.device)

    def settle(self) -> None:
        self._library.synchronize(self._bytes.device)

    def down(self, buffer: Bytes, at: int) -> None:
        with self._library.stream(self._stream):
            self._torch.from_numpy(buffer).copy_(self._bytes[at : at + buffer.nbytes], non_blocking=True)

    def up(self, buffer: Bytes, at: int) -> None:
        if not buffer.flags.writeable:  # a small array in the object store; torch would warn the user about it
            buffer = buffer.copy()
        with self._library.stream(self._stream):
            self._bytes[at : at + buffer.nbytes].copy_(self._torch.from_numpy(buffer), non_blocking=True)

    def wait(self) -> None:
        self._stream.synchronize()

    def pinned(self, size: int) -> Bytes:
        buffer: Bytes = self._torch.empty(size, dtype=self._torch.uint8, pin_memory=True).numpy()
        return buffer


def _device(torch: ModuleType) -> str:
    """Return the name by which this torch knows devices."""
    return "xpu" if is_for_xpu(torch) else "cuda"


def _find_torch(tensor: Any) -> Found | None:
    """Return None if the tensor is not on a GPU, or is of a kind that only torch can describe."""
    torch: ModuleType = sys.modules["torch"]
    is_odd = tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested or vars(tensor)
    if not (tensor.is_cuda or getattr(tensor, "is_xpu", False)) or is_odd:
        return None
    with torch.no_grad():
        plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    name = str(tensor.dtype).removeprefix("torch.")
    facts = Facts("torch", name, tuple(tensor.shape), "C", tensor.requires_grad)
    return Found(facts, _TorchWay(plain), tensor.device.index)


def _make_torch(torch: ModuleType, facts: Facts) -> tuple[object, Way]:
    tensor = torch.empty(facts.shape, dtype=getattr(torch, facts.dtype), device=_device(torch))
    way = _TorchWay(tensor)
    return tensor.requires_grad_(facts.more), way


# Both libraries.


def known_class(kind: type) -> type | None:
    """Return `cupy.ndarray` or `torch.Tensor` if this class is one of them or a subclass; else None.

    A library that the program has not loaded is not looked at.
    """
    for library, name in (("cupy", "ndarray"), ("torch", "Tensor")):
        base: type | None = getattr(sys.modules.get(library), name, None)  # another thread may be importing it
        if base is not None and issubclass(kind, base):
            return base
    return None


def find(array: Any) -> Found | None:
    """Return the description of an array; None if it is not on a GPU, or if its own class must pickle it."""
    base = known_class(type(array))
    if base is not None:
        return (_find_cupy if base.__name__ == "ndarray" else _find_torch)(array)
    by_interface = hasattr(array, "__cuda_array_interface__")
    if not by_interface and not (hasattr(array, "__dlpack_device__") and array.__dlpack_device__()[0] in CUDA_DEVICES):
        return None
    cupy: ModuleType | None = sys.modules.get("cupy")
    if cupy is not None:
        return _find_cupy(cupy.asarray(array) if by_interface else _by_dlpack(cupy, array))
    torch: ModuleType = sys.modules["torch"]
    return _find_torch(torch.as_tensor(array, device=_device(torch)) if by_interface else _by_dlpack(torch, array))


def _by_dlpack(library: ModuleType, array: object) -> Any:
    """Return an array of this library with the bytes of another library's array: a copy if that refuses to share."""
    try:
        return library.from_dlpack(array)
    except BufferError:
        return library.from_dlpack(array, copy=True)


def make(facts: Facts) -> tuple[object, Way]:
    """Return a new array on the current device, and the `Way` by which its bytes are to be filled in.

    Raises:
        LookupError: this process can use no GPU; the message says why.
        Exception: what the library raises, for example when the device has no memory left.
    """
    try:
        library = importlib.import_module(facts.library)
    except ImportError as error:
        raise LookupError(f"{facts.library} cannot be imported: {error}") from error
    _ask_for_devices(library)
    return (_make_cupy if facts.library == "cupy" else _make_torch)(library, facts)


def _ask_for_devices(library: ModuleType) -> None:
    """Check that the library can use a device.

    `is_available` is of no use here: it hides every error behind False, and cupy also remembers that answer.

    Raises:
        LookupError: there is no device for this process; the message says why.
        Exception: what the library raises if there is a device that cannot be used.
    """
    try:
        if library.__name__ == "cupy":
            library.cuda.runtime.getDeviceCount()
        else:
            getattr(library, _device(library)).init()
    except (RuntimeError, AssertionError) as error:  # the last: torch was built without CUDA
        if isinstance(error, RuntimeError) and not faults.is_absent(error):
            raise
        raise LookupError(f"{library.__name__} finds no GPU that it may use: {error}") from error


def on_host(facts: Facts, data: memoryview) -> Any:
    """Return the array as a read-only numpy view of `data`; torch's bfloat16 as a copy in float32.

    Raises:
        TypeError: numpy has no such dtype.
    """
    import numpy

    if facts.library == "torch" and facts.dtype == "bfloat16":  # the upper half of a float32
        singles = numpy.ndarray(facts.shape, numpy.uint16, data).astype(numpy.uint32)
        numpy.left_shift(singles, numpy.uint32(16), out=singles)  # numpy 1 makes int64 of `singles << 16` without axes
        singles.flags.writeable = False
        return singles.view(numpy.float32)
    try:
        dtype = numpy.dtype(facts.dtype)
    except TypeError:
        raise TypeError(
            f"The value holds a tensor of torch.{facts.dtype}, and numpy has no such type. Convert it where it is "
            "made, for instance with x.float(), or read it in a process with a GPU."
        ) from None
    return numpy.ndarray(facts.shape, dtype, data, order="F" if facts.order == "F" else "C")
