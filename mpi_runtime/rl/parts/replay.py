"""Replay of transitions: a ring, and priorities in a sum tree. Arrays are copied in, so a ring pins no fragment."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mpi_runtime.rl.parts.episodes import Fragment
from mpi_runtime.rl.parts.returns import n_step
from mpi_runtime.rl.parts.weights import Array


def transitions(fragment: Fragment, gamma: float, n: int) -> dict[str, Array]:
    """Return what replay keeps of a fragment with `next_obs`: rows of n steps, of fewer before an end.

    The target of a row is `rewards` + `factors` * V(`next_obs`).
    """
    sums, last, factors = n_step(fragment.rewards, fragment.terminated, fragment.ends, fragment.void, gamma, n)
    assert fragment.next_obs is not None
    following = fragment.next_obs[last, np.arange(sums.shape[1])]
    columns = {
        "obs": fragment.obs,
        "actions": fragment.actions,
        "rewards": sums,
        "next_obs": following,
        "factors": factors,
    }
    keep = ~fragment.void.ravel()
    return {name: one.reshape(-1, *one.shape[2:])[keep] for name, one in columns.items()}


class Ring:
    """The last `capacity` transitions, as one array for each name."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.arrays: dict[str, Array] = {}
        self.size = 0
        """The number of transitions in it."""
        self.at = 0
        """Where the next one will be written."""

    def add(self, columns: Mapping[str, Array]) -> Array:
        """Copy transitions in, (K, ...) for each name, and return their K places."""
        count = len(next(iter(columns.values())))
        if count > self.capacity:
            columns = {name: column[-self.capacity :] for name, column in columns.items()}
            count = self.capacity
        places = (self.at + np.arange(count)) % self.capacity
        for name, column in columns.items():
            if name not in self.arrays:
                self.arrays[name] = np.zeros((self.capacity, *column.shape[1:]), column.dtype)
            self.arrays[name][places] = column
        self.at = (self.at + count) % self.capacity
        self.size = min(self.capacity, self.size + count)
        return places

    def take(self, places: Array) -> dict[str, Array]:
        """Return copies of the transitions at these places."""
        return {name: array[places] for name, array in self.arrays.items()}

    def sample(self, count: int, rng: np.random.Generator) -> Array:
        """Return places drawn with equal probability, with replacement."""
        return rng.integers(0, self.size, count)


class SumTree:
    """Weights at places 0 to capacity - 1: their sum, and a place drawn in proportion, in log(capacity) steps.

    Schaul et al., 2016, "Prioritized experience replay", appendix B.2.1. All operations take batches.
    """

    def __init__(self, capacity: int) -> None:
        self.leaves = 1 << max(0, capacity - 1).bit_length()
        self.nodes = np.zeros(2 * self.leaves, np.float64)
        """Node k is the sum of 2k and 2k + 1; the root is 1."""

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return float(self.nodes[1])

    def set(self, places: Array, weights: Array) -> None:
        """Replace weights. Of a place that occurs twice the last one counts."""
        self.nodes[places + self.leaves] = weights
        nodes = np.unique((places + self.leaves) >> 1)
        while nodes.size and nodes[0] >= 1:
            self.nodes[nodes] = self.nodes[2 * nodes] + self.nodes[2 * nodes + 1]
            nodes = np.unique(nodes >> 1)

    def get(self, places: Array) -> Array:
        """Return weights."""
        found: Array = self.nodes[places + self.leaves]
        return found

    def find(self, sums: Array) -> Array:
        """Return for each number the first place at which the running sum of weights exceeds it."""
        sums = np.array(sums, np.float64)
        nodes = np.ones(len(sums), np.int64)
        while nodes.size and nodes[0] < self.leaves:
            nodes = 2 * nodes
            left = self.nodes[nodes]
            # Rounding must not lead below a node without weight.
            right = (sums >= left) & (self.nodes[nodes + 1] > 0)
            sums -= left * right
            nodes += right
        return nodes - self.leaves


class Prioritised(Ring):
    """A ring whose transitions are drawn in proportion to priority^alpha (Schaul et al., 2016, section 3.3)."""

    def __init__(self, capacity: int, alpha: float) -> None:
        super().__init__(capacity)
        self.tree = SumTree(capacity)
        self.alpha = alpha
        self.highest = 1.0
        """The largest priority so far: that of new transitions, so that each is replayed soon."""

    def add(self, columns: Mapping[str, Array], priorities: Array | None = None) -> Array:
        """Copy transitions in, with these priorities or the highest so far, and return their places."""
        places = super().add(columns)
        if priorities is None:
            priorities = np.full(len(places), self.highest)
        self.update(places, priorities[-len(places) :])
        return places

    def update(self, places: Array, priorities: Array) -> None:
        """Replace priorities: absolute errors, to which 1e-6 is added."""
        priorities = np.abs(priorities) + 1e-6
        self.highest = max(self.highest, float(priorities.max()))
        self.tree.set(places, priorities**self.alpha)

    def draw(self, count: int, beta: float, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return places, one from each of `count` equal parts of the sum, and their importance weights, at most 1.

        Section 3.4 there: w = (size * p)^-beta / max w.
        """
        sums = (np.arange(count) + rng.random(count)) * (self.tree.total / count)
        places = self.tree.find(sums)
        weights = (self.size * self.tree.get(places) / self.tree.total) ** -beta
        return places, (weights / weights.max()).astype(np.float32)
