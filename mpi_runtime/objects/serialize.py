"""Serialisation: pickle protocol 5 with large buffers beside the pickle, and cloudpickle where plain pickle fails.

A value without buffers is its pickle, which starts with 0x80. A value with buffers is

    0x01 | 3 bytes | count: u32 | pickle length: u64 | buffer lengths: u64 ... | pickle | buffers, each 64-byte aligned

so that arrays are read in place. Arrays of any size are read-only: a program that works with small arrays must not fail
with large ones.
"""

from __future__ import annotations

import io
import pickle
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from mpi_runtime import errors
from mpi_runtime.objects.collecting import Collecting

if TYPE_CHECKING:
    from mpi_runtime.objects.device_arrays import OnDevice

ALIGNMENT = 64
_HEAD = struct.Struct("<B3xIQ")
_BUFFERS = 0x01
NONE = pickle.dumps(None, 5)
"""What most calls return."""
_PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes))
"""Types that plain pickle serialises without importing any module."""
_PLAIN_ITEMS_MAX = 16
PINNED_PART_MIN = 1 << 20
"""From so many bytes on a part that is on a device is written by the device itself, if its place is pinned."""
BESIDE_MIN = 64 << 10
"""From this length on `bytes` and `bytearray` lie beside the pickle."""
_REFUSALS = (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError, NotImplementedError)

_modules = sys.modules
_device_arrays: Any = None
"""The module, once it is needed. A repeated import statement would cost time."""

Buffer = bytes | bytearray | memoryview
Pinned = Callable[[], AbstractContextManager[Any]]
"""Gives the place of a whole value as bytes of numpy in pinned memory, or None. See `ClientArena.pinned`."""


class Serialized(NamedTuple):
    """A value as bytes."""

    data: bytes
    """The pickle."""
    buffers: list[memoryview | OnDevice]
    """Large contiguous parts, not copied. Those on a device are copied by `parts` and `inline`."""
    refs: list[bytes]
    """References inside the value."""

    def size(self) -> int:
        """Return the total size in bytes."""
        if not self.buffers:
            return len(self.data)
        return _layout(self)[-1]

    def parts(self, pinned: Pinned | None = None) -> Iterator[tuple[int, Buffer]]:
        """The pieces of the whole, each with its position; each is good until the next is asked for.

        With `pinned` a GPU may write its parts there itself; those are left out.
        """
        if not self.buffers:
            yield 0, self.data
            return
        *positions, _ = _layout(self)
        lengths = [buffer.nbytes for buffer in self.buffers]
        yield 0, _HEAD.pack(_BUFFERS, len(lengths), len(self.data)) + struct.pack(f"<{len(lengths)}Q", *lengths)
        yield _HEAD.size + 8 * len(lengths), self.data
        yield from zip(positions, self.buffers, strict=True)

    def inline(self) -> bytes:
        """Return all bytes in one piece."""
        if not self.buffers:
            return self.data
        whole = bytearray(self.size())
        for position, part in self.parts():
            whole[position : position + len(part)] = part
        return bytes(whole)


class _PartlyOnDevice(Serialized):
    """A value with parts that are copied from a device when they are needed."""

    def parts(self, pinned: Pinned | None = None) -> Iterator[tuple[int, Buffer]]:
        for position, part in super().parts():
            if not isinstance(part, bytearray):  # only `OnDevice` is one
                yield position, part
                continue
            if pinned is not None and _is_written(cast("OnDevice", part), position, pinned):
                continue
            at = position
            for piece in cast("OnDevice", part).pieces():
                yield at, piece
                at += len(piece)

    def inline(self) -> bytes:
        whole = bytearray(self.size())
        view = memoryview(whole)
        for position, part in super().parts():
            if isinstance(part, bytearray):
                cast("OnDevice", part).fill(view[position : position + cast("OnDevice", part).nbytes])
            else:
                view[position : position + len(part)] = part
        return bytes(whole)


def _is_written(part: OnDevice, position: int, pinned: Pinned) -> bool:
    """Have the device write the part itself to its place in the whole; whether it has."""
    if part.nbytes < PINNED_PART_MIN:
        return False
    with pinned() as whole:
        return whole is not None and part.fill_pinned(whole[position : position + part.nbytes])


def _layout(value: Serialized) -> list[int]:
    """Return the positions of the buffers, followed by the total size."""
    at = _HEAD.size + 8 * len(value.buffers) + len(value.data)
    positions = []
    for buffer in value.buffers:
        at += -at % ALIGNMENT
        positions.append(at)
        at += buffer.nbytes
    return [*positions, at]


def dumps(value: object, what: str = "the value") -> Serialized:
    """Serialise a value.

    Args:
        value: anything that cloudpickle can serialise.
        what: its name in an error.

    Raises:
        TypeError: a part of it cannot be serialised. The message says which.
    """
    kind = type(value)
    if (kind is bytes or kind is bytearray) and len(value) >= BESIDE_MIN:  # type: ignore[arg-type]
        return _dumps_arrays(_Bytes(value))  # type: ignore[arg-type]
    if kind in _PLAIN:
        return Serialized(pickle.dumps(value, 5), [], [])
    if (kind is tuple or kind is list) and _are_plain(value):  # type: ignore[arg-type]
        return Serialized(pickle.dumps(value, 5), [], [])
    if _are_plain_or_arrays(value if kind is tuple or kind is list else (value,)):  # type: ignore[arg-type]
        return _dumps_arrays(value)
    return _dumps_any(value, what)


class _Bytes:
    """Is pickled as bytes that lie beside the pickle. In the pickle they would be copied once more."""

    def __init__(self, value: bytes | bytearray) -> None:
        self._value = value

    def __reduce_ex__(self, protocol: Any) -> tuple[type, tuple[pickle.PickleBuffer]]:
        return type(self._value), (pickle.PickleBuffer(self._value),)


def _are_plain(items: Sequence[object]) -> bool:
    return len(items) <= _PLAIN_ITEMS_MAX and all(type(item) in _PLAIN for item in items)


def dumps_arguments(args: tuple[Any, ...], kwargs: dict[str, Any], what: str) -> Serialized:
    """Serialise the arguments of a call; see `dumps`."""
    if not kwargs and _are_plain(args):
        return Serialized(pickle.dumps((args, kwargs), 5), [], [])
    if not kwargs and _are_plain_or_arrays(args):
        return _dumps_arrays((args, kwargs))
    return _dumps_any((args, kwargs), what)


def _are_plain_or_arrays(items: Sequence[object]) -> bool:
    """Whether these are plain values and numpy arrays that plain pickle serialises as cloudpickle would.

    That is not certain for arrays of objects, structured types, and types with metadata.
    """
    array = getattr(_modules.get("numpy"), "ndarray", None)
    if array is None or len(items) > _PLAIN_ITEMS_MAX:
        return False
    pickler = getattr(_modules.get("cloudpickle"), "Pickler", None)  # None too while another thread imports it
    if pickler is not None and array in pickler.dispatch_table:
        return False  # the program has its own way: see `register_serializer`
    for item in items:
        kind = type(item)
        if kind is array:
            dtype = item.dtype  # type: ignore[attr-defined]
            if dtype.isbuiltin != 1 or dtype.hasobject or dtype.metadata is not None:
                return False
        elif kind not in _PLAIN:
            return False
    return True


def _dumps_arrays(value: object) -> Serialized:
    """Serialise with plain pickle, which takes a quarter of the time of cloudpickle for a small array."""
    buffers: list[Any] = []
    data = pickle.dumps(value, 5, buffer_callback=partial(_put_beside, buffers))
    return Serialized(data, buffers, [])


def _put_beside(buffers: list[Any], buffer: pickle.PickleBuffer) -> bool:
    """Put a buffer beside the pickle. Return True if the pickle must contain it, since it is not contiguous."""
    try:
        raw = buffer.raw()
    except BufferError:
        return True  # it is not contiguous
    buffers.append(raw)
    return False


def _dumps_any(value: object, what: str, pickler: Callable[..., pickle.Pickler] | None = None) -> Serialized:
    if pickler is None:
        if "cupy" in _modules or "torch" in _modules:
            return _dumps_with_devices(value, what)
        import cloudpickle

        pickler = cloudpickle.Pickler
    buffers: list[Any] = []

    file = io.BytesIO()
    with Collecting() as refs:
        try:
            pickler(file, protocol=5, buffer_callback=partial(_put_beside, buffers)).dump(value)
        except _REFUSALS as error:
            raise TypeError(
                f"cannot serialise {what} of type {type(value).__name__}: {error}. Locks, open files, sockets and the "
                "like belong to one process; make them inside the task or actor that uses them."
            ) from error
    return Serialized(file.getvalue(), buffers, list(dict.fromkeys(refs)))


def _dumps_with_devices(value: object, what: str) -> Serialized:
    global _device_arrays
    if _device_arrays is None:
        from mpi_runtime.objects import device_arrays as _device_arrays
    try:
        found = _dumps_any(value, what, _device_arrays.Pickler)
    except TypeError:
        found = None
    if found is None:  # not above: its error should not have the first as its context
        found = _dumps_any(value, what, _device_arrays.LastPickler)
    buffers = _device_arrays.resolve(found.buffers)
    return found if buffers is None else _PartlyOnDevice(found.data, buffers, found.refs)


def copying(read: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function like `read`, for `loads`, that makes arrays writable copies."""

    def copied(data: Buffer, buffers: Sequence[Buffer] = ()) -> Any:
        return read(data, buffers=[bytearray(buffer) for buffer in buffers])

    return copied


def loads(data: Buffer, read: Callable[..., Any] = pickle.loads) -> Any:
    """Return the value. Its arrays are read-only views of `data`, and keep `data` alive.

    Args:
        data: the bytes, as `Serialized.parts` gives them.
        read: unpickles. `loads_on_host` makes numpy arrays of arrays on GPUs.

    Raises:
        DeviceUnavailableError: the value has an array of a GPU, and this process has no GPU.
        TypeError: with `loads_on_host`, if numpy has no such type of elements.
        Exception: whatever classes of the value raise.
    """
    try:
        if data[0] != _BUFFERS:
            return read(data)
        whole = memoryview(data).toreadonly() if type(data) is not bytes else _aligned(data)
        _, count, pickle_length = _HEAD.unpack_from(whole)
        lengths = struct.unpack_from(f"<{count}Q", whole, _HEAD.size)
        start = _HEAD.size + 8 * count
        at = start + pickle_length
        buffers = []
        for length in lengths:
            at += -at % ALIGNMENT
            buffers.append(whole[at : at + length])
            at += length
        return read(whole[start : start + pickle_length], buffers=buffers)
    except Exception as error:
        if errors.is_about_device(error):
            raise errors.DeviceUnavailableError(
                f"The value holds an array of a GPU, and this process can use none ({type(error).__name__}: {error}). "
                "Have the task return a numpy array, x.get() with cupy or x.cpu().numpy() with torch, or read it in a "
                "task with num_gpus."
            ) from error
        raise


def _aligned(data: bytes) -> memoryview:
    """Return a copy at a multiple of 64 bytes, as values in the arena are. Bytes of a message may be anywhere."""
    import ctypes  # not at the top: numpy has loaded it

    room = bytearray(len(data) + ALIGNMENT)
    begin = -ctypes.addressof(ctypes.c_char.from_buffer(room)) % ALIGNMENT
    room[begin : begin + len(data)] = data
    return memoryview(room)[begin : begin + len(data)].toreadonly()


def loads_on_host(data: Buffer, buffers: Sequence[Buffer] = ()) -> Any:
    """Do as `pickle.loads`, but make numpy arrays of arrays on GPUs."""
    from mpi_runtime.objects import device_arrays

    return device_arrays.loads_on_host(data, buffers)


def loads_on_device(data: Buffer, buffers: Sequence[Buffer] = ()) -> Any:
    """Do as `pickle.loads`, with arrays on a GPU even in a driver that has used none."""
    from mpi_runtime.objects import device_arrays

    return device_arrays.loads_on_device(data, buffers)


class Slot(NamedTuple):
    """In serialised arguments: stands for the value of the n-th argument object of the call."""

    number: int
