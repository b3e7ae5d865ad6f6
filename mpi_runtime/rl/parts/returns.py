"""Returns and advantages of fragments: arrays of (T, N), float32, over time in the first axis."""

from __future__ import annotations

import numpy as np

from mpi_runtime.rl.parts.episodes import Fragment
from mpi_runtime.rl.parts.weights import Array


def following_values(fragment: Fragment) -> Array:
    """Return V(s') of each step: 0 after termination, the value of the last observation after truncation."""
    following = np.concatenate([fragment.values[1:], fragment.last_values[None]])
    ended = fragment.terminated | fragment.truncated
    return np.where(ended, fragment.final_values * ~fragment.terminated, following).astype(np.float32)


def gae(fragment: Fragment, gamma: float, lam: float) -> tuple[Array, Array]:
    """Return generalised advantages and their sums with the values, the targets of the value function.

    Schulman et al., 2016, "High-dimensional continuous control using generalized advantage estimation", equation 16:
    A(t) = sum over l of (gamma lambda)^l delta(t+l), delta(t) = r(t) + gamma V(s(t+1)) - V(s(t)), up to the end of the
    episode. `gamma` and `lam` are in [0, 1].
    """
    deltas = fragment.rewards + gamma * following_values(fragment) - fragment.values
    deltas[fragment.void] = 0.0
    advantages = _carried_back(deltas, (gamma * lam) * ~fragment.ends)
    return advantages, advantages + fragment.values


def _carried_back(deltas: Array, flows: Array) -> Array:
    """Return x with x(t) = delta(t) + flow(t) x(t+1), and 0 after the last step."""
    found = np.zeros_like(deltas)
    carried = np.zeros(deltas.shape[1], deltas.dtype)
    for t in range(len(deltas) - 1, -1, -1):
        carried = deltas[t] + flows[t] * carried
        found[t] = carried
    return found


def n_step(
    rewards: Array, terminated: Array, ends: Array, void: Array, gamma: float, n: int
) -> tuple[Array, Array, Array]:
    """Return for each step the sum of up to n discounted rewards, its last step, and the factor of the next value.

    Sutton and Barto, 2018, equation 7.1. The sum ends with the episode (`ends`), before a void step, or with the
    fragment. The target is sum + factor * V(observation after the last step); the factor is gamma^k, or 0 after
    termination. All are (T, N); the last steps are indices into the first axis.
    """
    steps = len(rewards)
    sums = np.zeros(rewards.shape, np.float32)
    last = np.zeros(rewards.shape, np.int64)
    factors = np.zeros(rewards.shape, np.float32)
    for t in range(steps):
        alive = np.ones(rewards.shape[1], bool)
        last[t] = t
        weight = 1.0
        for k in range(t, min(t + n, steps)):
            if k > t:
                alive &= ~void[k]
            sums[t] += weight * rewards[k] * alive
            last[t][alive] = k
            weight *= gamma
            factors[t][alive] = weight
            factors[t][alive & terminated[k]] = 0.0
            alive &= ~ends[k]
    return sums, last, factors


def vtrace(
    fragment: Fragment, ratios: Array, gamma: float, rho_max: float = 1.0, c_max: float = 1.0
) -> tuple[Array, Array]:
    """Return corrected value targets and policy advantages of a fragment that an older policy has sampled.

    Espeholt et al., 2018, "IMPALA", equation 1 and the policy gradient of section 4.2. `ratios` are pi(a) / mu(a), with
    mu the policy that has sampled; `rho_max` and `c_max` bound them.
    """
    rhos, cs = np.minimum(rho_max, ratios), np.minimum(c_max, ratios)
    following = following_values(fragment)
    deltas = rhos * (fragment.rewards + gamma * following - fragment.values)
    deltas[fragment.void] = 0.0
    targets = fragment.values + _carried_back(deltas, gamma * cs * ~fragment.ends)
    later = np.concatenate([targets[1:], fragment.last_values[None]])
    later = np.where(fragment.ends, following, later)
    advantages = rhos * (fragment.rewards + gamma * later - fragment.values)
    advantages[fragment.void] = 0.0
    return targets.astype(np.float32), advantages.astype(np.float32)
