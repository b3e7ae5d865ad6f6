"""Maps domains to the unit cube: each value is a number between 0 and 1."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import numpy as np

from mpi_runtime.tune.space.domains import Categorical, Float, Integer, Normal, Rng
from mpi_runtime.tune.space.flat import Known
from mpi_runtime.tune.trial import Config

EDGE = 1e-6


class UnitCube:
    """The points of some domains."""

    def __init__(self, domains: Mapping[str, Known]) -> None:
        self.domains = dict(domains)
        self.counts = [len(one.categories) if isinstance(one, Categorical) else 0 for one in domains.values()]
        """For each choice the number of its values; 0 for numbers."""

    def random(self, rng: Rng) -> np.ndarray:
        """A random point."""
        point = rng.random(len(self.domains))
        for place, count in enumerate(self.counts):
            if count:
                point[place] = (int(point[place] * count) + 0.5) / count
        return point

    def values(self, point: np.ndarray) -> Config:
        """The values of a point, by name."""
        return {name: _value(one, float(x)) for (name, one), x in zip(self.domains.items(), point, strict=True)}

    def point(self, values: Mapping[str, object]) -> np.ndarray:
        """The point of these values."""
        return np.array([_place(one, values[name]) for name, one in self.domains.items()])

    def numbers(self, point: np.ndarray) -> dict[str, float]:
        """A point for other libraries, by name: the number of a choice, for others the coordinate."""
        coordinates = zip(self.domains, self.counts, point, strict=True)
        return {name: int(x * count) if count else float(x) for name, count, x in coordinates}

    def from_numbers(self, numbers: Mapping[str, float]) -> np.ndarray:
        """The point of the results of `numbers`."""
        choices = zip(self.domains, self.counts, strict=True)
        return np.array([(numbers[name] + 0.5) / count if count else float(numbers[name]) for name, count in choices])


def _value(domain: Known, x: float) -> object:
    if isinstance(domain, Categorical):
        return domain.categories[min(int(x * len(domain.categories)), len(domain.categories) - 1)]
    if isinstance(domain, Normal):
        value = NormalDist(domain.mean, max(domain.sd, 1e-12)).inv_cdf(min(max(x, EDGE), 1 - EDGE))
        return value if domain.q is None else round(value / domain.q) * domain.q
    low, high = _bounds(domain)
    value = low + x * (high - low)
    value = math.exp(value) if domain.log else value
    if isinstance(domain, Integer):
        value = math.floor(value) if domain.q == 1 else round(value / domain.q) * domain.q
        return int(min(max(value, domain.first), domain.last))
    if domain.q is not None:
        value = round(value / domain.q) * domain.q
    return min(max(value, domain.lower), domain.upper)


def _place(domain: Known, value: Any) -> float:
    if isinstance(domain, Categorical):
        return (list(domain.categories).index(value) + 0.5) / len(domain.categories)
    if isinstance(domain, Normal):
        return NormalDist(domain.mean, max(domain.sd, 1e-12)).cdf(value)
    low, high = _bounds(domain)
    if isinstance(domain, Integer) and domain.q == 1:
        value = value + 0.5
    return min(max(((math.log(value) if domain.log else value) - low) / ((high - low) or 1.0), 0.0), 1.0)


def _bounds(domain: Float | Integer) -> tuple[float, float]:
    lower, upper = float(domain.lower), float(domain.upper)
    if isinstance(domain, Integer) and domain.q != 1:
        lower, upper = float(domain.first), float(domain.last)
    return (math.log(lower), math.log(upper)) if domain.log else (lower, upper)
