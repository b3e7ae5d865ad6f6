"""How a domain is sampled, in the words of Ray's `tune.search.sample`, for libraries that read spaces (FLAML).

Domains draw their values themselves; these objects only describe them. `str(sampler)` is the name of its class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Seed = Any
"""A seed, or a generator of any library, wrapped or not."""


class Sampler:
    """Any way of sampling."""

    def __str__(self) -> str:
        return type(self).__name__


class Uniform(Sampler):
    """All values are equally likely."""


class Grid(Sampler):
    """Each value once: the domains of this package are never sampled so."""


@dataclass
class LogUniform(Sampler):
    """The logarithms of values are evenly spread; any base gives the same values."""

    base: float = 10


@dataclass
class Normal(Sampler):
    """A normal distribution."""

    mean: float = 0.0
    sd: float = 1.0


@dataclass
class Quantized(Sampler):
    """Another sampler, in multiples of `q`."""

    sampler: Sampler
    q: float

    def get_sampler(self) -> Sampler:
        """Return the sampler before it is rounded."""
        return self.sampler


def generator_of(random_state: Seed) -> np.random.Generator:
    """The generator that libraries mean: a seed, a generator of numpy of either kind, wrapped or not, or None."""
    state = getattr(random_state, "rng", random_state)  # libraries wrap generators as Ray does
    if isinstance(state, np.random.RandomState):
        state = state._bit_generator
    try:
        return np.random.default_rng(None if state is np.random else state)
    except (TypeError, ValueError) as error:
        raise ValueError(f"random_state must be a seed, 0 or more, or a generator, not {state!r}") from error


class NumpyRng:
    """A generator of numpy with the old names of its methods, made of a seed, a generator, or None."""

    def __init__(self, generator_or_seed: Seed = None) -> None:
        made = generator_or_seed is None or isinstance(generator_or_seed, (int, np.integer))
        self.rng = np.random.default_rng(generator_or_seed) if made else generator_or_seed

    def __getattr__(self, name: str) -> Any:
        if name == "rng":  # a copy that has no state yet
            raise AttributeError(name)
        new = isinstance(self.rng, np.random.Generator)
        renamed = {"rand": "random", "randint": "integers", "randn": "standard_normal"} if new else {}
        return getattr(self.rng, renamed.get(name, name))


_BackwardsCompatibleNumpyRng = NumpyRng  # the name in Ray
