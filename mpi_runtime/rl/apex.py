"""Ape-X: Horgan et al., 2018, "Distributed prioritized experience replay".

Samplers run freely, each with an epsilon of its own, and send rows with first priorities. The learner takes rows as
they arrive, and updates double duelling DQN. Neither outruns the other: the replay ratio is a parameter, and is held.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

import mpi_runtime
from mpi_runtime.rl.dqn import DQN, DQNParameters
from mpi_runtime.rl.sampler import ReplaySampler, Weights


@dataclass(frozen=True)
class ApeXParameters(DQNParameters):
    """Parameters of Ape-X: DQN's, with the paper's defaults where they differ."""

    num_samplers: int = 2
    """As in `Common`."""
    double: bool = True
    """Whether the network chooses the action whose value the target network gives."""
    duelling: bool = True
    """Whether the network has heads for value and advantages."""
    prioritised: bool = True
    """Whether rows with large errors are drawn more often."""
    n: int = 3
    """Steps in a target."""
    fragment: int = 50
    """Steps of each environment between two messages of a sampler; B in algorithm 1 there."""
    replay_ratio: float = 8.0
    """Rows that are learned from, for each step of environments. Held: the slower side is waited for."""
    target_update: int = 2500
    """As in `DQNParameters`."""
    learning_starts: int = 1000
    """As in `DQNParameters`."""


def epsilons(count: int) -> tuple[float, ...]:
    """Return the epsilon of each sampler: 0.4^(1 + 7 i / (N - 1)), section 4 there."""
    return tuple(0.4 ** (1 + 7 * i / max(1, count - 1)) for i in range(count))


class ApeX(DQN):
    """Distributed prioritised replay, for discrete actions."""

    name = "ApeX"
    Parameters = ApeXParameters
    sampler = ReplaySampler

    def iterate(self) -> dict[str, float]:
        p, end = self.parameters, self.timesteps + self.parameters.steps_per_iteration
        figures: dict[str, float] = {}
        ref = self._published()
        for index in self.samplers.idle():
            self.samplers.start(index, ref, p.fragment)
        since, lags = self.timesteps, []
        while self.timesteps < end:
            started = time.perf_counter()
            index, found = self.samplers.next()
            self.sample_seconds += time.perf_counter() - started
            self.count(found.counts)
            lags.append(self.version - found.counts.version)
            self.replay.add(found.columns, found.priorities)
            if self.timesteps - since >= p.fragment * p.num_envs:
                ref, since = self._published(), self.timesteps
            self.samplers.start(index, ref, p.fragment)
            if self.timesteps - self.target_at >= p.target_update:
                self.move_target(p.tau)
                self.target_at = self.timesteps
            # Section 3: the learner must not starve, nor the replay become stale. So neither side runs ahead.
            due = (self.timesteps - p.learning_starts) * p.replay_ratio / p.batch_size
            while self.updates < due:
                figures = self.update()
        return {**figures, "replay_ratio": self.updates * p.batch_size / self.timesteps, "lag": float(np.mean(lags))}

    def _published(self) -> mpi_runtime.ObjectRef[Weights]:
        """Store the weights once for all samplers."""
        return mpi_runtime.put(self.weights(*epsilons(self.parameters.num_samplers)))
