"""Batches as tensors of torch."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy

from mpi_runtime.errors import optional


def to_torch(value: object, dtypes: Any, device: object, pin_memory: bool) -> object:
    """Make tensors of arrays, in dictionaries, lists and tuples too, and move tensors to a device."""
    torch = optional.load("iter_torch_batches", "torch")
    if device == "auto":
        device = _own_device()
    if isinstance(value, Mapping):
        return {
            name: to_torch(one, dtypes.get(name) if isinstance(dtypes, Mapping) else dtypes, device, pin_memory)
            for name, one in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(to_torch(one, dtypes, device, pin_memory) for one in value)
    if isinstance(value, numpy.ndarray):
        if value.dtype == object:
            raise TypeError(
                "a column of texts or of arrays with different shapes cannot become a tensor: leave it out with "
                "drop_columns(), or pass a collate_fn"
            )
        value = torch.as_tensor(value if value.flags.writeable else value.copy(), dtype=dtypes)
    if not isinstance(value, torch.Tensor):
        return value
    tensor: Any = value
    if pin_memory and torch.cuda.is_available():
        tensor = tensor.pin_memory()
    return tensor if device is None else tensor.to(device, non_blocking=pin_memory)


def _own_device() -> object:
    train = importlib.import_module("mpi_runtime.train.torch")  # above this room: only a worker of a training needs it
    try:
        return train.get_device()
    except RuntimeError:
        return None
