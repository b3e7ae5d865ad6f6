"""Serialisation: pickle protocol 5 with large buffers beside the pickle, and cloudpickle where plain pickle fails.

A value goes from one process to another as bytes. A plain pickle of an array copies it twice: into the pickle, and out.
The idea: pickle's protocol 5 hands out the large buffers of a value. They are put beside the pickle, once, at their
final place, and the reader's arrays are views of that place. A value without buffers is its pickle, which starts with
0x80. A value with buffers is

    0x01 | 3 bytes | count: u32 | pickle length: u64 | buffer lengths: u64 ... | pickle | buffers, each 64-byte aligned

There are three ways, the cheapest first; each must give the same value:

1. numbers, None, short strings and `bytes`: one call of `pickle.dumps`
2. at most 16 such values and arrays of numpy, also in a tuple, list or dict: plain pickle with buffers (`_dumps_plain`)
3. anything else: a cloudpickle (`_dumps_any`), which also takes functions and classes of the program. It collects the
   references inside the value, and knows arrays on GPUs.

What always holds: arrays of any size are read-only, because a program that works with small arrays must not fail with
large ones. `get(copy=True)` is `loads` with `copying`. Nothing here knows where the bytes go: `Serialized.parts` yields
pieces with their positions, and `client/store.py` writes them to the arena or into a message.

Not obvious: long `bytes`, `bytearray` and strings stay in the pickle: pickle hands each of them to the file that it
writes to. So the pickle is a list of pieces (`_Pieces`), and a long one is first copied when it is written to its
place. The length of a `bytearray` cannot change meanwhile (docs/decisions/0404).
"""

from __future__ import annotations

import pickle
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from mpi_runtime import errors
from mpi_runtime.core import published
from mpi_runtime.core.objects.collecting import Collecting

if TYPE_CHECKING:
    from mpi_runtime.core.objects.device_arrays import OnDevice


@published()
class Slot(NamedTuple):
    """In serialised arguments: stands for the value of the n-th argument object of the call."""

    number: int


ALIGNMENT = 64
_HEAD = struct.Struct("<B3xIQ")
_BUFFERS = 0x01
NONE = pickle.dumps(None, 5)
"""What most calls return."""
_SHORT = frozenset((type(None), bool, int, float, complex))
_LONG = frozenset((str, bytes, bytearray))
_PLAIN = _SHORT | _LONG | {Slot}
"""Types that plain pickle serialises without importing any module."""
_HOLDERS = frozenset((tuple, list, dict))
"""Types that plain pickle serialises if it can serialise what they hold. Sets are not: see `code_pickler`."""
_PLAIN_KINDS = frozenset("biufcmMSU")
"""Types of elements that plain pickle serialises, by numpy's letters."""
_PLAIN_ITEMS_MAX = 16
PINNED_PART_MIN = 1 << 20
"""The device itself writes parts from this size on, if their place is pinned."""
LONG_MIN = 64 << 10
"""From this length on (`FRAME_SIZE_TARGET`) pickle passes a part to the file as it is, in a separate write."""
_REFUSALS = (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError, NotImplementedError)

_modules = sys.modules
_device_arrays: Any = None
"""The module, once it is needed. A repeated import statement would cost time."""

Buffer = bytes | bytearray | memoryview
Pinned = Callable[[], AbstractContextManager[Any]]
"""Returns the place of a whole value as a numpy array in pinned memory, or None. See `ClientArena.pinned`."""


class Serialized(NamedTuple):
    """A value as bytes."""

    data: bytes
    """The pickle, or its beginning."""
    buffers: list[memoryview | OnDevice]
    """Large contiguous parts, not copied. Those on a device are copied by `parts` and `inline`."""
    refs: list[bytes]
    """References inside the value."""
    rest: Sequence[Buffer] = ()
    """The other pieces of the pickle, in order. Long `bytes` and `bytearray` of the value are not copied."""
    identity: bytes = b""
    """With a journal: what is hashed in place of a value with code of the program. Mostly empty."""

    def size(self) -> int:
        """Return the total size in bytes."""
        return _layout(self)[-1] if self.buffers else _pickle_length(self)

    def inline_up_to(self, most: int) -> bytes | None:
        """Return all bytes in one piece; None: they are more than `most`."""
        if not self.buffers and not self.rest:
            return self.data if len(self.data) <= most else None
        return self.inline() if self.size() <= most else None

    def parts(self, pinned: Pinned | None = None) -> Iterator[tuple[int, Buffer]]:
        """Yield the pieces of the whole, each with its position. A piece is valid until the next is taken.

        With `pinned` a GPU may write its parts there itself; those are left out.
        """
        at = 0
        if self.buffers:
            lengths = [buffer.nbytes for buffer in self.buffers]
            head = _HEAD.pack(_BUFFERS, len(lengths), _pickle_length(self)) + struct.pack(f"<{len(lengths)}Q", *lengths)
            yield 0, head
            at = len(head)
        yield at, self.data
        at += len(self.data)
        for piece in self.rest:
            yield at, piece
            at += len(piece)
        if self.buffers:
            yield from zip(_layout(self)[:-1], self.buffers, strict=True)

    def inline(self) -> bytes:
        """Copy data and buffers into one piece, as messages have them."""
        if not self.buffers:
            return b"".join((self.data, *self.rest)) if self.rest else self.data
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
    """Have the device write the part to its place in the whole; return whether it has."""
    if part.nbytes < PINNED_PART_MIN:
        return False
    with pinned() as whole:
        return whole is not None and part.fill_pinned(whole[position : position + part.nbytes])


def _pickle_length(value: Serialized) -> int:
    return len(value.data) + (sum(map(len, value.rest)) if value.rest else 0)


def _layout(value: Serialized) -> list[int]:
    """Return the positions of the buffers, followed by the total size."""
    at = _HEAD.size + 8 * len(value.buffers) + _pickle_length(value)
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
    if kind in _SHORT or (kind in _LONG and len(value) < LONG_MIN):  # type: ignore[arg-type]
        return Serialized(pickle.dumps(value, 5), [], [])
    items: Any = value if kind is tuple or kind is list else (value,)
    return _dumps_plain(value, items) or _dumps_any(value, f"{what} of type {kind.__name__}")


def dumps_arguments(args: tuple[object, ...], kwargs: Mapping[str, object], what: str) -> Serialized:
    """Serialise the arguments of a call; see `dumps`."""
    items = (*args, *kwargs.values()) if kwargs else args
    return _dumps_plain((args, kwargs), items) or _dumps_any((args, kwargs), what)


def _dumps_plain(value: object, items: Sequence[Any]) -> Serialized | None:
    """Serialise a value with plain pickle, which takes a sixth of the time of cloudpickle for a few numbers.

    Returns None if `items`, its content, are not a few plain values and arrays of numpy that plain pickle serialises as
    cloudpickle would. That is not certain for arrays of objects, structured types, and types with metadata.
    """
    if len(items) > _PLAIN_ITEMS_MAX:
        return None
    array: object = None
    is_long = False
    for item in items:
        kind = type(item)
        if kind in _PLAIN:
            if kind in _LONG and len(item) >= LONG_MIN:
                is_long = True
            continue
        if kind in _HOLDERS:
            opened = _opened(items)
            return None if opened is None else _dumps_plain(value, opened)
        if array is None:
            array = getattr(_modules.get("numpy"), "ndarray", False)
        if kind is not array:
            return None
        dtype = item.dtype
        # Not `isbuiltin != 1`: numpy says 0 of the type of each array that was unpickled or computed from such a one.
        if dtype.kind not in _PLAIN_KINDS or dtype.isbuiltin == 2 or dtype.metadata is not None:
            return None
    if array is not None and _has_own_way(array):
        return None
    if is_long:
        return _pickled(pickle.Pickler, value)
    if array is None:
        return Serialized(pickle.dumps(value, 5), [], [])
    buffers: list[Any] = []
    data = pickle.dumps(value, 5, buffer_callback=partial(_put_beside, buffers))
    return Serialized(data, buffers, [])


def _opened(items: Sequence[Any]) -> list[Any] | None:
    """The values, and those in their lists, tuples and dictionaries instead of these; None: they are not a few."""
    found = list(items)
    for item in found:  # which grow
        kind = type(item)
        if kind in _HOLDERS:
            if len(found) + len(item) > _PLAIN_ITEMS_MAX:
                return None
            found += item if kind is not dict else (*item, *item.values())
    return [one for one in found if type(one) not in _HOLDERS]


def _has_own_way(kind: object) -> bool:
    """Whether the program serialises a class itself: see `register_serializer`."""
    pickler = getattr(_modules.get("cloudpickle"), "Pickler", None)  # None too while another thread imports it
    return pickler is not None and kind in pickler.dispatch_table


class _Pieces(list[Any]):
    """A file for a pickler that keeps its pieces. It costs as little as `io.BytesIO`."""

    __slots__ = ()
    write = list.append


def _pickled(pickler: Callable[..., pickle.Pickler], value: object) -> Serialized:
    """Serialise with a pickler; `refs` of the result is empty."""
    buffers: list[Any] = []
    pieces = _Pieces()
    pickler(pieces, protocol=5, buffer_callback=partial(_put_beside, buffers)).dump(value)
    data, *rest = pieces
    for index, piece in enumerate(rest):
        if type(piece) is bytearray:
            rest[index] = _held(piece, pieces[index])
    return Serialized(data, buffers, [], rest)


def _held(piece: bytearray, before: bytes) -> memoryview:
    """Return a view of a piece, which keeps its length fixed.

    Raises:
        BufferError: the length has changed since pickle wrote it, at the end of the piece before.
    """
    view = memoryview(piece)
    if len(view) != int.from_bytes(before[-8:], "little"):
        raise BufferError(
            f"A bytearray in the value has become {len(view)} bytes long while it was serialised: another thread works "
            "on it. Pass bytes(it), or hold the lock that the other thread takes."
        )
    return view


def _put_beside(buffers: list[object], buffer: pickle.PickleBuffer) -> bool:
    """Put a buffer beside the pickle. Return True if the pickle must contain it, since it is not contiguous."""
    try:
        raw = buffer.raw()
    except BufferError:
        return True  # it is not contiguous
    buffers.append(raw)
    return False


def _dumps_any(value: object, what: str, pickler: Callable[..., pickle.Pickler] | None = None) -> Serialized:
    if pickler is None and ("cupy" in _modules or "torch" in _modules):
        return _dumps_with_devices(value, what)
    from mpi_runtime.core.objects.code_pickler import Pickler, identity  # not at the top: it loads cloudpickle

    with Collecting() as refs:
        try:
            found = _pickled(pickler or Pickler, value)
            if known := identity(value, found.data, found.rest):
                found = found._replace(identity=known)
        except _REFUSALS as error:
            if isinstance(error, errors.MpiRuntimeError):
                raise  # of a reference or handle inside, such as one of an ended job
            raise TypeError(f"cannot serialise {what}: {str(error).rstrip('.')}.{_advice(error)}") from error
    return found._replace(refs=list(dict.fromkeys(refs))) if refs else found


def _advice(error: Exception) -> str:
    if not str(error).startswith("cannot pickle"):  # Python's words for things that belong to a process
        return ""
    return " Locks, open files and sockets belong to one process; make them inside the task or actor that uses them."


def _dumps_with_devices(value: object, what: str) -> Serialized:
    global _device_arrays
    if _device_arrays is None:
        from mpi_runtime.core.objects import device_arrays as _device_arrays
    try:
        found = _dumps_any(value, what, _device_arrays.Pickler)
    except TypeError:
        found = None
    if found is None:  # not above: its error should not have the first as its context
        found = _dumps_any(value, what, _device_arrays.LastPickler)
    buffers = _device_arrays.resolve(found.buffers)
    return found if buffers is None else _PartlyOnDevice(found.data, buffers, found.refs, found.rest)


def copying(read: Callable[..., object]) -> Callable[..., object]:
    """Return a function like `read`, for `loads`, that makes arrays writable copies."""

    def copied(data: Buffer, buffers: Sequence[Buffer] = ()) -> object:
        return read(_without_marks(bytes(data)), buffers=[bytearray(buffer) for buffer in buffers])

    return copied


def _without_marks(data: bytes) -> bytes:
    """Return a pickle that does not know which of its buffers were read-only when it was made.

    An array is stored as read-only if it was an argument of the call that returns it, or the value of `get`.
    """
    if pickle.NEXT_BUFFER + pickle.READONLY_BUFFER not in data:
        return data
    import pickletools  # not at the top: only copies of such values need it

    kept, begin = [], 0
    for code, _, at in pickletools.genops(data):
        if code.name in ("READONLY_BUFFER", "FRAME"):  # frames have lengths, and need not be there
            kept.append(data[begin:at])
            begin = cast("int", at) + (9 if code.name == "FRAME" else 1)
    return b"".join((*kept, data[begin:]))


def loads(data: Buffer, read: Callable[..., object] = pickle.loads) -> Any:
    """Return the value. Its arrays are read-only views of `data`, and keep `data` alive.

    Args:
        data: the bytes, as `Serialized.parts` gives them.
        read: unpickles. `loads_on_host` makes numpy arrays of arrays on GPUs.

    Raises:
        DeviceUnavailableError: the value has an array of a GPU, and this process has no GPU.
        TypeError: with `loads_on_host`, if numpy has no such type of elements.
        Exception: raised by classes of the value.
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
        from mpi_runtime.core.objects import first_version  # not at the top: only old pickles need it

        if read is pickle.loads and first_version.is_missed(error):
            return loads(data, first_version.loads)
        raise


def _aligned(data: bytes) -> memoryview:
    """Return a copy at a multiple of 64 bytes, as values in the arena are. Bytes of a message may be anywhere."""
    import ctypes  # not at the top: numpy has loaded it

    room = bytearray(len(data) + ALIGNMENT)
    begin = -ctypes.addressof(ctypes.c_char.from_buffer(room)) % ALIGNMENT
    room[begin : begin + len(data)] = data
    return memoryview(room)[begin : begin + len(data)].toreadonly()


def _loads_by(maker: str, data: Buffer, buffers: Sequence[Buffer] = ()) -> object:
    """Do as `pickle.loads`, with arrays on GPUs made by this function of `device_arrays.py`."""
    from mpi_runtime.core.objects import device_arrays

    return device_arrays.Unpickler(getattr(device_arrays, maker), data, buffers).load()


loads_on_host = partial(_loads_by, "make_on_host")
"""Does as `pickle.loads`, but makes numpy arrays of arrays on GPUs."""
loads_on_device = partial(_loads_by, "make_on_device")
"""Does as `pickle.loads`, with arrays on a GPU even in a driver that has used none."""
