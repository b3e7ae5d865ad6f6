"""A stand-in for cupy: numpy with devices. As many as `CUDA_VISIBLE_DEVICES` lists, in the memory of the host.

Only what examples and benchmarks call, and as strict: arrays of the two libraries do not mix, an array is used on its
own device, and only `get` makes a numpy array of it. Names and signatures are those of cupy 14.2.
"""

import os
import time
from types import SimpleNamespace, TracebackType
from typing import Any

import numpy as np

PRODUCT_S = 0.02
"""How long a product takes: so long that further GPUs are worth using, as with real ones."""
_current = [0]
"""The devices in use: the last is that of the innermost `with`."""


class Device:
    """A device, used within a `with` block."""

    def __init__(self, device: int | None = None) -> None:
        self.id = _current[-1] if device is None else device
        if not 0 <= self.id < device_count():
            raise RuntimeError(f"cudaErrorInvalidDevice: {self.id} of {device_count()}")

    def __enter__(self) -> "Device":
        _current.append(self.id)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _current.pop()

    def synchronize(self) -> None:
        """Do nothing: all is done at once."""


class ndarray:  # cupy's name
    """An array on the device that is current when it is made."""

    def __init__(self, data: Any) -> None:
        self._data = np.asarray(data)
        self.device = Device()

    def get(self) -> Any:
        """A numpy array."""
        return self._data.copy()

    def sum(self) -> "ndarray":
        """The sum of all elements, on the device."""
        return ndarray(_on_device(self).sum())

    def __matmul__(self, other: "ndarray") -> "ndarray":
        a, b = _on_device(self), _on_device(other)
        time.sleep(PRODUCT_S)
        return ndarray((a.astype(np.float32) @ b.astype(np.float32)).astype(a.dtype))

    def __iadd__(self, other: "ndarray") -> "ndarray":
        _on_device(self)[...] += _on_device(other)
        return self

    def __float__(self) -> float:
        return float(self._data)

    def __array__(self, *_: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")


def asarray(a: Any) -> ndarray:
    """Copy to the current device."""
    return a if isinstance(a, ndarray) else ndarray(np.array(a))


def _on_device(array: Any) -> Any:
    if not isinstance(array, ndarray):
        raise TypeError(f"Unsupported type {type(array)}")
    if array.device.id != _current[-1]:
        raise ValueError(f"the array is on device {array.device.id}, the current one is {_current[-1]}")
    return array._data


class _Pool:
    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        assert (size is None) != (fraction is None)
        assert fraction is None or 0 <= fraction <= 1


def get_default_memory_pool() -> _Pool:
    """The pool of all devices."""
    return _Pool()


def device_count() -> int:
    """How many devices this process is shown."""
    return len([entry for entry in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if entry])


cuda = SimpleNamespace(Device=Device, is_available=lambda: device_count() > 0)
