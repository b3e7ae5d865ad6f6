"""Observation and action spaces as plain values: shapes, network inputs and outputs, distributions.

Spaces of gymnasium and of old gym are recognised by the names of their classes, so neither library is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpi_runtime.rl.parts.weights import Array

Observation = Any
"""An observation as an environment makes it: an array, a number, a dictionary or a tuple."""
Space = Any
"""A space of gymnasium or of old gym."""


@dataclass(frozen=True)
class Observations:
    """An observation space.

    `encode` makes a row of `size` numbers (float32) of an observation; an image stays as it is (uint8, `shape`).
    """

    kind: str
    """One of "box", "image", "discrete", "multi_discrete", "dict" and "tuple"."""
    shape: tuple[int, ...]
    """Of an encoded observation."""
    sizes: tuple[int, ...] = ()
    """The numbers of values of discrete parts."""
    parts: tuple[tuple[str, Observations], ...] = ()
    """Of a dictionary or tuple: its spaces by key, in order."""

    @property
    def size(self) -> int:
        """The number of values in an encoded observation."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def dtype(self) -> type[np.generic]:
        """The type of an encoded observation."""
        return np.uint8 if self.kind == "image" else np.float32

    def encode(self, observation: Observation) -> Array:
        """Return an observation of the environment as the network's input, of `shape` and `dtype`."""
        if self.kind == "image":
            image = np.asarray(observation, np.uint8)
            if image.shape != self.shape:  # of as many pixels in another order nothing can be learned
                raise ValueError(f"its shape is {image.shape}")
            return image
        if self.kind == "box":
            return np.asarray(observation, np.float32).reshape(self.shape)
        if self.parts:
            values = [observation[key if self.kind == "dict" else int(key)] for key, _ in self.parts]
            pieces = [space.encode(value).ravel() for (_, space), value in zip(self.parts, values, strict=True)]
            return np.concatenate(pieces).astype(np.float32)
        row = np.zeros(self.size, np.float32)
        at = 0
        for size, value in zip(self.sizes, np.ravel(observation), strict=True):
            row[at + int(value)] = 1.0
            at += size
        return row


@dataclass(frozen=True)
class Actions:
    """An action space and the distribution that fits it."""

    kind: str
    """One of "discrete", "multi_discrete" and "box"."""
    sizes: tuple[int, ...] = ()
    """The numbers of values of discrete actions."""
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    shape: tuple[int, ...] = ()
    """Of an action, as the environment takes it."""
    start: int = 0
    """The first value of a discrete action."""

    @property
    def outputs(self) -> int:
        """The number of outputs of a policy: logits, or means."""
        return sum(self.sizes) if self.sizes else int(np.prod(self.shape, dtype=np.int64))

    @property
    def width(self) -> tuple[int, ...]:
        """The shape of an action in a fragment."""
        return () if self.kind == "discrete" else (len(self.sizes) or self.outputs,)

    @property
    def dtype(self) -> type[np.generic]:
        """The type of an action in a fragment."""
        return np.float32 if self.kind == "box" else np.int64

    def to_env(self, action: Array) -> Array:
        """Return actions of a fragment (one, or a batch) as the environment takes them: clipped, shifted, in shape."""
        if self.kind == "box":
            clipped = np.clip(action, np.asarray(self.low, np.float32), np.asarray(self.high, np.float32))
            return clipped.reshape(action.shape[:-1] + self.shape)
        return action + self.start if self.start else action


def observations_of(space: Space) -> Observations:
    """Describe an observation space. ValueError: there is no encoding for it."""
    name = _kind(space)
    if name == "Box":
        is_image = len(space.shape) == 3 and np.dtype(space.dtype) == np.uint8
        return Observations("image" if is_image else "box", tuple(space.shape))
    if name == "Discrete":
        if int(getattr(space, "start", 0)):
            raise ValueError(f"{space}: discrete observations must start at 0; wrap the environment")
        return Observations("discrete", (int(space.n),), (int(space.n),))
    if name in ("MultiDiscrete", "MultiBinary"):
        sizes = _sizes(space)
        return Observations("multi_discrete", (sum(sizes),), sizes)
    if name in ("Dict", "Tuple"):
        inner = space.spaces
        items = inner.items() if name == "Dict" else ((str(at), one) for at, one in enumerate(inner))
        parts = tuple((str(key), observations_of(one)) for key, one in items)
        return Observations(name.lower(), (sum(one.size for _, one in parts),), parts=parts)
    raise ValueError(
        f"observations of {type(space).__name__} have no encoding. There are Box, Discrete, MultiDiscrete, MultiBinary,"
        " Dict and Tuple: convert them by a wrapper (gymnasium.ObservationWrapper)"
    )


def actions_of(space: Space) -> Actions:
    """Describe an action space. ValueError: no distribution fits it."""
    name = _kind(space)
    if name == "Discrete":
        return Actions("discrete", (int(space.n),), start=int(getattr(space, "start", 0)))
    if name in ("MultiDiscrete", "MultiBinary"):
        sizes = _sizes(space)
        return Actions("multi_discrete", sizes, shape=(len(sizes),))
    if name == "Box":
        low, high = (tuple(float(x) for x in np.ravel(bound)) for bound in (space.low, space.high))
        return Actions("box", low=low, high=high, shape=tuple(space.shape))
    raise ValueError(
        f"actions of {type(space).__name__} fit no algorithm. There are Discrete, MultiDiscrete, MultiBinary and Box: "
        "convert them by a wrapper (gymnasium.ActionWrapper)"
    )


def differences(names: Sequence[str], ours: object, theirs: object) -> list[str]:
    """Return a line for each of these attributes that differs."""
    return [
        f"{name}: {getattr(ours, name)!r} here, {getattr(theirs, name)!r} there"
        for name in names
        if getattr(ours, name) != getattr(theirs, name)
    ]


def _kind(space: Space) -> str:
    known = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")
    return next((cls.__name__ for cls in type(space).__mro__ if cls.__name__ in known), type(space).__name__)


def _sizes(space: Space) -> tuple[int, ...]:
    if _kind(space) == "MultiBinary":
        return (2,) * int(np.prod(space.n))
    return tuple(int(n) for n in np.ravel(space.nvec))
