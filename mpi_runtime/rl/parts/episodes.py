"""Fragments of experience: T steps of N environments, and where episodes end in them.

An episode ends by *termination* (a state without a future) or by *truncation* (a limit of time): the value of the last
observation of a truncated episode is a part of its return, that of a terminated one is not (Pardo et al., 2018,
"Time limits in reinforcement learning", section 2).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mpi_runtime.rl.parts.weights import Array

WINDOW = 100
"""The number of finished episodes in the statistics."""


@dataclass
class Fragment:
    """T steps of N environments. Arrays are (T, N, ...) unless said otherwise; those from the store are read-only."""

    obs: Array
    actions: Array
    rewards: Array
    """float32, as the algorithm sees them."""
    terminated: Array
    truncated: Array
    void: Array
    """Steps that are not a transition: an environment was reset in them, or has failed."""
    last_obs: Array
    """(N, ...): the observation after the last step."""
    logp: Array
    """Log-probabilities of the actions when they were drawn."""
    values: Array
    final_values: Array
    """The value of the last observation of an episode that is truncated in this step, else 0."""
    last_values: Array
    """(N,): the value of `last_obs`."""
    next_obs: Array | None = None
    """The observation after each step, at the end of an episode its last one. Only for algorithms with replay."""
    returns: list[float] = field(default_factory=list)
    """Undiscounted returns of the episodes that ended here, as the environment gave the rewards."""
    lengths: list[int] = field(default_factory=list)
    version: int = 0
    """The number of the weights that were used."""
    seconds: float = 0.0
    """CPU seconds of sampling."""
    failures: int = 0
    """Environments of this sampler that were replaced so far."""
    moments: Any = None
    """What the observations of this fragment add to the normaliser."""

    @property
    def steps(self) -> int:
        """The number of environment steps."""
        return int(self.rewards.size)

    def counts(self) -> Fragment:
        """Return the fragment without its observations."""
        return replace(self, obs=np.zeros((0, *self.obs.shape[1:]), self.obs.dtype), next_obs=None)

    @property
    def ends(self) -> Array:
        """Where no value flows to the next step."""
        ended: Array = self.terminated | self.truncated | self.void
        return ended


def joined(fragments: Sequence[Fragment]) -> Fragment:
    """Return fragments of equal length side by side, as one with more environments; a single one as it is."""
    if len(fragments) == 1:
        return fragments[0]
    wide = ("obs", "actions", "rewards", "terminated", "truncated", "void", "logp", "values", "final_values")
    arrays = {name: np.concatenate([getattr(one, name) for one in fragments], axis=1) for name in wide}
    narrow = {name: np.concatenate([getattr(one, name) for one in fragments]) for name in ("last_obs", "last_values")}
    following = [one.next_obs for one in fragments if one.next_obs is not None]
    return Fragment(
        **arrays,
        **narrow,
        next_obs=np.concatenate(following, axis=1) if following else None,
        returns=[value for one in fragments for value in one.returns],
        lengths=[value for one in fragments for value in one.lengths],
        version=min(one.version for one in fragments),
        seconds=sum(one.seconds for one in fragments),
        failures=sum(one.failures for one in fragments),
    )


@dataclass
class Episodes:
    """Statistics of the last episodes that ended. At the beginning they favour short ones, which end first."""

    returns: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    lengths: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW))
    total: int = 0

    def add(self, returns: Sequence[float], lengths: Sequence[int]) -> None:
        """Count these episodes."""
        self.returns.extend(returns)
        self.lengths.extend(lengths)
        self.total += len(returns)

    def summary(self) -> dict[str, float]:
        """Return the statistics with RLlib's keys; NaN before the first end of an episode."""
        nan = float("nan")
        has = bool(self.returns)
        return {
            "episode_reward_mean": float(np.mean(self.returns)) if has else nan,
            "episode_reward_min": float(min(self.returns)) if has else nan,
            "episode_reward_max": float(max(self.returns)) if has else nan,
            "episode_len_mean": float(np.mean(self.lengths)) if has else nan,
            "episodes_total": self.total,
        }
