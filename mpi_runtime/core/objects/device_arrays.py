"""Arrays on GPUs inside values: their bytes beside the pickle, and the way to rebuild them.

This module is loaded if the program has loaded cupy or torch, and where such an array is read.
"""

from __future__ import annotations

import pickle
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mpi_runtime import errors
from mpi_runtime.core import published
from mpi_runtime.core.objects import code_pickler, process_facts
from mpi_runtime.core.objects.arena import pinned_twin
from mpi_runtime.gpu import arrays, cuda_context, staging

Reducer = Callable[[object], object]
_COMMON: list[dict[type, Reducer]] = code_pickler.Pickler.dispatch_table.maps
"""The reducers of cloudpickle, and ours for code."""
_OWN = ("__reduce__", "__reduce_ex__", "__getstate__", "__getnewargs__", "__getnewargs_ex__")
"""Methods by which a class defines how its instances are pickled."""
_said: list[str] = []
"""Not empty once the message of `_say_how` was printed."""


class OnDevice(bytearray):
    """Stands for bytes that remain on a device until they are needed; itself empty."""

    nbytes: int
    way: staging.Way

    def pieces(self) -> Iterator[memoryview]:
        """Yield the bytes in pieces. Each piece is valid until the next is taken."""
        return staging.to_host(self.way)

    def fill(self, target: memoryview) -> None:
        """Copy the bytes to the target."""
        staging.fill(self.way, target)

    def fill_pinned(self, target: Any) -> bool:
        """Have the device write them into pinned memory itself; whether it could."""
        return staging.fill_pinned(self.way, target)


class _Reducers:
    """The reducers for `pickle`, by class, with one for arrays on devices."""

    def __init__(self, takes_all: bool) -> None:
        """`takes_all`: also for arrays of other libraries than cupy and torch, unless their classes define how."""
        self._takes_all = takes_all

    def __getitem__(self, kind: type) -> Reducer:
        if hasattr(kind, "__cuda_array_interface__") or (self._takes_all and hasattr(kind, "__dlpack_device__")):
            base = arrays.known_class(kind) or (object if self._takes_all else None)
            if base is not None and not _pickles_itself(kind, base) and not any(kind in table for table in _COMMON):
                return _reduce
        for table in _COMMON:
            if kind in table:
                return table[kind]
        raise KeyError(kind)


def _pickles_itself(kind: type, base: type) -> bool:
    return any(getattr(kind, name, None) is not getattr(base, name, None) for name in _OWN)


class Pickler(code_pickler.Pickler):
    """The pickler of cloudpickle, with arrays on devices."""

    dispatch_table = _Reducers(takes_all=False)


class LastPickler(code_pickler.Pickler):
    """For values that `Pickler` cannot pickle: arrays of other libraries become arrays of cupy or torch."""

    dispatch_table = _Reducers(takes_all=True)


def _reduce(array: object) -> object:
    found = arrays.find(array)
    if found is None:
        return array.__reduce_ex__(5)
    bytes_of_it = OnDevice()
    bytes_of_it.way, bytes_of_it.nbytes = found.way, found.way.nbytes
    return device_array, (found.facts, _place(found.ordinal), pickle.PickleBuffer(bytes_of_it))


def resolve(buffers: Sequence[memoryview]) -> list[object] | None:
    """Return the buffers beside a pickle, with `OnDevice` for those on a device; None: none is."""
    owners = [raw.obj for raw in buffers]
    if OnDevice not in map(type, owners):
        return None
    return [owner if type(owner) is OnDevice else raw for owner, raw in zip(owners, buffers, strict=True)]


def _place(ordinal: int) -> str:
    """Return host and number of a device of this process, for messages."""
    number = process_facts.gpu_ids[ordinal] if ordinal < len(process_facts.gpu_ids) else ordinal
    return f"{process_facts.hostname or socket.gethostname()}:GPU {number}"


@published()
def device_array(facts: arrays.Facts, place: str, data: memoryview) -> object:
    """Return the array on the current device of this process; a numpy array in a driver that uses no device.

    Raises:
        DeviceUnavailableError: this process has no device.
    """
    # In a driver that uses no device a CUDA context would use GPU memory outside of any grant.
    if not process_facts.hostname and not cuda_context.has_begun(cuda_context.driver()):
        _say_how(facts, place)
        return make_on_host(facts, place, data)
    return make_on_device(facts, place, data)


def _say_how(facts: arrays.Facts, place: str) -> None:
    """Print, once in a process, that an array is read as one of numpy, and how to choose."""
    if _said:
        return
    _said.append(place)
    print(
        f"mpi_runtime: the driver reads a {facts.library} array on {place} as a numpy array: the driver uses no GPU so "
        'far, and starting CUDA takes memory there. get(ref, device="gpu") returns it on a GPU, '
        'get(ref, device="cpu") as now, without this line.',
        file=sys.stderr,
    )


def make_on_device(facts: arrays.Facts, place: str, data: memoryview) -> object:
    """Return the array on the current device of this process, even if CUDA has to be started.

    Raises:
        DeviceUnavailableError: this process has no device.
    """
    try:
        array, way = arrays.make(facts)
    except LookupError as error:
        raise errors.DeviceUnavailableError(
            f'The value is a {facts.library} array on {place}; use get(ref, device="cpu") to have it as a numpy array. '
            f"This process cannot hold it on a GPU: {error}. A task gets it as an argument if it has num_gpus; else "
            'pass it the reference in a list, f.remote([ref]), and have it call get with device="cpu".'
        ) from error
    with pinned_twin(memoryview(data)) as pinned:
        if pinned is None or not staging.from_pinned(way, pinned):
            staging.to_device(way, memoryview(data))
    return array


def make_on_host(facts: arrays.Facts, place: str, data: memoryview) -> object:
    """Return the array as a numpy array."""
    del place
    return arrays.on_host(facts, memoryview(data))


class _Reader:
    """A file of bytes in memory, without the copy that `io.BytesIO` makes."""

    def __init__(self, data: Any) -> None:
        self._left = memoryview(data)

    def read(self, size: int) -> bytes:
        found, self._left = bytes(self._left[:size]), self._left[size:]
        return found

    def readinto(self, target: memoryview) -> int:
        found, self._left = self._left[: len(target)], self._left[len(target) :]
        target[: len(found)] = found
        return len(found)

    def readline(self) -> bytes:
        raise pickle.UnpicklingError("a pickle of protocol 5 has no lines")


class Unpickler(pickle.Unpickler):
    """Reads a value with another function in place of `device_array`."""

    def __init__(self, maker: Callable[..., object], data: object, buffers: Sequence[object]) -> None:
        super().__init__(_Reader(data), buffers=buffers)
        self._maker = maker

    def find_class(self, module: str, name: str) -> object:
        """Put the maker in place of `device_array`. `pickle` calls this for each name."""
        if (module, name) == (device_array.__module__, device_array.__name__):
            return self._maker
        return super().find_class(module, name)
