"""Probe environments: a value or an action that an algorithm must find within a second, or it has a bug."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces


class Probe:
    """An environment with observations of one number, and two actions or one number as an action."""

    observation_space: Any = spaces.Box(-1, 1, (1,), np.float32)
    action_space: Any = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        return self.first(), {}

    def first(self) -> Any:
        return seen(0)


def seen(value: float) -> Any:
    return np.array([value], np.float32)


class OneStep(Probe):
    """A reward of 1, and the end: the value is 1."""

    def step(self, action: Any) -> Any:
        return seen(0), 1.0, True, False, {}


class ByObservation(Probe):
    """The reward is the observation: the value of 1 is 1, that of -1 is -1."""

    def first(self) -> Any:
        self.now = float(self.rng.choice([-1, 1]))
        return seen(self.now)

    def step(self, action: Any) -> Any:
        return seen(self.now), self.now, True, False, {}


class TwoSteps(Probe):
    """0, then 1, and a reward of 1 at the end: the values are gamma and 1."""

    def first(self) -> Any:
        self.at = 0
        return seen(0)

    def step(self, action: Any) -> Any:
        self.at += 1
        return seen(1), float(self.at == 2), self.at == 2, False, {}


class ByAction(Probe):
    """Action 1 has a reward of 1, action 0 of -1."""

    def step(self, action: Any) -> Any:
        return seen(0), 1.0 if action == 1 else -1.0, True, False, {}


class ByBoth(Probe):
    """The right action is that of the sign of the observation."""

    def first(self) -> Any:
        self.now = float(self.rng.choice([-1, 1]))
        return seen(self.now)

    def step(self, action: Any) -> Any:
        right = (action == 1) == (self.now > 0)
        return seen(self.now), 1.0 if right else -1.0, True, False, {}


class Forever(Probe):
    """A reward of 1 in each step, and a limit of time of two steps: the value is 1 / (1 - gamma)."""

    def first(self) -> Any:
        self.at = 0
        return seen(0)

    def step(self, action: Any) -> Any:
        self.at += 1
        return seen(0), 1.0, False, self.at == 2, {}


class NextEpisodePays(Probe):
    """Action 0 is rewarded by 0.2 at once, action 1 by 1 in the next episode, which is none of its business.

    Episodes of one step, ended by a limit of time. Where advantages flow over it, action 1 is learned.
    """

    debt = 0.0

    def step(self, action: Any) -> Any:
        reward = self.debt + 0.2 * (action == 0)
        self.debt = float(action == 1)
        return seen(0), reward, False, True, {}


class Aim(Probe):
    """A number is to be said: the reward is minus the squared distance to 0.5."""

    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def step(self, action: Any) -> Any:
        return seen(0), -float((action[0] - 0.5) ** 2), True, False, {}


class TwoSwitches(Probe):
    """The right action is (1, 2)."""

    action_space = spaces.MultiDiscrete([2, 3])

    def step(self, action: Any) -> Any:
        return seen(0), float(action[0] == 1) + float(action[1] == 2), True, False, {}
