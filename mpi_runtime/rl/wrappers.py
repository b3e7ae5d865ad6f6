"""Wrappers for Atari: preprocessing and frame stack of gymnasium, clipped rewards, and a life as an episode."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpi_runtime.errors.optional import load
from mpi_runtime.rl.envs import Env


def atari(env: str, *, render_mode: str | None = None, episodic_life: bool = True, clip_reward: bool = True) -> Env:
    """Make an Atari game as DQN saw it: Mnih et al., 2015, "Human-level control", methods.

    Frames of 84 x 84, the maximum of two, each action for four frames, up to 30 no-ops at the start, the last four
    frames stacked.

    Args:
        env: an id, such as "ALE/Pong-v5".
        render_mode: as in `gymnasium.make`.
        episodic_life: whether a lost life ends an episode. Only for training.
        clip_reward: whether rewards are -1, 0 or 1. Only for training.

    Raises:
        ImportError: ale-py is missing.
    """
    ale_py, gymnasium = load("rl.atari", "ale_py", "ale-py"), load("rl.atari", "gymnasium")
    gymnasium.register_envs(ale_py)
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # else each game greets on standard error
    made = gymnasium.make(env, render_mode=render_mode, frameskip=1)
    made = gymnasium.wrappers.AtariPreprocessing(made, terminal_on_life_loss=False)
    if episodic_life:
        made = EpisodicLife(made)
    if clip_reward:
        made = gymnasium.wrappers.TransformReward(made, lambda reward: float(np.sign(reward)))
    return gymnasium.wrappers.FrameStackObservation(made, 4)


def EpisodicLife(env: Env) -> Env:  # used like a class
    """Wrap an Atari game so that a lost life ends an episode; the game itself is reset only when it is over."""
    import gymnasium

    class Wrapper(gymnasium.Wrapper):  # type: ignore[misc]
        lives = 0
        is_over = True

        def reset(self, **keywords: object) -> Any:
            if self.is_over or keywords.get("seed") is not None:
                found = self.env.reset(**keywords)
            else:
                observation, _, terminated, truncated, info = self.env.step(0)
                found = self.env.reset() if terminated or truncated else (observation, info)
            self.is_over, self.lives = False, self.env.unwrapped.ale.lives()
            return found

        def step(self, action: object) -> Any:
            observation, reward, terminated, truncated, info = self.env.step(action)
            self.is_over = terminated or truncated
            lives = self.env.unwrapped.ale.lives()
            lost, self.lives = 0 < lives < self.lives, lives
            return observation, reward, terminated or lost, truncated, info

    return Wrapper(env)
