"""Running means and deviations that merge: samplers measure, the learner merges, everyone uses the same numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mpi_runtime.rl.parts.weights import Array


@dataclass
class Moments:
    """Count, mean and sum of squared deviations, over the first axis.

    Chan et al., 1979, "Updating formulae and a pairwise algorithm for computing sample variances".
    """

    mean: Array
    squares: Array
    count: float = 0.0

    @classmethod
    def zeros(cls, shape: tuple[int, ...]) -> Moments:
        """Return the moments of nothing."""
        return cls(np.zeros(shape, np.float64), np.zeros(shape, np.float64))

    @classmethod
    def of(cls, rows: Array) -> Moments:
        """Return the moments of rows (K, ...)."""
        rows = rows.astype(np.float64)
        mean = rows.mean(0) if len(rows) else np.zeros(rows.shape[1:])
        return cls(mean, np.square(rows - mean).sum(0), float(len(rows)))

    def merged(self, other: Moments) -> Moments:
        """Return the moments of both together."""
        count = self.count + other.count
        if not count:
            return self
        difference = other.mean - self.mean
        mean = self.mean + difference * (other.count / count)
        squares = self.squares + other.squares + np.square(difference) * (self.count * other.count / count)
        return Moments(mean, squares, count)

    @cached_property
    def deviation(self) -> Array:
        """The standard deviation; 1 before the second row."""
        if self.count < 2:
            return np.ones_like(self.mean)
        return np.sqrt(self.squares / self.count)

    def normalise(self, rows: Array) -> Array:
        """Return rows with mean 0 and deviation 1, clipped to 10, as float32."""
        scaled = (rows - self.mean) / (self.deviation + 1e-8)
        return np.minimum(np.maximum(scaled, -10.0), 10.0).astype(np.float32)  # np.clip takes longer for few rows
