"""Weights as one flat vector, float32: what is stored once for each host, and mapped by all samplers there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[Any]


def flatten(arrays: Sequence[Array | Tensor]) -> Array:
    """Copy arrays, or torch parameters on any device, into one vector."""
    pieces = [np.asarray(one.detach().cpu() if hasattr(one, "detach") else one, np.float32).ravel() for one in arrays]
    return np.concatenate(pieces) if pieces else np.zeros(0, np.float32)


def views(vector: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Return the arrays inside a vector, or inside each of several vectors (N, size), without a copy."""
    sizes = [int(np.prod(shape, dtype=np.int64)) for shape in shapes]
    if sum(sizes) != vector.shape[-1]:
        raise ValueError(f"the weights have {vector.shape[-1]} numbers, and this network has {sum(sizes)}")
    ends, before = np.cumsum(sizes), vector.shape[:-1]
    parts = zip(ends, sizes, shapes, strict=True)
    return [vector[..., end - size : end].reshape(*before, *shape) for end, size, shape in parts]


def assign(vector: Array, parameters: Sequence[Tensor]) -> None:
    """Copy a vector into the parameters of a torch network, in place."""
    import torch  # not at the top: samplers have none

    with torch.no_grad():
        for parameter, array in zip(parameters, views(vector, [tuple(one.shape) for one in parameters]), strict=True):
            parameter.copy_(torch.from_numpy(np.array(array)))
